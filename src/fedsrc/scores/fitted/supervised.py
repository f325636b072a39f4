"""Scores of fitted numbers: what each kind asks of a language model, and how the answers become scores."""

from __future__ import annotations

from collections.abc import Sequence

from fedsrc.data.answers import Answer
from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats
from fedsrc.scores.fitted.combine import Combination, features
from fedsrc.scores.fitted.finetune import Detector, adapted
from fedsrc.scores.fitted.franq import Franq, numbers
from fedsrc.scores.fitted.mechanistic import Mechanistic, Signals
from fedsrc.scores.fitted.probe import Probe
from fedsrc.scores.methods.mechanistic_signals import signals
from fedsrc.scores.models.model import HiddenModel, LanguageModel, Prompted, TokenScores
from fedsrc.scores.models.transformers_model import TransformersModel
from fedsrc.scores.prompts import Control, controlled, prompt
from fedsrc.scores.recordings.signal_recording import SignalRecording

STEP = 256  # answers whose hidden states are held at once
Parameters = Combination | Probe | Detector | Mechanistic | Franq
Model = LanguageModel | SignalRecording


def columns_with(parameters: Parameters, answers: Sequence[Answer], model: Model) -> dict[str, list[float]]:
    """Return the scores under the name "", and under names of their own what a kind of score says beside them."""
    if not isinstance(parameters, Franq):
        return {"": score_with(parameters, answers, model)}
    sides = zip(answers, *both_sides(answers, model), strict=True)
    judged = [parameters.judge(numbers(parameters.support, *each)) for each in sides]
    return {
        "": [each.true for each in judged],
        "faithfulness": [each.faithful for each in judged],
        "true_if_faithful": [each.if_faithful for each in judged],
        "true_if_unfaithful": [each.if_unfaithful for each in judged],
    }


def score_with(parameters: Parameters, answers: Sequence[Answer], model: Model) -> list[float]:
    """Return scores in the order of the answers."""
    if isinstance(parameters, Franq):
        return columns_with(parameters, answers, model)[""]
    if isinstance(parameters, Mechanistic):
        return [parameters.score(each) for each in signals_of(answers, model)]
    if isinstance(parameters, Combination):
        sides = zip(answers, *both_sides(answers, model), strict=True)
        return [parameters.score(features(*each)) for each in sides]
    if isinstance(parameters, Probe):
        return probe_scores(parameters, answers, model)
    if not isinstance(model, TransformersModel):
        raise FedsrcError("a detector needs its local model", hint="give `model=`, not a server or a recording")
    with adapted(model, parameters) as tuned:
        return probe_scores(parameters.head, answers, tuned)


def both_sides(answers: Sequence[Answer], model: Model) -> tuple[list[TokenScores], list[TokenScores]]:
    """Return token scores of every response with its evidence, and without."""
    if isinstance(model, SignalRecording):
        raise FedsrcError("mechanistic signals hold no token scores", where=str(model.path), hint="give `model=`")
    return model.score(pairs_of(answers, "present")), model.score(pairs_of(answers, "removed"))


def signals_of(answers: Sequence[Answer], model: object) -> list[Signals]:
    """Return the mechanistic signals of every response after its prompt with evidence."""
    pairs = pairs_of(answers, "present")
    if isinstance(model, SignalRecording):
        return model.signals(pairs)
    if isinstance(model, TransformersModel):
        return signals(model, pairs)
    raise FedsrcError(
        "a mechanistic score needs a model's attention and states, which this backend does not give",
        hint="give `model=`, not a server, or a recording that has signals beside it",
    )


def probe_scores(probe: Probe, answers: Sequence[Answer], model: object) -> list[float]:
    """Return a probe's scores; hidden states are held for STEP answers at a time."""
    found: list[float] = []
    for start in range(0, len(answers), STEP):
        for states in hidden_states(answers[start : start + STEP], model, probe.layer):
            if states.shape[1] != probe.token.weights.size:
                raise FedsrcError("the probe does not fit the model", hint="score with the model it was fitted with")
            found.append(probe.score(states))
    return found


def hidden_states(answers: Sequence[Answer], model: object, layer: int) -> list[Floats]:
    """Return the hidden states of every response after its prompt with evidence."""
    if not isinstance(model, HiddenModel):
        hint = "give `model=`, not a server or a recording"
        raise FedsrcError("a probe needs a model's hidden states, which this backend does not give", hint=hint)
    try:
        return model.hidden(pairs_of(answers, "present"), layer)
    except IndexError as error:
        raise FedsrcError(f"the model has no layer {layer}", hint="give a smaller `layer=`") from error


def pairs_of(answers: Sequence[Answer], control: Control) -> list[Prompted]:
    """Return each response after its prompt under an evidence control."""
    evidence = controlled(answers, control)
    return [Prompted(prompt(a, text), a.response) for a, text in zip(answers, evidence, strict=True)]
