"""Private e-values (Csillag and Mesquita 2025): each release is a log e-value with biased Gaussian noise.

Native assumptions: predictable recruitment, and a release of its own: the e-value of each site's fresh records at each
of m thresholds, instead of a histogram. Only the abstract was at hand, so the mechanism is a reconstruction; its
validity is one line: E[exp(xi - s^2/2)] = 1 for xi ~ N(0, s^2), independent of the records. No acceptance is released,
so no floor is shown.

Notation
    lam      the bet, fixed beforehand (a constant bet tests the mixture null); x, y its slopes
    Delta    sensitivity of one log e-value to one record; sqrt(m) Delta that of all m
    s        noise scale with s^2 = m Delta^2 / (2 rho)
"""

from __future__ import annotations

import numpy as np

from fedsrc.audit.methods.setting import Aim, Evidence, Method, Unreleased, Verdict, verdict
from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats
from fedsrc.maths.betting import slopes
from fedsrc.maths.kinds import Adjacency

EXPECTED_RISK, EXPECTED_ACCEPTANCE = 0.5, 0.25  # what the bet is planned for: this share of the target, this acceptance


def sensitivity(r: float, lam: Floats | float, adjacency: Adjacency = "zero-out") -> Floats:
    """Delta = max(y, -x) with y = log(1 + lam r), x = log(1 - lam (1-r)): one record against none; against any other
    record y - x."""
    x, y = slopes(r, lam)
    return np.asarray(np.maximum(y, -x) if adjacency == "zero-out" else y - x)


def scale(r: float, lam: float, m: int, rho: float, adjacency: Adjacency = "zero-out") -> float:
    """s = sqrt(m / (2 rho)) Delta: the release of m log e-values is rho-zCDP."""
    return float(np.sqrt(m / (2.0 * rho)) * sensitivity(r, lam, adjacency))


def planned_bet(r: float, n: float, m: int, rho: float, adjacency: Adjacency = "zero-out") -> float:
    """Return the bet with the largest expected growth per release of n records at the planned risk and acceptance."""
    grid = np.geomspace(1e-3, 0.95, 200) / (1.0 - r)
    x, y = slopes(r, grid)
    R = EXPECTED_RISK * r
    growth = n * EXPECTED_ACCEPTANCE * (R * x + (1.0 - R) * y) - m * sensitivity(r, grid, adjacency) ** 2 / (4.0 * rho)
    return float(grid[growth.argmax()])


def log_e(own: Unreleased, N: Floats, eta: Floats, r: float, lam: float) -> Floats:
    """log E' = x U + y S + s (sum of normals) - (releases) s^2/2 - lam N eta."""
    x, y = slopes(r, lam)
    s = scale(r, lam, own.accepted.shape[-1], own.rho, own.adjacency)
    exact = x * own.unsupported + y * (own.accepted - own.unsupported)
    noise = s * own.normals - own.releases[..., None] * s**2 / 2.0
    return np.asarray(exact + noise - lam * (N * eta)[..., None], dtype=np.float64)


def judge(evidence: Evidence, aim: Aim) -> Verdict:
    """Certify at m / alpha. The bet is planned from the records that a release should hold: the same in all trials."""
    own = evidence.unreleased
    if own is None:
        raise FedsrcError("private e-values have a release of their own", hint="pass unreleased= to gather")
    lam = planned_bet(aim.target_risk, own.batch, evidence.thresholds, own.rho, own.adjacency)
    log_E = log_e(own, evidence.records, evidence.eta, aim.target_risk, lam)
    return verdict(np.asarray(log_E >= np.log(evidence.thresholds / aim.failure_probability)))


METHODS = (
    Method(
        "private-e-values", judge, "reconstruction",
        ("predictable recruitment", "declared shift", "own release", "no acceptance floor"),
        private=True, anytime=True, stops="at any look", given="released e-values",
        source="Csillag and Mesquita 2025, arXiv 2510.18654",
    ),
)  # fmt: skip
