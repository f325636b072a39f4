"""Scores of fitted numbers: what each kind asks of a language model, and how the answers become scores."""

from __future__ import annotations

from collections.abc import Sequence

from fedsrc.data.answers import Answer
from fedsrc.errors import FedsrcError
from fedsrc.scores.combine import Combination
from fedsrc.scores.finetune import Detector, adapted
from fedsrc.scores.model import Floats, HiddenModel, LanguageModel, Prompted
from fedsrc.scores.probe import Probe
from fedsrc.scores.prompts import Control, controlled, prompt
from fedsrc.scores.transformers_model import TransformersModel

STEP = 256  # answers whose hidden states are held at once
Parameters = Combination | Probe | Detector


def score_with(parameters: Parameters, answers: Sequence[Answer], model: LanguageModel) -> list[float]:
    """Scores of fitted numbers, in the order of the answers."""
    if isinstance(parameters, Combination):
        sides = [model.score(pairs_of(answers, control)) for control in ("present", "removed")]
        return [parameters.score(*each) for each in zip(answers, *sides, strict=True)]
    if isinstance(parameters, Probe):
        return probe_scores(parameters, answers, model)
    if not isinstance(model, TransformersModel):
        raise FedsrcError("a detector needs its local model", hint="give --model, not a server or a recording")
    with adapted(model, parameters) as tuned:
        return probe_scores(parameters.head, answers, tuned)


def probe_scores(probe: Probe, answers: Sequence[Answer], model: LanguageModel) -> list[float]:
    """A probe's scores, some answers at a time."""
    found: list[float] = []
    for start in range(0, len(answers), STEP):
        for states in hidden_states(answers[start : start + STEP], model, probe.layer):
            if states.shape[1] != probe.token.weights.size:
                raise FedsrcError("the probe does not fit the model", hint="score with the model it was fitted with")
            found.append(probe.score(states))
    return found


def hidden_states(answers: Sequence[Answer], model: object, layer: int) -> list[Floats]:
    """The hidden states of every response after its prompt with evidence."""
    if not isinstance(model, HiddenModel):
        raise FedsrcError(
            "a probe needs a model's hidden states, which this backend does not give",
            hint="give --model, not a server or a recording",
        )
    try:
        return model.hidden(pairs_of(answers, "present"), layer)
    except IndexError as error:
        raise FedsrcError(f"the model has no layer {layer}", hint="give a smaller --layer") from error


def pairs_of(answers: Sequence[Answer], control: Control) -> list[Prompted]:
    """Each response after its prompt under an evidence control."""
    evidence = controlled(answers, control)
    return [Prompted(prompt(a, text), a.response) for a, text in zip(answers, evidence, strict=True)]
