"""Schedule-conditioned stitching: epochs are doubling blocks of rounds, not of records.

Native assumptions: participation does not depend on outcomes, so that the records and the noise at the end of an epoch
are known when it begins. Under adaptive recruitment they are not, and the rule is a negative control. The paper names
this "original round-indexed Hoeffding construction" without its formula: a reconstruction.
"""

from __future__ import annotations

import numpy as np

from fedsrc.audit.methods.setting import Aim, Evidence, Method, Verdict, from_widths
from fedsrc.maths.arrays import Floats
from fedsrc.maths.boundaries import ceil_log2, x_q


def epoch_ends(looks: int) -> tuple[Floats, Floats]:
    """For looks t = 1..T: the epoch q = ceil(log2 t), and the index of its last look, min(2^q, T) - 1.

    Paper: Appendix "Baselines", Schedule-conditioned stitching.
    """
    q = ceil_log2(np.arange(1, looks + 1))
    return q.astype(np.float64), np.minimum(np.exp2(q), looks) - 1


def width(evidence: Evidence, V: Floats, alpha_s: float, alpha_n: float) -> Floats:
    """sqrt(N_end/2 x_q) + sqrt(2 V_end x_q), with the records and the noise variance that end the epoch."""
    q, end = epoch_ends(evidence.records.shape[-1])
    last, m = end.astype(np.int64), evidence.thresholds
    sampling = np.sqrt(evidence.records[..., last] / 2.0 * x_q(q, c=2, m=m, alpha=alpha_s))
    noise = np.sqrt(2.0 * V[..., last, :] * x_q(q, c=2, m=m, alpha=alpha_n)[:, None])
    return np.asarray(sampling[..., None] + noise, dtype=np.float64)


def judge(evidence: Evidence, aim: Aim) -> Verdict:
    """Contrast and acceptance bounds that hold at all looks of a schedule known beforehand."""
    half, V_D, V_A = aim.failure_probability / 2.0, evidence.V_D(aim.target_risk), evidence.V_A
    return from_widths(evidence, aim, *(width(evidence, V, half, half) for V in (V_D, V_A)))


METHODS = (
    Method(
        "schedule-stitching", judge, "reconstruction", ("independent participation", "declared shift"),
        private=True, anytime=True, stops="at any look", causal=False,
    ),
)  # fmt: skip
