"""A logistic combination of an answer's numbers: text and token arrays with and without evidence, one score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedsrc.data.answers import Answer
from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats, Ints
from fedsrc.scores.fitted.development import cross_validated, labels_of
from fedsrc.scores.fitted.features import NAMES, features
from fedsrc.scores.fitted.logistic import Logistic, fit_logistic
from fedsrc.scores.models.model import TokenScores

PENALTY = 30.0


@dataclass(frozen=True)
class Combination:
    """A logistic model of "unsupported" over the numbers in the order of NAMES."""

    logistic: Logistic

    def score(self, answer: Answer, present: TokenScores, removed: TokenScores) -> float:
        """1 - the probability that the answer is unsupported."""
        return self.of_row(features(answer, present, removed))

    def of_row(self, row: Floats) -> float:
        """The score of an answer's numbers; a row is taken alone, so that no other answer can move its last digit."""
        return float(1.0 - self.logistic.probability(row[None])[0])

    def weights(self) -> dict[str, float]:
        """How much each number, in units of its spread, adds to the log-odds of unsupported."""
        return dict(zip(NAMES, self.logistic.weights.tolist(), strict=True))


class FittedCombination(NamedTuple):
    """A combination, and the AUC of fits on four fifths of the sources on the others."""

    combination: Combination
    auc: float


def fit_combination(
    answers: Sequence[Answer],
    present: Sequence[TokenScores],
    removed: Sequence[TokenScores],
    penalty: float = PENALTY,
) -> FittedCombination:
    """A combination fitted on development answers, and how well such fits rank sources they did not see."""
    if not len(answers) == len(present) == len(removed):
        raise FedsrcError("a combination needs every answer's tokens with and without evidence")
    labels = labels_of(answers)
    X = np.stack([features(*each) for each in zip(answers, present, removed, strict=True)])

    def held(train: Ints, test: Ints) -> list[float]:
        fitted = Combination(fit_logistic(X[train], labels[train], penalty=penalty))
        return [fitted.of_row(row) for row in X[test]]

    whole = Combination(fit_logistic(X, labels, penalty=penalty))
    return FittedCombination(whole, cross_validated(answers, labels, held))
