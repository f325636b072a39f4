"""A logistic combination of an answer's numbers: text, and token arrays with and without evidence."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from pydantic import model_validator

from fedsrc.common.values import Frozen
from fedsrc.data.answers import Answer
from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats
from fedsrc.scores.fitted.development import Ranked, fit_ranked, labels_of
from fedsrc.scores.fitted.logistic import Feature, Logistic, fit_logistic
from fedsrc.scores.methods.control_scores import is_refusal, novel_words
from fedsrc.scores.methods.lexical import STOP_WORDS, lexical_support, sentences, words
from fedsrc.scores.methods.lift import mean_lift, window_lift, window_means
from fedsrc.scores.models.model import TokenScores

PENALTY = 30.0
LEXICAL = (
    "lexical support", "novel words", "novel share", "novel numbers", "novel names", "words", "sentences", "refusal",
    "worst sentence",
)  # fmt: skip
LANGUAGE = (
    "lift", "lift B=1", "lift window 10", "lift window 20", "lift window 40", "probability", "entropy",
    "logprob window 10", "logprob window 20", "entropy window 20", "lowest gain", "low gain share", "evidence gain",
)  # fmt: skip
NAMES = (*LEXICAL, *LANGUAGE)
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
NAME = re.compile(r"(?<![.!?]\s)(?<!^)\b[A-Z][a-z]+")


class Combination(Frozen):
    """A logistic model of "unsupported" over the numbers in the order of NAMES."""

    bias: float
    features: dict[str, Feature]

    @model_validator(mode="after")
    def _names(self) -> Combination:
        if self.features.keys() != set(NAMES):
            raise ValueError("features are not those of this version")
        return self

    @classmethod
    def of(cls, fitted: Logistic) -> Combination:
        return cls(bias=fitted.bias, features=dict(zip(NAMES, fitted.features, strict=True)))

    @cached_property
    def logistic(self) -> Logistic:
        return Logistic.of((self.features[name] for name in NAMES), self.bias)

    def score(self, row: Floats) -> float:
        """Return 1 - P(unsupported) from an answer's numbers, taken alone: no other answer can move its last digit."""
        return float(1.0 - self.logistic.probability(row[None])[0])


def fit_combination(
    answers: Sequence[Answer], present: Sequence[TokenScores], removed: Sequence[TokenScores], penalty: float = PENALTY
) -> Ranked[Combination]:
    """Fit a combination on development answers."""
    if not len(answers) == len(present) == len(removed):
        raise FedsrcError("a combination needs every answer's tokens with and without evidence")
    labels = labels_of(answers)
    X = np.stack([features(*each) for each in zip(answers, present, removed, strict=True)])
    return fit_ranked(
        answers,
        labels,
        lambda own: Combination.of(fit_logistic(X[own], labels[own], penalty=penalty)),
        lambda fitted, test: [fitted.score(row) for row in X[test]],
    )


def _lexical(answer: Answer) -> list[float]:
    """Return numbers of the text alone, in the order of LEXICAL."""
    known = f"{answer.question} {answer.evidence}"
    given, said = set(words(known)), words(answer.response)
    content = [word for word in said if word not in STOP_WORDS]
    parts = sentences(answer.response)
    return [
        lexical_support(answer.response, known),
        np.log1p(novel_words(answer.response, known)),
        sum(word not in given for word in content) / max(1, len(content)),
        np.log1p(len(set(NUMBER.findall(answer.response)) - set(NUMBER.findall(known)))),
        np.log1p(len({name.lower() for name in NAME.findall(answer.response)} - given)),
        np.log1p(len(said)),
        np.log1p(len(parts)),
        float(is_refusal(answer.response)),
        min(lexical_support(each, known) for each in parts),
    ]


def _language(present: TokenScores, removed: TokenScores) -> list[float]:
    """Return numbers of the token arrays with and without evidence, in the order of LANGUAGE."""
    gain = present.logprobs - removed.logprobs
    return [
        mean_lift(present, removed),
        mean_lift(present, removed, B=1.0),
        *(window_lift(present, removed, width=width) for width in (10, 20, 40)),
        float(np.exp(present.logprobs).mean()),
        float(present.entropy.mean()),
        *(float(window_means(present.logprobs, width).min()) for width in (10, 20)),
        float(window_means(present.entropy, 20).max()),
        float(window_means(gain, 10).min()),
        float(np.mean(gain < 0.0)),
        float(gain.mean()),
    ]


def features(answer: Answer, present: TokenScores, removed: TokenScores) -> Floats:
    """Return all numbers of an answer, in the order of NAMES."""
    return np.array(_lexical(answer) + _language(present, removed))
