"""Candidate thresholds: exact quantiles of scores, or a public grid."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_FLOOR, Decimal

import numpy as np

from fedsrc.maths.arrays import Floats


def quantile_thresholds(scores: Floats, count: int) -> tuple[float, ...]:
    """Return the j/(count+1) quantiles of development scores; ties are merged."""
    levels = np.arange(1, count + 1) / (count + 1)
    return tuple(float(x) for x in np.unique(np.quantile(scores, levels)))


def in_few_digits(thresholds: Sequence[float], scores: Floats) -> tuple[float, ...]:
    """Return thresholds that accept the same of these scores, in as few decimals as that takes."""
    known = np.unique(scores).tolist()
    least = np.unique(np.searchsorted(known, thresholds)).tolist()  # known[i] is the least score accepted
    return tuple(_between(known[i - 1], known[i]) if i else known[0] for i in least)


def _between(low: float, high: float) -> float:
    """Return the number in (low, high] with the fewest decimals; of these the largest."""
    exact = Decimal(repr(high))
    for decimals in range(18):
        short = float(exact.quantize(Decimal(1).scaleb(-decimals), rounding=ROUND_FLOOR))
        if short > low:
            return short
    return high


def grid_thresholds(count: int) -> tuple[float, ...]:
    """Return a public grid, evenly spaced inside (0, 1): it depends on no record."""
    return tuple(j / (count + 1) for j in range(1, count + 1))


def round_grid(count: int) -> tuple[float, ...]:
    """Return the grid in so few decimals that people can read it: 4 up to 99 thresholds."""
    decimals = len(str(count)) + 2
    return tuple(round(x, decimals) for x in grid_thresholds(count))
