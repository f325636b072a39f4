"""Fed-SRC-C: the range-only contrast certificate.

Notation
    D, A     noised cumulative contrast and accepted count, per threshold
    N        records so far
    V_D, V_A noise variances of D and A, per threshold
    eta      mixture-transfer term
"""

from __future__ import annotations

import numpy as np

from fedsrc.maths.arrays import Floats
from fedsrc.maths.boundaries import G, H


def d_upper(
    D: Floats,
    N: int,
    V_D: Floats,
    *,
    r_star: float,
    eta: float,
    alpha_s: float,
    alpha_n: float,
    v0: float,
) -> Floats:
    """Upper bound on the contrast d_{Q*,j}, for all thresholds and rounds at once.

    Paper: Theorem (contrast), eq. (dH).
    """
    m = D.shape[-1]
    width = H(N, c=2, m=m, alpha=alpha_s) + G(V_D, c=2, m=m, alpha=alpha_n, v0=v0)
    return np.minimum(1.0 - r_star, (D + width) / N + eta)


def a_lower(A: Floats, N: int, V_A: Floats, *, eta: float, alpha_s: float, alpha_n: float, v0: float) -> Floats:
    """Lower bound on acceptance a_{Q*,j}, on the same event as `d_upper`.

    Paper: Theorem (contrast), eq. (aH).
    """
    m = A.shape[-1]
    width = H(N, c=2, m=m, alpha=alpha_s) + G(V_A, c=2, m=m, alpha=alpha_n, v0=v0)
    return np.maximum(0.0, (A - width) / N - eta)
