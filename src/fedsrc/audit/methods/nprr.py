"""Local privacy: randomised response on a grid, and its confidence sequence (Waudby-Smith, Wu and Ramdas 2023).

Native assumptions: every record is randomised by itself before anyone sees it; values in [0, 1]. Formulas only: it
reads single randomised records, not histograms, and m thresholds would share each record's budget.

Notation
    G        values are rounded at random to {0, 1/G, ..., 1}; G = 1 is Warner's response
    keep     r', the probability of keeping the value; otherwise uniform on the grid
    lam      a predictable sequence of steps
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fedsrc.maths.arrays import Floats


def keep_probability(eps: float, G: int = 1) -> float:
    """r' = (e^eps - 1) / (e^eps + G)."""
    return float(np.expm1(eps) / (np.exp(eps) + G))


def privacy_loss(keep: float, G: int = 1) -> float:
    """eps = log(1 + (G+1) r' / (1 - r'))."""
    return float(np.log1p((G + 1) * keep / (1.0 - keep)))


def steps(t: ArrayLike, alpha: float) -> Floats:
    """lam_t = min(1, sqrt(8 log(2/alpha) / (t log(t+1)))), t = 1, 2, ..."""
    t = np.asarray(t, dtype=np.float64)
    return np.asarray(np.minimum(1.0, np.sqrt(8.0 * np.log(2.0 / alpha) / (t * np.log(t + 1.0)))), dtype=np.float64)


def sequence(Z: Floats, keep: float, alpha: float) -> tuple[Floats, Floats]:
    """Centre and radius after each of the randomised values Z (..., t): two-sided, Hoeffding.

    Centre sum lam (Z - (1-r')/2) / sum r' lam, radius (log(2/alpha) + sum lam^2/8) / sum r' lam.
    """
    lam = steps(np.arange(1, Z.shape[-1] + 1), alpha)
    weight = keep * np.cumsum(lam)
    centre = np.cumsum(lam * (Z - (1.0 - keep) / 2.0), axis=-1) / weight
    return centre, (np.log(2.0 / alpha) + np.cumsum(lam**2) / 8.0) / weight
