"""Private fixed-time: noised histograms with a bound for one look that was fixed beforehand.

Native assumptions: predictable recruitment, a declared shift, and a number of records and a noise variance fixed
beforehand; no optional stopping. The paper names it without its formula, so this is a reconstruction: the paper's two
process families and two budgets, with the boundaries of a fixed time (Hoeffding, Gaussian tail) for the stitched ones.
"""

from __future__ import annotations

import numpy as np

from fedsrc.audit.methods.setting import Aim, Evidence, Method, Verdict, column, from_widths
from fedsrc.maths.arrays import Floats


def width(N: Floats, V: Floats, *, m: int, alpha: float) -> Floats:
    """sqrt(N/2 log(2m/alpha_s)) + sqrt(2 V log(2m/alpha_n)), alpha_s = alpha_n = alpha/2.

    Paper: Appendix "Baselines", Private fixed-time.
    """
    log_term = np.log(4 * m / alpha)
    return np.asarray(np.sqrt(N / 2.0 * log_term) + np.sqrt(2.0 * V * log_term), dtype=np.float64)


def judge(evidence: Evidence, aim: Aim) -> Verdict:
    """Contrast and acceptance bounds as at a last look."""
    N, m, alpha = column(evidence.records), evidence.thresholds, aim.failure_probability
    V_D, V_A = evidence.V_D(aim.target_risk), evidence.V_A
    return from_widths(evidence, aim, *(width(N, V, m=m, alpha=alpha) for V in (V_D, V_A)))


METHODS = (
    Method(
        "private-fixed-time", judge, "reconstruction", ("predictable recruitment", "declared shift", "fixed n"),
        private=True,
    ),
)  # fmt: skip
