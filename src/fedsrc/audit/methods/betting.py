"""The betting certificate for one target, through `fedsrc.maths.betting`, with the default bets or with tilted ones.

Native assumptions: predictable recruitment and a declared shift; any loss in [0, 1].
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from fedsrc.audit.methods.setting import Aim, Evidence, Method, Rule, Verdict, column, from_contrast
from fedsrc.maths import betting
from fedsrc.maths.arrays import Floats
from fedsrc.protocol.panels import One
from fedsrc.server.panel import nested

CACHED = 600  # looks times thresholds whose bets fit the processor's cache
TILTS = np.geomspace(0.05, 8.0, 48)
Bets = Callable[[float], Floats]  # of a target


def tilted(lam: ArrayLike, r: float) -> Floats:
    """Return the bet that an exponential tilt by lam makes: (e^{lam r} - e^{-lam(1-r)}) / phi, below 1/(1-r).

    phi = r e^{-lam(1-r)} + (1-r) e^{lam r}. Then 1 - theta(1-r) = e^{-lam(1-r)}/phi and 1 + theta r = e^{lam r}/phi:
    the chord-convexity e-process of exponential tilts is this betting process in other parameters.
    """
    lam = np.asarray(lam, dtype=np.float64)
    low, high = np.exp(-lam * (1.0 - r)), np.exp(lam * r)
    return np.asarray((high - low) / (r * low + (1.0 - r) * high), dtype=np.float64)


def contrast_upper(evidence: Evidence, aim: Aim, theta: Floats) -> Floats:
    """dbar per look and threshold, at most zero exactly when the wealth at the target has reached its line."""
    m = evidence.thresholds
    return betting.d_upper(
        evidence.unsupported, evidence.supported, evidence.noise, column(evidence.records),
        eta=column(evidence.eta), r_star=aim.target_risk, theta=theta, p=np.full(theta.size, 1.0 / theta.size),
        alpha_d=aim.risk_budget, w=np.full(m, 1.0 / m),
    )  # fmt: skip


def acceptance_lower(evidence: Evidence, aim: Aim) -> Floats:
    """Return the mixture bound on acceptance; a higher threshold's bound serves the thresholds below it."""
    m = evidence.thresholds
    a = betting.a_lower(
        evidence.accepted, evidence.V_A, column(evidence.records), eta=column(evidence.eta),
        bets=betting.centres(aim.min_acceptance), alpha_a=aim.acceptance_budget, w=np.full(m, 1.0 / m),
    )  # fmt: skip
    return nested(One(), a, 1)


def by_parts(bound: Callable[[Evidence], Floats], evidence: Evidence) -> Floats:
    """Compute a bound a few trials at a time, so that the work stays in the processor's cache."""
    trials = len(evidence.accepted)
    size = max(1, CACHED * trials // evidence.accepted.size)
    return np.concatenate([bound(evidence.at(slice(i, i + size))) for i in range(0, trials, size)])


def rule(bets: Bets) -> Rule:
    """Return the certificate with those bets. With declared weights, what an earlier look showed stays shown."""

    def judge(evidence: Evidence, aim: Aim) -> Verdict:
        theta = bets(aim.target_risk)
        d = by_parts(lambda each: contrast_upper(each, aim, theta), evidence)
        a = by_parts(lambda each: acceptance_lower(each, aim), evidence)
        if evidence.declared:
            d, a = np.minimum.accumulate(d, axis=-2), np.maximum.accumulate(a, axis=-2)
        return from_contrast(d, a, aim)

    return judge


BETS: dict[str, Bets] = {
    "betting": lambda r: np.asarray(betting.ladder([r]).theta[0], dtype=np.float64),  # the product's
    "betting-tilted": lambda r: tilted(TILTS, r),
}
METHODS = tuple(
    Method(
        name, rule(bets), "own", ("predictable recruitment", "declared shift"),
        private=True, anytime=True, stops="at any look", source="docs/theory.md, (iv)",
    )
    for name, bets in BETS.items()
)  # fmt: skip
