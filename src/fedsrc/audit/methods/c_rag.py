"""C-RAG (Kang et al. 2024): a certified risk per configuration, by inverting the Hoeffding-Bentkus p-value.

Native assumptions: i.i.d. records, their number fixed beforehand, exact counts; one RAG configuration per test.
Adapter: "accept at threshold j" is the configuration, its accepted records the sample, and the union over
configurations Bonferroni; then it decides exactly as `ltt-hb-bonferroni`, and says how low the risk is besides.
"""

from __future__ import annotations

import numpy as np
from scipy.special import betaincinv, rel_entr

from fedsrc.audit.methods import acceptance
from fedsrc.audit.methods.setting import Aim, Evidence, Method, Verdict, verdict
from fedsrc.maths.arrays import Floats


def hoeffding_upper(Z: Floats, A: Floats, level: float) -> Floats:
    """Return the largest a with exp(-A kl(Z/A, a)) >= level, by bisection from above; 1 where nothing was accepted."""
    n = np.maximum(A, 1.0)
    rate = np.clip(Z / n, 0.0, 1.0)
    cost = np.log(1.0 / level) / n
    low, high = rate, np.minimum(1.0, rate + np.sqrt(cost / 2.0))
    for _ in range(48):
        middle = (low + high) / 2.0
        below = rel_entr(rate, middle) + rel_entr(1.0 - rate, 1.0 - middle) < cost
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.where(A > 0, high, 1.0)


def bentkus_upper(Z: Floats, A: Floats, level: float) -> Floats:
    """Return the root a of e P[Bin(A, a) <= ceil(Z)] = level: Beta^{-1}(1 - level/e; k + 1, A - k)."""
    k = np.maximum(np.ceil(Z - 1e-9), 0.0)
    inside = k < A
    return np.where(inside, betaincinv(k + 1.0, np.where(inside, A - k, 1.0), 1.0 - level / np.e), 1.0)


def risk_upper(Z: Floats, A: Floats, level: float) -> Floats:
    """Return the smaller of the two inversions."""
    return np.minimum(hoeffding_upper(Z, A, level), bentkus_upper(Z, A, level))


def judge(evidence: Evidence, aim: Aim) -> Verdict:
    """Risk bound at alpha/m on the accepted records; Clopper-Pearson for acceptance."""
    risk = risk_upper(evidence.unsupported, evidence.accepted, aim.risk_budget / evidence.thresholds)
    a = acceptance.fixed_n(evidence, aim)
    certified = np.asarray((risk <= aim.target_risk) & (a >= aim.min_acceptance))
    return verdict(certified, risk=risk, acceptance=a)


METHODS = (
    Method(
        "c-rag", judge, "code", ("i.i.d.", "no shift", "fixed n", "exact counts"),
        role="reference", source="Kang et al. 2024, ICML; adapter: accepted records as the configuration",
    ),
)  # fmt: skip
