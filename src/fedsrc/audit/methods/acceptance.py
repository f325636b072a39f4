"""Lower bounds on acceptance for methods that bring none of their own: exact at a fixed n, or stitched at all n."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv

from fedsrc.audit.methods.setting import Aim, Evidence, column
from fedsrc.maths.arrays import Floats
from fedsrc.maths.boundaries import H


def exact_lower(A: Floats, N: Floats, level: ArrayLike) -> Floats:
    """Clopper-Pearson at a fixed N: Beta^{-1}(level; A, N - A + 1), zero where nothing was accepted."""
    some = A > 0
    return np.where(some, betaincinv(np.where(some, A, 1.0), N - np.where(some, A, 1.0) + 1.0, level), 0.0)


def fixed_n(evidence: Evidence, aim: Aim) -> Floats:
    """Clopper-Pearson with the acceptance budget shared by the thresholds."""
    level = aim.acceptance_budget / evidence.thresholds
    return exact_lower(evidence.accepted, column(evidence.records), level)


def anytime(evidence: Evidence, aim: Aim) -> Floats:
    """(A - H_1(N)) / N with the acceptance budget: valid for all thresholds and looks at once, on exact counts."""
    N = column(evidence.records)
    width = H(N, c=1, m=evidence.thresholds, alpha=aim.acceptance_budget)
    return np.asarray(np.maximum(0.0, (evidence.accepted - width) / N), dtype=np.float64)
