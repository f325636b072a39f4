"""`fedsrc fit`: a score fitted on labelled development answers, frozen in a folder with what it was fitted on."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import polars as pl

from fedsrc.cli.options import (
    BATCH_TOKENS,
    DEVICE,
    DTYPE,
    FORMAT,
    LEDGER,
    MODEL_CHOICES,
    REVISION,
    FilePath,
    FolderPath,
)
from fedsrc.cli.streams import say
from fedsrc.cli.table import ledger_of
from fedsrc.common.canonical import file_digest
from fedsrc.data.answers import Answer, read_answers
from fedsrc.errors import FedsrcError
from fedsrc.records.rows import tidy
from fedsrc.records.units import Names
from fedsrc.scores.fitted.combine import PENALTY as COMBINATION_PENALTY
from fedsrc.scores.fitted.finetune import Training
from fedsrc.scores.fitted.fit import (
    Fitted,
    fitted_combination,
    fitted_detector,
    fitted_franq,
    fitted_mechanistic,
    fitted_probe,
)
from fedsrc.scores.fitted.franq import DEFAULT as FRANQ_SUPPORT
from fedsrc.scores.fitted.franq import SUPPORT
from fedsrc.scores.fitted.frozen import Frozen, refuse_existing
from fedsrc.scores.fitted.probe import PENALTY as PROBE_PENALTY
from fedsrc.scores.fitted.probe import WIDTH
from fedsrc.scores.models.backends import open_model
from fedsrc.scores.models.model import LanguageModel
from fedsrc.scores.models.transformers_model import TransformersModel
from fedsrc.scores.recordings.replay import Recording
from fedsrc.scores.recordings.signal_recording import SignalRecording, beside
from fedsrc.site.ledger import Ledger
from fedsrc.site.site import note_used

CALLED = {
    "combination": "a combination",
    "probe": "a probe",
    "detector": "a detector",
    "mechanistic": "a mechanistic score (ReDeEP-style, not its authors' configuration)",
    "franq": "FRANQ (with scores at hand for its authors')",
}
ONLY = {
    "layer": ("probe",),
    "width": ("probe", "detector"),
    "penalty": ("combination", "probe"),
    "recording": ("combination", "mechanistic", "franq"),
    "support": ("franq",),
    "epochs": ("detector",),
    "cross_validate": ("detector",),
}
DEPTH = 0.6  # where the default layer lies
TRAINING_TOKENS = {"cpu": 2048, "cuda": Training.batch_tokens}  # a training step holds more memory than a forward pass
ABOUT_PENALTY = f"Pull of the weights to zero.  [default: {COMBINATION_PENALTY:g}; probe {PROBE_PENALTY:g}]"
ABOUT_RECORDING = "Where token scores are kept and found again; mechanistic signals are kept beside it."
ABOUT_SUPPORT = f"Score that FRANQ takes for faithfulness.  [default: {FRANQ_SUPPORT}]"
ABOUT_CROSS = "Estimate the detector's AUC too: five more trainings."


@click.command("fit")
@click.argument("answers", type=FilePath)
@click.option("-o", "--output", "target", type=FolderPath, required=True, help="The folder to write.")
@click.option("--kind", type=click.Choice(list(CALLED)), required=True, help="What to fit.")
@click.option("--model", help="A local model: hub name, folder or .gguf file.")
@REVISION
@DEVICE
@DTYPE
@BATCH_TOKENS
@click.option("--recording", type=FilePath, help=ABOUT_RECORDING)
@click.option("--support", type=click.Choice(SUPPORT), help=ABOUT_SUPPORT)
@click.option("--layer", type=click.IntRange(0), help="Layer of a probe.  [default: at 0.6 of the model's depth]")
@click.option("--width", type=click.IntRange(1), help=f"Tokens of the stretch that decides.  [default: {WIDTH}]")
@click.option("--penalty", type=click.FloatRange(0, min_open=True), help=ABOUT_PENALTY)
@click.option("--epochs", type=click.IntRange(1), help=f"Passes of a detector.  [default: {Training.epochs}]")
@click.option("--cross-validate", is_flag=True, default=None, help=ABOUT_CROSS)
@LEDGER
@FORMAT
def fit_command(answers: Path, target: Path, kind: str, ledger: Path | None, output: str, **options: Any) -> None:
    """Fit a score on labelled ANSWERS of development sources, and freeze it in a folder.

    The folder names every source and text of evidence by a fingerprint, and `fedsrc score` refuses to score them with
    it: answers that calibrate or evaluate must come from other sources. The ledger notes their ids and sources too.
    A fitted score is a function of its answers, without noise: no privacy covers them.
    """
    _check_options(kind, options)
    refuse_existing(target)
    read, sha256 = read_answers(answers), file_digest(answers)
    with closing(Ledger(ledger or ledger_of(answers))) as book:
        note_used(sha256, len(read), _names(read), book)
    fitted = _fitted(kind, read, options)
    kept = fitted.freeze(target, read, sha256)
    click.echo(json.dumps(_summary(kept)) if output == "json" else _words(kept))


def _names(answers: list[Answer]) -> Names:
    """By what the answers will be known again once they are scored."""
    ids, sources = pl.Series([each.id for each in answers]), pl.Series([each.source for each in answers])
    return Names(tidy(ids).to_list(), tidy(sources).unique().to_list())


def _check_options(kind: str, options: dict[str, Any]) -> None:
    for name, kinds in ONLY.items():
        if options[name] is not None and kind not in kinds:
            raise FedsrcError(f"--{name.replace('_', '-')} has no meaning for a {kind}", hint="leave it out")
    if not options["model"] and not options["recording"]:
        raise FedsrcError("a fit needs a language model", hint="give --model")


def _fitted(kind: str, answers: list[Answer], options: dict[str, Any]) -> Fitted:
    local = _local(options)
    names = ("layer", "width", "penalty", "epochs", "support")
    chosen = {name: options[name] for name in names if options[name] is not None}
    if kind == "mechanistic":
        return fitted_mechanistic(answers, _signals(local, options["recording"]))
    if kind == "franq":
        return fitted_franq(answers, _recorded(local, options["recording"]), **chosen)
    if kind == "combination":
        return fitted_combination(answers, _recorded(local, options["recording"]), **chosen)
    assert local is not None
    if kind == "probe":
        return fitted_probe(answers, local, **{"layer": default_layer(local), **chosen})
    batch = options["batch_tokens"] or TRAINING_TOKENS.get(local.network.device.type, TRAINING_TOKENS["cpu"])
    training = Training(batch_tokens=batch, **chosen)
    return fitted_detector(answers, local, training, cross_validate=bool(options["cross_validate"]), tell=say)


def _local(options: dict[str, Any]) -> TransformersModel | None:
    if not options["model"]:
        return None
    wanted = {name: options[name] for name in MODEL_CHOICES}
    return open_model(options["model"], **wanted)


def _recorded(local: TransformersModel | None, recording: Path | None) -> LanguageModel:
    if recording is not None:
        return Recording(recording, local)
    assert local is not None
    return local


def _signals(local: TransformersModel | None, recording: Path | None) -> TransformersModel | SignalRecording:
    if recording is not None:
        return SignalRecording(beside(recording, "signals"), local)
    assert local is not None
    return local


def default_layer(model: TransformersModel) -> int:
    """The layer at DEPTH of the model."""
    return round(DEPTH * int(model.network.config.num_hidden_layers))


def _summary(kept: Frozen) -> dict[str, Any]:
    training = kept.document.training
    counts = {name: getattr(training, name) for name in ("answers", "sources", "unsupported", "auc")}
    return {**kept.identity, "folder": str(kept.folder), **counts, "settings": training.settings}


def _words(kept: Frozen) -> str:
    training = kept.document.training
    sure = "" if training.auc is None else f" AUC {training.auc:.3f} on sources it had not seen (0.5 is chance)."
    return (
        f"Fitted {CALLED[kept.kind]} on {training.answers:,} answers of {training.sources:,} sources.{sure}\n"
        f"Wrote {kept.folder}. Next: fedsrc score ANSWERS --score {kept.folder}, with answers of other sources."
    )
