"""Half-lines: a total is tested by itself, and the best bet is free, because every bet rejects from some point on.

Notation
    D, nu    total of contrasts d = r s - (1-r) u over N units, and its noise variance
    abar     a bound on the mean accepted mass of the units that calibrate
    eta      the mixture-transfer term: the mean contrast is at most eta where the claim is false
    A, v, M  accepted mass of unlabelled units, its noise variance, and how many they count as

Theory: (xiii) Half-lines.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from fedsrc.maths.arrays import Floats
from fedsrc.maths.tail import criticals

THETA = np.geomspace(0.002, 12.0, 80)  # any bets are valid; these lose next to nothing against the best


def log_mean(r: ArrayLike, abar: ArrayLike, eta: float) -> Floats:
    """log(1 + abar g + eta h) for every bet on a last axis: what log E exp(theta d) is at most, on average over units.

    g = r e^{-theta(1-r)} + (1-r) e^{theta r} - 1, h = e^{theta r} - e^{-theta(1-r)}. Theory: (xiii) Half-lines.
    """
    r, abar = (np.asarray(each, dtype=np.float64)[..., None] for each in (r, abar))
    return np.asarray(np.log1p(abar * _g(r) + eta * _h(r)))


def half_line(
    alpha: ArrayLike, r: ArrayLike, N: ArrayLike, abar: ArrayLike, nu: ArrayLike, *, eta: float = 0.0,
    within: bool = False,
) -> Floats:  # fmt: skip
    """The least x with P(D + noise >= x) <= alpha that any bet shows: min (c(alpha, theta^2 nu) + N log_mean) / theta.

    Theory: (xiii) Half-lines.
    """
    return np.asarray(_lines(alpha, r, N, abar, nu, eta, within=within).min(axis=-1))


def best_bet(alpha: ArrayLike, r: ArrayLike, N: ArrayLike, abar: ArrayLike, nu: ArrayLike, eta: float) -> Floats:
    """The bet at which `half_line` is attained."""
    return np.asarray(THETA[_lines(alpha, r, N, abar, nu, eta, within=False).argmin(axis=-1)])


def least_contrast(
    D: ArrayLike, alpha: ArrayLike, r: ArrayLike, N: ArrayLike, abar: ArrayLike, nu: ArrayLike, *, within: bool = False
) -> Floats:
    """The largest mean contrast that is rejected, so that the true one is above: log_mean solved for eta, best bet.

    Theory: (xiii) Half-lines.
    """
    D, N, r, abar = (np.asarray(each, dtype=np.float64)[..., None] for each in (D, N, r, abar))
    grown = np.expm1((THETA * D - _criticals(alpha, nu, within=within)) / N)
    return np.asarray(((grown - abar * _g(r)) / _h(r)).max(axis=-1))


def acceptance_upper(A: ArrayLike, v: ArrayLike, M: ArrayLike, alpha: float) -> Floats:
    """min (log(1/alpha) + theta A + theta^2 v / 2) / (M (1 - e^{-theta})): mean accepted mass is at most this.

    Theory: (xiii) Unlabelled records.
    """
    A, v, M = (np.asarray(each, dtype=np.float64)[..., None] for each in (A, v, M))
    found = (math.log(1.0 / alpha) + THETA * A + THETA**2 * v / 2.0) / (M * -np.expm1(-THETA))
    return np.asarray(np.minimum(1.0, found.min(axis=-1)))


def acceptance_lower(A: ArrayLike, v: ArrayLike, M: ArrayLike, alpha: float) -> Floats:
    """max (theta A - theta^2 v / 2 - log(1/alpha)) / (M (e^theta - 1)): mean accepted mass is at least this.

    Theory: (xiii) Unlabelled records.
    """
    A, v, M = (np.asarray(each, dtype=np.float64)[..., None] for each in (A, v, M))
    found = (THETA * A - THETA**2 * v / 2.0 - math.log(1.0 / alpha)) / (M * np.expm1(THETA))
    return np.asarray(np.maximum(0.0, found.max(axis=-1)))


def _lines(
    alpha: ArrayLike, r: ArrayLike, N: ArrayLike, abar: ArrayLike, nu: ArrayLike, eta: float, *, within: bool
) -> Floats:
    """Where every bet on a last axis rejects from."""
    N = np.asarray(N, dtype=np.float64)[..., None]
    return (_criticals(alpha, nu, within=within) + N * log_mean(r, abar, eta)) / THETA


def _criticals(alpha: ArrayLike, nu: ArrayLike, *, within: bool) -> Floats:
    alpha, nu = (np.asarray(each, dtype=np.float64)[..., None] for each in (alpha, nu))
    return criticals(alpha, THETA**2 * nu, within=within)


def _g(r: Floats) -> Floats:
    return np.asarray(r * np.expm1(-THETA * (1.0 - r)) + (1.0 - r) * np.expm1(THETA * r))


def _h(r: Floats) -> Floats:
    return np.asarray(np.exp(THETA * r) - np.exp(-THETA * (1.0 - r)))
