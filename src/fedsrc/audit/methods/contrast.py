"""Fed-SRC-C, the paper's range-only contrast certificate, through `fedsrc.maths.contrast`.

Native assumptions: predictable recruitment and a declared shift.
"""

from __future__ import annotations

from fedsrc.audit.methods.setting import Aim, Evidence, Method, Verdict, column, from_contrast
from fedsrc.maths import contrast


def judge(evidence: Evidence, aim: Aim) -> Verdict:
    """The paper's bounds with half the budget for sampling and half for noise."""
    r, N, eta, half = aim.target_risk, column(evidence.records), column(evidence.eta), aim.failure_probability / 2.0
    budget = {"alpha_s": half, "alpha_n": half, "v0": evidence.unit}
    d = contrast.d_upper(evidence.contrast(r), N, evidence.V_D(r), r_star=r, eta=eta, **budget)
    a = contrast.a_lower(evidence.accepted, N, evidence.V_A, eta=eta, **budget)
    return from_contrast(d, a, aim)


METHODS = (
    Method(
        "fed-src-c", judge, "paper", ("predictable recruitment", "declared shift"),
        private=True, anytime=True, stops="at any look",
    ),
)  # fmt: skip
