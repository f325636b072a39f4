"""A linear token probe: from hidden states to the probability that a token is unsupported, and to one score.

Trained on development sources, on tokens that annotators marked. The response's score is 1 minus its worst stretch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats, Ints
from fedsrc.scores.fitted.logistic import Logistic, fit_logistic
from fedsrc.scores.methods.lift import window_means

LAYER, WIDTH, PENALTY = 18, 5, 3000.0


@dataclass(frozen=True)
class Probe:
    """A logistic model over one layer's hidden states, and the width of the stretch that decides."""

    layer: int
    width: int
    token: Logistic

    def score(self, states: NDArray[np.floating]) -> float:
        """Return 1 - the largest mean risk over `width` consecutive tokens."""
        return worst_stretch(self.token.probability(states), self.width)


def worst_stretch(risk: Floats, width: int) -> float:
    """Return 1 - the largest mean of `width` consecutive token risks, in [0, 1]."""
    return float(np.clip(1.0 - window_means(risk, width).max(), 0.0, 1.0))


def token_labels(offsets: Ints, spans: Sequence[tuple[int, int]]) -> Floats:
    """Return 1 for a token that shares a character with a marked span, else 0."""
    marked = np.zeros(len(offsets))
    for start, end in spans:
        marked[(offsets[:, 0] < end) & (offsets[:, 1] > start)] = 1.0
    return marked


def fit_probe(
    states: Sequence[NDArray[np.floating]],
    labels: Sequence[Floats],
    *,
    layer: int = LAYER,
    width: int = WIDTH,
    penalty: float = PENALTY,
) -> Probe:
    """Fit a probe on the token states and token labels of training responses."""
    if [len(each) for each in states] != [len(each) for each in labels]:
        raise FedsrcError("a probe needs one label for every token")
    return Probe(layer, width, fit_logistic(np.concatenate(states), np.concatenate(labels), penalty=penalty))
