"""The joint certificate of Yu and Liu (2026): empirical Bernstein on the contrast, Clopper-Pearson on acceptance.

Native assumptions: i.i.d. records, their number fixed beforehand, exact counts. At a stopping time it is not valid even
without privacy; `yu-liu-spending` spends 6 delta / (pi^2 t^2) at look t and is. Utility is acceptance here (gain 1, no
cost of abstaining). Graded losses enter with the largest variance their sums allow.

Notation
    n, s     records and accepted records; Z unsupported ones among them; r the target; delta the failure probability
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fedsrc.audit.methods.acceptance import exact_lower
from fedsrc.audit.methods.setting import Aim, Evidence, Method, Rule, Verdict, column, from_contrast
from fedsrc.maths.arrays import Floats


def contrast_upper(Z: ArrayLike, s: ArrayLike, n: ArrayLike, r: float, level: ArrayLike) -> Floats:
    """EB = mean + sqrt(2 S^2 log(4/level) / n) + 7 log(4/level) / (3(n-1)), S^2 the Bessel variance of A(l - r)."""
    Z, s, n = (np.asarray(x, dtype=np.float64) for x in (Z, s, n))
    mean, log_term = (Z - r * s) / n, np.log(4.0 / np.asarray(level))
    rest = np.maximum(n - 1.0, 1.0)
    S2 = np.maximum(0.0, Z * (1.0 - r) ** 2 + (s - Z) * r**2 - n * mean**2) / rest
    return np.asarray(mean + np.sqrt(2.0 * S2 * log_term / n) + 7.0 * log_term / (3.0 * rest), dtype=np.float64)


def rule(*, spending: bool) -> Rule:
    """Contrast bound and acceptance bound, each at delta/(16 m); with `spending`, delta is spent over the looks."""

    def judge(evidence: Evidence, aim: Aim) -> Verdict:
        looks, m = evidence.records.shape[-1], evidence.thresholds
        t = np.arange(1, looks + 1)[:, None] if spending else np.ones((looks, 1))
        share = 6.0 / (np.pi**2 * t**2) if spending else t
        level, n = aim.failure_probability * share / (16 * m), column(evidence.records)
        d = contrast_upper(evidence.unsupported, evidence.accepted, n, aim.target_risk, level)
        return from_contrast(d, exact_lower(evidence.accepted, n, level), aim)

    return judge


METHODS = (
    Method(
        "yu-liu", rule(spending=False), "code", ("i.i.d.", "no shift", "fixed n", "exact counts"),
        source="Yu and Liu 2026, arXiv 2606.08517",
    ),
    Method(
        "yu-liu-spending", rule(spending=True), "code", ("i.i.d.", "no shift", "exact counts"),
        anytime=True, stops="at any look", source="Yu and Liu 2026, arXiv 2606.08517; spending over looks added",
    ),
)  # fmt: skip
