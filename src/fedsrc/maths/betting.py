"""The betting certificate: a private e-process per threshold that tests every target risk at once.

Notation
    U, S     noised cumulative unsupported and supported mass, per threshold
    A        U + S, accepted mass
    V        covariance proxy of the noise on (U, S), per threshold
    N        slots so far; eta the mixture-transfer term
    r        a target risk; theta a bet; p its prior weight
    w        threshold weights, summing to one

Shapes: masses are (..., m); leading axes are free (rounds, trials).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedsrc.maths.arrays import Floats

CACHED = 30_000  # terms at a time, so that the work stays in the processor's cache


class Covariance(NamedTuple):
    """Sub-Gaussian covariance proxy of the noise on (U, S): entries (U,U), (U,S) and (S,S), each (..., m)."""

    uu: Floats
    us: Floats
    ss: Floats

    def of(self, x: ArrayLike, y: ArrayLike) -> Floats:
        """Noise variance of the linear statistic x U + y S."""
        x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
        return np.asarray(x * x * self.uu + 2.0 * x * y * self.us + y * y * self.ss, dtype=np.float64)


class Ladder(NamedTuple):
    """Targets r (G,), increasing, each with its bets theta (G, B) and their priors p: (B,), or (m, B) by threshold."""

    r: Floats
    theta: Floats
    p: Floats


class Centres(NamedTuple):
    """Acceptance bets as flat pairs: centre c (P,), bet theta (P,), prior p (P,)."""

    c: Floats
    theta: Floats
    p: Floats


def ladder(
    r: ArrayLike, *, count: int = 12, low: float = 0.01, high: float = 0.95, priors: ArrayLike | None = None
) -> Ladder:
    """For each target r the bets geomspace(low, high / (1 - r), count), with a uniform prior or one per threshold.

    Theory: (iv), bets theta_b in (0, 1/(1-r)).
    """
    r = np.sort(np.asarray(r, dtype=np.float64))
    theta = np.geomspace(np.full_like(r, low), high / (1.0 - r), count, axis=-1)
    return Ladder(r, theta, np.full(count, 1.0 / count) if priors is None else np.asarray(priors, dtype=np.float64))


def centres(a_min: float, *, top: float = 0.8, count: int = 8, low: float = 0.05, high: float = 0.5) -> Centres:
    """Centres a_min 2^i up to `top`, each with bets geomspace(low, high / c, count), uniform over all pairs.

    Theory: (iv) Acceptance, theta in (0, 1/c).
    """
    doublings = max(0, int(np.floor(np.log2(top / a_min) + 1e-9)))
    c = a_min * np.exp2(np.arange(doublings + 1))
    theta = np.geomspace(np.minimum(low, high / c), high / c, count, axis=-1)
    return Centres(np.repeat(c, count), theta.ravel(), np.full(theta.size, 1.0 / theta.size))


def slopes(r: ArrayLike, theta: ArrayLike) -> tuple[Floats, Floats]:
    """x = log(1 - theta (1-r)) < 0, what one unsupported unit adds; y = log(1 + theta r) > 0, one supported unit.

    Theory: (iv).
    """
    r, theta = np.asarray(r, dtype=np.float64), np.asarray(theta, dtype=np.float64)
    return np.log1p(-theta * (1.0 - r)), np.log1p(theta * r)


def log_wealth(U: Floats, S: Floats, V: Covariance, N: ArrayLike, *, eta: ArrayLike, rungs: Ladder) -> Floats:
    """log E_{j,t}(r) for every rung: log sum_b p_b exp(L_{j,b,t} - theta_b N eta), shape (..., m, G).

    L = x U + y S - var(x U + y S) / 2. N and eta are scalars, or broadcast against the masses.

    Theory: (iv), Theorem.
    """
    return log_mixture(data(U, S, V, N, eta), weights(rungs), rungs.p)


def risk_upper(rejections: NDArray[np.bool_], r: Floats) -> Floats:
    """U_{j,t}: the smallest rung such that every rung from it upwards is rejected; one (no claim) if the top is not.

    Theory: (iv), Ladder. Taking any rejected rung instead is invalid under noise.
    """
    unbroken = np.logical_and.accumulate(rejections[..., ::-1], axis=-1).sum(axis=-1)
    steps = np.append(r[::-1], 1.0)
    return np.asarray(np.where(unbroken > 0, steps[np.maximum(unbroken, 1) - 1], 1.0), dtype=np.float64)


def d_upper(
    U: Floats,
    S: Floats,
    V: Covariance,
    N: float | Floats,
    *,
    eta: float | Floats,
    r_star: float,
    theta: Floats,
    p: Floats,
    alpha_d: float,
    w: Floats,
) -> Floats:
    """dbar = delta + eta, at most 1 - r_star; delta the root of sum_b p_b exp(L_b + theta_b N delta) = 1/(alpha_d w_j).

    Theory: (iv), Theorem. A diagnostic beside the ladder, which decides.
    """
    theta, p = _ahead(theta, U), _ahead(p, U)
    x, y = slopes(r_star, theta)
    L = U * x + S * y + np.log(p) - V.of(x, y) / 2.0
    delta = _root(L, theta * N, -np.log(alpha_d * w))
    return np.asarray(np.minimum(1.0 - r_star, delta + eta), dtype=np.float64)


def d_upper_of(L: Floats, N: float, *, eta: float, target: Ladder, alpha_d: float, w: Floats) -> Floats:
    """The same of any L (..., m, B) without its prior and without eta; `target` is a ladder of one rung.

    Theory: (iv), Theorem.
    """
    terms = np.moveaxis(L, -1, 0)
    delta = _root(
        terms + np.log(_ahead(target.p, terms[0])), _ahead(target.theta[0], terms[0]) * N, -np.log(alpha_d * w)
    )
    return np.asarray(np.minimum(1.0 - target.r[0], delta + eta), dtype=np.float64)


def a_lower(
    A: Floats, V_A: Floats, N: float | Floats, *, eta: float | Floats, bets: Centres, alpha_a: float, w: Floats
) -> Floats:
    """Lower bound on acceptance: max(0, a - eta), a the root of the mixture over centres and bets.

    Theory: (iv), Acceptance (V_A is the proxy of A, 2 v in a complementary release).
    """
    c, theta, p = (_ahead(each, A) for each in bets)
    x, y = np.log1p(theta * (1.0 - c)), np.log1p(-theta * c)
    L = (x - y) * A - (x - y) ** 2 / 2.0 * V_A
    L += (y + theta * c) * N + np.log(p)
    a = -_root(L, theta * N, -np.log(alpha_a * w))
    return np.asarray(np.maximum(0.0, a - eta), dtype=np.float64)


def data(U: Floats, S: Floats, V: Covariance, N: ArrayLike, eta: ArrayLike) -> Floats:
    """What bets on totals multiply, (..., m, 6)."""
    return np.stack(np.broadcast_arrays(U, S, V.uu, V.us, V.ss, np.multiply(N, eta)), axis=-1)


def weights(rungs: Ladder) -> Floats:
    """What each entry of `data` adds to L_b - theta_b N eta: (6, B, G). Theory: (iv)."""
    theta = rungs.theta.T
    x, y = slopes(rungs.r, theta)
    return np.stack([x, y, -x * x / 2.0, -x * y, -y * y / 2.0, -theta])


def log_mixture(data: Floats, weights: Floats, p: Floats) -> Floats:
    """log sum_b p_b exp(data . weights_b): data (..., m, q), weights (q, B, G), result (..., m, G). Theory: (iv)."""
    blocks = [_logsumexp(terms) for _, terms in _blocks(data, weights, p)]
    return np.concatenate(blocks).reshape(*data.shape[:-1], weights.shape[-1])


def reaches(data: Floats, weights: Floats, p: Floats, line: ArrayLike) -> NDArray[np.bool_]:
    """Which rungs each threshold rejects: log_mixture >= line, (..., m, G). NaN rejects nothing.

    The line of threshold j is log 1/(alpha_d w_j). The largest of B terms decides unless it is within log B below.

    Theory: (iv), Theorem.
    """
    lines = np.broadcast_to(line, data.shape[:-1]).reshape(-1, 1)
    found = []
    for rows, terms in _blocks(data, weights, p):
        least, top = lines[rows], terms.max(axis=1)
        row, rung = np.nonzero((top < least) & (top >= least - np.log(p.shape[-1])))
        top[row, rung] = _logsumexp(terms[row, :, rung])
        found.append(top >= least)
    return np.concatenate(found).reshape(*data.shape[:-1], weights.shape[-1])


def _blocks(data: Floats, weights: Floats, p: Floats) -> Iterator[tuple[slice, Floats]]:
    """log p_b + data . weights_b, some rows at a time: (rows, B, G). With p (m, B), the last axis of rows is m."""
    flat, weigh, log_p = data.reshape(-1, data.shape[-1]), weights.reshape(data.shape[-1], -1), np.log(p)[..., None]
    size = max(1, CACHED // weigh.shape[-1])
    for rows in (slice(i, i + size) for i in range(0, len(flat), size)):
        terms = (flat[rows] @ weigh).reshape(-1, *weights.shape[1:])
        terms += log_p if p.ndim == 1 else log_p[np.arange(rows.start, rows.start + len(terms)) % len(p)]
        yield rows, terms


def _logsumexp(L: Floats) -> Floats:
    """Over the second axis."""
    top = L.max(axis=1)
    return np.asarray(top + np.log(np.exp(L - top[:, None]).sum(axis=1)), dtype=np.float64)


def _ahead(values: Floats, masses: Floats) -> Floats:
    """Values of the bets (B,), or (m, B) by threshold, on an axis of their own ahead of those of the masses."""
    if values.ndim == 1:
        return np.reshape(values, (-1, *(1,) * np.ndim(masses)))
    return np.reshape(values.T, (values.shape[1], *(1,) * (np.ndim(masses) - 1), len(values)))


def _root(L: Floats, slope: Floats, line: Floats) -> Floats:
    """The z with log sum_b exp(L_b + slope_b z) = line, slope_b > 0; bets lie on the first axis.

    The left side is convex and increasing, so Newton's method from the right falls onto the root, and a step of 1e-10
    is its last: the next would be of the order of its square.
    """
    terms = line - L
    z = np.divide(terms, slope, out=terms).min(axis=0)
    for _ in range(100):
        np.multiply(slope, z, out=terms)
        terms += L
        terms -= (top := terms.max(axis=0))
        share = np.exp(terms, out=terms)
        total = share.sum(axis=0)
        share *= slope
        step = (top + np.log(total) - line) * total / share.sum(axis=0)
        z = z - step
        if np.all(np.abs(step) <= 1e-10 * (1.0 + np.abs(z))):
            break
    return np.asarray(z, dtype=np.float64)
