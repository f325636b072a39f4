"""The narrower of the paper's two contrast certificates, chosen after the data: each has half of both budgets.

Native assumptions: those of Fed-SRC-C and Fed-SRC-VA. Both hold at all thresholds and looks at once, each but for half
the failure probability, so whichever bound is narrower holds but for all of it: at every look and threshold the smaller
contrast bound and the larger acceptance bound are taken. With the whole budget for each, choosing would cost twice it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from fedsrc.audit.methods.setting import Aim, Evidence, Method, Verdict, from_contrast
from fedsrc.audit.methods.shipped import ASSUMED, Kind, halves, rule

KINDS: tuple[Kind, ...] = ("contrast", "variance-adaptive")


def bounds(evidence: Evidence, aim: Aim) -> list[Verdict]:
    """Return both certificates, each with half the failure probability.

    Paper: Section "Range-only and variance-adaptive contrast certificates", splitting the budgets.
    """
    half = replace(aim, failure_probability=aim.failure_probability / len(KINDS))
    return [rule(partial(halves, kind))(evidence, half) for kind in KINDS]


def judge(evidence: Evidence, aim: Aim) -> Verdict:
    """Certify by the smaller contrast bound and the larger acceptance bound."""
    range_only, adaptive = bounds(evidence, aim)
    d = np.minimum(range_only.contrast_upper, adaptive.contrast_upper)
    a = np.maximum(range_only.acceptance_lower, adaptive.acceptance_lower)
    return from_contrast(d, a, aim)


METHODS = (
    Method(
        "fed-src-narrower", judge, "paper", ASSUMED,
        private=True, anytime=True, stops="at any look", source="Fed-SRC-C and Fed-SRC-VA with split budgets",
    ),
)  # fmt: skip
