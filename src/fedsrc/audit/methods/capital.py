"""The paper's capital heuristic: bets on truncated noised round means. Unproved: no e-process in general.

Truncation to [-1, 1] keeps the factors nonnegative and moves their conditional mean. The paper gives the rule and not
its fractions, which are a reconstruction; it tests one registered threshold, here m share the budget.
"""

from __future__ import annotations

import numpy as np

from fedsrc.audit.methods.setting import Aim, Evidence, Method, Verdict, column, verdict
from fedsrc.maths import contrast
from fedsrc.maths.arrays import Floats

FRACTIONS = np.array([0.25, 0.5, 0.75, 1.0])


def log_capital(D: Floats, N: Floats, eta: Floats, fractions: Floats = FRACTIONS) -> Floats:
    """log prod_t (1 - kappa x_t), x_t the round's increment of D over its records plus eta, cut to [-1, 1].

    The last axis holds the fractions kappa. In a round without records nothing is bet; nor at eta = 1, where nothing
    is known of the mixture.

    Paper: Appendix "The Exploratory Capital-Based Comparator".
    """
    n = np.diff(np.where(eta < 1, N, 0.0), axis=-1, prepend=0.0)[..., None]
    x = np.where(n > 0, np.diff(D, axis=-2, prepend=0.0) / np.where(n > 0, n, 1.0) + eta[..., None], 0.0)
    with np.errstate(divide="ignore"):  # a factor of zero is ruin, -inf for good
        return np.cumsum(np.log1p(-fractions * np.clip(x, -1.0, 1.0)[..., None]), axis=-3)


def judge(evidence: Evidence, aim: Aim) -> Verdict:
    """Certify when the best fraction's capital has reached m |K| / alpha."""
    r, half = aim.target_risk, aim.failure_probability / 2.0
    capital = log_capital(evidence.contrast(r), evidence.records, evidence.eta).max(axis=-1)
    line = np.log(evidence.thresholds * FRACTIONS.size / aim.failure_probability)
    a = contrast.a_lower(
        evidence.accepted, column(evidence.records), evidence.V_A,
        eta=column(evidence.eta), alpha_s=half, alpha_n=half, v0=evidence.unit,
    )  # fmt: skip
    shown = np.logical_or.accumulate(capital >= line, axis=-2) & (a >= aim.min_acceptance)
    return verdict(np.asarray(shown), acceptance=a)


METHODS = (
    Method(
        "capital", judge, "reconstruction", ("unproved",),
        role="heuristic", private=True, proved=False, stops="at any look",
    ),
)  # fmt: skip
