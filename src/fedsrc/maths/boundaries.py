"""Stitched anytime boundaries H, G and F.

Notation
    q        epoch: the doubling interval that holds the record count or the noise variance
    pi_q     epoch weight, 6 / (pi^2 (q+1)^2), summing to one over q = 0, 1, ...
    x_q      log(c m / (alpha pi_q))
    c        number of one-sided process families that share the budget alpha
    m        number of thresholds
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedsrc.maths.arrays import Floats


def ceil_log2(x: ArrayLike) -> NDArray[np.int64]:
    """ceil(log2 x) for x > 0, exact at powers of two (a float log2 is not)."""
    mantissa, exponent = np.frexp(np.asarray(x, dtype=np.float64))
    return np.where(mantissa == 0.5, exponent - 1, exponent).astype(np.int64)


def x_q(q: ArrayLike, *, c: int, m: int, alpha: float) -> Floats:
    """x_q = log(c m / (alpha pi_q)).

    Paper: Appendix "Stitched Anytime Boundaries", eq. (stitch).
    """
    pi_q = 6.0 / (np.pi**2 * (np.asarray(q, dtype=np.float64) + 1.0) ** 2)
    return np.asarray(np.log(c * m / (alpha * pi_q)), dtype=np.float64)


def H(n: ArrayLike, *, c: int, m: int, alpha: float) -> Floats:
    """Sampling boundary after n >= 1 records: sqrt(2^q x_q / 2), q = ceil(log2 n).

    Paper: eq. (H).
    """
    q = ceil_log2(n)
    return np.asarray(np.sqrt(np.exp2(q) / 2.0 * x_q(q, c=c, m=m, alpha=alpha)), dtype=np.float64)


def G(v: ArrayLike, *, c: int, m: int, alpha: float, v0: float) -> Floats:
    """Noise boundary at noise variance v >= 0: sqrt(2 v0 2^q x_q), q = max(0, ceil(log2(v/v0))); 0 at v = 0.

    Paper: eq. (G).
    """
    v = np.asarray(v, dtype=np.float64)
    q = np.maximum(0, ceil_log2(np.where(v > 0, v, v0) / v0))
    g = np.sqrt(2.0 * v0 * np.exp2(q) * x_q(q, c=c, m=m, alpha=alpha))
    return np.asarray(np.where(v == 0, 0.0, g), dtype=np.float64)


def F(q_bar: ArrayLike, *, c: int = 3, m: int, alpha: float) -> Floats:
    """Freedman boundary at accepted mass q_bar: max over epochs i <= ceil(log2 max(q_bar, 1)).

    Both sqrt(2^{i+1} x_i) and x_i grow with i, so the maximum is the last epoch's value.

    Paper: eq. (F).
    """
    i = ceil_log2(np.maximum(np.asarray(q_bar, dtype=np.float64), 1.0))
    x = x_q(i, c=c, m=m, alpha=alpha)
    return np.asarray(np.sqrt(np.exp2(i + 1) * x) + 2.0 / 3.0 * x, dtype=np.float64)
