"""Validity as an equality: mean wealth at the boundary null is what the proof says, computed by enumeration.

No sampling: expectations are sums over every outcome, so the chance of a false alarm is zero. Each check is also
run on wrong versions of the code, which it must reject.

Mutants killed: noise term dropped, halved (a lost sqrt 2) or doubled, x and y swapped, eta ignored or halved,
withheld units not charged, any rejected rung taken as the bound.
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

from fedsrc.maths import betting
from fedsrc.maths.basis import covariance
from fedsrc.maths.betting import Covariance, Ladder

Floats = NDArray[np.float64]
R_STAR = 0.2
THETAS = (0.05, 0.4, 1.1)
Wealth = Callable[..., Floats]


class Outcomes(NamedTuple):
    """Every outcome of a small experiment: unsupported and supported mass, and probability."""

    U: Floats
    S: Floats
    p: Floats


class Law(NamedTuple):
    """One site: acceptance, and the law of the loss among accepted answers."""

    a: float
    losses: tuple[float, ...]
    weights: tuple[float, ...]

    @property
    def mean_loss(self) -> float:
        return float(np.dot(self.losses, self.weights))


def binary(a: float, R: float) -> Law:
    return Law(a, (1.0, 0.0), (R, 1 - R))


def enumerate_units(law: Law, n: int) -> Outcomes:
    """All counts of (loss values..., rejected) among n units."""
    cells = [law.a * w for w in law.weights] + [1 - law.a]
    counts = [c for c in product(range(n + 1), repeat=len(cells)) if sum(c) == n]
    grid = np.asarray(counts, dtype=np.float64)
    losses = np.asarray(law.losses)
    probability = np.asarray(multinomial.pmf(grid, n, cells), dtype=np.float64)
    return Outcomes(grid[:, :-1] @ losses, grid[:, :-1] @ (1 - losses), probability)


def together(one: Outcomes, other: Outcomes) -> Outcomes:
    """Independent experiments, added."""
    U = np.add.outer(one.U, other.U).ravel()
    S = np.add.outer(one.S, other.S).ravel()
    return Outcomes(U, S, np.multiply.outer(one.p, other.p).ravel())


def discrete_noise(scale: float) -> tuple[Floats, Floats]:
    """Support and probabilities of the discrete Gaussian, to machine precision."""
    z = np.arange(-int(14 * scale) - 2, int(14 * scale) + 3, dtype=np.float64)
    weight = np.exp(-(z**2) / (2 * scale**2))
    return z, weight / weight.sum()


def with_noise(outcomes: Outcomes, scale: float) -> Outcomes:
    z, p = discrete_noise(scale)
    zeros = np.zeros_like(z)
    return together(together(outcomes, Outcomes(z, zeros, p)), Outcomes(zeros, z, p))


def one_bet(theta: float) -> Ladder:
    return Ladder(np.array([R_STAR]), np.array([[theta]]), np.ones(1))


def mean_wealth(wealth: Wealth, outcomes: Outcomes, v: float, N: int, eta: float, theta: float) -> float:
    V = covariance("complementary", np.full_like(outcomes.U, v))
    log_E = wealth(outcomes.U, outcomes.S, V, N, eta=eta, rungs=one_bet(theta))[:, 0]
    return float(np.exp(log_E) @ outcomes.p)


def mgf_ratio(x: float, scale: float) -> float:
    """E exp(x Z - x^2 scale^2 / 2) for the discrete Gaussian: at most one, one in the limit of large scales."""
    z, p = discrete_noise(scale)
    return float(np.exp(x * z - x**2 * scale**2 / 2) @ p)


# --- wrong versions ---------------------------------------------------------------------------------------------


def scaled_noise(factor: float) -> Wealth:
    def wealth(U: Floats, S: Floats, V: Covariance, N: float, **rest: float) -> Floats:
        return betting.log_wealth(U, S, Covariance(*(factor * v for v in V)), N, **rest)  # type: ignore[arg-type]

    return wealth


def swapped(U: Floats, S: Floats, V: Covariance, N: float, **rest: float) -> Floats:
    return betting.log_wealth(S, U, V, N, **rest)  # type: ignore[arg-type]


def scaled_eta(factor: float) -> Wealth:
    def wealth(U: Floats, S: Floats, V: Covariance, N: float, *, eta: float, rungs: Ladder) -> Floats:
        return betting.log_wealth(U, S, V, N, eta=factor * eta, rungs=rungs)

    return wealth


def agrees(wealth: Wealth, outcomes: Outcomes, v: float, N: int, eta: float, theta: float, expected: float) -> bool:
    return abs(mean_wealth(wealth, outcomes, v, N, eta, theta) - expected) < 1e-11


# --- the checks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("theta", THETAS)
def test_mean_wealth_is_one_for_binary_loss_at_the_boundary(theta: float) -> None:
    outcomes = enumerate_units(binary(0.6, R_STAR), 7)
    assert agrees(betting.log_wealth, outcomes, 0.0, 7, 0.0, theta, 1.0)
    assert not agrees(swapped, outcomes, 0.0, 7, 0.0, theta, 1.0)


@pytest.mark.parametrize("theta", THETAS)
@pytest.mark.parametrize("scale", [0.7, 1.3, 3.0])
def test_mean_wealth_with_noise_is_the_noise_factor(theta: float, scale: float) -> None:
    """Exactly the discrete Gaussian's factor, which is at most one; wrong noise terms are off."""
    outcomes = with_noise(enumerate_units(binary(0.6, R_STAR), 4), scale)
    x, y = betting.slopes(R_STAR, theta)
    expected = mgf_ratio(float(x), scale) * mgf_ratio(float(y), scale)
    assert expected <= 1 + 1e-12
    assert agrees(betting.log_wealth, outcomes, scale**2, 4, 0.0, theta, expected)
    for mutant in (scaled_noise(0.0), scaled_noise(0.5), scaled_noise(2.0)):
        assert not agrees(mutant, outcomes, scale**2, 4, 0.0, theta, expected)


@pytest.mark.parametrize("theta", THETAS)
def test_mean_wealth_over_different_sites_is_the_product_below_one(theta: float) -> None:
    """Sites on both sides of the target whose mixture is exactly at it: prod_k (1 - theta d_k)^{n_k} < 1."""
    good, bad = binary(0.5, 0.1), binary(0.5, 0.3)
    outcomes = together(enumerate_units(good, 4), enumerate_units(bad, 4))
    d = [0.5 * (0.1 - R_STAR), 0.5 * (0.3 - R_STAR)]
    expected = math.prod((1 - theta * each) ** 4 for each in d)
    assert expected < 1
    assert agrees(betting.log_wealth, outcomes, 0.0, 8, 0.0, theta, expected)
    assert not agrees(swapped, outcomes, 0.0, 8, 0.0, theta, expected)


@pytest.mark.parametrize("theta", THETAS)
def test_mean_wealth_for_graded_loss_is_the_concave_factor(theta: float) -> None:
    """One unit's factor is 1 - a + a E exp(l x + (1-l) y), below one by concavity of log."""
    law = Law(0.7, (0.0, 0.25, 0.5), (0.5, 0.2, 0.3))
    assert law.mean_loss == pytest.approx(R_STAR)
    x, y = betting.slopes(R_STAR, theta)
    unit = sum(w * math.exp(loss * x + (1 - loss) * y) for loss, w in zip(law.losses, law.weights, strict=True))
    expected = (1 - law.a + law.a * unit) ** 4
    assert expected < 1
    outcomes = enumerate_units(law, 4)
    assert agrees(betting.log_wealth, outcomes, 0.0, 4, 0.0, theta, expected)
    assert not agrees(swapped, outcomes, 0.0, 4, 0.0, theta, expected)


@pytest.mark.parametrize("theta", THETAS)
def test_mean_wealth_pays_for_the_declared_mixture(theta: float) -> None:
    """Calibrated at contrast -eta, deployed at contrast 0: (1 + theta eta)^N exp(-theta N eta) <= 1."""
    eta, a, N = 0.03, 0.5, 6
    outcomes = enumerate_units(binary(a, R_STAR - eta / a), N)
    expected = (1 + theta * eta) ** N * math.exp(-theta * N * eta)
    assert expected < 1
    assert agrees(betting.log_wealth, outcomes, 0.0, N, eta, theta, expected)
    for mutant in (scaled_eta(0.0), scaled_eta(0.5), scaled_eta(2.0)):
        assert not agrees(mutant, outcomes, 0.0, N, eta, theta, expected)
    assert mean_wealth(scaled_eta(0.0), outcomes, 0.0, N, eta, theta) > 1  # ignoring eta would be invalid


def test_withheld_units_are_charged() -> None:
    """Without noise: withholding every unsupported unit is harmless when its slot is charged, fatal when it is not."""
    theta, N = 0.9, 7
    full = enumerate_units(binary(0.6, R_STAR), N)
    none = covariance("complementary", np.zeros_like(full.U))
    free = betting.log_wealth(np.zeros_like(full.U), full.S, none, N, eta=0.0, rungs=one_bet(theta))[:, 0]
    charged = betting.log_wealth(full.U, full.S, none, N, eta=0.0, rungs=one_bet(theta))[:, 0]
    assert float(np.exp(charged) @ full.p) == pytest.approx(1.0, abs=1e-11)
    assert float(np.exp(free) @ full.p) > 1.5


def acceptance_wealth(A: Floats, N: int, v_A: float, c: float, theta: float, a: float) -> Floats:
    """The acceptance e-process at a hypothetical acceptance `a`, from the code's own root: wealth crosses 1/alpha
    exactly when `a` is excluded."""
    bets = betting.Centres(np.array([c]), np.array([theta]), np.ones(1))
    # with one bet the root is linear in log(1/alpha): recover log-wealth at `a` from the bound at alpha = 1
    low = betting.a_lower(A, np.full_like(A, v_A), N, eta=-10.0, bets=bets, alpha_a=1.0, w=np.ones(A.size)) - 10.0
    return theta * N * (low - a)


@pytest.mark.parametrize("scale", [0.0, 1.3])
def test_acceptance_wealth_is_one_at_its_centre(scale: float) -> None:
    c, theta, N = 0.3, 0.8, 6
    outcomes = enumerate_units(binary(c, 0.5), N)
    v_A = 0.0
    expected = 1.0
    if scale:
        outcomes, v_A = with_noise(outcomes, scale), 2 * scale**2
        slope = math.log1p(theta * (1 - c)) - math.log1p(-theta * c)
        expected = mgf_ratio(slope, scale) ** 2
    A = outcomes.U + outcomes.S
    wealth = np.exp(acceptance_wealth(A, N, v_A, c, theta, c))
    assert float(wealth @ outcomes.p) == pytest.approx(expected, abs=1e-10)
    if scale:
        wrong = np.exp(acceptance_wealth(A, N, v_A / 2, c, theta, c))
        assert float(wrong @ outcomes.p) > expected + 0.05


def test_the_bound_is_the_root_of_its_equation() -> None:
    """d_upper solves the mixture equation to machine precision, for every threshold."""
    rng = np.random.default_rng(3)
    U, S = rng.uniform(0, 50, 20), rng.uniform(0, 400, 20)
    V = covariance("complementary", rng.uniform(0, 30, 20))
    rungs, w = betting.ladder([R_STAR]), np.full(20, 1 / 20)
    d = betting.d_upper(U, S, V, 900, eta=0.01, r_star=R_STAR, theta=rungs.theta[0], p=rungs.p, alpha_d=0.045, w=w)
    free = d < 1 - R_STAR
    shifted = betting.log_wealth(U, S, V, 900, eta=0.0, rungs=rungs)
    assert free.any()
    x, y = betting.slopes(R_STAR, rungs.theta[0])
    L = (
        np.log(rungs.p)
        + np.outer(U, x)
        + np.outer(S, y)
        - np.stack([V.of(*xy) for xy in zip(x, y, strict=True)], 1) / 2
    )
    value = np.logaddexp.reduce(L + rungs.theta[0] * 900 * (d - 0.01)[:, None], axis=1)
    np.testing.assert_allclose(value[free], -np.log(0.045 / 20), atol=1e-8)
    np.testing.assert_allclose(np.logaddexp.reduce(L, axis=1), shifted[:, 0], atol=1e-10)


def test_dbar_is_nonpositive_exactly_when_wealth_reaches_its_line() -> None:
    rng = np.random.default_rng(4)
    U, S = rng.uniform(0, 60, 500), rng.uniform(0, 300, 500)
    V = covariance("complementary", rng.uniform(0, 10, 500))
    w, rungs = np.full(500, 1 / 20), betting.ladder([R_STAR])
    d = betting.d_upper(U, S, V, 600, eta=0.02, r_star=R_STAR, theta=rungs.theta[0], p=rungs.p, alpha_d=0.045, w=w)
    wealth = betting.log_wealth(U, S, V, 600, eta=0.02, rungs=rungs)[:, 0]
    reaches = wealth >= -np.log(0.045 / 20)
    assert 50 < reaches.sum() < 450
    assert ((d <= 0) == reaches).all()


def test_risk_upper_needs_every_higher_rung() -> None:
    r = np.array([0.1, 0.2, 0.3, 0.4])
    rejections = np.array(
        [
            [False, True, True, True],  # down to 0.2
            [True, True, False, True],  # a gap: only 0.4
            [True, True, True, False],  # the top is not rejected: no claim
            [True, True, True, True],
            [False, False, False, False],
        ]
    )
    assert betting.risk_upper(rejections, r).tolist() == [0.2, 0.4, 1.0, 0.1, 1.0]


def test_nan_rejects_nothing() -> None:
    U, S, none = np.array([np.nan, 0.0]), np.array([900.0, 900.0]), np.zeros(2)
    seen, rungs = betting.data(U, S, Covariance(none, none, none), 900, 0.0), betting.ladder([R_STAR])
    found = betting.reaches(seen, betting.weights(rungs), rungs.p, -np.log(0.05))
    assert found.tolist() == [[False], [True]]


@pytest.mark.parametrize("lead", [(), (4,), (3, 2), (700,)])
def test_priors_by_threshold_are_those_of_each_threshold(lead: tuple[int, ...]) -> None:
    """Bounds with a prior per threshold are, threshold by threshold, those with that prior alone.

    Mutants killed: one threshold's prior used for all, priors dealt to trials instead of thresholds, a uniform prior.
    """
    rng, m = np.random.default_rng(6), 5
    U, S = rng.uniform(0, 60, (*lead, m)), rng.uniform(0, 300, (*lead, m))
    V, w = covariance("complementary", rng.uniform(0, 10, (*lead, m))), np.full(m, 1 / m)
    priors = rng.dirichlet(np.ones(12), m)
    both = betting.ladder([0.1, R_STAR, 0.3], priors=priors)
    wealth = betting.log_wealth(U, S, V, 600, eta=0.01, rungs=both)
    seen = betting.data(U, S, V, 600, 0.01)
    reached = betting.reaches(seen, betting.weights(both), both.p, -np.log(0.045 * w))
    given = {"eta": 0.01, "r_star": R_STAR, "theta": both.theta[1], "alpha_d": 0.045}
    d = betting.d_upper(U, S, V, 600, p=priors, w=w, **given)
    for j, p in enumerate(priors):
        one, at = both._replace(p=p), slice(j, j + 1)
        own = Covariance(*(each[..., at] for each in V))
        alone = betting.log_wealth(U[..., at], S[..., at], own, 600, eta=0.01, rungs=one)
        np.testing.assert_allclose(wealth[..., at, :], alone, rtol=0, atol=1e-10)
        assert (reached[..., j, :] == (wealth[..., j, :] >= -np.log(0.045 * w[j]))).all()
        by_itself = betting.d_upper(U[..., at], S[..., at], own, 600, p=p, w=w[at], **given)
        np.testing.assert_allclose(d[..., at], by_itself, rtol=0, atol=1e-9)
