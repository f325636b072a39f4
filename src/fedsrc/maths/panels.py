"""Several claims from one release: what a unit can move, and who inherits the weight of a rejected row.

Notation
    B, m     blocks (groups, or scores) and thresholds in each; a row is a threshold of a block, block after block
    w        weights of rows (B, m)
    zero     largest squared norm of a unit in one block; apart: largest squared distance of two units in one
    h        blocks that a unit may be in with all of its mass

Theory: (xviii) Panels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedsrc.maths.arrays import Bools, Floats
from fedsrc.maths.kinds import Adjacency


class Layout(NamedTuple):
    """How a release is laid out in blocks. joint: a unit adds to all of them, as with several scores; otherwise to at
    most `spans`, as with groups."""

    blocks: int = 1
    joint: bool = False
    spans: int = 1

    def sensitivity_squared(self, zero: int, apart: int, adjacency: Adjacency) -> int:
        """Largest squared norm of a unit (zero-out), or distance of two; of two in the same blocks (same-group).

        Two units share a blocks, a >= 2h - B, and each is in h - a others: a apart + 2 (h-a) zero is linear in a.

        Theory: (xviii) Sensitivity.
        """
        if adjacency == "zero-out":
            return (self.blocks if self.joint else self.spans) * zero
        if self.joint or adjacency == "same-group":
            return (self.blocks if self.joint else self.spans) * apart
        shared = max(0, 2 * self.spans - self.blocks)
        return max(self.spans * apart, shared * apart + 2 * (self.spans - shared) * zero)


def weights_left(w: Floats, rejected: Bools, keep: float = 1.0) -> Floats:
    """Weights (..., B, m) of the rows that are left, after some rejections (..., B, m).

    Of a rejected row's weight the share `keep` goes to the next lower row left in its block, else to the next higher.
    The rest, and the weight of blocks that have no row left, is shared by all rows left in proportion to their own
    weights. No row's weight falls when another is rejected, and they never sum to more than before.

    Theory: (xviii) Passing on; (xiii) Looks and recycling.
    """
    left, each = ~rejected, np.arange(w.shape[-1])
    lower = np.maximum.accumulate(np.where(left, each, -1), axis=-1)
    heir = np.where(lower >= 0, lower, np.argmax(left, axis=-1)[..., None])
    there = left.any(axis=-1, keepdims=True)
    kept = np.where(left, w, keep * w) * there
    after = np.zeros(rejected.shape)
    for j in each:
        np.put_along_axis(after, heir[..., j : j + 1], np.take_along_axis(after, heir[..., j : j + 1], -1)
                          + kept[..., j : j + 1], -1)  # fmt: skip
    rest, mine = (w - kept).sum(axis=(-2, -1), keepdims=True), np.where(left, w, 0.0)
    total = mine.sum(axis=(-2, -1), keepdims=True)
    return np.asarray(after * left + np.divide(rest * mine, total, out=np.zeros_like(mine), where=total > 0))
