"""A line for contrasts alone, where unlabelled records bound acceptance; it is a half-line, so the best bet is free.

For units that hold supported mass s and unsupported mass u, d = r s - (1-r) u: by convexity E exp(theta d) is at most
1 + E[s] (e^{theta r} - 1) + E[u] (e^{-theta (1-r)} - 1). At a risk of at least r, and accepted mass of mean at most
abar, that is at most 1 + abar g(theta), g = r e^{-theta(1-r)} + (1-r) e^{theta r} - 1 >= 0.
"""

from __future__ import annotations

import math

from scipy.optimize import minimize_scalar

from fedsrc.maths.tail import critical


def half_line(alpha: float, r: float, N: int, abar: float, nu: float) -> float:
    """The least x with P(D~ >= x) <= alpha for binary units whose acceptance is at most abar, noise variance nu.

    E exp(theta d) <= 1 + abar g(theta), g = r e^{-theta(1-r)} + (1-r) e^{theta r} - 1 at the null; the event is a
    half-line, so the best theta is free. Theory: (xiii), binary units with unlabelled records.
    """

    def at(log_theta: float) -> float:
        theta = math.exp(log_theta)
        g = r * math.exp(-theta * (1.0 - r)) + (1.0 - r) * math.exp(theta * r) - 1.0
        return (critical(alpha, theta * theta * nu) + N * math.log1p(abar * g)) / theta

    best = minimize_scalar(at, bounds=(math.log(1e-3), math.log(20.0)), method="bounded", options={"xatol": 1e-9})
    return float(best.fun)
