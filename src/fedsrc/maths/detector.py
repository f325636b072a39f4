"""The e-detector: bets that risk is above a line, started anew in every round, so that a late change is noticed.

Notation
    U, S     noised unsupported and supported mass of one release, at the deployed threshold
    V        covariance proxy of the noise on (U, S)
    r        the risk that must not be passed; theta a bet; p its prior weight
    w, n     a round's deployment weights and slots, per site
    kappa    the round's size in units of the deployment mixture; q a site's part of a bet, in [0, 1]
    c        what a round is charged for silent sites and declared drift
    log_L    log of a round's factor, per bet
    g        what a round's fresh start is given; M what all starts have become, per bet

Shapes: leading axes are free (trials); bets are the last axis.

Theory: (x).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from fedsrc.maths.arrays import Floats
from fedsrc.maths.betting import Covariance
from fedsrc.maths.limits import kl


class Bets(NamedTuple):
    """Bets theta (B,) that risk is above r, and their priors p (B,)."""

    r: float
    theta: Floats
    p: Floats


class Shares(NamedTuple):
    """How a round is bet on: each site's part q (K,) of a bet, and the charge c."""

    q: Floats
    c: float


def bets(r: float, *, count: int = 12, low: float = 0.01, high: float = 0.95) -> Bets:
    """geomspace(low, high / r, count) with a uniform prior.

    Theory: (x), bets theta_b in (0, 1/r).
    """
    return Bets(r, np.geomspace(low, high / r, count), np.full(count, 1.0 / count))


def slopes(r: float, theta: ArrayLike) -> tuple[Floats, Floats]:
    """x = log(1 + theta (1-r)) > 0, what one unsupported unit adds; y = log(1 - theta r) < 0, one supported unit.

    Theory: (x).
    """
    theta = np.asarray(theta, dtype=np.float64)
    return np.log1p(theta * (1.0 - r)), np.log1p(-theta * r)


def shares(n: Floats, w: Floats, gamma: Floats, r: float) -> Shares:
    """q_k = kappa w_k / n_k with kappa = min n_k / w_k over sites that answered: every site counts by its weight.

    c = kappa (sum of w_k gamma_k over sites that answered + r times the weight of those that did not). Where no site
    with a weight answered, nothing is bet.

    Theory: (x), Lemma (one round).
    """
    here = (n > 0) & (w > 0)
    if not here.any():
        return Shares(np.zeros_like(w), 0.0)
    kappa = float((n[here] / w[here]).min())
    q = np.where(here, kappa * w / np.where(here, n, 1.0), 0.0)
    silent = float(w[~here].sum())
    return Shares(np.minimum(q, 1.0), kappa * (float(w[here] @ gamma[here]) + r * silent))


def log_factor(U: Floats, S: Floats, V: Covariance, *, by: Shares, bets: Bets) -> Floats:
    """log L_b of one round: sum_k x_{b,k} U_k + y_{b,k} S_k - var(x U_k + y S_k) / 2, less theta_b c; (..., B).

    Masses (..., K) of the releases of K sites; x_{b,k} and y_{b,k} are the slopes at theta_b q_k.

    Theory: (x), Lemma (one round).
    """
    x, y = slopes(bets.r, by.q[:, None] * bets.theta)
    noise = Covariance(*(np.asarray(v)[..., None] for v in V)).of(x, y)
    return np.asarray(U @ x + S @ y - noise.sum(axis=-2) / 2.0 - bets.theta * by.c, dtype=np.float64)


def nothing(count: int) -> Floats:
    """log M before the first round."""
    return np.full(count, -np.inf)


def step(log_M: Floats, log_L: Floats, g: float) -> Floats:
    """M_t = (M_{t-1} + g_t) L_t per bet: all earlier starts go on, and a new one begins with this round.

    Theory: (x), recursion.
    """
    return np.asarray(np.logaddexp(log_M, np.log(g)) + log_L, dtype=np.float64)


def log_evidence(log_M: Floats, p: Floats, kept: float = 0.0) -> Floats:
    """log(sum_b p_b M_b + kept), `kept` being what later starts are still to be given; (...).

    Theory: (x), Theorem (run length), Theorem (probability).
    """
    terms = log_M + np.log(p)
    top = terms.max(axis=-1)
    total = top + np.log(np.exp(terms - top[..., None]).sum(axis=-1))
    return np.asarray(np.logaddexp(total, np.log(kept)) if kept > 0 else total, dtype=np.float64)


def given(t: int) -> float:
    """g_t = 1 / (t (t+1)): what the start in round t is given of one.

    Theory: (x), Theorem (probability).
    """
    return 1.0 / (t * (t + 1.0))


def kept(t: int) -> float:
    """1 / (t+1): what is left of one after t rounds.

    Theory: (x), Theorem (probability).
    """
    return 1.0 / (t + 1.0)


def likely_start(log_L: Floats, p: Floats) -> int:
    """The start (0, 1, ...) whose bets have grown most by the last of the rounds log_L (T, B): an estimate."""
    since = np.cumsum(log_L[::-1], axis=0)[::-1]
    return int(np.argmax(log_evidence(since, p)))


def told_delay(a: float, R: float, r: float, alpha: float) -> float:
    """log(1/alpha) / (a kl(R, r)): fewest units, on average, of a level-alpha test that is told when the change comes.

    Theory: (x), Limit.
    """
    return math.log(1.0 / alpha) / (a * kl(R, r)) if r < R else math.inf


def least_delay(a: float, R: float, r: float, c: float) -> float:
    """(h - 1 + e^-h) / I with (e^h - h - 1) / I = c, I = a kl(R, r): fewest units from a change to its alarm, in the
    worst case, of any detector with mean c until a false alarm and told both risks; in the diffusion limit of small I.

    Theory: (x), Limit.
    """
    if not r < R:
        return math.inf
    information = a * kl(R, r)
    aim = c * information
    h = float(brentq(lambda t: math.expm1(t) - t - aim, 0.0, math.log1p(aim) + 2.0))
    return (h - 1.0 + math.exp(-h)) / information
