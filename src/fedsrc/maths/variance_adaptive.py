"""Fed-SRC-VA: the variance-adaptive contrast certificate (symbols as in `contrast`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fedsrc.maths.arrays import Floats
from fedsrc.maths.boundaries import F, G, H


def q_bar(A: Floats, N: ArrayLike, V_A: Floats, *, alpha_s: float, alpha_n: float, v0: float) -> Floats:
    """Upper bound on the accepted mass, which bounds the contrast's predictable variation.

    Paper: eq. (qbar).
    """
    m = A.shape[-1]
    width = H(N, c=3, m=m, alpha=alpha_s) + G(V_A, c=3, m=m, alpha=alpha_n, v0=v0)
    return np.clip(A + width, 0.0, np.asarray(N, dtype=np.float64))


def d_upper(
    D: Floats,
    A: Floats,
    N: int,
    V_D: Floats,
    V_A: Floats,
    *,
    r_star: float,
    eta: float,
    alpha_s: float,
    alpha_n: float,
    v0: float,
) -> Floats:
    """Upper bound on the contrast d_{Q*,j} through Freedman's inequality.

    Paper: Theorem (contrast), eq. (dVA).
    """
    m = D.shape[-1]
    q = q_bar(A, N, V_A, alpha_s=alpha_s, alpha_n=alpha_n, v0=v0)
    width = F(q, m=m, alpha=alpha_s) + G(V_D, c=3, m=m, alpha=alpha_n, v0=v0)
    return np.minimum(1.0 - r_star, (D + width) / N + eta)


def a_lower(A: Floats, N: int, V_A: Floats, *, eta: float, alpha_s: float, alpha_n: float, v0: float) -> Floats:
    """Lower bound on acceptance a_{Q*,j}, on the same event as `d_upper`.

    Paper: Theorem (contrast), eq. (aVA).
    """
    m = A.shape[-1]
    width = H(N, c=3, m=m, alpha=alpha_s) + G(V_A, c=3, m=m, alpha=alpha_n, v0=v0)
    return np.maximum(0.0, (A - width) / N - eta)
