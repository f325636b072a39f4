"""Isotonic regression: the non-decreasing map from a score to a probability that fits labels best.

Zadrozny and Elkan (2002). Between the fitted points the map is a straight line, outside them it is constant.
"""

from __future__ import annotations

import numpy as np
from pydantic import model_validator
from scipy.optimize import isotonic_regression

from fedsrc.common.values import Frozen, Numbers
from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats


class Isotonic(Frozen):
    """A non-decreasing map through the points (x, y)."""

    x: Numbers
    y: Numbers

    @model_validator(mode="after")
    def _rises(self) -> Isotonic:
        if len(self.x) != len(self.y) or not self.x:
            raise ValueError("a map needs as many scores as probabilities")
        if sorted(set(self.x)) != list(self.x) or sorted(self.y) != list(self.y):
            raise ValueError("a map must rise")
        if not 0 <= self.y[0] <= self.y[-1] <= 1:
            raise ValueError("a map must give probabilities")
        return self

    def __call__(self, value: float) -> float:
        """Return the probability at a score."""
        return float(np.interp(value, self.x, self.y))


def fit_isotonic(x: Floats, y: Floats, weights: Floats | None = None) -> Isotonic:
    """Minimise the weighted sum of (y - f(x))^2 over non-decreasing f; equal scores share one value.

    Rows of weight 0 have no say, and points inside a flat stretch are left out.
    """
    w = np.ones(len(x)) if weights is None else weights
    _check(x, y, w)
    kept = w > 0
    at, place = np.unique(x[kept], return_inverse=True)
    mass = np.bincount(place, weights=w[kept])
    mean = np.bincount(place, weights=w[kept] * y[kept]) / mass
    fitted = np.clip(isotonic_regression(mean, weights=mass).x, 0.0, 1.0)
    flat = np.zeros(len(at), dtype=bool)
    flat[1:-1] = (fitted[1:-1] == fitted[:-2]) & (fitted[1:-1] == fitted[2:])
    return Isotonic(x=tuple(at[~flat].tolist()), y=tuple(fitted[~flat].tolist()))


def _check(x: Floats, y: Floats, w: Floats) -> None:
    if not len(x) == len(y) == len(w) or not np.all(np.isfinite(x)) or not np.all((y >= 0) & (y <= 1)):
        raise FedsrcError("an isotonic fit needs finite scores, one label in [0, 1] each")
    if not np.all((w >= 0) & np.isfinite(w)) or not w.sum() > 0:
        raise FedsrcError("an isotonic fit needs weights of at least zero, and one above it")
