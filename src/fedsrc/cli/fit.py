"""`fedsrc fit`: a score fitted on labelled development answers, frozen in a folder with what it was fitted on."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import click
import polars as pl

from fedsrc.cli.options import FORMAT, LEDGER, MODEL, options
from fedsrc.cli.output import show
from fedsrc.cli.streams import say
from fedsrc.cli.table import note_used_up
from fedsrc.cli.types import FilePath, FolderPath
from fedsrc.common.canonical import file_digest
from fedsrc.data.answers import read_answers
from fedsrc.scores.fitted.combine import PENALTY as COMBINATION_PENALTY
from fedsrc.scores.fitted.finetune import Training
from fedsrc.scores.fitted.fit import DEPTH, TAKES, check_choices, fit_answers
from fedsrc.scores.fitted.franq import DEFAULT as FRANQ_SUPPORT
from fedsrc.scores.fitted.franq import SUPPORT
from fedsrc.scores.fitted.frozen import FrozenScore, Kind, refuse_existing
from fedsrc.scores.fitted.probe import PENALTY as PROBE_PENALTY
from fedsrc.scores.fitted.probe import WIDTH
from fedsrc.scores.models.backends import open_model

CALLED = {
    "combination": "a combination",
    "probe": "a probe",
    "detector": "a detector",
    "mechanistic": "a mechanistic score (ReDeEP-style, not its authors' configuration)",
    "franq": "FRANQ (with scores at hand for its authors')",
}
ABOUT_PENALTY = f"Penalty that pulls weights to zero.  [default: {COMBINATION_PENALTY:g}; probe {PROBE_PENALTY:g}]"
ABOUT_SUPPORT = f"Score that FRANQ takes for faithfulness.  [default: {FRANQ_SUPPORT}]"
ABOUT_LAYER = f"Layer of a probe.  [default: at {DEPTH:g} of the model's depth]"
ABOUT_CROSS = "Estimate the detector's AUC too: five more trainings."


@click.command("fit")
@click.argument("answers", type=FilePath)
@click.option("-o", "--output", "target", type=FolderPath, required=True, help="The folder to write.")
@click.option("--kind", type=click.Choice(get_args(Kind)), required=True, help="What to fit.")
@options(MODEL)
@click.option("--support", type=click.Choice(SUPPORT), help=ABOUT_SUPPORT)
@click.option("--layer", type=click.IntRange(0), help=ABOUT_LAYER)
@click.option("--width", type=click.IntRange(1), help=f"Tokens of the window that decides.  [default: {WIDTH}]")
@click.option("--penalty", type=click.FloatRange(0, min_open=True), help=ABOUT_PENALTY)
@click.option("--epochs", type=click.IntRange(1), help=f"Passes of a detector.  [default: {Training.epochs}]")
@click.option("--cross-validate", is_flag=True, default=None, help=ABOUT_CROSS)
@LEDGER
@FORMAT
def fit_command(
    answers: Path, target: Path, kind: Kind, model: str | None, ledger: Path | None, output: str, **given: Any
) -> None:
    """Fit a score on labelled ANSWERS of development sources, and freeze it in a folder.

    The folder names every source and text of evidence by a fingerprint, and `fedsrc score` refuses to score them with
    it: answers that calibrate or evaluate must come from other sources. The ledger notes their ids and sources too.
    A fitted score is a function of its answers, without noise: no privacy covers them.
    """
    chosen = {name: given[name] for name in set().union(*TAKES.values()) if given[name] is not None}
    check_choices(kind, chosen, model=model is not None)
    refuse_existing(target)
    read, sha256 = read_answers(answers), file_digest(answers)
    named = pl.DataFrame({"id": [each.id for each in read], "source": [each.source for each in read]})
    note_used_up(answers, ledger, sha256, named)
    how = {name: given[name] for name in ("revision", "device", "dtype", "batch_tokens")}
    local = open_model(model, **how) if model else None
    fitted = fit_answers(kind, read, local, batch_tokens=given["batch_tokens"], tell=say, **chosen)
    kept = fitted.freeze(target, read, sha256)
    show(output, _summary(kept), *_lines(kept))


def _summary(kept: FrozenScore) -> dict[str, Any]:
    training = kept.document.training
    counts = {name: getattr(training, name) for name in ("answers", "sources", "unsupported", "auc")}
    return {**kept.identity, "folder": str(kept.folder), **counts, "settings": training.settings}


def _lines(kept: FrozenScore) -> list[str]:
    training = kept.document.training
    sure = "" if training.auc is None else f" AUC {training.auc:.3f} on sources it had not seen (0.5 is chance)."
    return [
        f"Fitted {CALLED[kept.kind]} on {training.answers:,} answers of {training.sources:,} sources.{sure}",
        f"Wrote {kept.folder}. Next: fedsrc score ANSWERS --score {kept.folder}, with answers of other sources.",
    ]
