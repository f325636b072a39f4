"""A linear token probe: from hidden states to the probability that a token is unsupported, and to one score.

Trained on development sources, on tokens that annotators marked. The response's score is 1 minus its worst stretch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fedsrc.common.values import Frozen, Numbers
from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats, Ints
from fedsrc.scores.fitted.logistic import Logistic, Scale, fit_logistic
from fedsrc.scores.methods.lift import window_means

LAYER, WIDTH, PENALTY = 18, 5, 3000.0
LAST = -1  # the layer of a detector's head


class Probe(Frozen):
    """A logistic model over one layer's hidden states, and the width of the stretch that decides."""

    layer: int = Field(ge=LAST)
    width: int = Field(ge=1)
    bias: float
    mean: Numbers
    scale: Annotated[tuple[Scale, ...], Field(strict=False)]
    weights: Numbers

    @model_validator(mode="after")
    def _sizes(self) -> Probe:
        if not len(self.mean) == len(self.scale) == len(self.weights) or not self.weights:
            raise ValueError("mean, scale and weights differ in length")
        return self

    @classmethod
    def of(cls, layer: int, width: int, token: Logistic) -> Probe:
        rows = {name: tuple(getattr(token, name).tolist()) for name in ("mean", "scale", "weights")}
        return cls(layer=layer, width=width, bias=token.bias, **rows)

    @cached_property
    def token(self) -> Logistic:
        return Logistic(np.array(self.mean), np.array(self.scale), np.array(self.weights), self.bias)

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
    return Probe.of(layer, width, fit_logistic(np.concatenate(states), np.concatenate(labels), penalty=penalty))
