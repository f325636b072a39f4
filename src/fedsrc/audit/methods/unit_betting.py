"""Betting on one unit after the other, without privacy: what a statistician who sees every unit does.

Native assumptions: i.i.d. units, exact masses. Bets are predictable, so the wealth at a threshold whose risk is above
target is a supermartingale, and one over the largest wealth so far is a p-value at every look. Waudby-Smith and Ramdas
(2024). Thresholds are tested from the one that development units favour downwards.

Notation
    d        contrast of one unit at a threshold, r s - (1-r) u, in [-(1-r), r]; its mean is at most zero in the null
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedsrc.audit.methods import acceptance, ltt
from fedsrc.audit.methods.setting import Aim, Evidence, Method, Verdict, verdict
from fedsrc.maths.arrays import Floats, Ints


def log_wealth(known: Floats, fresh: Floats, r: float) -> Floats:
    """Return log prod (1 + theta_i d_i) after every fresh unit (n, m), theta_i near mean over second moment so far,
    of known units and the fresh ones before it."""
    everything = np.vstack([known, fresh])
    count = np.arange(len(known), len(everything))[:, None]
    mean, square = (np.cumsum(each, axis=0)[len(known) - 1 : -1] / count for each in (everything, everything**2))
    theta = np.clip(mean / np.maximum(square, 1e-9), 0.0, 0.9 / (1.0 - r))
    return np.asarray(np.cumsum(np.log1p(theta * fresh), axis=0))


def p_value(log_wealth: Floats) -> Floats:
    """One over the largest wealth so far, at most 1."""
    return np.asarray(np.exp(-np.maximum(log_wealth, 0.0)))


def wealth_at_looks(known: Floats, units: Floats, came: Sequence[Ints], r: float) -> Floats:
    """Return the largest log-wealth up to each look (B, T, m), of contrasts of known units, of all units, and which of
    these came with each look, in order (B, n), -1 for none."""
    found = np.zeros((len(came[0]), len(came), units.shape[1]))
    for trial, largest in enumerate(found):
        each = [look[trial][look[trial] >= 0] for look in came]
        most = np.maximum.accumulate(log_wealth(known, units[np.concatenate(each)], r), axis=0)
        ends = np.cumsum([part.size for part in each])
        largest[ends > 0] = most[ends[ends > 0] - 1]
    return found


def judge(evidence: Evidence, aim: Aim) -> Verdict:
    """Test in sequence at every look; the acceptance floor by the stitched boundary."""
    a = acceptance.anytime(evidence, aim)
    assert evidence.wealth is not None  # what it is given
    assert evidence.first is not None
    shown = ltt.sequence_from(p_value(evidence.wealth), aim.risk_budget, evidence.first)
    return verdict(shown & (a >= aim.min_acceptance), acceptance=a)


METHODS = (
    Method(
        "unit-betting", judge, "textbook", ("i.i.d.", "homogeneous sites", "no shift", "exact counts"),
        role="reference", anytime=True, stops="at any look", given="exact units and development",
        source="Waudby-Smith and Ramdas 2024, JRSS B 86",
    ),
)  # fmt: skip
