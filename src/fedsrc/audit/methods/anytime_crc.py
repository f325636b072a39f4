"""Anytime-Valid Conformal Risk Control (Hultberg, Zachariah and Ribeiro 2026), on the accepted records.

Native assumptions: i.i.d. records, a bounded loss that is monotone in the threshold, exact counts; valid for every n at
once. The formula was read in an independent implementation. The method is not selective: running it on each threshold's
accepted records, with a union over thresholds and an acceptance floor of ours, is a reconstruction.

Notation
    B        the loss lies in [0, B]; r the target, delta the failure probability
    m_star   the first number of records at which anything can be certified; gamma the margin after n records
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from fedsrc.audit.methods import acceptance
from fedsrc.audit.methods.setting import Aim, Evidence, Method, Verdict, verdict
from fedsrc.maths.arrays import Floats


def boundary(v: ArrayLike, m: ArrayLike, *, delta: float, B: float = 1.0) -> Floats:
    """f(v) = 1.44 sqrt(v h) + 2.42 B h, with h = 2 log(log2(max(v, m)/m) + 1) + log(pi^2/(6 delta))."""
    v, m = np.asarray(v, dtype=np.float64), np.asarray(m, dtype=np.float64)
    h = 2.0 * np.log(np.log2(np.maximum(v, m) / m) + 1.0) + np.log(np.pi**2 / (6.0 * delta))
    return np.asarray(1.44 * np.sqrt(v * h) + 2.42 * B * h, dtype=np.float64)


@lru_cache(maxsize=256)
def m_star(r: float, delta: float, B: float = 1.0) -> int:
    """Return the smallest m with f(r(B-r) m) / m <= r; the left side falls with m."""

    def enough(m: int) -> bool:
        return bool(boundary(r * (B - r) * m, m, delta=delta, B=B) <= r * m)

    high = 1
    while not enough(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def gamma(n: ArrayLike, r: float, delta: float, B: float = 1.0) -> Floats:
    """Return the margin f(r(B-r) n) / n, for n >= 1 records."""
    n = np.asarray(n, dtype=np.float64)
    return np.asarray(boundary(r * (B - r) * n, m_star(r, delta, B), delta=delta, B=B) / n, dtype=np.float64)


def judge(evidence: Evidence, aim: Aim) -> Verdict:
    """Certify when Z/A <= r - gamma_A and A >= m_star; the acceptance floor by the stitched boundary."""
    r, delta = aim.target_risk, aim.risk_budget / evidence.thresholds
    A = np.maximum(evidence.accepted, 1.0)
    risk = evidence.unsupported / A + gamma(A, r, delta)
    a = acceptance.anytime(evidence, aim)
    certified = (risk <= r) & (evidence.accepted >= m_star(r, delta)) & (a >= aim.min_acceptance)
    return verdict(np.asarray(certified), acceptance=a)


METHODS = (
    Method(
        "anytime-crc", judge, "second-hand", ("i.i.d.", "homogeneous sites", "no shift", "exact counts"),
        anytime=True, stops="at any look",
        source="Hultberg et al. 2026, arXiv 2602.04364; selective form reconstructed",
    ),
)  # fmt: skip
