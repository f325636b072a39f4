"""Methods that promise something else than selective risk: what they promise, in their own terms.

A record's nonconformity is its score where its answer is unsupported, and the lowest value where it is supported, as in
conformal factuality. "Covered" then means: not both accepted and unsupported. Size is the share accepted. Neither says
how many of the accepted answers are unsupported, and neither is ever shown as a selective-risk certificate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedsrc.audit.methods.setting import Aim, Assumption, Evidence, Provenance
from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats, Ints


@dataclass(frozen=True)
class NativeReport:
    """Per look: the threshold (m: accepts nothing), the coverage promised from below and above, the share accepted."""

    threshold: Ints
    coverage_low: Floats
    coverage_high: Floats
    size: Floats


@dataclass(frozen=True)
class Native:
    """A method with a guarantee of its own kind. The miscoverage it aims at is the aim's target risk."""

    name: str
    report_of: Callable[[Evidence, Aim], NativeReport]
    guarantee: str
    provenance: Provenance
    assumptions: tuple[Assumption, ...]
    source: str = ""

    def report(self, evidence: Evidence, aim: Aim) -> NativeReport:
        """Return the report; refuse noised sums."""
        if evidence.noised:
            raise FedsrcError(f"{self.name} takes exact counts")
        return self.report_of(evidence, aim)


def lowest(unsupported: Floats, allowed: Floats) -> Ints:
    """Return the lowest threshold with at most `allowed` unsupported records at or above it; m if there is none."""
    return np.asarray((unsupported > allowed[..., None] + 1e-9).sum(axis=-1), dtype=np.int64)


def size_at(evidence: Evidence, threshold: Ints) -> Floats:
    """Return the share accepted at that threshold."""
    accepted = np.concatenate([evidence.accepted, np.zeros_like(evidence.accepted[..., :1])], axis=-1)
    return np.take_along_axis(accepted, threshold[..., None], axis=-1)[..., 0] / evidence.records
