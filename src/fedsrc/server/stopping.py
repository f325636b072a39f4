"""When a certified run has enough: a rule on public numbers, which `verify` follows too."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedsrc.maths.arrays import Floats

GAIN = 0.05  # a step between 20 quantile thresholds. Part of the format: another value is another policy


def gains_little(records: Sequence[int], accepted: Sequence[float | Floats]) -> NDArray[np.bool_]:
    """Return whether twice the units have gained less than GAIN in acceptance since a certificate was there.

    Per round: units so far, and the acceptance bound of the certified threshold, 0 while there is none; of one run, or
    of many. It decides when a run stops, never what is claimed.

    Theory: (iv), Whole certificate, enough.
    """
    half = [each for n, each in zip(records, accepted, strict=True) if 2 * n <= records[-1]]
    before, now = np.asarray(half[-1] if half else 0.0), np.asarray(accepted[-1])
    return np.asarray((before > 0) & (now - before < GAIN))
