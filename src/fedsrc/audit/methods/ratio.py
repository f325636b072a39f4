"""The private ratio certificate of the paper, through `fedsrc.maths.ratio`.

Native assumptions: predictable recruitment and a declared shift.
"""

from __future__ import annotations

import numpy as np

from fedsrc.audit.methods.setting import Aim, Evidence, Method, Verdict, column, verdict
from fedsrc.maths import ratio


def judge(evidence: Evidence, aim: Aim) -> Verdict:
    """U^Z over L^A; both floors imposed as on every other method."""
    N, eta, half = column(evidence.records), column(evidence.eta), aim.failure_probability / 2.0
    budget = {"alpha_s": half, "alpha_n": half, "v0": evidence.unit}
    U_Z, L_A = ratio.mean_bounds(evidence.unsupported, evidence.accepted, N, evidence.noise.uu, evidence.V_A, **budget)
    risk, a = ratio.risk_upper(U_Z, L_A, eta=eta), np.maximum(0.0, L_A - eta)
    certified = np.asarray((risk <= aim.target_risk) & (a >= aim.min_acceptance))
    return verdict(certified, risk=risk, acceptance=a)


METHODS = (
    Method(
        "ratio", judge, "paper", ("predictable recruitment", "declared shift"),
        private=True, anytime=True, stops="at any look",
    ),
)  # fmt: skip
