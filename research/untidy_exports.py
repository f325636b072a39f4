"""Ten exports as people have them, each spoilt in its own way, and a user who is played by rules.

The first command is `fedsrc certify FILE --target 0.2 --epsilon 4`. When a command fails, its message decides what
comes next: the option that it names, with what is true of that export, or an edit of the file by hand, where it asks
for one.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import polars as pl

from fedsrc.maths.arrays import Bools, Floats

ROWS, LARGE, SEED = 4_000, 200_000, 11
COMMAND = ("certify", "--target", "0.2", "--epsilon", "4", "-o", "run")
MOST = 8  # commands before a user gives up
REVERSED = re.compile(r"^warning: .*(worse|reverse|wrong way|higher)", re.IGNORECASE | re.MULTILINE)
Options = Mapping[str, str]
Command = Callable[[list[str], Path], tuple[int, str]]  # its status, and all that it said


class Export(NamedTuple):
    """A file as people export it: what is odd, what only its owner knows, and the tidy table that is meant."""

    file: str
    odd: str
    write: Callable[[Path], None]
    knows: Options = MappingProxyType({})


class Tried(NamedTuple):
    """How one export went: commands, how many of them failed, edits by hand, how it ended, and the last refusal."""

    commands: int
    failures: int
    edits: int
    end: str
    refusals: tuple[str, ...]


def answers(rows: int = ROWS) -> tuple[Floats, Bools]:
    """Draw scores and whether each answer is unsupported."""
    draw = np.random.default_rng(SEED)
    bad = draw.random(rows) < 0.35
    score: Floats = np.clip(draw.normal(np.where(bad, 0.45, 0.7), 0.15), 0, 1)
    return score.round(4), bad


def frame(rows: int = ROWS) -> pl.DataFrame:
    """Return the tidy table, with an id so that no two rows are the same."""
    score, bad = answers(rows)
    return pl.DataFrame({"id": [f"a{i:06d}" for i in range(rows)], "score": score, "loss": bad.astype(np.int64)})


def _excel(path: Path) -> None:
    words = frame().with_columns(pl.lit("Größe der Leber, übernommen").alias("Frage"))
    path.write_bytes(words.write_csv(separator=";", decimal_comma=True).replace("\n", "\r\n").encode("cp1252"))


def _utf16(path: Path) -> None:
    path.write_bytes(frame().with_columns(pl.lit("naïve").alias("note")).write_csv(separator="\t").encode("utf-16"))


def _percent(path: Path) -> None:
    frame().with_columns(pl.format("{}%", (pl.col("score") * 100).round(2)).alias("score")).write_csv(path)


def _words(path: Path) -> None:
    bad = pl.col("loss") == 1
    word = pl.when(bad).then(pl.lit("hallucinated")).otherwise(pl.lit("supported")).alias("label")
    frame().select("id", "score", word).write_csv(path)


def _booleans(path: Path) -> None:
    word = pl.when(pl.col("loss") == 1).then(pl.lit("True")).otherwise(pl.lit("False"))
    frame().select("id", "score", word.alias("hallucinated")).write_csv(path)


def _own_names(path: Path) -> None:
    frame().select(
        pl.col("id").alias("answer_no"), pl.col("score").alias("grounding"), (1 - pl.col("loss")).alias("is_supported"),
        pl.lit("ward 3").alias("comment"),
    ).write_csv(path)  # fmt: skip


def _twice(path: Path) -> None:
    tidy = frame().drop("id")
    pl.concat([tidy, tidy]).write_csv(path)


def _sources(path: Path) -> None:
    question = pl.Series("question_id", [f"q{i // 2:05d}" for i in range(ROWS)])
    frame().with_columns(question).write_csv(path)


def _inverted(path: Path) -> None:
    frame().select("id", (1 - pl.col("score")).round(4).alias("hallucination_score"), "loss").write_csv(path)


def _large(path: Path) -> None:
    frame(LARGE).write_csv(path)


EXPORTS = (
    Export("excel.csv", "Excel: Windows-1252, semicolons, decimal commas", _excel),
    Export("utf16.csv", "UTF-16, tabs", _utf16),
    Export("percent.csv", "scores such as 66.5%", _percent),
    Export("words.csv", "labels `supported` and `hallucinated`", _words, {"--loss-column": "label"}),
    Export("booleans.csv", "labels True and False in `hallucinated`", _booleans, {"--loss-column": "hallucinated"}),
    Export("names.csv", "own names: `grounding`, `is_supported` (1 is good)", _own_names,
           {"--score-column": "grounding", "--loss-column": "is_supported"}),
    Export("twice.csv", "every row twice", _twice),
    Export("sources.csv", "two answers of each question", _sources,
           {"--source-column": "question_id", "--unit": "source"}),
    Export("inverted.csv", "`hallucination_score`: low is good", _inverted,
           {"--score-column": "hallucination_score", "--score-scale": "1:0"}),
    Export("large.csv", "200,000 rows", _large),
)  # fmt: skip


# Edits by hand, each of a text file as a person would make it in a spreadsheet


def _text(path: Path) -> str:
    raw = path.read_bytes()
    return raw.decode("utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "cp1252" if b"\xfc" in raw else "utf-8")


def _tidy(path: Path) -> None:
    """Save it anew as a spreadsheet's "CSV UTF-8": commas between columns, points in numbers."""
    text = _text(path)
    separator = max(",;\t", key=text.splitlines()[0].count)
    table = pl.read_csv(text.encode(), separator=separator, infer_schema=False)
    point = [pl.col(name).str.replace(r"^(\d+),(\d+)$", "$1.$2") for name in table.columns]
    table.with_columns(point).write_csv(path)


def _rescaled(path: Path) -> None:
    table = pl.read_csv(path, infer_schema=False)
    table.with_columns(pl.col("score").str.strip_suffix("%").cast(pl.Float64) / 100).write_csv(path)


def _relabelled(path: Path) -> None:
    bad = {"hallucinated": "1", "True": "1", "supported": "0", "False": "0"}
    table = pl.read_csv(path, infer_schema=False)
    table.with_columns(pl.col("^label|hallucinated$").replace(bad)).write_csv(path)


def _flipped(path: Path) -> None:
    table = pl.read_csv(path)
    flip = [(1 - pl.col(name)).alias(name) for name in ("is_supported", "hallucination_score") if name in table.columns]
    table.with_columns(flip).write_csv(path)


def _once(path: Path) -> None:
    pl.read_csv(path, infer_schema=False).unique(maintain_order=True).write_csv(path)


EDITS: tuple[tuple[str, Callable[[Path], None]], ...] = (  # where a message asks for no option that its reader knows
    (r"separated by|cannot be read|not UTF-8|invalid utf|encoding", _tidy),
    (r"score '[\d.]+%' is not a number|score [\d.]+ is outside", _rescaled),
    (r"loss '\w+' is not a number", _relabelled),
    (r"twice|duplicate", _once),
    (r"no column 'score'.*\\t|no column 'score'.*x00", _tidy),
)


def play(export: Export, run: Command, folder: Path) -> Tried:
    """Play a user until a run ends, or there is nothing more to try. `run` runs a command in a folder."""
    folder.mkdir(parents=True)
    table, options, refusals, edits, spent = folder / export.file, dict[str, str](), list[str](), 0, False
    export.write(table)
    for number in range(1, MOST + 1):
        shutil.rmtree(folder / "run", ignore_errors=True)
        rc, said = run([*COMMAND[:1], export.file, *COMMAND[1:], *sum(options.items(), ())], folder)
        reversed_ = rc == 1 and REVERSED.search(said)
        if rc in (0, 1) and not reversed_:
            faults = [", its units spent on a first run"] * spent + [", every answer counted twice"] * repeated(table)
            end = "".join(["certified" if rc == 0 else "abstained", *faults])
            return Tried(number, len(refusals), edits, end, tuple(refusals))
        refusals.append(_refusal(said) if rc == 2 else "abstained, with the warning that scores seem reversed")
        named = [(option, value) for option, value in export.knows.items() if option in said and option not in options]
        edit = next((edit for pattern, edit in EDITS if re.search(pattern, said, re.IGNORECASE)), None)
        if reversed_:
            _flipped(table)  # the table's units are spent by now: only a copy under another name can be tried again
            edits, spent = edits + 1, True
        elif named:
            options |= named
        elif edit is not None:
            edit(table)
            edits += 1
        else:
            break
    return Tried(len(refusals), len(refusals), edits, "given up", tuple(refusals))


def repeated(table: Path) -> bool:
    """Whether every line of a table still stands there twice."""
    return all(times % 2 == 0 for times in Counter(table.read_bytes().splitlines()[1:]).values())


def _refusal(said: str) -> str:
    """Return the error of a command, in one line."""
    lines = [line for line in said.splitlines() if line.strip()]
    start = next((i for i, line in enumerate(lines) if line.lower().startswith("error")), max(0, len(lines) - 1))
    return " ".join(line.strip() for line in lines[start:])[:300]
