"""Federated conformal prediction under partial exchangeability (Lu et al. 2023).

Native assumptions: the test record comes from site k with weight proportional to n_k + 1, and is exchangeable with that
site's records; exact counts. Native coverage and size only.
"""

from __future__ import annotations

import numpy as np

from fedsrc.audit.methods.federated import pooled, sites_of
from fedsrc.audit.methods.native import Native, NativeReport, lowest, size_at
from fedsrc.audit.methods.setting import Aim, Evidence


def report(evidence: Evidence, aim: Aim) -> NativeReport:
    """qhat is the ceil((1-a)(N+K))-th smallest pooled nonconformity; coverage in [1-a, 1-a + K/(N+K)]."""
    K, whole = sites_of(evidence).records.shape[-1], pooled(evidence)
    N = whole.records
    order = np.ceil((1.0 - aim.target_risk) * (N + K) - 1e-9)
    threshold = lowest(whole.unsupported, N - order)
    low = np.full(threshold.shape, 1.0 - aim.target_risk)
    return NativeReport(threshold, low, np.minimum(1.0, low + K / (N + K)), size_at(whole, threshold))


NATIVE = (
    Native(
        "fcp", report, "1 - a <= P(covered) <= 1 - a + K/(N + K) without ties",
        "code", ("partially exchangeable sites", "no shift", "fixed n", "exact counts"),
        source="Lu et al. 2023, ICML",
    ),
)  # fmt: skip
