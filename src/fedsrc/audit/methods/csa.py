"""Conformal Selective Acting (Khosravi and Huo 2026): one adaptive bet per threshold against "risk above target".

Native assumptions: the conditional mean of X = A(l - r) is not negative at every record under the null. With sites that
differ and a bet that follows the data, that is more than "the mixture's risk is above target": homogeneous sites. Exact
counts, binary loss. Records of one round are processed as a batch with the bet frozen before it. The source claims no
acceptance; the floor is ours, from half of the failure probability that its union leaves unspent.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedsrc.audit.methods import acceptance
from fedsrc.audit.methods.setting import Aim, Evidence, Method, Rule, Verdict, column, verdict
from fedsrc.maths.arrays import Floats

Mean = Literal["paper", "code"]
MEANS: tuple[Mean, ...] = ("paper", "code")


def bets(A: Floats, Z: Floats, N: Floats, r: float, mean: Mean) -> Floats:
    """lam_t = clip(-mu_{t-1} / (1-r)^2, 0, 1/(2(1-r))), zero in the first round, from cumulative sums (..., T, m).

    mu is the mean of X over all records ("paper") or over accepted ones ("code").
    """
    count = np.maximum(N if mean == "paper" else A, 1.0)
    lam = np.clip(-(Z - r * A) / count / (1.0 - r) ** 2, 0.0, 1.0 / (2.0 * (1.0 - r)))
    return np.concatenate([np.zeros_like(lam[..., :1, :]), lam[..., :-1, :]], axis=-2)


def log_wealth(A: Floats, Z: Floats, N: Floats, r: float, mean: Mean) -> Floats:
    """Sum over rounds of (dA - dZ) log(1 + lam r) + dZ log(1 - lam (1-r)); dA, dZ are a round's own counts."""
    lam = bets(A, Z, N, r, mean)
    dA, dZ = (np.diff(x, axis=-2, prepend=0.0) for x in (A, Z))
    return np.cumsum((dA - dZ) * np.log1p(lam * r) + dZ * np.log1p(-lam * (1.0 - r)), axis=-2)


def rule(mean: Mean) -> Rule:
    """Certify at wealth 2m/alpha, once and for all (a single epoch)."""

    def judge(evidence: Evidence, aim: Aim) -> Verdict:
        N = column(evidence.records)
        log_E = log_wealth(evidence.accepted, evidence.unsupported, N, aim.target_risk, mean)
        reached = log_E >= np.log(2 * evidence.thresholds / aim.failure_probability)
        a = acceptance.anytime(evidence, aim)
        shown = np.logical_or.accumulate(reached, axis=-2) & (a >= aim.min_acceptance)
        return verdict(np.asarray(shown), acceptance=a)

    return judge


METHODS = tuple(
    Method(
        f"csa-{mean}", rule(mean), "code", ("homogeneous sites", "no shift", "exact counts", "binary loss"),
        anytime=True, stops="at any look", source="Khosravi and Huo 2026, arXiv 2605.20270",
    )
    for mean in MEANS
)  # fmt: skip
