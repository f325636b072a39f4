"""Information limits: how few records a method could need that sees draws of the mixture.

They hold for every method to which a record is a draw of the mixture of the sites, as it is to a sum over sites. A
method that uses which site each record is from, and knows the sites' weights, may need fewer: Theory (viii), known
sites.

Notation
    a, R     acceptance and risk at one threshold; r the target risk; d = a (R - r) the contrast
    kl       Bernoulli relative entropy

Theory: (viii).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar

from fedsrc.maths.arrays import Floats


def kl(p: float, q: float) -> float:
    """kl(p, q) = p log(p/q) + (1-p) log((1-p)/(1-q)), with 0 log 0 = 0."""

    def term(u: float, v: float) -> float:
        return 0.0 if u == 0 else (math.inf if v == 0 else u * math.log(u / v))

    p = min(max(p, 0.0), 1.0)  # a mean of masses may miss the interval by a rounding error
    return term(p, q) + term(1.0 - p, 1.0 - q)


def evidence(alpha: float, b: float = 0.0) -> float:
    """Evidence needed at level alpha with power 1 - b: log(1/alpha), or kl(1-b, alpha)."""
    return math.log(1.0 / alpha) if b == 0 else kl(1.0 - b, alpha)


def records_single(a: float, R: float, r: float, alpha: float, *, a_min: float | None = None, b: float = 0.0) -> float:
    """E[N] >= log(1/alpha) / (a kl(R, r)): one known threshold, no privacy; with a floor also kl(a, a_min).

    Infinite when the risk is not below target (or acceptance not above its floor).
    """
    rate = a * kl(R, r) if r > R else 0.0
    if a_min is not None:
        rate = min(rate, kl(a, a_min) if a > a_min else 0.0)
    return evidence(alpha, b) / rate if rate > 0 else math.inf


def records_best(a: ArrayLike, R: ArrayLike, r: float, alpha: float, *, w: float = 1.0) -> float:
    """The best single threshold: min_j log(1/(alpha w)) / (a_j kl(R_j, r)).

    w = 1 is the limit; w = 1/m is what a union over m thresholds achieves to first order.
    """
    a_, R_ = np.atleast_1d(a), np.atleast_1d(R)
    return min(records_single(float(x), float(y), r, alpha * w) for x, y in zip(a_, R_, strict=True))


def k_inf(values: Floats, r: float, law: Floats | None = None) -> float:
    """max over 0 <= t <= 1/(1-r) of the mean of log(1 - t X), X the contrast of a unit, in [-r, 1-r].

    For accepted binary losses, X = l - r, this is kl(R, r); with rejected units in (X = 0) it is a kl(R, r).
    """
    top = 1.0 / (1.0 - r)
    p = np.full(values.size, 1.0 / values.size) if law is None else law

    def negative(t: float) -> float:
        inside = 1.0 - t * values
        return math.inf if np.any(inside <= 0) else -float(p @ np.log(inside))

    best = minimize_scalar(negative, bounds=(0.0, top), method="bounded", options={"xatol": 1e-12})
    return max(0.0, -float(best.fun))


def records_any(p: Floats, e: Floats, r: float, alpha: float) -> float:
    """E[N] >= log(1/alpha) / I_any for any certificate from draws of the mixture, over bins with mass p and error
    rate e (increasing score).

    I_any sums p_B kl(e_B, r) over the blocks of the non-increasing isotonic fit of e with e_B < r.
    """
    rate = sum(mass * kl(error, r) for mass, error in isotonic_blocks(p, e) if error < r)
    return math.log(1.0 / alpha) / rate if rate > 0 else math.inf


def isotonic_blocks(p: Floats, e: Floats) -> list[tuple[float, float]]:
    """Pool adjacent violators: (mass, error) blocks with errors non-increasing in score."""
    blocks: list[tuple[float, float]] = []
    for mass, error in zip(p.tolist(), e.tolist(), strict=True):
        if mass == 0:
            continue
        blocks.append((mass, error))
        while len(blocks) > 1 and blocks[-1][1] > blocks[-2][1]:
            (m1, e1), (m2, e2) = blocks.pop(), blocks.pop()
            blocks.append((m1 + m2, (m1 * e1 + m2 * e2) / (m1 + m2)))
    return blocks
