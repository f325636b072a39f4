"""Exact binomial tails, bounds and intervals."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, betaincinv

from fedsrc.maths.arrays import Floats


def at_most(k: ArrayLike, n: ArrayLike, p: ArrayLike) -> Floats:
    """P(Bin(n, p) <= k), for whole k and n; noised counts may be negative."""
    k, n = np.asarray(k, dtype=np.float64), np.asarray(n, dtype=np.float64)
    inside = k < n
    left, right = np.where(inside, n - k, 1.0), np.maximum(k, 0.0) + 1.0
    return np.asarray(np.where(inside, betainc(left, right, 1.0 - np.asarray(p)), 1.0))


def log_surprise(U: ArrayLike, A: ArrayLike, r: ArrayLike) -> Floats:
    """-log P(Bin(A, r) <= U): how little a risk of r explains, of A accepted answers, only U unsupported ones.

    Theory: (xiii) Exact counts.
    """
    return np.asarray(-np.log(np.maximum(at_most(U, A, r), 1e-300)))


def risk_upper(U: ArrayLike, A: ArrayLike, alpha: ArrayLike) -> Floats:
    """The largest risk at which so few unsupported answers have probability alpha (Clopper and Pearson 1934).

    Theory: (xiii) Exact counts.
    """
    U, A = np.asarray(U, dtype=np.float64), np.asarray(A, dtype=np.float64)
    left = np.maximum(A - U, 0.5)
    return np.asarray(np.where(U >= A, 1.0, 1.0 - betaincinv(left, U + 1.0, alpha)))


class Interval(NamedTuple):
    """A closed interval of probabilities."""

    low: float
    high: float


def clopper_pearson(k: int, n: int, alpha: float = 0.05) -> Interval:
    """Exact two-sided interval for a proportion after k of n.

    Paper: Appendix "Metrics and uncertainty".
    """
    low = 0.0 if k == 0 else float(betaincinv(k, n - k + 1, alpha / 2))
    high = 1.0 if k == n else float(betaincinv(k + 1, n - k, 1 - alpha / 2))
    return Interval(low, high)
