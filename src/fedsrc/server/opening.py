"""Open a cohort's sum: the masks of all its members cancel, and what is left is what they counted, and their noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedsrc.protocol.messages import Release


class Sum(NamedTuple):
    """What is left when masks cancel: the two parts of a release, and the slots of all members."""

    first: tuple[int, ...]
    second: tuple[int, ...]
    check: int


def open_sum(members: Sequence[Release]) -> Sum:
    """Add the releases of a whole cohort, modulo 2^64 and signed. Of any others, the sum is noise.

    Theory: (xvii) Privacy.
    """
    rows = np.asarray([[*each.first, *each.second, each.check or 0] for each in members], dtype=np.int64)
    total: list[int] = rows.astype(np.uint64).sum(axis=0, dtype=np.uint64).astype(np.int64).tolist()
    length = len(members[0].first)
    return Sum(tuple(total[:length]), tuple(total[length:-1]), total[-1])
