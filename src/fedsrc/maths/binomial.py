"""Exact binomial intervals."""

from __future__ import annotations

from typing import NamedTuple

from scipy.special import betaincinv


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
