"""Formulas that tests hold the code against; nothing that ships needs them."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr

from fedsrc.maths.arrays import Floats
from fedsrc.maths.basis import Basis
from fedsrc.maths.kinds import Encoding
from fedsrc.maths.limits import kl, records_single
from fedsrc.maths.privacy import delta_gaussian
from fedsrc.simulate.population import Support


def log_half_normal_mixture(S: Floats, v: Floats, rho: float) -> Floats:
    """log of the half-normal mixture of exp(theta S - theta^2 v/2)."""
    z = S / np.sqrt(v + rho)
    return np.asarray(np.log(2.0) + 0.5 * np.log(rho / (v + rho)) + z**2 / 2.0 + log_ndtr(z), dtype=np.float64)


def linear_variance(basis: Basis, encoding: Encoding, a: Floats, b: Floats) -> float:
    """Noise variance of sum_j a_j U_j + b_j S_j per unit of coordinate variance on the mass scale, across thresholds.

    Thresholds share coordinates, so this is not a sum of per-threshold variances.
    """
    if encoding == "complementary":
        return float(np.sum(basis.spread(a) ** 2) + np.sum(basis.spread(b) ** 2))
    return float(np.sum(basis.spread(a - b) ** 2) + np.sum(basis.spread(b) ** 2))


def total_variation(p: Support, q: Support) -> float:
    """Half the sum of absolute differences over atoms; units that add the same masses are the same atom.

    It is the distance of what releases can see, bins and losses. Laws of complete units can be further apart, unless
    units of equal masses are moved alike.
    """
    rows = np.concatenate([p.masses, q.masses]).reshape(p.law.size + q.law.size, -1)
    atoms, atom = np.unique(rows, axis=0, return_inverse=True)
    parts = np.split(atom.ravel(), [p.law.size])
    laws = [np.bincount(part, each.law, len(atoms)) for part, each in zip(parts, (p, q), strict=True)]
    return float(0.5 * np.abs(laws[0] - laws[1]).sum())


def scale_analytic(sensitivity_squared: float, eps: float, delta: float) -> float:
    """The smallest continuous Gaussian scale with (eps, delta)-DP, for comparison with the scales that are used.

    Theory: (iii).
    """
    high = 1.0
    while delta_gaussian(high, eps) < delta:
        high *= 2.0
    mu = brentq(lambda t: delta_gaussian(t, eps) - delta, 1e-9, high, xtol=1e-300, rtol=1e-14)
    return float(math.sqrt(sensitivity_squared) / mu)


def information_per_release(a: float, R: float, r: float, n: int, *, L: int, sigma: float, one_hot: bool) -> float:
    """Most evidence one noised histogram of n records can carry: min of n a kl and ((n d)^2/L + n d) c / (2 sigma^2).

    c = 1 for the paper's encoding, 2 for the complementary one. Rigorous when the losses that tell the laws apart are
    spread evenly over the L bins.

    Theory: (viii).
    """
    d = abs(a * (R - r))
    exact = n * a * kl(R, r)
    if sigma == 0:
        return exact
    return min(exact, ((n * d) ** 2 / L + n * d) * (2 if one_hot else 1) / (2.0 * sigma**2))


def records_gaussian(
    a: float, R: float, r: float, alpha: float, n: int, *, L: int, sigma: float, one_hot: bool
) -> float:
    """First-order cost with noise: 2 log(1/alpha) (Var D + L v sigma^2 / n) / d^2, never below `records_single`.

    v = 1 + r^2 for the paper's encoding, (1-r)^2 + r^2 for the complementary one.

    Theory: (viii).
    """
    if r <= R:
        return math.inf
    d = a * (R - r)
    variance = a * (R * (1 - r) ** 2 + (1 - R) * r**2) - d * d
    noise = L * ((1 - r) ** 2 + r**2 if one_hot else 1 + r**2) * sigma**2 / n
    return max(2.0 * math.log(1.0 / alpha) * (variance + noise) / d**2, records_single(a, R, r, alpha))
