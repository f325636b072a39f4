"""The exact tail of noise: where a noised log e-value rejects, when its noise is known.

Notation
    L        log of an e-value of the data: E exp(L) <= 1 under the null
    nu       variance of Gaussian noise added to L, independent of the data
    b, s     discrete noise: L + b.X, the X_i independent discrete Gaussians of scale s >= 1
    c        the critical value: P(L + noise >= c) <= alpha

Theory: (xiii) Sealed looks, Exact tail.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, ndtri

from fedsrc.maths.arrays import Floats

MARGIN = 1e-9  # what an inexact maximum may lack; added to every critical value
FARTHEST = 40.0  # log Phibar is computed accurately at least this far on both sides


@lru_cache(maxsize=65_536)
def critical(alpha: float, nu: float) -> float:
    """c(alpha, nu) = log(1/alpha) + max over y <= z_alpha of log Phibar(y) + y sqrt(nu).

    P(L + N(0, nu) >= c) <= alpha for every L with E exp(L) <= 1, with equality for one of them. Not monotone in nu: it
    falls until sqrt(nu) is about 0.8. Theory: (xiii) Exact tail.
    """
    if nu == 0:
        return math.log(1.0 / alpha)
    return math.log(1.0 / alpha) + _peak(math.sqrt(nu), -float(ndtri(alpha))) + MARGIN


def criticals(alpha: ArrayLike, nu: ArrayLike, *, within: bool = False) -> Floats:
    """c(alpha, nu) of whole arrays, from above; `within` for all noise variances up to nu. Theory: (xiii) Exact tail.

    The peak of a concave function, by Newton's method from a table: what it lacks is far below the margin.
    """
    alpha, sd = np.asarray(alpha, dtype=np.float64), np.sqrt(np.asarray(nu, dtype=np.float64))
    y = np.interp(sd, *_hazards())
    for _ in range(2):
        hazard = np.exp(-y * y / 2.0 - math.log(2.0 * math.pi) / 2.0 - log_ndtr(-y))
        y = y - (hazard - sd) / np.maximum(hazard * (hazard - y), 1e-12)
    y = np.minimum(y, -ndtri(alpha))
    more = np.where(sd > 0, log_ndtr(-y) + y * sd + MARGIN, 0.0)
    return np.asarray((np.maximum(more, 0.0) if within else more) - np.log(alpha))


def critical_near(alpha: ArrayLike, nu: ArrayLike, *, within: bool = False) -> Floats:
    """c(alpha, nu) of whole arrays, to 1e-6 and maybe from below: for plans and simulations, never a certificate;
    `within` as above."""
    alpha, sd = np.asarray(alpha, dtype=np.float64), np.sqrt(np.asarray(nu, dtype=np.float64))
    y = np.minimum(np.interp(sd, *_hazards()), -ndtri(alpha))
    more = np.where(sd > 0, log_ndtr(-y) + y * sd, 0.0)
    return np.asarray((np.maximum(more, 0.0) if within else more) - np.log(alpha), dtype=np.float64)


def critical_within(alpha: float, nu: float) -> float:
    """The largest critical value of all noise variances up to nu: max(log(1/alpha), c(alpha, nu)).

    For noise that may be less than stated. Theory: (xiii) Exact tail.
    """
    return max(math.log(1.0 / alpha), critical(alpha, nu))


def critical_hybrid(alpha: float, nu_before: float, nu_last: float) -> float:
    """log(1/alpha) + nu_before/2 + max over y of log Phibar(y) + y sqrt(nu_last).

    Only the last round's releases and scales must be fixed given the past. Theory: (xiii) Exact tail, hybrid line.
    """
    last = _peak(math.sqrt(nu_last), math.inf) + MARGIN if nu_last > 0 else 0.0
    return math.log(1.0 / alpha) + nu_before / 2.0 + last


def discrete_shift(b: Floats) -> Floats:
    """|b|_1 over the last axis: what discrete noise adds to the critical value of the Gaussian with variance s^2 |b|^2.

    A discrete Gaussian of scale s >= 1 is stochastically at most N(0, s^2) + 1.

    Theory: (xiii) Exact tail, discrete noise.
    """
    return np.asarray(np.abs(b).sum(axis=-1))


def _peak(sd: float, top: float) -> float:
    """max over y <= top of log Phibar(y) + y sd: concave, so its slope is bisected; from above."""
    low, high = -FARTHEST, min(top, sd + 1.0)  # the hazard phi/Phibar exceeds y, so it reaches sd before y does
    if _slope(high, sd) >= 0:
        return _value(high, sd)
    for _ in range(80):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _slope(middle, sd) >= 0 else (low, middle)
    return max(_value(low, sd), _value(high, sd))


@lru_cache(maxsize=1)
def _hazards() -> tuple[Floats, Floats]:
    """phi/Phibar, increasing, and where it is reached: there log Phibar(y) + y sd has its peak for sd = phi/Phibar."""
    y = np.linspace(-8.0, FARTHEST, 20_001)
    return np.exp(-y * y / 2.0 - math.log(2.0 * math.pi) / 2.0 - log_ndtr(-y)), y


def _value(y: float, sd: float) -> float:
    return float(log_ndtr(-y)) + y * sd


def _slope(y: float, sd: float) -> float:
    """sd minus the hazard phi(y) / Phibar(y)."""
    return sd - math.exp(-y * y / 2.0 - math.log(2.0 * math.pi) / 2.0 - float(log_ndtr(-y)))
