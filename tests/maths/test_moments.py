"""Second moments in open certificates: sensitivity, bets and noise, each against what its proof says.

Chance of a false alarm: none; searches have fixed seeds and compare exact integers, expectations are enumerated.
Mutants killed: w = 8, totals not doubled, increments of the wrong sign (sensitivity); r and 1 - r exchanged, US of the
wrong sign or weight, kappa of one half, Q left out (mean wealth); noise of Q left out, halved or without w, noise of D
left out (noise term); rungs that share one charge (charge).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsrc.maths import betting, moments
from fedsrc.maths.arrays import Floats, Ints
from fedsrc.maths.basis import Basis
from fedsrc.maths.moments import MomentCode, Seconds
from fedsrc.maths.sealed import kappa

RUNGS = np.array([0.05, 0.2, 0.5, 0.8])


def code(m: int, g: int = 6) -> MomentCode:
    return MomentCode(Basis("suffix", m, 4), g)


def norm_squared(lattice: Ints) -> int:
    """Of integers that may be too large for a machine word."""
    return sum(int(each) ** 2 for each in lattice.ravel())


def sources(rng: np.random.Generator, m: int, g: int, count: int) -> Ints:
    """Masses (count, 2, m+1) of sources whose shares of g lie in few bins, most of them in the last two."""
    found = np.zeros((count, 2, m + 1), dtype=np.int64)
    for one in found:
        answers = int(rng.integers(1, g + 1))
        for mass in np.diff([0, *sorted(rng.integers(0, g + 1, answers - 1)), g]):
            where = m if rng.random() < 0.5 else int(rng.integers(0, m + 1))
            one[int(rng.random() < 0.5), where] += mass
    return found


def farthest(made: MomentCode, masses: Ints) -> tuple[int, int]:
    """Largest squared norm of any of these units, and largest squared distance of any two."""
    lattice = made.encode(made.bins(masses)).astype(object)
    pairs = [norm_squared(a - b) for i, a in enumerate(lattice) for b in lattice[:i]]
    return max(map(norm_squared, lattice)), max(pairs)


@pytest.mark.parametrize("m", [1, 2, 3, 5, 8, 13, 20, 35, 50])
def test_the_sensitivity_is_attained_and_never_passed(m: int) -> None:
    made, rng = code(m), np.random.default_rng(m)
    whole = np.zeros((2, 2, m + 1), dtype=np.int64)
    whole[0, 0, m] = whole[1, 1, m] = made.g  # one unit all supported, one all unsupported, at the top
    found = farthest(made, np.concatenate([whole, sources(rng, m, made.g, 40)]))
    assert found == (made.sensitivity_squared("zero-out"), made.sensitivity_squared("replacement"))
    assert made.sensitivity_squared("replacement") == 2 * made.sensitivity_squared("zero-out")


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4), st.integers(0, 12)), max_size=12))
def test_no_unit_passes_the_sensitivity(answers: list[tuple[bool, int, int]]) -> None:
    """Whatever masses of total at most one."""
    made, masses, left = code(4, 12), np.zeros((2, 5), dtype=np.int64), 12
    for unsupported, where, mass in answers:
        masses[int(unsupported), where] += min(mass, left)
        left -= min(mass, left)
    assert norm_squared(made.encode(made.bins(masses))) <= made.sensitivity_squared("zero-out")


@pytest.mark.parametrize("wrong", [8, 12])
def test_a_heavier_product_would_pass_it(monkeypatch: pytest.MonkeyPatch, wrong: int) -> None:
    monkeypatch.setattr(moments, "CROSS", wrong)
    made, half = code(3), np.zeros((2, 4), dtype=np.int64)
    half[:, 3] = made.g // 2
    assert norm_squared(made.encode(made.bins(half))) > made.sensitivity_squared("zero-out")


def test_no_coordinate_of_a_unit_passes_the_largest() -> None:
    """Sums of so many units as a registration allows then stay within a machine word."""
    made = MomentCode(Basis("suffix", 5, 8), 60)
    lattice = made.encode(made.bins(sources(np.random.default_rng(0), 5, 60, 500)))
    assert np.abs(lattice).max() <= made.largest()
    top = np.zeros((2, 6), dtype=np.int64)
    top[0, 5] = 60
    assert made.encode(made.bins(top)).max() == made.largest()


@dataclass(frozen=True)
class Law:
    """Types of units at one threshold: masses (u, s), and their probabilities."""

    u: Floats
    s: Floats
    p: Floats


def null(r: float) -> Law:
    """Sources and graded units whose mean contrast at target r is exactly zero, some rejected."""
    u, s = np.array([1.0, 0.5, 0.25, 0.0, 0.0]), np.array([0.0, 0.25, 0.75, 1.0, 0.0])
    d = r * s - (1 - r) * u
    p = np.where(d < 0, 1.0, 0.0) / np.sum(-d[d < 0]) + np.where(d > 0, 1.0, 0.0) / np.sum(d[d > 0])
    p[-1] = 0.2 * p.sum()
    p /= p.sum()
    assert p @ d == pytest.approx(0.0, abs=1e-15)
    return Law(u, s, p)


def one_bet(r: float, theta: float) -> betting.Ladder:
    return betting.Ladder(np.array([r]), np.array([[theta]]), np.ones(1))


def log_wealth(
    U: Floats, S: Floats, second: Seconds, v: Floats, N: float, *, eta: float, rungs: betting.Ladder
) -> Floats:
    """The mixture of the bets, as `bounds` makes it."""
    return betting.log_mixture(moments.data(U, S, second, v, N, eta), moments.weights(rungs), rungs.p)


def seconds(uu: Floats, us: Floats, ss: Floats) -> Seconds:
    none = np.zeros_like(uu)
    return Seconds(uu, us, ss, none, none, none)


def mean_wealth(law: Law, r: float, theta: float, n: int) -> float:
    """E exp(L) over every outcome of n units, by the function under test."""
    total = 0.0
    for outcome in product(range(law.p.size), repeat=n):
        u, s, at = law.u[list(outcome)], law.s[list(outcome)], law.p[list(outcome)].prod()
        sums = [np.array([each.sum()]) for each in (u, s, u * u, u * s, s * s)]
        L = log_wealth(sums[0], sums[1], seconds(*sums[2:]), np.zeros(1), n, eta=0.0, rungs=one_bet(r, theta))
        total += at * math.exp(float(L[0, 0]))
    return total


@pytest.mark.parametrize("r", [0.1, 0.2, 0.5, 0.7])
@pytest.mark.parametrize("share", [0.05, 0.4, 0.95])
def test_mean_wealth_at_the_null_is_the_product_of_the_proof(r: float, share: float) -> None:
    """(E exp(theta d - b d^2))^n, below one, and each factor at most 1 + theta d."""
    law, theta = null(r), share / (1 - r)
    d, b = r * law.s - (1 - r) * law.u, kappa(share) * theta**2
    factor = np.exp(theta * d - b * d * d)
    assert (factor <= (1 + theta * d) * (1 + 1e-12)).all()
    assert factor[0] == pytest.approx(1 + theta * d[0], rel=1e-9)  # all unsupported: exact
    assert mean_wealth(law, r, theta, 3) == pytest.approx((law.p @ factor) ** 3, rel=1e-10)
    assert law.p @ factor <= 1


@pytest.mark.parametrize("r", RUNGS)
@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
def test_the_noise_term_is_half_the_variance_of_what_noise_adds(r: float, share: float) -> None:
    """E exp(xi - nu/2) = 1 for Gaussian noise: nu is the variance of the linear statistic, slope by slope.

    Totals carry v, squares 4 v and products 4 v / 36, each independent: the encoding's own units.
    """
    rungs, none, one = one_bet(r, share / (1 - r)), np.zeros(1), np.ones(1)

    def L(at: int | None = None, v: float = 0.0) -> float:
        given = [one if at == i else none for i in range(5)]
        found = log_wealth(given[0], given[1], seconds(*given[2:]), v * one, 9, eta=0.0, rungs=rungs)
        return float(found[0, 0])

    slopes = np.array([L(i) - L() for i in range(5)])
    nu = slopes**2 @ np.array([1.0, 1.0, 4.0, 4.0 / 36, 4.0])
    assert L() - L(v=1.0) == pytest.approx(nu / 2, rel=1e-12)
    assert all(nu != pytest.approx(slopes**2 @ np.array(wrong)) for wrong in [(1, 1, 4, 4, 4), (1, 1, 1, 1 / 36, 1)])
    square, cross, total = moments.noise_of_seconds(np.array([1.0]))
    assert (square[0], cross[0], total[0]) == pytest.approx((4.0, 4 / 36, 4 * (1 + 4 / 36 + 1)))


@pytest.mark.parametrize("m", [1, 7])
def test_the_proxies_are_those_of_the_lattice(m: int) -> None:
    """Decoded noise of one scale has variance v at totals, and the stated multiples at second moments."""
    made, scale = code(m), 3.0
    v = (scale / (2 * made.g**2)) ** 2 * made.basis.variance_factor()
    identity = np.eye(5 * m).reshape(5 * m, 5, m)
    suffix = made.basis.decode(identity) / (2 * made.g**2)
    variance = scale**2 * (suffix**2).sum(axis=0)
    np.testing.assert_allclose(variance[:2], [v, v], rtol=1e-12)
    seen = moments.seconds(suffix[:, 2:])
    square, cross, total = moments.noise_of_seconds(v)
    parts: list[tuple[Callable[[Seconds], Floats], Floats]] = [
        (lambda two: two.uu, square), (lambda two: two.us, cross), (lambda two: two.ss, square),
        (lambda two: two.uu + 2 * two.us + two.ss, total),
    ]  # fmt: skip
    for part, expected in parts:
        np.testing.assert_allclose(scale**2 * (part(seen) ** 2).sum(axis=0), expected, rtol=1e-12)


def test_decoded_bins_are_the_totals() -> None:
    made, masses = code(4), sources(np.random.default_rng(2), 4, 6, 30)
    suffix = made.basis.decode(made.encode(made.bins(masses).sum(axis=0)).astype(np.float64)) / (2 * 36)
    s, u = np.moveaxis(masses[..., ::-1].cumsum(axis=-1)[..., ::-1][..., 1:] / 6, 1, 0)
    np.testing.assert_allclose(suffix[:2], [s.sum(axis=0), u.sum(axis=0)], atol=1e-9)
    seen = moments.seconds(suffix[2:])
    for found, exact in zip(seen[:3], (u * u, u * s, s * s), strict=True):
        np.testing.assert_allclose(found, exact.sum(axis=0), atol=1e-9)


@pytest.mark.parametrize("r", RUNGS)
def test_the_charge_is_the_worst_plausible_release_at_every_rung(r: float) -> None:
    """Its Q is the maximum of a linear program: squares and products above their margins, T below n plus its own."""
    n, square, cross, total = 7.0, 1.3, 0.4, 2.1
    low = np.array([-square, -cross, -square])
    corners = [low + np.eye(3)[i] * (n + total - low @ [1, 2, 1]) / [1, 2, 1][i] for i in range(3)]
    weigh = np.array([(1 - r) ** 2, -2 * r * (1 - r), r**2])
    worst = max(float(weigh @ corner) for corner in [low, *corners])
    rungs, one, none = one_bet(r, 0.6 / (1 - r)), np.ones(1), np.zeros(1)
    b = kappa(0.6) * (0.6 / (1 - r)) ** 2
    charged = Seconds(none, none, none, (n + total) * one, cross * one, square * one)
    L = log_wealth(none, none, charged, none, 0, eta=0.0, rungs=rungs)
    assert float(L[0, 0]) == pytest.approx(-b * worst, rel=1e-12)


def test_the_bound_is_the_root_of_its_equation() -> None:
    rng, m = np.random.default_rng(3), 6
    u, s = rng.uniform(0, 20, m), rng.uniform(50, 300, m)
    two, v, w = seconds(0.6 * u, 0.1 * u, 0.7 * s), rng.uniform(0, 10, m), np.full(m, 1 / m)
    for priors in (None, rng.dirichlet(np.ones(12), m)):
        target = betting.ladder([0.2], priors=priors)
        L = moments.data(u, s, two, v, 600, 0.0) @ moments.weights(target)[:, :, 0]
        d = betting.d_upper_of(L, 600, eta=0.01, target=target, alpha_d=0.045, w=w)
        free = d < 0.8
        assert free.sum() > 2
        for j in np.flatnonzero(free):
            at = [np.array([each[j]]) for each in (u, s, *two, v)]
            p = target.p if priors is None else target.p[j]
            value = log_wealth(
                at[0], at[1], Seconds(*at[2:8]), at[8], 600, eta=-(d[j] - 0.01), rungs=target._replace(p=p)
            )
            assert value[0, 0] == pytest.approx(-np.log(0.045 / m), abs=1e-8)
        wealth = log_wealth(u, s, two, v, 600, eta=0.01, rungs=target)[:, 0]
        line = -np.log(0.045 * w)
        seen = moments.data(u, s, two, v, 600, 0.01)
        reached = betting.reaches(seen, moments.weights(target), target.p, line)[:, 0]
        assert (reached == (wealth >= line)).all()
        assert (reached == (d <= 0)).all()
