"""Fitting scores on labelled development answers: a combination, a probe, a detector, a mechanistic score, or FRANQ.

The same answers and the same model give the same numbers. How well a fit ranks answers of sources that it did not see
is estimated by cross-validation over sources; the detector's takes five more trainings, so it must be asked for.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedsrc.common.canonical import digest_bytes
from fedsrc.common.durable import write_whole
from fedsrc.data.answers import Answer
from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Ints
from fedsrc.scores.fitted import combine, franq, mechanistic, probe
from fedsrc.scores.fitted.development import cross_validated, fit_ranked, labels_of, marked_places
from fedsrc.scores.fitted.finetune import Detector, Labelled, Training, fine_tune
from fedsrc.scores.fitted.frozen import FrozenScore, Kind, load, refuse_existing
from fedsrc.scores.fitted.score_file import ADAPTER, SCORE, evidence_print, parse, plain, prompts_digest, source_print
from fedsrc.scores.fitted.supervised import Parameters, both_sides, hidden_states, pairs_of, score_with, signals_of
from fedsrc.scores.models.model import LanguageModel
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


@dataclass(frozen=True)
class Fitted:
    """Fitted numbers, the model and the settings behind them, and their cross-validated AUC."""

    parameters: Parameters
    auc: float | None
    model: Mapping[str, str]
    settings: Mapping[str, float]

    def freeze(self, folder: Path, answers: Sequence[Answer], answers_sha256: str) -> FrozenScore:
        """Write the score, whole, into a folder that holds none, with fingerprints of the answers of its training."""
        refuse_existing(folder)
        adapter = self.parameters.adapter if isinstance(self.parameters, Detector) else None
        measured = {"answers_sha256": answers_sha256, "auc": self.auc, "settings": dict(self.settings)}
        document = {
            "format": 1,
            **plain(self.parameters),
            "model": dict(self.model),
            "prompts": prompts_digest(),
            "training": {**_manifest(answers), **measured},
            "files": {} if adapter is None else {ADAPTER: digest_bytes(adapter)},
        }
        data = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        parse(data, str(folder / SCORE))
        if adapter is not None:
            write_whole(folder / ADAPTER, adapter)
        write_whole(folder / SCORE, data, replace=False)
        found = load(folder)
        if found.digest != digest_bytes(data):  # another process was first
            refuse_existing(folder)
        return found


def fitted_combination(answers: Sequence[Answer], model: LanguageModel, *, penalty: float = combine.PENALTY) -> Fitted:
    """Fit a combination of text and token numbers."""
    labels_of(answers)  # before the model works
    found = combine.fit_combination(answers, *both_sides(answers, model), penalty)
    return Fitted(*found, model.identity, {"penalty": penalty})


def fitted_probe(
    answers: Sequence[Answer],
    model: TransformersModel,
    *,
    layer: int = probe.LAYER,
    width: int = probe.WIDTH,
    penalty: float = probe.PENALTY,
) -> Fitted:
    """Fit a probe of one layer's hidden states, on tokens."""
    labels, spans = labels_of(answers), [marked_places(answer) for answer in answers]
    states = hidden_states(answers, model, layer)
    responses = model.encode(pairs_of(answers, "present")).responses
    tokens = [probe.token_labels(each.offsets, places) for each, places in zip(responses, spans, strict=True)]

    def fit(own: Ints) -> probe.Probe:
        chosen = [states[i] for i in own], [tokens[i] for i in own]
        return probe.fit_probe(*chosen, layer=layer, width=width, penalty=penalty)

    found = fit_ranked(answers, labels, fit, lambda fitted, test: [fitted.score(states[i]) for i in test])
    return Fitted(*found, model.identity, {"layer": layer, "width": width, "penalty": penalty})


def fitted_mechanistic(answers: Sequence[Answer], model: TransformersModel | SignalRecording) -> Fitted:
    """Fit heads, layers, scales and weights of a mechanistic score."""
    labels_of(answers)  # before the model works
    found = mechanistic.fit_mechanistic(answers, signals_of(answers, model))
    chosen = {"heads": len(found.parameters.heads), "layers": len(found.parameters.layers)}
    settings = {**chosen, "attended_share": mechanistic.SHARE, "penalty": mechanistic.PENALTY}
    return Fitted(*found, model.identity, settings)


def fitted_franq(answers: Sequence[Answer], model: LanguageModel, *, support: str = franq.DEFAULT) -> Fitted:
    """Fit FRANQ's three maps, from a score of support and the model's token probabilities."""
    labels_of(answers)  # before the model works
    found = franq.fit_franq(answers, *both_sides(answers, model), support)
    return Fitted(*found, model.identity, {"marked_factual": sum(answer.factual is not None for answer in answers)})


def fitted_detector(
    answers: Sequence[Answer],
    model: TransformersModel,
    training: Training = Training(),  # noqa: B008 (frozen)
    *,
    cross_validate: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> Fitted:
    """Fine-tune the model with an adapter; the model itself stays as it is."""
    labels = labels_of(answers)
    stage = [Labelled(pair, marked_places(a)) for a, pair in zip(answers, pairs_of(answers, "present"), strict=True)]

    def fit(own: Sequence[int]) -> Detector:
        return fine_tune(model, [stage[i] for i in own], training, tell)

    def held(train: Ints, test: Ints) -> list[float]:
        return score_with(fit(train.tolist()), [answers[i] for i in test], model)

    auc = cross_validated(answers, labels, held) if cross_validate else None
    return Fitted(fit(range(len(answers))), auc, model.identity, asdict(training))


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
) -> Fitted:
    """Fit a score of this kind. `chosen` goes to the kind's own function; with a recording no model is needed."""
    if recording is not None and kind == "mechanistic":
        return fitted_mechanistic(answers, SignalRecording(beside(recording, "signals"), model))
    tokens = model if recording is None else Recording(recording, model)
    assert tokens is not None  # check_choices refuses a fit with neither
    if kind == "combination":
        return fitted_combination(answers, tokens, **chosen)
    if kind == "franq":
        return fitted_franq(answers, tokens, **chosen)
    assert model is not None
    if kind == "mechanistic":
        return fitted_mechanistic(answers, model)
    if kind == "probe":
        layer = round(DEPTH * int(model.network.config.num_hidden_layers))
        return fitted_probe(answers, model, **{"layer": layer, **chosen})
    batch = batch_tokens or TRAINING_TOKENS.get(model.network.device.type, TRAINING_TOKENS["cpu"])
    training = Training(batch_tokens=batch, **chosen)
    return fitted_detector(answers, model, training, cross_validate=cross_validate, tell=tell)


def _manifest(answers: Sequence[Answer]) -> dict[str, Any]:
    sources = sorted({source_print(answer.source) for answer in answers})
    used = ["fedsrc", "numpy", "scipy", *(name for name in ("torch", "transformers", "peft") if name in sys.modules)]
    return {
        "answers": len(answers),
        "sources": len(sources),
        "unsupported": sum(answer.loss == 1 for answer in answers),
        "source_fingerprints": sources,
        "evidence_fingerprints": sorted({evidence_print(answer.evidence) for answer in answers}),
        "generators": dict(sorted(Counter(answer.generator for answer in answers).items())),
        "versions": {name: importlib.metadata.version(name) for name in used},
    }
