"""FedCP-QQ (Humbert et al. 2023): one-shot federated conformal prediction by a quantile of local quantiles.

Native assumptions: exchangeable records over equally large sites, exact counts. Native coverage and size only.

Notation
    K, n     sites and records per site; each sends its k-th smallest nonconformity, the server takes the q-th of those
    M        expected coverage: the mean of the q-th of K independent Beta(k, n-k+1) variables
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import betainc

from fedsrc.audit.methods.federated import sites_of
from fedsrc.audit.methods.native import Native, NativeReport, lowest, size_at
from fedsrc.audit.methods.setting import Aim, Evidence
from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats, Ints

NODES, WEIGHTS = np.polynomial.legendre.leggauss(96)


class Orders(NamedTuple):
    """The chosen orders (q, k) and their expected coverage."""

    q: int
    k: int
    coverage: float


def coverage(q: int, k: int, K: int, n: int) -> float:
    """M(q, k) = 1 - int_0^1 I_{I_u(k, n-k+1)}(q, K-q+1) du.

    Gauss-Legendre on the part of [0, 1] where the integrand is not 0 or 1; exact below 192 records in all, where the
    integrand is a polynomial of that degree and the part is everything.
    """
    mean, spread = k / (n + 1.0), 1.0 / np.sqrt(n + 2.0)
    low, high = (0.0, 1.0) if n * K < 192 else (max(0.0, mean - 5 * spread), min(1.0, mean + 5 * spread))
    u = low + (high - low) * (NODES + 1.0) / 2.0
    below = betainc(q, K - q + 1, betainc(k, n - k + 1, u))
    return float(high - (high - low) / 2.0 * (WEIGHTS @ below))


@lru_cache(maxsize=1024)
def orders(K: int, n: int, alpha: float) -> Orders | None:
    """(q, k) with the smallest M(q, k) >= 1 - alpha; None if even (K, n) covers too little. M grows with k."""
    found = [Orders(q, k, coverage(q, k, K, n)) for q in range(1, K + 1) if (k := _first(q, K, n, alpha)) is not None]
    return min(found, key=lambda each: each.coverage) if found else None


def _first(q: int, K: int, n: int, alpha: float) -> int | None:
    if coverage(q, n, K, n) < 1.0 - alpha:
        return None
    low, high = 0, n
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if coverage(q, middle, K, n) >= 1.0 - alpha else (middle, high)
    return high


def report(evidence: Evidence, aim: Aim) -> NativeReport:
    """Each site's lowest threshold with at most n - k unsupported records above it; the q-th smallest of those."""
    sites = sites_of(evidence)
    K = sites.records.shape[-1]
    if not (sites.records == sites.records[..., :1]).all():
        raise FedsrcError("FedCP-QQ is stated for equally large sites", hint="compare on a schedule with equal batches")
    n = sites.records[..., 0]
    threshold = np.full(n.shape, evidence.thresholds, dtype=np.int64)
    promised = np.ones(n.shape)
    for size in np.unique(n):
        here, chosen = n == size, orders(K, int(size), aim.target_risk)
        if chosen is not None:
            threshold[here] = _server(sites.unsupported[here], int(size), chosen)
            promised[here] = chosen.coverage
    return NativeReport(threshold, promised, np.full(n.shape, np.nan), size_at(evidence, threshold))


def _server(unsupported: Floats, n: int, chosen: Orders) -> Ints:
    local = lowest(unsupported, np.full(unsupported.shape[:-1], float(n - chosen.k)))
    return np.sort(local, axis=-1)[..., chosen.q - 1]


NATIVE = (
    Native(
        "fedcp-qq", report, "P(covered) >= M(q, k), exact without ties",
        "code", ("exchangeable", "equal sites", "no shift", "fixed n", "exact counts"),
        source="Humbert et al. 2023, ICML",
    ),
)  # fmt: skip
