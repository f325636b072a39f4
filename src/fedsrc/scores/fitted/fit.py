"""Fitting scores on labelled development answers: a combination, a probe, a detector, a mechanistic score, or FRANQ.

The same answers and the same model give the same numbers. How well a fit ranks answers of sources that it did not see
is estimated by cross-validation over sources; the detector's takes five more trainings, so it must be asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedsrc.data.answers import Answer
from fedsrc.maths.arrays import Ints
from fedsrc.scores.fitted.combine import PENALTY as COMBINATION_PENALTY
from fedsrc.scores.fitted.combine import fit_combination
from fedsrc.scores.fitted.development import cross_validated, labels_of, marked_places
from fedsrc.scores.fitted.finetune import Detector, Labelled, Training, fine_tune
from fedsrc.scores.fitted.franq import DEFAULT as SUPPORT
from fedsrc.scores.fitted.franq import fit_franq
from fedsrc.scores.fitted.frozen import Frozen, save
from fedsrc.scores.fitted.mechanistic import PENALTY as MECHANISTIC_PENALTY
from fedsrc.scores.fitted.mechanistic import SHARE, fit_mechanistic
from fedsrc.scores.fitted.probe import LAYER, WIDTH, Probe, fit_probe, token_labels
from fedsrc.scores.fitted.probe import PENALTY as PROBE_PENALTY
from fedsrc.scores.fitted.supervised import Parameters, both_sides, hidden_states, pairs_of, score_with, signals_of
from fedsrc.scores.models.model import LanguageModel
from fedsrc.scores.models.transformers_model import TransformersModel
from fedsrc.scores.recordings.signal_recording import SignalRecording

Tell = Callable[[str], None]


def quiet(_: str) -> None:
    """Says nothing."""


@dataclass(frozen=True)
class Fitted:
    """Fitted numbers, the model and the settings behind them, and their cross-validated AUC."""

    parameters: Parameters
    auc: float | None
    model: dict[str, str]
    settings: dict[str, float]

    def freeze(self, folder: Path, answers: Sequence[Answer], answers_sha256: str) -> Frozen:
        """Keep the score in a folder, with the fingerprints of the answers it was fitted on."""
        return save(
            folder,
            self.parameters,
            model=self.model,
            answers=answers,
            answers_sha256=answers_sha256,
            auc=self.auc,
            settings=self.settings,
        )


def fitted_combination(
    answers: Sequence[Answer], model: LanguageModel, *, penalty: float = COMBINATION_PENALTY
) -> Fitted:
    """A combination of text and token numbers."""
    labels_of(answers)  # before the model works
    combination, auc = fit_combination(answers, *both_sides(answers, model), penalty)
    return Fitted(combination, auc, dict(model.identity), {"penalty": penalty})


def fitted_probe(
    answers: Sequence[Answer],
    model: TransformersModel,
    *,
    layer: int = LAYER,
    width: int = WIDTH,
    penalty: float = PROBE_PENALTY,
) -> Fitted:
    """A probe of one layer's hidden states, fitted on tokens."""
    labels, spans = labels_of(answers), [marked_places(answer) for answer in answers]
    states = hidden_states(answers, model, layer)
    responses = model.encode(pairs_of(answers, "present")).responses
    tokens = [token_labels(each.offsets, places) for each, places in zip(responses, spans, strict=True)]

    def fit(places: Sequence[int]) -> Probe:
        chosen = [states[i] for i in places], [tokens[i] for i in places]
        return fit_probe(*chosen, layer=layer, width=width, penalty=penalty)

    def held(train: Ints, test: Ints) -> list[float]:
        probe = fit(train.tolist())
        return [probe.score(states[i]) for i in test]

    auc = cross_validated(answers, labels, held)
    settings = {"layer": layer, "width": width, "penalty": penalty}
    return Fitted(fit(range(len(answers))), auc, dict(model.identity), settings)


def fitted_mechanistic(answers: Sequence[Answer], model: TransformersModel | SignalRecording) -> Fitted:
    """Heads, layers, scales and weights of a mechanistic score."""
    labels_of(answers)  # before the model works
    mechanistic, auc = fit_mechanistic(answers, signals_of(answers, model))
    chosen = {"heads": len(mechanistic.heads), "layers": len(mechanistic.layers)}
    settings = {**chosen, "attended_share": SHARE, "penalty": MECHANISTIC_PENALTY}
    return Fitted(mechanistic, auc, dict(model.identity), settings)


def fitted_franq(answers: Sequence[Answer], model: LanguageModel, *, support: str = SUPPORT) -> Fitted:
    """FRANQ's three maps, from a score of support and the model's token probabilities."""
    labels_of(answers)  # before the model works
    franq, auc = fit_franq(answers, *both_sides(answers, model), support)
    marked = sum(answer.factual is not None for answer in answers)
    return Fitted(franq, auc, dict(model.identity), {"marked_factual": marked})


def fitted_detector(
    answers: Sequence[Answer],
    model: TransformersModel,
    training: Training = Training(),  # noqa: B008 (frozen)
    *,
    cross_validate: bool = False,
    tell: Tell = quiet,
) -> Fitted:
    """The model fine-tuned with an adapter; the model itself stays as it is."""
    labels = labels_of(answers)
    stage = [Labelled(pair, marked_places(a)) for a, pair in zip(answers, pairs_of(answers, "present"), strict=True)]

    def fit(places: Sequence[int]) -> Detector:
        return fine_tune(model, [[stage[i] for i in places]], training, tell)

    def held(train: Ints, test: Ints) -> list[float]:
        return score_with(fit(train.tolist()), [answers[i] for i in test], model)

    auc = cross_validated(answers, labels, held) if cross_validate else None
    return Fitted(fit(range(len(answers))), auc, dict(model.identity), training.plain())
