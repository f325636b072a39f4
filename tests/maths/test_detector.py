"""The e-detector's proof as equalities: means at the boundary null, computed by enumeration.

No sampling: expectations are sums over every outcome, so the chance of a false alarm is zero. Each check is also run on
wrong versions of the code, which it must reject.

Mutants killed: noise term dropped, halved or doubled; signs of x and y flipped (betting the certificate's way); r and
1 - r swapped; a restart forgotten; the sum over starts replaced by the largest; a start given one instead of its share
(no spending); site weights ignored; silent sites or drift not charged.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import multinomial

from fedsrc.maths import betting, detector
from fedsrc.maths.betting import Covariance
from fedsrc.maths.detector import Bets, Shares

Floats = NDArray[np.float64]
R = 0.2
THETAS = (0.05, 0.7, 4.5)
Factor = Callable[..., Floats]


class Outcomes(NamedTuple):
    """Every outcome of a release: unsupported and supported mass, and probability."""

    U: Floats
    S: Floats
    p: Floats


def units(n: int, a: float, risk: float, losses: tuple[float, ...] = (1.0, 0.0)) -> Outcomes:
    """All counts of (loss values..., rejected) among n units; two losses have mean `risk` when accepted."""
    share = (risk - losses[1]) / (losses[0] - losses[1])
    cells = [a * share, a * (1 - share), 1 - a]
    grid = np.asarray([c for c in product(range(n + 1), repeat=3) if sum(c) == n], dtype=np.float64)
    loss = np.asarray(losses)
    return Outcomes(grid[:, :2] @ loss, grid[:, :2] @ (1 - loss), np.asarray(multinomial.pmf(grid, n, cells)))


def noise(scale: float) -> tuple[Floats, Floats]:
    """The discrete Gaussian, to machine precision."""
    z = np.arange(-int(14 * scale) - 2, int(14 * scale) + 3, dtype=np.float64)
    weight = np.exp(-(z**2) / (2 * scale**2))
    return z, weight / weight.sum()


def with_noise(outcomes: Outcomes, scale: float) -> Outcomes:
    z, p = noise(scale)
    zeros = np.zeros_like(z)
    return together(together(outcomes, Outcomes(z, zeros, p)), Outcomes(zeros, z, p))


def together(one: Outcomes, other: Outcomes) -> Outcomes:
    U, S = np.add.outer(one.U, other.U).ravel(), np.add.outer(one.S, other.S).ravel()
    return Outcomes(U, S, np.multiply.outer(one.p, other.p).ravel())


def one_bet(theta: float, r: float = R) -> Bets:
    return Bets(r, np.array([theta]), np.ones(1))


def alone() -> Shares:
    return Shares(np.ones(1), 0.0)


def flat(v: float) -> Covariance:
    return Covariance(np.array([v]), np.zeros(1), np.array([v]))


def mean_factor(factor: Factor, seen: Outcomes, v: float, theta: float) -> float:
    log_L = factor(seen.U[:, None], seen.S[:, None], flat(v), by=alone(), bets=one_bet(theta))
    return float(np.exp(log_L[:, 0]) @ seen.p)


def agrees(factor: Factor, seen: Outcomes, v: float, theta: float, expected: float = 1.0) -> bool:
    return abs(mean_factor(factor, seen, v, theta) - expected) < 1e-11


# --- wrong versions ---------------------------------------------------------------------------------------------


def noise_times(factor: float) -> Factor:
    def wrong(U: Floats, S: Floats, V: Covariance, *, by: Shares, bets: Bets) -> Floats:
        return detector.log_factor(U, S, Covariance(*(factor * v for v in V)), by=by, bets=bets)

    return wrong


def flipped(U: Floats, S: Floats, V: Covariance, *, by: Shares, bets: Bets) -> Floats:
    """The certificate's own slopes, which bet that risk is below."""
    theta = np.minimum(bets.theta, 0.9 / (1 - bets.r))
    x, y = betting.slopes(bets.r, theta)
    return np.asarray(-(x * U + y * S + V.of(x, y) / 2))


def swapped(U: Floats, S: Floats, V: Covariance, *, by: Shares, bets: Bets) -> Floats:
    """1 - r in place of r."""
    theta = np.minimum(bets.theta, 0.9 / (1 - bets.r))
    return detector.log_factor(U, S, V, by=by, bets=Bets(1 - bets.r, theta, bets.p))


# --- one start --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("theta", THETAS)
def test_mean_factor_is_one_for_binary_loss_at_the_boundary(theta: float) -> None:
    seen = units(7, 0.6, R)
    assert agrees(detector.log_factor, seen, 0.0, theta)
    assert not agrees(flipped, seen, 0.0, theta)
    assert not agrees(swapped, seen, 0.0, theta)


@pytest.mark.parametrize("theta", THETAS)
@pytest.mark.parametrize("scale", [0.7, 1.3, 3.0])
def test_mean_factor_with_noise_is_the_noise_factor(theta: float, scale: float) -> None:
    """Exactly the discrete Gaussian's own, which is at most one."""
    seen = with_noise(units(3, 0.6, R), scale)
    z, p = noise(scale)
    slopes = detector.slopes(R, theta)
    expected = math.prod(float(np.exp(s * z - s**2 * scale**2 / 2) @ p) for s in map(float, slopes))
    assert expected <= 1 + 1e-12
    assert agrees(detector.log_factor, seen, scale**2, theta, expected)
    for factor in (0.0, 0.5, 2.0):
        assert not agrees(noise_times(factor), seen, scale**2, theta, expected)


@pytest.mark.parametrize("theta", THETAS)
def test_mean_factor_off_the_boundary(theta: float) -> None:
    """(1 + theta a (R - r))^n: below one inside the null, above it after a change."""
    for risk in (0.05, 0.2, 0.5):
        expected = (1 + theta * 0.6 * (risk - R)) ** 5
        assert agrees(detector.log_factor, units(5, 0.6, risk), 0.0, theta, expected)


@pytest.mark.parametrize("theta", THETAS)
def test_graded_losses_only_lose(theta: float) -> None:
    """log is concave: fractions grow less than the product of bets, whose mean is one."""
    assert mean_factor(detector.log_factor, units(6, 0.7, R, (0.5, 0.0)), 0.0, theta) < 1.0


# --- several sites ----------------------------------------------------------------------------------------------


def mean_of_round(n: tuple[int, ...], risks: tuple[float, ...], by: Shares, theta: float) -> float:
    """Mean factor of a round of sites with those slots and risks: the product over sites."""
    bets = one_bet(theta)
    total = math.exp(-theta * by.c)
    for k, (count, risk) in enumerate(zip(n, risks, strict=True)):
        if count:
            seen, part = units(count, 0.8, risk), Shares(by.q[k : k + 1], 0.0)
            log_L = detector.log_factor(seen.U[:, None], seen.S[:, None], flat(0.0), by=part, bets=bets)
            total *= float(np.exp(log_L[:, 0]) @ seen.p)
    return total


def shares(n: tuple[int, ...], w: tuple[float, ...], drift: float = 0.0) -> Shares:
    return detector.shares(np.asarray(n, float), np.asarray(w), np.full(len(n), drift), R)


WEIGHTS, RISKS = (0.5, 0.3, 0.2), (0.1, 0.2, 0.45)  # the mixture's risk is 0.2: the boundary


def test_sites_count_by_their_weights_whatever_they_send() -> None:
    """At the boundary of a mixture of different sites the mean is at most one, and one to first order in theta.

    Mutant: every site counts by its slots.
    """
    n, theta = (2, 6, 9), 0.05
    by = shares(n, WEIGHTS)
    assert by.q.max() == 1.0
    assert np.allclose(by.q * n / np.asarray(WEIGHTS), by.q[0] * n[0] / WEIGHTS[0])
    right = mean_of_round(n, RISKS, by, theta)
    wrong = mean_of_round(n, RISKS, Shares(np.ones(3), 0.0), theta)
    assert 1 - 0.01 < right <= 1.0
    assert wrong > 1.05


def test_a_silent_site_is_charged_at_its_best() -> None:
    """The good site is silent: what is left has a risk above the line, though the mixture's is at it."""
    n, theta = (0, 6, 4), 1.0
    by = shares(n, WEIGHTS)
    best = (0.0, 0.2, 0.45)
    assert mean_of_round(n, best, by, theta) <= 1.0
    assert mean_of_round(n, best, Shares(by.q, 0.0), theta) > 1.0
    assert by.c == pytest.approx(20.0 * R * 0.5)  # kappa = min(6 / 0.3, 4 / 0.2)


def test_declared_drift_is_charged() -> None:
    by = shares((5, 3, 2), WEIGHTS, drift=0.04)
    assert by.c == pytest.approx(10.0 * 0.04)


def test_nobody_answered_so_nothing_is_bet() -> None:
    by = shares((0, 0, 0), WEIGHTS)
    assert by.c == 0.0
    assert not by.q.any()


# --- restarts ---------------------------------------------------------------------------------------------------


Step = Callable[[Floats, Floats, float], Floats]


def mean_evidence(step: Step, rounds: int, starts: list[float], theta: float = 0.7) -> float:
    """Mean of M after some rounds of two units each, over every path, at the boundary."""
    seen = units(2, 0.6, R)
    log_L = detector.log_factor(seen.U[:, None], seen.S[:, None], flat(0.0), by=alone(), bets=one_bet(theta))[:, 0]
    total = 0.0
    for path in product(range(log_L.size), repeat=rounds):
        log_M, weight = np.array([-np.inf]), 1.0
        for t, outcome in enumerate(path):
            log_M = step(log_M, log_L[outcome : outcome + 1], starts[t])
            weight *= float(seen.p[outcome])
        total += weight * math.exp(float(log_M[0]))
    return total


def test_mean_of_all_starts_is_what_they_were_given() -> None:
    """E M_t = the sum of what starts were given: with one each, t (Shiryaev-Roberts); with units, N_t.

    Mutants: the restart forgotten (mean one), the largest start in place of their sum (below t).
    """

    def forgotten(log_M: Floats, log_L: Floats, g: float) -> Floats:
        return np.where(np.isinf(log_M), np.log(g), log_M) + log_L

    def largest(log_M: Floats, log_L: Floats, g: float) -> Floats:
        return np.maximum(log_M, np.log(g)) + log_L

    assert mean_evidence(detector.step, 4, [1.0] * 4) == pytest.approx(4.0, abs=1e-10)
    assert mean_evidence(detector.step, 3, [2.0, 5.0, 1.0]) == pytest.approx(8.0, abs=1e-10)
    assert mean_evidence(forgotten, 4, [1.0] * 4) == pytest.approx(1.0, abs=1e-10)
    assert mean_evidence(largest, 4, [1.0] * 4) < 3.0


def test_shares_of_one_make_a_martingale() -> None:
    """With spending, evidence and what is kept have mean exactly one in every round; without, their mean grows."""
    for rounds in (1, 2, 4):
        shared = mean_evidence(detector.step, rounds, [detector.given(t) for t in range(1, rounds + 1)])
        assert shared + detector.kept(rounds) == pytest.approx(1.0, abs=1e-10)
    assert mean_evidence(detector.step, 4, [1.0] * 4) > 1.5


def test_the_recursion_is_the_sum_over_starts() -> None:
    rng = np.random.default_rng(3)
    log_L, p = rng.normal(0, 1, (6, 4)), np.full(4, 0.25)
    starts = [2.0, 1.0, 3.0, 0.5, 1.0, 4.0]
    log_M = detector.nothing(4)
    for row, g in zip(log_L, starts, strict=True):
        log_M = detector.step(log_M, row, g)
    direct = sum(g * np.exp(log_L[k:].sum(axis=0)) for k, g in enumerate(starts))
    assert np.allclose(np.exp(log_M), direct, rtol=1e-12)
    expected = math.log(float(p @ direct) + 0.3)
    assert float(detector.log_evidence(log_M, p, 0.3)) == pytest.approx(expected, rel=1e-12)


def test_values_by_hand() -> None:
    """r = 0.2, theta = 1: x = log 1.8, y = log 0.8; three unsupported, five supported, noise variance 0.5."""
    x, y = detector.slopes(0.2, 1.0)
    assert (math.exp(float(x)), math.exp(float(y))) == pytest.approx((1.8, 0.8))
    log_L = detector.log_factor(np.array([3.0]), np.array([5.0]), flat(0.5), by=alone(), bets=one_bet(1.0))
    by_hand = 3 * math.log(1.8) + 5 * math.log(0.8) - (math.log(1.8) ** 2 + math.log(0.8) ** 2) / 4
    assert float(log_L[0]) == pytest.approx(by_hand, abs=1e-12)
    assert detector.given(1) == 0.5
    assert detector.given(3) == pytest.approx(1 / 12)
    assert sum(detector.given(t) for t in range(1, 8)) + detector.kept(7) == pytest.approx(1.0)


def test_bets_stay_below_ruin() -> None:
    found = detector.bets(0.2, count=5, low=0.01, high=0.95)
    assert found.theta[0] == pytest.approx(0.01)
    assert found.theta[-1] == pytest.approx(4.75)
    assert found.p.sum() == pytest.approx(1.0)
    assert (1 - found.theta * 0.2 > 0).all()


def test_the_likely_start_is_where_evidence_begins() -> None:
    log_L = np.array([[-1.0], [-0.5], [2.0], [1.0], [1.5]])
    assert detector.likely_start(log_L, np.ones(1)) == 2


def test_the_limit() -> None:
    kl = 0.4 * math.log(2) + 0.6 * math.log(0.6 / 0.8)
    assert detector.told_delay(0.5, 0.4, 0.2, 0.01) == pytest.approx(math.log(100) / (0.5 * kl))
    assert detector.told_delay(0.5, 0.2, 0.2, 0.1) == math.inf
    information, h = 0.5 * kl, 3.0
    c = (math.exp(h) - h - 1) / information
    assert detector.least_delay(0.5, 0.4, 0.2, c) == pytest.approx((h - 1 + math.exp(-h)) / information)
    assert detector.least_delay(0.5, 0.1, 0.2, c) == math.inf
