"""Second moments in open certificates: bets on sources and graded losses that know how far a unit is from yes or no.

Notation
    u, s     unsupported and supported mass of one unit at a threshold, u + s <= 1; d = r s - (1-r) u its contrast
    UU, US, SS   noised totals of u^2, u s, s^2, per threshold; Q = (1-r)^2 UU - 2r(1-r) US + r^2 SS totals d^2
    kappa    log(1 + z) >= z - kappa(c) z^2 for z >= -c; b = kappa(theta (1-r)) theta^2
    v        noise proxy of U and of S; UU and SS carry v/c^2 = 4v, and US 4v/w^2, with weights c = 1/2 and w = 6
    g        masses come as integers over g

Theory: (xiv) Second moments in open certificates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedsrc.maths.arrays import Floats, Ints
from fedsrc.maths.basis import Basis
from fedsrc.maths.betting import Ladder
from fedsrc.maths.kinds import Adjacency

CROSS = 6  # w: u s is released w times as large; the sensitivity stays the same up to w = 6.7


@dataclass(frozen=True)
class MomentCode:
    """The integer encoding of units: 2 g^2 (S, U) and g^2 (UU, w US, SS), each in the suffix basis."""

    basis: Basis
    g: int

    @property
    def rows(self) -> int:
        return 5

    @property
    def lengths(self) -> tuple[int, int]:
        """How many integers the two parts of a release hold: totals, and second moments."""
        return 2 * self.basis.m, 3 * self.basis.m

    def bins(self, masses: Ints) -> Ints:
        """Bins (..., 5, m+1) of the five totals of units with integer masses (..., 2, m+1): all fall with the
        threshold, so that each is a sum over bins. Theory: (xiv) Release."""
        s, u = np.moveaxis(masses[..., ::-1].cumsum(axis=-1)[..., ::-1], -2, 0)
        totals = np.stack([2 * self.g * s, 2 * self.g * u, u * u, CROSS * u * s, s * s], axis=-2)
        totals[..., :-1] -= totals[..., 1:].copy()
        return totals

    def encode(self, x: Ints) -> Ints:
        """Integer coordinates (..., 5, m) of bins (..., 5, m+1)."""
        return self.basis.encode(x)

    def sensitivity_squared(self, adjacency: Adjacency) -> int:
        """5 g^4 (f.f), and twice that for replacement: exact integers, attained. Theory: (xiv) Release."""
        squared = 5 * self.g**4 * self.basis.column_norm_squared()
        return squared if adjacency == "zero-out" else 2 * squared

    def largest(self) -> int:
        """A bound on every coordinate of one unit."""
        return 2 * self.g**2 * self.basis.unit


class Seconds(NamedTuple):
    """Noised totals of second moments per threshold, and the charge for releases that never came.

    total, cross, side    what T = UU + 2 US + SS may be of a missing release, and how far US and the smaller one of UU
                          and SS may lie below zero
    """

    uu: Floats
    us: Floats
    ss: Floats
    total: Floats
    cross: Floats
    side: Floats

    def plus(self, other: Seconds) -> Seconds:
        """Add up, part by part."""
        return Seconds(*(a + b for a, b in zip(self, other, strict=True)))


def seconds(suffix: Floats) -> Seconds:
    """Second moments from decoded suffix sums (..., 3, m) of (UU, w US, SS), in units of 2 g^2."""
    uu, us, ss = np.moveaxis(2.0 * suffix, -2, 0)
    none = np.zeros_like(uu)
    return Seconds(uu, us / CROSS, ss, none, none, none)


def noise_of_seconds(v: Floats) -> tuple[Floats, Floats, Floats]:
    """Noise proxies of UU (or SS), US and T = UU + 2 US + SS, where U and S carry v. Theory: (xiv) Refusal."""
    square, cross = 4.0 * v, 4.0 * v / CROSS**2
    return square, cross, 2.0 * square + 4.0 * cross


def data(U: Floats, S: Floats, second: Seconds, v: Floats, N: ArrayLike, eta: ArrayLike) -> Floats:
    """What bets on totals and second moments multiply, (..., m, 10)."""
    return np.stack(np.broadcast_arrays(U, S, *second, v, np.multiply(N, eta)), axis=-1)


def weights(rungs: Ladder) -> Floats:
    """What each entry of `data` adds to L_b - theta_b N eta: (10, B, G).

    L = theta D - b Q - theta^2 v_D / 2 - b^2 v_Q / 2, at most the log of the product of 1 + theta d. A missing release
    has Q at most R^2 total + 2 R cross + |1-2r| side, R = max(r, 1-r).

    Theory: (xiv) Bets, (xiv) Dropout.
    """
    theta, r = rungs.theta.T, rungs.r
    q, R = 1.0 - r, np.maximum(r, 1.0 - r)
    b = (-np.log1p(-theta * q) - theta * q) / q**2  # kappa(theta (1-r)) theta^2
    v_D, v_Q = r**2 + q**2, 4.0 * (q**4 + (2.0 * r * q / CROSS) ** 2 + r**4)
    return np.stack([
        -theta * q, theta * r, -b * q**2, 2.0 * b * r * q, -b * r**2,
        -b * R**2, -2.0 * b * R, -b * np.abs(1.0 - 2.0 * r),
        -(theta**2) * v_D / 2.0 - b**2 * v_Q / 2.0, -theta,
    ])  # fmt: skip
