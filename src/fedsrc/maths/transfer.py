"""eta: how far the calibrated mixture may be from the declared deployment mixture."""

from __future__ import annotations

import numpy as np

from fedsrc.maths.arrays import Floats


def eta(w: Floats, N_k: Floats, gamma: Floats) -> float:
    """Half the L1 distance of declared weights w from realised shares N_k / N, plus declared drift sum_k w_k gamma_k.

    Paper: eq. (eta), Lemma (shift).
    """
    share = np.asarray(N_k, dtype=np.float64) / np.sum(N_k)
    return float(0.5 * np.sum(np.abs(w - share)) + np.sum(w * gamma))
