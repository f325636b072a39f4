"""Conformal abstention (Abbasi-Yadkori et al. 2024): abstain below a threshold from conformal risk control.

Native assumptions: exchangeable records, exact counts. Its guarantee is marginal: the probability of answering and
being wrong, not the share of wrong answers among those given. Its self-consistency score belongs to score tables.
"""

from __future__ import annotations

import numpy as np

from fedsrc.audit.methods.native import Native, NativeReport, lowest, size_at
from fedsrc.audit.methods.setting import Aim, Evidence


def report(evidence: Evidence, aim: Aim) -> NativeReport:
    """lambda_hat = inf{lam: (Z(lam) + 1)/(N + 1) <= target}."""
    threshold = lowest(evidence.unsupported, aim.target_risk * (evidence.records + 1.0) - 1.0)
    low = np.full(threshold.shape, 1.0 - aim.target_risk)
    return NativeReport(threshold, low, np.full(threshold.shape, np.nan), size_at(evidence, threshold))


NATIVE = (
    Native(
        "conformal-abstention", report, "E[1{answered and wrong}] <= target, over calibration and test",
        "textbook", ("exchangeable", "no shift", "fixed n", "exact counts"),
        source="Abbasi-Yadkori et al. 2024, arXiv 2405.01563",
    ),
)  # fmt: skip
