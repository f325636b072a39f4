"""The sealed certificate: one target, one bet per threshold, registered looks, noise at its exact tail.

Notation
    r        the target risk; theta a bet in (0, 1/(1-r))
    D, Q     totals of d = r s - (1-r) u and of q = d^2 + (1-2r) d over units, per threshold
    N, eta   slots, and the mixture-transfer term
    kappa    log(1 + z) >= z - kappa(c) z^2 for z >= -c
    a, b     L = a D - b Q - theta N eta is at most the log of an e-value of the data; b = kappa theta^2
    w        threshold weights, summing to one

Theory: (xiii) Sealed looks.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedsrc.maths.arrays import Bools, Floats
from fedsrc.maths.panels import weights_left


def kappa(c: float) -> float:
    """(-log(1-c) - c) / c^2: the least kappa with log(1+z) >= z - kappa z^2 for all z >= -c.

    Theory: (xiii) Second moments.
    """
    if c < 1e-4:
        return 0.5 + c / 3.0 + c * c / 4.0
    return (-math.log1p(-c) - c) / (c * c)


class Bet(NamedTuple):
    """One bet, as the slopes of L: a D - b Q - theta N eta."""

    theta: float
    a: float
    b: float


def bet(r: float, theta: float) -> Bet:
    """b = kappa(theta (1-r)) theta^2 and a = theta + (1-2r) b, so that a d - b q = theta d - b d^2.

    Theory: (xiii) Second moments.
    """
    b = kappa(theta * (1.0 - r)) * theta * theta
    return Bet(theta, theta + (1.0 - 2.0 * r) * b, b)


def least(r: float, theta: float) -> float:
    """What one unit adds to L at worst: theta d - kappa theta^2 d^2 is concave in d, so it is least at an end.

    At d = -(1-r) it is log(1 - theta (1-r)); for targets above a half and large bets it is less at d = r.

    Theory: (xiii) Refusal.
    """
    z = theta * r
    return min(math.log1p(-theta * (1.0 - r)), z - kappa(theta * (1.0 - r)) * z * z)


def most(r: float, theta: float) -> float:
    """What one unit adds to L at best: max over 0 <= d <= r of theta d - kappa theta^2 d^2.

    Theory: (xiii) Refusal.
    """
    k = kappa(theta * (1.0 - r))
    d = min(r, 1.0 / (2.0 * k * theta))
    return theta * d - k * theta * theta * d * d


def passed_on(w: ArrayLike) -> Floats:
    """`weights_left` after each of the 2^m sets of rejections; row S has bit j set where j is rejected.

    Theory: (xiii) Looks and recycling.
    """
    m = np.size(w)
    sets = np.arange(1 << m)[:, None] >> np.arange(m) & 1
    return weights_left(np.asarray(w, dtype=np.float64)[None], sets[:, None] == 1)[:, 0]


def recycled(L: Floats, c: Floats) -> Bools:
    """Which rows are rejected, (..., m): L (..., m) against critical values c (2^m, m), one row for each set of
    rejections so far, until no more follow.

    Theory: (xiii) Looks and recycling.
    """
    bits = 1 << np.arange(c.shape[1])
    done = np.zeros(L.shape, dtype=np.bool_)
    for _ in range(c.shape[1]):
        done = done | (c[done @ bits] <= L)  # L = NaN rejects nothing
    return done


def recycled_looks(L: Floats, c: Floats) -> Bools:
    """What is rejected after each look, (..., T, m): L (..., T, m) against c (T, 2^m, m). A weight that was passed on
    tests at earlier looks too. Only for nulls that do not move between looks.

    Theory: (xiii) Looks and recycling.
    """
    bits, done = 1 << np.arange(c.shape[-1]), np.zeros(L.shape, dtype=np.bool_)
    for t in range(L.shape[-2]):
        now, seen = done[..., max(t - 1, 0), :], np.moveaxis(L[..., : t + 1, :], -2, 0)
        for _ in range(c.shape[-1]):
            now = now | (c[: t + 1, now @ bits] <= seen).any(axis=0)
        done[..., t, :] = now
    return done
