"""Half-lines: contrasts tested by themselves, bounds on acceptance from unlabelled units, and exact counts.

Mutants killed: acceptance, noise or drift left out of a line, the bound of another risk, upper and lower bound
exchanged, sites pooled as if their unlabelled records were mixed like those that calibrate, a strict binomial tail.
Everything is enumerated, so there is no false alarm.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from fedsrc.maths.binomial import log_surprise, risk_upper
from fedsrc.maths.half_line import (
    THETA,
    acceptance_lower,
    acceptance_upper,
    best_bet,
    half_line,
    least_contrast,
    log_mean,
)
from fedsrc.maths.tail import critical, critical_within, criticals

RISKS = st.floats(0.02, 0.6)


@given(st.floats(1e-7, 0.5), st.floats(0.0, 1e3))
def test_critical_values_of_arrays_are_those_of_one(alpha: float, nu: float) -> None:
    assert float(criticals(alpha, nu)) == pytest.approx(critical(alpha, nu), rel=1e-9, abs=2e-9)
    assert float(criticals(alpha, nu, within=True)) == pytest.approx(critical_within(alpha, nu), rel=1e-9, abs=2e-9)


@given(RISKS, st.floats(0.01, 1.0), st.floats(0.0, 1.0), st.lists(st.floats(0, 1), min_size=4, max_size=4))
def test_no_mean_masses_pass_the_bound_and_some_attain_it(r: float, abar: float, share: float, x: list[float]) -> None:
    """1 + s (e^{theta r} - 1) + u (e^{-theta(1-r)} - 1) over s + u <= abar and r s - (1-r) u <= eta, and over units."""
    eta = share * r * abar
    most = np.exp(log_mean(r, abar, eta))

    def mean(s: float, u: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return 1.0 + s * np.expm1(THETA * r) + u * np.expm1(-THETA * (1 - r))

    assert mean((1 - r) * abar + eta, r * abar - eta) == pytest.approx(most, rel=1e-9)
    s, u = abar * x[0] * x[1], abar * x[0] * (1 - x[1])
    if r * s - (1 - r) * u <= eta:
        assert np.all(mean(s, u) <= most * (1 + 1e-12))
    d = np.array([r * s - (1 - r) * u for s, u in product([x[2] * x[3]], [x[2] * (1 - x[3])])])
    assert np.all(np.exp(THETA * d) <= mean(x[2] * x[3], x[2] * (1 - x[3])) * (1 + 1e-12) + 1e-15)


@pytest.mark.parametrize("abar", [0.05, 0.3, 1.0])
def test_the_line_without_noise_is_above_the_exact_quantile(abar: float) -> None:
    """Binary units at the boundary null: accepted with chance abar, unsupported with chance r among those."""
    r, N, alpha = 0.2, 300, 0.05
    x = half_line(alpha, r, N, abar, 0.0)
    accepted = np.arange(N + 1)
    most = np.floor((r * accepted - x) + 1e-9)  # D = r A - U >= x
    exact = float(binom.pmf(accepted, N, abar) @ np.where(most >= 0, binom.cdf(most, accepted, r), 0.0))
    assert exact <= alpha
    assert exact >= alpha / 12  # a Chernoff line: not tight, and not vacuous
    understated = half_line(alpha, r, N, abar / 4, 0.0)  # the control: acceptance that is four times the bound
    most = np.floor((r * accepted - understated) + 1e-9)
    assert float(binom.pmf(accepted, N, abar) @ np.where(most >= 0, binom.cdf(most, accepted, r), 0.0)) > alpha


def test_sites_that_differ_stay_below_the_line() -> None:
    """One site far above the target, one below, mixed at the boundary: a thousandth-fine enumeration of both."""
    r, alpha, n, a = 0.2, 0.05, 80, 0.5
    x = float(half_line(alpha, r, 2 * n, a, 0.0))
    chances = []
    for risk in (0.05, 0.35):
        counts = np.zeros((n + 1, n + 1))
        for A in range(n + 1):
            counts[A, : A + 1] = binom.pmf(A, n, a) * binom.pmf(np.arange(A + 1), A, risk)
        grid = np.zeros(5 * (n + 1) * 2)
        for A, U in product(range(n + 1), range(n + 1)):
            if U <= A:
                grid[(A - 5 * U) + 5 * (n + 1)] += counts[A, U]  # 5 D = A - 5 U
        chances.append(grid)
    both, zero = np.convolve(chances[0], chances[1]), 2 * 5 * (n + 1)
    assert float(both[zero + math.ceil(5 * x - 1e-9) :].sum()) <= alpha


@given(RISKS, st.integers(20, 5_000), st.floats(0.02, 1.0), st.floats(0.0, 200.0), st.floats(0.0, 0.1))
def test_the_least_contrast_is_where_the_line_lies(r: float, N: int, abar: float, nu: float, eta: float) -> None:
    x = half_line(0.02, r, N, abar, nu, eta=eta)
    assert float(least_contrast(x, 0.02, r, N, abar, nu)) == pytest.approx(eta, abs=1e-9)
    theta = best_bet(0.02, r, N, abar, nu, eta)
    at = int(np.flatnonzero(theta == THETA)[0])
    line = (criticals(0.02, theta**2 * nu) + N * log_mean(r, abar, eta)[at]) / theta
    assert float(line) == pytest.approx(float(x), rel=1e-12)


def test_more_acceptance_noise_or_drift_raise_the_line() -> None:
    base = half_line(0.05, 0.2, 300, 0.3, 20.0, eta=0.01)
    for more in ((0.4, 20.0, 0.01), (0.3, 40.0, 0.01), (0.3, 20.0, 0.02)):
        assert half_line(0.05, 0.2, 300, *more[:2], eta=more[2]) > base


@pytest.mark.parametrize(
    ("units", "shares"), [((400, 400), (0.5, 0.5)), ((900, 60), (0.3, 0.7)), ((50, 700), (0.9, 0.1))]
)
@pytest.mark.parametrize("a", [(0.1, 0.1), (0.02, 0.6), (0.9, 0.3)])
def test_bounds_on_acceptance_hold_for_sites_mixed_otherwise(
    units: tuple[int, int], shares: tuple[float, float], a: tuple[float, float]
) -> None:
    """Both counts enumerated: each bound fails with probability at most alpha; pooled as they lie, one fails often."""
    alpha, mean = 0.02, sum(w * x for w, x in zip(shares, a, strict=True))
    fewest = min(n / w for n, w in zip(units, shares, strict=True))
    counts = [np.arange(n + 1) for n in units]
    chance = np.outer(*(binom.pmf(each, n, x) for each, n, x in zip(counts, units, a, strict=True)))
    seen = fewest * np.add.outer(*(w / n * each for each, n, w in zip(counts, units, shares, strict=True)))
    wrong_above = chance[acceptance_upper(seen, 0.0, fewest, alpha) < mean].sum()
    wrong_below = chance[acceptance_lower(seen, 0.0, fewest, alpha) > mean].sum()
    assert wrong_above <= alpha
    assert wrong_below <= alpha
    if a == (0.02, 0.6) and units == (900, 60):  # the control
        pooled = np.add.outer(*counts)
        assert chance[acceptance_upper(pooled, 0.0, sum(units), alpha) < mean].sum() > 0.5


def test_noise_widens_the_bounds_on_acceptance() -> None:
    for bound, sign in ((acceptance_upper, 1), (acceptance_lower, -1)):
        assert sign * (bound(300.0, 400.0, 1_000, 0.01) - bound(300.0, 0.0, 1_000, 0.01)) > 0
        assert sign * (bound(300.0, 0.0, 1_000, 0.01) - 0.3) > 0


@given(st.integers(0, 400), st.integers(0, 400), RISKS)
def test_exact_counts_are_the_binomial_tail(A: int, U: int, r: float) -> None:
    U = min(U, A)
    assert float(log_surprise(U, A, r)) == pytest.approx(min(-float(binom.logcdf(U, A, r)), 690.8), rel=1e-6, abs=1e-9)
    highest = float(risk_upper(U, A, 0.03))
    assert highest == 1.0 if U >= A else float(binom.cdf(U, A, highest)) == pytest.approx(0.03, rel=1e-6)
    assert float(log_surprise(U + 7, A + 7, r)) <= float(log_surprise(U, A, r)) + 1e-9  # a missing unit is no gain
