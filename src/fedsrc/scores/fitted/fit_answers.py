"""Fitting a score of any kind on labelled answers, with a local model or a recording of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsrc.data.answers import Answer
from fedsrc.errors import FedsrcError
from fedsrc.scores.fitted import fit
from fedsrc.scores.fitted.finetune import Training
from fedsrc.scores.fitted.frozen import Kind
from fedsrc.scores.models.transformers_model import TransformersModel
from fedsrc.scores.recordings.replay import Recording
from fedsrc.scores.recordings.signal_recording import SignalRecording, beside

TAKES: dict[Kind, tuple[str, ...]] = {  # the choices that have a meaning for a kind
    "combination": ("recording", "penalty"),
    "probe": ("layer", "width", "penalty"),
    "detector": ("width", "epochs", "cross_validate"),
    "mechanistic": ("recording",),
    "franq": ("recording", "support"),
}
DEPTH = 0.6  # where the default layer lies
TRAINING_TOKENS = {"cpu": 2048, "cuda": Training.batch_tokens}  # a training step holds more memory than a forward pass


def check_choices(kind: Kind, chosen: Mapping[str, Any], *, model: bool) -> None:
    """Refuse a choice that has no meaning for this kind, and a fit with neither model nor recording."""
    for name in chosen:
        if name not in TAKES[kind]:
            raise FedsrcError(f"`{name}=` has no meaning for a {kind}", hint="leave it out")
    if not model and "recording" not in chosen:
        raise FedsrcError("a fit needs a language model", hint="give `model=`")


def fit_answers(
    kind: Kind,
    answers: Sequence[Answer],
    model: TransformersModel | None,
    *,
    batch_tokens: int | None = None,
    recording: Path | None = None,
    cross_validate: bool = False,
    tell: Callable[[str], None] = lambda _: None,
    **chosen: Any,
) -> fit.Fitted:
    """Fit a score of this kind. `chosen` goes to the kind's own function; with a recording no model is needed."""
    if recording is not None and kind == "mechanistic":
        return fit.fitted_mechanistic(answers, SignalRecording(beside(recording, "signals"), model))
    tokens = model if recording is None else Recording(recording, model)
    assert tokens is not None  # check_choices refuses a fit with neither
    if kind == "combination":
        return fit.fitted_combination(answers, tokens, **chosen)
    if kind == "franq":
        return fit.fitted_franq(answers, tokens, **chosen)
    assert model is not None
    if kind == "mechanistic":
        return fit.fitted_mechanistic(answers, model)
    if kind == "probe":
        layer = round(DEPTH * int(model.network.config.num_hidden_layers))
        return fit.fitted_probe(answers, model, **{"layer": layer, **chosen})
    batch = batch_tokens or TRAINING_TOKENS.get(model.network.device.type, TRAINING_TOKENS["cpu"])
    training = Training(batch_tokens=batch, **chosen)
    return fit.fitted_detector(answers, model, training, cross_validate=cross_validate, tell=tell)
