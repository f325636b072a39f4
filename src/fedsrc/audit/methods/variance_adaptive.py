"""Fed-SRC-VA, the paper's variance-adaptive certificate, through `fedsrc.maths.variance_adaptive`.

Native assumptions: predictable recruitment and a declared shift.
"""

from __future__ import annotations

from fedsrc.audit.methods.setting import Aim, Evidence, Method, Verdict, column, from_contrast
from fedsrc.maths import variance_adaptive


def judge(evidence: Evidence, aim: Aim) -> Verdict:
    """The paper's bounds with half the budget for sampling and half for noise."""
    r, half = aim.target_risk, aim.failure_probability / 2.0
    N, eta, A, V_A = column(evidence.records), column(evidence.eta), evidence.accepted, evidence.V_A
    budget = {"alpha_s": half, "alpha_n": half, "v0": evidence.unit}
    d = variance_adaptive.d_upper(evidence.contrast(r), A, N, evidence.V_D(r), V_A, r_star=r, eta=eta, **budget)
    return from_contrast(d, variance_adaptive.a_lower(A, N, V_A, eta=eta, **budget), aim)


METHODS = (
    Method(
        "fed-src-va", judge, "paper", ("predictable recruitment", "declared shift"),
        private=True, anytime=True, stops="at any look",
    ),
)  # fmt: skip
