"""A logistic combination of an answer's numbers: text, and token arrays with and without evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedsrc.data.answers import Answer
from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats
from fedsrc.scores.fitted.development import Ranked, fit_ranked, labels_of
from fedsrc.scores.fitted.features import features
from fedsrc.scores.fitted.logistic import Logistic, fit_logistic
from fedsrc.scores.models.model import TokenScores

PENALTY = 30.0


@dataclass(frozen=True)
class Combination:
    """A logistic model of "unsupported" over the numbers in the order of NAMES."""

    logistic: Logistic

    def score(self, row: Floats) -> float:
        """Return 1 - P(unsupported) from an answer's numbers, taken alone: no other answer can move its last digit."""
        return float(1.0 - self.logistic.probability(row[None])[0])


def fit_combination(
    answers: Sequence[Answer],
    present: Sequence[TokenScores],
    removed: Sequence[TokenScores],
    penalty: float = PENALTY,
) -> Ranked[Combination]:
    """Fit a combination on development answers."""
    if not len(answers) == len(present) == len(removed):
        raise FedsrcError("a combination needs every answer's tokens with and without evidence")
    labels = labels_of(answers)
    X = np.stack([features(*each) for each in zip(answers, present, removed, strict=True)])
    return fit_ranked(
        answers,
        labels,
        lambda own: Combination(fit_logistic(X[own], labels[own], penalty=penalty)),
        lambda fitted, test: [fitted.score(row) for row in X[test]],
    )
