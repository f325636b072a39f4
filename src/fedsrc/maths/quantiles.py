"""Quantiles of a law on [0, 1] from noised masses: one release of development units gives the thresholds.

Notation
    x    points of a public grid, increasing
    A    noised mass at or above each of them
    n    the mass of all units
    v    variance of the noise in A, where it is largest
    g, k, s    mass grid, bits of the suffix basis and noise scale of the release, as in `basis`
    m    how many quantiles are wanted

Theory: (v), The whole table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.optimize import isotonic_regression

from fedsrc.maths.arrays import Floats
from fedsrc.maths.basis import Basis

DOUBT = 2.0  # standard deviations of the noise, as a share of the units, are the weight of the grid itself
ENDS = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005)


def score_grid() -> tuple[float, ...]:
    """111 public points: hundredths, and denser near 0 and 1, where the scores of many detectors crowd."""
    ends, middle = [*ENDS], [j / 100 for j in range(1, 100)]
    return (*ends, *middle, *(round(1 - x, 4) for x in reversed(ends)))


def released_quantiles(
    x: Sequence[float], released: Sequence[Sequence[int]], m: int, *, k: int, g: int, s: float, n: int, known: bool
) -> tuple[float, ...]:
    """m quantiles from the two vectors of a complementary release in the suffix basis, as integers with noise.

    `known`: every unit adds mass 1, so that the mass of all is n; otherwise it is what the first suffix says.
    """
    basis = Basis("suffix", len(x), k)
    A = basis.decode(np.sum(np.asarray(released, dtype=np.float64), axis=0) / g)
    v = 2.0 * (s / g) ** 2 * float(basis.variance_factor().max())
    return noised_quantiles(np.asarray(x), A, float(n) if known else min(float(n), float(A[0])), v, m)


def doubt(n: float, v: float) -> float:
    """The weight, at most 1, that the grid itself gets beside n units seen through noise of variance v.

    At 1 nothing is left of what was released, and nothing need be.
    """
    return min(1.0, DOUBT * math.sqrt(v) / n) if n > 0 else 1.0


def noised_quantiles(x: Floats, A: Floats, n: float, v: float, m: int) -> tuple[float, ...]:
    """The points of the grid nearest to the j/(m+1) quantiles, j = 1..m; ties are merged.

    The shares A / n are made falling (least squares) and cut to [0, 1]; where noise would leave them flat, or make
    them jump, the grid's own even shares are mixed in. Nothing but released and public numbers enters.

    See docs/theory.md, (v) The whole table.
    """
    weight, even = doubt(n, v), 1.0 - np.arange(1, x.size + 1) / (x.size + 1)
    falling = np.clip(isotonic_regression(A, increasing=False).x / max(n, 1e-9), 0.0, 1.0)
    shares = np.round((1.0 - weight) * falling + weight * even, 9)
    levels = 1.0 - np.arange(1, m + 1) / (m + 1)
    nearest = [int(np.abs(shares - level).argmin()) for level in levels]  # one by one: together they may not fit
    return tuple(float(point) for point in x[np.unique(nearest)])
