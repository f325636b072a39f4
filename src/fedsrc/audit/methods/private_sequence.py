"""A private confidence sequence: one sub-Gaussian process for sampling and noise together, under a normal mixture.

Native assumptions: predictable recruitment, a declared shift, losses in [0, 1]. This is the central analogue of the
local one of Waudby-Smith, Wu and Ramdas (2023). A contrast or acceptance lies in an interval of length
one, so records and noise together have intrinsic time v = N/4 + V: one budget, and widths that add in quadrature.

Proof. exp(theta S - theta^2 v/2) is a supermartingale for every theta, S the centred noised sum (Hoeffding's lemma; the
proxy of the noise). So is its mixture over half-normal theta > 0 with precision rho, which is
2 sqrt(rho/(v+rho)) e^{z^2/2} Phi(z) with z = S/sqrt(v+rho). For z >= 0, Phi(z) >= 1 - e^{-z^2/2}/2, so the mixture is
at least sqrt(rho/(v+rho)) (2 e^{z^2/2} - 1), and `boundary` is where that equals 1/alpha. Ville ends it.
"""

from __future__ import annotations

import numpy as np

from fedsrc.audit.methods.setting import Aim, Evidence, Method, Verdict, column, from_widths
from fedsrc.maths.arrays import Floats

TUNED_FOR = 5_000 / 4.0  # intrinsic time at which the boundary is near its tightest: 5,000 records without noise


def precision(alpha: float, v: float = TUNED_FOR) -> float:
    """rho that makes the boundary at level alpha near its tightest at intrinsic time v."""
    log_term = 2.0 * np.log(1.0 / alpha)
    return float(v / (log_term + np.log1p(log_term)))


def boundary(v: Floats, rho: float, alpha: float) -> Floats:
    """sqrt(2 (v+rho) log(sqrt((v+rho)/rho) / (2 alpha) + 1/2)): S ever reaches it with probability at most alpha."""
    ratio = np.sqrt((v + rho) / rho)
    return np.asarray(np.sqrt(2.0 * (v + rho) * np.log(ratio / (2.0 * alpha) + 0.5)), dtype=np.float64)


def judge(evidence: Evidence, aim: Aim) -> Verdict:
    """Contrast and acceptance, each with its budget shared by the thresholds."""
    N, V_D = column(evidence.records), evidence.V_D(aim.target_risk)
    alpha_d, alpha_a = (b / evidence.thresholds for b in (aim.risk_budget, aim.acceptance_budget))
    contrast = boundary(N / 4.0 + V_D, precision(alpha_d), alpha_d)
    return from_widths(evidence, aim, contrast, boundary(N / 4.0 + evidence.V_A, precision(alpha_a), alpha_a))


METHODS = (
    Method(
        "private-sequence", judge, "textbook", ("predictable recruitment", "declared shift"),
        private=True, anytime=True, stops="at any look",
        source="Howard et al. 2021; central analogue of Waudby-Smith, Wu and Ramdas 2023",
    ),
)  # fmt: skip
