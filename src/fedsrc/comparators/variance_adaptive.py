"""Fed-SRC-VA, the paper's variance-adaptive certificate, through `fedsrc.maths.variance_adaptive`.

Native assumptions: predictable recruitment and a declared shift.
"""

from __future__ import annotations

import numpy as np

from fedsrc.comparators.setting import Aim, Bools, Evidence, Method, Verdict, column, from_contrast
from fedsrc.maths import variance_adaptive
from fedsrc.maths.boundaries import Floats


def bounds(evidence: Evidence, aim: Aim, looks: Bools) -> tuple[Floats, Floats]:
    """(dbar, a_lower) at those looks (..., T), which share their number of records: rows (looks, m)."""
    r, half = aim.target_risk, aim.failure_probability / 2.0
    N, eta = int(evidence.records[looks][0]), column(evidence.eta[looks])
    budget = {"alpha_s": half, "alpha_n": half, "v0": evidence.unit}
    D, A, V_D, V_A = (x[looks] for x in (evidence.contrast(r), evidence.accepted, evidence.V_D(r), evidence.V_A))
    d = variance_adaptive.d_upper(D, A, N, V_D, V_A, r_star=r, eta=eta, **budget)
    return d, variance_adaptive.a_lower(A, N, V_A, eta=eta, **budget)


def judge(evidence: Evidence, aim: Aim) -> Verdict:
    """The paper's bounds with half the budget for sampling and half for noise, one number of records at a time."""
    d, a = np.empty_like(evidence.accepted), np.empty_like(evidence.accepted)
    for N in np.unique(evidence.records):
        looks = evidence.records == N
        d[looks], a[looks] = bounds(evidence, aim, looks)
    return from_contrast(d, a, aim)


METHODS = (
    Method(
        "fed-src-va", judge, "paper", ("predictable recruitment", "declared shift"),
        private=True, anytime=True, stops="at any look",
    ),
)  # fmt: skip
