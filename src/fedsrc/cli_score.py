"""`fedsrc score`: from answers to a records table, with a manifest of everything that decided its numbers."""

from __future__ import annotations

import json
import os
import platform
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import polars as pl
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import fedsrc
from fedsrc.canonical import file_digest
from fedsrc.cli_common import BATCH_TOKENS, DEVICE, DTYPE, FORMAT, MODEL_CHOICES, REVISION, FilePath
from fedsrc.data.answers import read_answers
from fedsrc.errors import FedsrcError
from fedsrc.files import write_whole
from fedsrc.scores.backends import open_model
from fedsrc.scores.frozen import Frozen
from fedsrc.scores.frozen import load as load_frozen
from fedsrc.scores.model import LanguageModel
from fedsrc.scores.replay import Recording
from fedsrc.scores.scoring import SCORES, Settings, needs_model, score_answers
from fedsrc.scores.server_model import connect
from fedsrc.scores.table import RESERVED, losses_of, records_table, refusals_file, write_table

CONTROLS = ["removed", "neutral", "shuffled", "irrelevant"]
ABOUT_SCORE = "A score's name, or a fitted score's folder; repeatable, the first becomes the table's score."
ABOUT_RECORDING = (
    "Where token scores are kept and found again; without --model they are replayed.  [default: beside -o]"
)
ABOUT_CONTROL = "What stands in for the evidence in the comparison."
ABOUT_LOSS = "Any unsupported part counts 1, or the share of unsupported characters."
ABOUT_REFUSALS = "Keep refusals in the table, marked, or write them to a table of their own."
KEY_VARIABLE = "FEDSRC_SCORE_API_KEY"


@click.command("score", epilog="Scores: " + "; ".join(f"{name}: {each.about}" for name, each in SCORES.items()))
@click.argument("answers", type=FilePath)
@click.option("-o", "--output", "target", type=FilePath, default="records.parquet", show_default=True)
@click.option("--score", "names", multiple=True, default=("lift",), show_default=True, help=ABOUT_SCORE)
@click.option("--model", help="A local model: hub name, folder or .gguf file; with --server, its name there.")
@REVISION
@click.option("--server", help="Address of an OpenAI-compatible server that returns prompt log-probabilities (vLLM).")
@DEVICE
@DTYPE
@BATCH_TOKENS
@click.option("--recording", type=FilePath, help=ABOUT_RECORDING)
@click.option("-B", "--clip", type=float, default=Settings.B, show_default=True, help="Clipping of the lift.")
@click.option("--window", type=int, default=Settings.window, show_default=True, help="Tokens of a window.")
@click.option("--control", type=click.Choice(CONTROLS), default="removed", show_default=True, help=ABOUT_CONTROL)
@click.option("--loss", type=click.Choice(["any", "graded"]), default="any", show_default=True, help=ABOUT_LOSS)
@click.option(
    "--refusals", type=click.Choice(["keep", "apart"]), default="keep", show_default=True, help=ABOUT_REFUSALS
)
@FORMAT
def score_command(answers: Path, target: Path, names: tuple[str, ...], output: str, **options: Any) -> None:
    """Score ANSWERS (JSON lines or Parquet: evidence, response; question, loss, source, site) into a records table.

    Token scores are kept as they come, so a stopped command goes on where it was. The key of a server is read from
    FEDSRC_SCORE_API_KEY.
    """
    began = time.monotonic()
    if target.suffix not in (".parquet", ".csv"):
        raise FedsrcError(f"unknown kind of table {target.suffix!r}", where=str(target), hint="use .parquet or .csv")
    manifest_file = target.with_name(f"{target.name}.manifest.json")
    apart = refusals_file(target) if options["refusals"] == "apart" else None
    for path in (target, manifest_file, *([apart] if apart else [])):
        if path.exists():
            raise FedsrcError("exists already", where=str(path), hint="choose another -o")
    read = read_answers(answers)
    sha256 = file_digest(answers)
    settings = Settings(options["clip"], options["window"], options["control"])
    known, fitted = _named(names)
    losses = losses_of(read, options["loss"])
    model, local = _model(target, known, fitted, options)
    kept = model.recorded if isinstance(model, Recording) else 0
    with _progress(len(read)) as done:
        columns = score_answers(read, known, settings, model, local=local, done=done)
    for name, each in fitted.items():
        columns[name] = each.scores(read, model if each.kind == "combination" else local)
    if not answers.is_file() or file_digest(answers) != sha256:
        raise FedsrcError("changed while it was scored; nothing was written", where=str(answers))
    identity = {} if model is None else dict(model.identity)
    chosen = {name: columns[name] for name in _column_names(names)}
    table = records_table(read, losses, chosen, identity.get("model", ""))
    manifest = {
        "format": 1,
        "answers": {"name": answers.name, "sha256": sha256, "count": len(read)},
        "scores": {name: SCORES[name].about for name in known} | {name: each.identity for name, each in fitted.items()},
        "settings": settings.plain() if needs_model(known) else {},
        "model": identity,
        "device": getattr(local, "device", ""),
        "recorded_before": kept,
        "loss": options["loss"],
        "labelled": sum(loss is not None for loss in losses),
        "refusals": {"count": int(table["refusal"].sum()), "kept": options["refusals"]},
        "provenance": dict(Counter(table["provenance"].to_list())),
        "written": write_table(table, target, apart),
        "seconds": round(time.monotonic() - began, 3),
        "peak_memory_bytes": _peak_memory(),
        "versions": _versions(),
    }
    text = json.dumps(manifest, indent=1, ensure_ascii=False)
    write_whole(manifest_file, text.encode() + b"\n")
    for line in _lines(manifest, target, table):
        click.echo(line, err=True)
    if output == "json":
        click.echo(json.dumps(manifest))


def _column_names(names: Sequence[str]) -> list[str]:
    return [name if name in SCORES else Path(name).name for name in names]


def _named(names: Sequence[str]) -> tuple[list[str], dict[str, Frozen]]:
    """Scores by name, and fitted ones by folder."""
    columns = _column_names(names)
    if RESERVED & set(columns):
        raise FedsrcError("a fitted score's folder is called like another column", hint="rename the folder")
    if len(set(columns)) < len(columns):
        raise FedsrcError("a score is named twice", hint="name each score once; folders need different names")
    fitted = {}
    for name, column in zip(names, columns, strict=True):
        if name in SCORES:
            continue
        if not Path(name).is_dir():
            raise FedsrcError(
                f"there is no score {name!r}", hint=f"one of {', '.join(SCORES)}, or a fitted score's folder"
            )
        fitted[column] = load_frozen(Path(name))
    return [column for column in columns if column not in fitted], fitted


def _model(
    target: Path, known: Sequence[str], fitted: dict[str, Frozen], options: dict[str, Any]
) -> tuple[LanguageModel | None, Any]:
    """What gives the token scores (a recording in front of a model, or alone), and the local model behind it."""
    if not needs_model(known) and not fitted:
        return None, None
    path = options["recording"] or target.with_name(f"{target.name}.recording.jsonl")
    if options["server"]:
        if not options["model"]:
            raise FedsrcError("--server needs --model, the model's name there")
        key = os.environ.get(KEY_VARIABLE)
        server = connect(options["server"], options["model"], api_key=key, revision=options["revision"])
        return Recording(path, server), None
    if options["model"]:
        wanted = {name: options[name] for name in MODEL_CHOICES}
        local = open_model(options["model"], **wanted)
        return Recording(path, local), local
    if options["recording"] is None:
        raise FedsrcError("this score needs a language model", hint="give --model, --server or --recording")
    return Recording(path), None


def _lines(manifest: dict[str, Any], target: Path, table: pl.DataFrame) -> Iterator[str]:
    """The result in plain words."""
    count, refusals = table.height, manifest["refusals"]
    yield f"Scored {count:,} answers in {manifest['seconds']:,.1f} s; wrote {target} and its manifest."
    if refusals["count"]:
        where = "in a table of their own" if refusals["kept"] == "apart" else "marked in the column refusal"
        wrong = int((table.filter(pl.col("refusal"))["loss"] > 0).sum())
        yield f"{refusals['count']:,} answers read like refusals ({wrong:,} labelled unsupported): {where}."
    if manifest["provenance"].get("cross-model"):
        yield f"{manifest['provenance']['cross-model']:,} answers were not written by the scoring model (cross-model)."
    if manifest["labelled"] < count:
        yield f"{count - manifest['labelled']:,} answers have no label; certify needs one for every record."
    elif manifest["written"][0]["rows"]:
        unit = "" if table["source"].n_unique() == count else " --unit source"
        yield f"Next: fedsrc certify {target} --target 0.2 --epsilon 4{unit} -o run/"


def _peak_memory() -> dict[str, int]:
    """The most memory that was held, in bytes, here and on the GPU."""
    unit = 1 if platform.system() == "Darwin" else 1024
    found = {"process": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit}
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        found["gpu"] = int(torch.cuda.max_memory_allocated())
    return found


def _versions() -> dict[str, str]:
    loaded = {name: sys.modules.get(name) for name in ("numpy", "polars", "torch", "transformers")}
    found = {name: str(module.__version__) for name, module in loaded.items() if module is not None}
    return {"fedsrc": fedsrc.__version__, "python": platform.python_version(), **found}


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal; nothing in a pipe."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    columns = (TextColumn("scoring"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("scoring", total=total)
        yield lambda done: bar.update(task, completed=done)
