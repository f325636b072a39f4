"""Fed-SRC: the ratio certificate, a risk bound that needs no declared target.

Notation
    Z, A     noised cumulative loss and accepted count, per threshold
    V_Z, V_A their noise variances (equal in the paper's paired release)
"""

from __future__ import annotations

import numpy as np

from fedsrc.maths.arrays import Floats
from fedsrc.maths.boundaries import G, H


def mean_bounds(
    Z: Floats, A: Floats, N: int, V_Z: Floats, V_A: Floats, *, alpha_s: float, alpha_n: float, v0: float
) -> tuple[Floats, Floats]:
    """(U^Z, L^A): upper bound on the mean loss and lower bound on the mean acceptance, clipped to [0, 1].

    Paper: eqs. (Uz), (La).
    """
    m = A.shape[-1]
    h = H(N, c=2, m=m, alpha=alpha_s)
    U_Z = np.clip((Z + h + G(V_Z, c=2, m=m, alpha=alpha_n, v0=v0)) / N, 0.0, 1.0)
    L_A = np.clip((A - h - G(V_A, c=2, m=m, alpha=alpha_n, v0=v0)) / N, 0.0, 1.0)
    return U_Z, L_A


def risk_upper(U_Z: Floats, L_A: Floats, *, eta: float) -> Floats:
    """Upper bound on the selective risk R_{Q*,j}; one (no claim) where acceptance is not shown to exceed eta.

    Paper: Theorem (main), eq. (finalU).
    """
    denominator = np.where(eta < L_A, L_A - eta, 1.0)
    return np.where(eta < L_A, np.minimum(1.0, (U_Z + eta) / denominator), 1.0)
