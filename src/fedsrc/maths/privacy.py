"""Zero-concentrated differential privacy (zCDP): calibrate, convert, compose.

Notation
    rho      zCDP parameter; a discrete or continuous Gaussian of scale s on sensitivity Delta has rho = Delta^2/(2 s^2)
    eps, delta   the approximate-DP guarantee it implies
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from scipy.optimize import brentq, minimize_scalar
from scipy.special import log_ndtr, ndtr

from fedsrc.maths.kinds import Conversion


def rho_of_scale(sensitivity_squared: float, s: float) -> float:
    """rho = Delta^2 / (2 s^2); zero privacy (infinite rho) at s = 0.

    Paper: eq. (rho-message). Theory: (ii), (iii).
    """
    return math.inf if s == 0 else sensitivity_squared / (2.0 * s * s)


def scale_of_rho(sensitivity_squared: float, rho: float) -> float:
    """The scale s with rho = Delta^2 / (2 s^2); zero when rho is infinite."""
    return 0.0 if math.isinf(rho) else math.sqrt(sensitivity_squared / (2.0 * rho))


def epsilon_paper(rho: float, delta: float) -> float:
    """eps = rho + 2 sqrt(rho log(1/delta)).

    Paper: Theorem (privacy), eq. (zcdp-conversion).
    """
    return rho + 2.0 * math.sqrt(rho * math.log(1.0 / delta))


def rho_paper(eps: float, delta: float) -> float:
    """rho* = (sqrt(log(1/delta) + eps) - sqrt(log(1/delta)))^2, the inverse of `epsilon_paper`.

    Paper: eq. (rho-target).
    """
    if math.isinf(eps):
        return math.inf
    L = math.log(1.0 / delta)
    return (math.sqrt(L + eps) - math.sqrt(L)) ** 2


def epsilon_tight(rho: float, delta: float) -> float:
    """The best epsilon over Renyi orders a > 1: a rho + log(1/(a delta))/(a-1) + log(1 - 1/a).

    Theory: (iii) (Canonne, Kamath and Steinke 2020, Proposition 12). Any order gives a valid epsilon, so an
    imperfect minimisation only costs tightness.
    """
    if rho == 0 or math.isinf(rho):
        return rho

    def at(log_excess: float) -> float:
        excess = math.exp(log_excess)
        a = 1.0 + excess
        return a * rho + (-math.log(delta) - math.log(a)) / excess + math.log(excess) - math.log(a)

    centre = math.log(math.sqrt(math.log(1.0 / delta) / rho))
    best = minimize_scalar(at, bounds=(centre - 6.0, centre + 6.0), method="bounded", options={"xatol": 1e-10})
    return max(0.0, float(best.fun))


def rho_tight(eps: float, delta: float) -> float:
    """The largest rho with `epsilon_tight(rho, delta) <= eps`, to a relative 1e-13 and from below."""
    if math.isinf(eps):
        return math.inf
    low = rho_paper(eps, delta)  # the paper's conversion is looser, so its rho is admissible
    high = 4.0 * low + 1e-12
    while epsilon_tight(high, delta) <= eps:
        high *= 2.0
    rho = float(brentq(lambda t: epsilon_tight(t, delta) - eps, low, high, xtol=1e-300, rtol=1e-13))
    while epsilon_tight(rho, delta) > eps:
        rho *= 1.0 - 1e-13
    return rho


def delta_gaussian(mu: float, eps: float) -> float:
    """delta(eps) of a continuous Gaussian, mu = Delta / s: Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu).

    Theory: (iii) (Balle and Wang 2018). A yardstick only: it does not hold for coarse discrete noise.
    """
    return float(ndtr(mu / 2 - eps / mu) - math.exp(eps + log_ndtr(-mu / 2 - eps / mu)))


def epsilon_of(rho: float, delta: float, conversion: Conversion) -> float:
    """Convert zCDP to approximate DP by the registered conversion."""
    return epsilon_tight(rho, delta) if conversion == "tight" else epsilon_paper(rho, delta)


def rho_of(eps: float, delta: float, conversion: Conversion) -> float:
    """Calibrate: the rho that the registered conversion allows at (eps, delta)."""
    return rho_tight(eps, delta) if conversion == "tight" else rho_paper(eps, delta)


def compose(charges: Iterable[float]) -> float:
    """rho of the releases that contain one unit: they add, adaptively chosen or not.

    Paper: eq. (rho-transcript).
    """
    return math.fsum(charges)


def admits(spent: float, charge: float, cap: float) -> bool:
    """The pathwise filter: whether a release may still be made for a unit that has spent `spent` of `cap`.

    Refusing whenever this is false bounds the charge on every path, which an after-the-fact sum does not.

    Paper: Theorem (privacy), eq. (rho-transcript).
    """
    return spent + charge <= cap * (1.0 + 1e-12)


def least_share(p: int, epsilon: float, delta: float) -> float:
    """The least noise scale of a cohort's member, in lattice units, at which a sum of p coordinates is as if drawn at
    once: 2, or where pi^2 s^2 = epsilon + log(14e6 p / delta), so that no more than delta / 1e6 is added to delta.

    Theory: (xvii) Sum of discrete Gaussians.
    """
    return max(2.0, math.sqrt(epsilon + math.log(14e6 * p / delta)) / math.pi)
