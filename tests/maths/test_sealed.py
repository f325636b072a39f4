"""Sealed certificates: the quadratic bound touches the logarithm, one bet is an e-value, weights pass on validly.

Mutants killed: kappa at the wrong end, (1-2r) dropped from a (L is no longer theta d - kappa theta^2 d^2), the sign of
the drift term, least and most exchanged, a weight passed on twice or kept after rejection, the half-line with its noise
dropped or with acceptance ignored. Randomness appears in two tests; each false alarm needs 5 standard deviations.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsrc.maths import sealed
from fedsrc.maths.tail import critical

RISKS = st.floats(0.01, 0.6)
SHARES = st.floats(0.001, 0.97)


@given(RISKS, SHARES, st.floats(0.0, 1.0))
def test_the_bound_lies_below_the_bet_and_touches_it(r: float, share: float, where: float) -> None:
    """exp(a d - b q) <= 1 + theta d on [-(1-r), r], with equality at d = 0 and d = -(1-r)."""
    theta = share / (1 - r)
    bet, d = sealed.bet(r, theta), where - (1 - r)
    q = d * d + (1 - 2 * r) * d
    assert bet.a * d - bet.b * q <= math.log1p(theta * d) + 1e-9
    assert bet.a * d - bet.b * q == pytest.approx(theta * d - sealed.kappa(share) * (theta * d) ** 2, abs=1e-9)
    end = -(1 - r)
    assert bet.a * end - bet.b * (end * end + (1 - 2 * r) * end) == pytest.approx(math.log1p(theta * end), rel=1e-9)


@given(st.floats(1e-9, 0.99))
def test_kappa_is_the_least_and_its_series_joins(c: float) -> None:
    z = np.linspace(-c, 3.0, 2001)
    z = z[np.abs(z) > 1e-3]
    assert np.all(np.log1p(z) >= z - sealed.kappa(c) * z**2 - 1e-12)
    if c > 0.01:
        assert math.log1p(-c) < -c - (sealed.kappa(c) - 1e-6) * c**2
    assert sealed.kappa(1e-4 * (1 - 1e-9)) == pytest.approx(sealed.kappa(1e-4 * (1 + 1e-9)), rel=1e-6)


@given(RISKS, SHARES)
def test_a_unit_adds_between_least_and_most(r: float, share: float) -> None:
    theta = share / (1 - r)
    bet, d = sealed.bet(r, theta), np.linspace(-(1 - r), r, 4001)
    added = bet.a * d - bet.b * (d * d + (1 - 2 * r) * d)
    assert added.min() == pytest.approx(sealed.least(r, theta), abs=1e-9)
    assert added.max() == pytest.approx(sealed.most(r, theta), abs=1e-6)
    assert added.max() <= sealed.most(r, theta) + 1e-12


def closed(p: list[float], w: list[float]) -> set[int]:
    """Rejections of the same graph as a closed test: every intersection by its own weights, passed on one by one."""
    n = len(w)

    def weights(inside: tuple[int, ...]) -> dict[int, float]:
        share = dict(enumerate(w))
        for gone in sorted(set(range(n)) - set(inside)):
            left = [j for j in share if j != gone]
            below, above = [j for j in left if j < gone], [j for j in left if j > gone]
            share[max(below) if below else min(above)] += share[gone]
            del share[gone]
        return share

    sets = [tuple(j for j in range(n) if bits[j]) for bits in product((0, 1), repeat=n) if any(bits)]
    held = {inside: any(p[j] <= 0.05 * share for j, share in weights(inside).items()) for inside in sets}
    return {j for j in range(n) if all(held[inside] for inside in sets if j in inside)}


@given(st.lists(st.tuples(st.floats(0.0, 0.08), st.floats(0.01, 1.0)), min_size=1, max_size=4))
def test_recycling_is_its_closed_test(raw: list[tuple[float, float]]) -> None:
    """Rejections are those of a closed test at level alpha, so no order of rejection spends more than alpha."""
    p, total = [each[0] for each in raw], math.fsum(each[1] for each in raw)
    w = [each[1] / total for each in raw]
    table = sealed.passed_on(w)
    found = sealed.recycled(-np.array(p), -0.05 * table)
    assert set(np.flatnonzero(found)) == closed(p, w)


def test_a_rejected_threshold_hands_its_weight_down_then_up() -> None:
    table = sealed.passed_on([0.2, 0.5, 0.3])
    assert table[0b000] == pytest.approx([0.2, 0.5, 0.3])
    assert table[0b010] == pytest.approx([0.7, 0.0, 0.3])
    assert table[0b011] == pytest.approx([0.0, 0.0, 1.0])
    assert table[0b100] == pytest.approx([0.2, 0.8, 0.0])
    assert table[0b101] == pytest.approx([0.0, 1.0, 0.0])
    assert table[0b111] == pytest.approx([0.0, 0.0, 0.0])


def test_runs_are_judged_side_by_side_and_nan_rejects_nothing() -> None:
    c = np.array([[3.0, 2.0], [9.0, 1.0], [1.0, 9.0], [9.0, 9.0]])
    L = np.array([[1.5, 2.5], [1.5, 1.5], [0.5, 2.5], [math.nan, 2.5], [3.5, 1.5]])
    expected = [[True, True], [False, False], [False, True], [False, True], [True, True]]
    assert sealed.recycled(L, c).tolist() == expected
    assert sealed.recycled(L[None], c).shape == (1, 5, 2)


@pytest.mark.parametrize("nu", [0.3, 5.0])
def test_one_bet_at_the_boundary(nu: float) -> None:
    """Sources at the boundary null, noise in L: at most alpha; a line that ignores much noise breaks (the control).

    40,000 runs; 5 standard deviations are below 1e-6.
    """
    rng, r, alpha, runs, n = np.random.default_rng(3), 0.2, 0.045, 40_000, 40
    bet = sealed.bet(r, 0.25)
    bad = rng.random((runs, n)) < r  # one answer each, all accepted: mean contrast zero
    d = np.where(bad, -(1 - r), r)
    L = (bet.a * d - bet.b * (d * d + (1 - 2 * r) * d)).sum(axis=1) + rng.normal(0.0, math.sqrt(nu), runs)
    deviation = math.sqrt(alpha / runs)
    assert (critical(alpha, nu) <= L).mean() <= alpha + 5 * deviation
    if nu > 1:
        assert (math.log(1 / alpha) <= L).mean() > alpha + 5 * deviation


def test_a_weight_passed_on_tests_at_earlier_looks_too() -> None:
    """Looks with one graph reject what the closed test of p-values over shares does; one look is as before."""
    w, shares = [0.2, 0.3, 0.5], np.array([0.25, 0.75])
    p = np.random.default_rng(4).uniform(0.0, 0.04, (400, 2, 3))
    lines = -0.05 * shares[:, None, None] * sealed.passed_on(w)
    after = sealed.recycled_looks(-p, lines)
    for run, each in zip(after[:, 1], (p / shares[:, None]).min(axis=1), strict=True):
        assert set(np.flatnonzero(run)) == closed(each.tolist(), w)
    assert np.array_equal(after[:, 0], sealed.recycled(-p[:, 0], lines[0]))
    apart = sealed.recycled(-p[:, 0], lines[0]) | sealed.recycled(-p[:, 1], lines[1])
    assert np.all(apart <= after[:, 1])
    assert not np.array_equal(apart, after[:, 1])
