"""Logistic regression with an L2 penalty: the combination of scores and the token probe are fitted with it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.optimize import minimize
from scipy.special import expit

from fedsrc.common.values import Frozen
from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats

Scale = Annotated[float, Field(gt=0)]
Matrix = NDArray[np.floating]
ROUNDING = 1e-9  # a column's spread, relative to its largest value, that is no more than rounding


class Feature(Frozen):
    """One column of a logistic model, as score.json writes it."""

    mean: float
    scale: Scale
    weight: float


@dataclass(frozen=True)
class Logistic:
    """P(1 | x) = 1 / (1 + exp(-(w (x - mean) / scale + b)))."""

    mean: Floats
    scale: Floats
    weights: Floats
    bias: float

    def probability(self, X: Matrix) -> Floats:
        """Return one probability a row."""
        w = self.weights / self.scale
        z = X.astype(np.float64) @ w + (self.bias - float(self.mean @ w))
        return np.asarray(expit(z), dtype=np.float64)

    @property
    def features(self) -> list[Feature]:
        columns = zip(self.mean.tolist(), self.scale.tolist(), self.weights.tolist(), strict=True)
        return [Feature(mean=mean, scale=scale, weight=weight) for mean, scale, weight in columns]

    @classmethod
    def of(cls, features: Iterable[Feature], bias: float) -> Logistic:
        """Return the model of these columns."""
        mean, scale, weights = np.array([[each.mean, each.scale, each.weight] for each in features]).T.copy()
        return cls(mean, scale, weights, bias)


def fit_logistic(X: Matrix, y: NDArray[np.floating], *, penalty: float = 1.0) -> Logistic:
    """Minimise sum of log-losses + penalty |w|^2 / 2 over standardised columns; the bias is free.

    Columns that vary by no more than rounding get weight 0. Convex, so the start does not matter.
    """
    _check(X, y, penalty)
    mean, spread = X.mean(axis=0, dtype=np.float64), X.std(axis=0, dtype=np.float64)
    varies = spread > ROUNDING * np.abs(X).max(axis=0)
    scale = np.where(varies, spread, 1.0)
    Z = ((X - mean) / scale).astype(X.dtype)

    def loss(theta: Floats) -> tuple[float, Floats]:
        w, b = theta[:-1], theta[-1]
        z = np.asarray(Z @ w.astype(X.dtype), dtype=np.float64) + b
        value = float(np.sum(np.logaddexp(0.0, z) - y * z)) + penalty * float(w @ w) / 2
        residual = expit(z) - y
        slope = np.asarray(Z.T @ residual.astype(X.dtype), dtype=np.float64) + penalty * w
        return value, np.append(slope, residual.sum())

    rate = float(np.clip(y.mean(), 1e-6, 1 - 1e-6))
    start = np.append(np.zeros(X.shape[1]), np.log(rate / (1 - rate)))
    exact = {"ftol": 1e-15, "gtol": 1e-9} if X.dtype == np.float64 else {}  # single precision cannot tell
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 500, **exact})
    return Logistic(mean, scale, np.where(varies, found.x[:-1], 0.0), float(found.x[-1]))


def _check(X: Matrix, y: NDArray[np.floating], penalty: float) -> None:
    if len(X) != len(y) or not len(y) or not np.all(np.isfinite(X)) or not np.all((y >= 0) & (y <= 1)):
        raise FedsrcError("a logistic fit needs rows of finite numbers, one label in [0, 1] each")
    if y.min() == y.max():
        raise FedsrcError("all training labels are the same", hint="train on supported and unsupported answers")
    if not 0 < penalty < np.inf:  # false for NaN
        raise FedsrcError(f"penalty {penalty:g} is not a positive number")
