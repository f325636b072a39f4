"""Levels of a graded loss, one histogram for each: bets on units of one answer lose nothing at all.

Notation
    g        losses are l/g, l = 0..g
    C        noised units accepted at each level (..., g+1, m); v the noise proxy of each

Theory: (xiv) Levels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedsrc.maths.arrays import Floats, Ints
from fedsrc.maths.basis import Basis
from fedsrc.maths.betting import Covariance, Ladder
from fedsrc.maths.kinds import Adjacency


@dataclass(frozen=True)
class LevelCode:
    """The integer encoding of units of one graded answer: a one at its level and bin, in the suffix basis."""

    basis: Basis
    g: int

    @property
    def rows(self) -> int:
        return self.g + 1

    @property
    def lengths(self) -> tuple[int, int]:
        """How many integers the two parts of a release hold: units without loss, and those of every other level."""
        return self.basis.m, self.g * self.basis.m

    def bins(self, masses: Ints) -> Ints:
        """Bins (..., g+1, m+1) of units with integer masses (..., 2, m+1) over g, of one answer each."""
        whole, level = masses.sum(axis=-2), masses[..., 1, :]
        return np.stack([(whole == self.g) & (level == each) for each in range(self.rows)], axis=-2).astype(np.int64)

    def encode(self, x: Ints) -> Ints:
        """Integer coordinates (..., g+1, m) of bins (..., g+1, m+1)."""
        return self.basis.encode(x)

    def sensitivity_squared(self, adjacency: Adjacency) -> int:
        """f.f, and twice that for replacement, as for a yes-or-no loss. Theory: (xiv) Levels, (i)."""
        return self.basis.column_norm_squared() * (1 if adjacency == "zero-out" else 2)

    def largest(self) -> int:
        """A bound on every coordinate of one unit."""
        return self.basis.unit

    @property
    def losses(self) -> Floats:
        return np.arange(self.rows) / self.g

    def covariance(self, v: Floats) -> Covariance:
        """Noise covariance of (U, S), the sums of l/g and of 1 - l/g over levels that carry v each."""
        loss = self.losses
        return Covariance(v * (loss @ loss), v * (loss @ (1.0 - loss)), v * ((1.0 - loss) @ (1.0 - loss)))


def data(C: Floats, v: Floats, N: ArrayLike, eta: ArrayLike) -> Floats:
    """What bets on levels multiply, (..., m, g+3)."""
    return np.stack(np.broadcast_arrays(*np.moveaxis(C, -2, 0), v, np.multiply(N, eta)), axis=-1)


def weights(rungs: Ladder, g: int) -> Floats:
    """What each entry of `data` adds to L_b - theta_b N eta: log(1 + theta (r - l/g)) a unit, (g+3, B, G).

    Theory: (xiv) Levels.
    """
    theta = rungs.theta.T
    x = np.stack([np.log1p(theta * (rungs.r - level / g)) for level in range(g + 1)])
    return np.concatenate([x, [-(x**2).sum(axis=0) / 2.0, -theta]])
