"""The exact tail of noise: attained by one law and passed by none; discrete noise is at most Gaussian noise plus one.

Mutants killed: the maximum taken over too few y (the equality breaks), the cut at z_alpha left out (large noise loses
power), the sign of the noise term flipped, the margin subtracted, the shift of discrete noise left out or halved, the
hybrid line without the noise of earlier rounds. Nothing here is random but the last test, whose chance of a false alarm
is below 1e-6.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from fedsrc.maths import tail

LEVELS = [0.045, 0.01, 0.0003]
VARIANCES = [0.001, 0.1, 0.64, 1.0, 4.0, 25.0, 400.0]


def chance(c: float, nu: float) -> float:
    """The largest P(L + noise >= c) over two-point laws: exp(L) is w with chance 1/w, and zero otherwise."""
    log_w = np.linspace(0.0, c + 12.0 * math.sqrt(nu), 200_001)
    return float(np.exp(-log_w + norm.logsf((c - log_w) / math.sqrt(nu))).max())


@pytest.mark.parametrize("alpha", LEVELS)
@pytest.mark.parametrize("nu", VARIANCES)
def test_one_law_attains_the_level_and_none_passes_it(alpha: float, nu: float) -> None:
    assert chance(tail.critical(alpha, nu), nu) == pytest.approx(alpha, rel=1e-6)
    assert chance(tail.critical(alpha, nu), nu) <= alpha
    assert chance(tail.critical(alpha, nu) - 1e-3, nu) > alpha


@pytest.mark.parametrize("nu", VARIANCES)
def test_against_many_digits(nu: float) -> None:
    """An oracle with 40 digits: the peak by golden section on mpmath's own error function."""
    with mpmath.workdps(40):
        sd, z = mpmath.sqrt(nu), mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * mpmath.mpf(0.045))

        def value(y: mpmath.mpf) -> mpmath.mpf:
            return mpmath.log(mpmath.erfc(y / mpmath.sqrt(2)) / 2) + y * sd

        low, high = mpmath.mpf(-30), z
        for _ in range(300):
            one, other = low + (high - low) * 0.382, low + (high - low) * 0.618
            low, high = (low, other) if value(one) > value(other) else (one, high)
        exact = mpmath.log(1 / mpmath.mpf(0.045)) + value((low + high) / 2)
    found = tail.critical(0.045, nu)
    assert 0.0 <= found - float(exact) <= 3e-9


def test_whole_arrays_are_near() -> None:
    alpha, nu = np.array(LEVELS)[:, None], np.array([0.0, 1e-6, *VARIANCES])
    near = tail.critical_near(alpha, nu)
    assert np.allclose(near, [[tail.critical(a, v) for v in nu] for a in LEVELS], rtol=0, atol=1e-6)


def test_without_noise_it_is_the_line_of_an_e_value() -> None:
    assert tail.critical(0.05, 0.0) == math.log(20)
    assert tail.critical_within(0.05, 0.0) == math.log(20)
    assert tail.critical_hybrid(0.05, 0.0, 0.0) == math.log(20)


@given(st.floats(1e-6, 0.5), st.floats(0.0, 500.0), st.floats(0.0, 1.0))
def test_it_falls_in_alpha_and_the_maximum_covers_less_noise(alpha: float, nu: float, share: float) -> None:
    assert tail.critical(alpha, nu) >= tail.critical(min(0.9, alpha * 1.01), nu)
    assert tail.critical_within(alpha, nu) >= tail.critical(alpha, nu * share) - 2e-9


def test_less_noise_than_stated_breaks_the_line_that_supposes_it() -> None:
    """The control: c falls until sqrt(nu) is about 0.8, so less noise than stated rejects too often."""
    assert tail.critical(0.045, 0.64) < tail.critical(0.045, 0.0)
    assert chance(tail.critical(0.045, 0.64), 0.01) > 1.5 * 0.045
    assert chance(tail.critical_within(0.045, 0.64), 0.01) <= 0.045


@given(st.floats(1e-4, 0.2), st.floats(0.0, 50.0), st.floats(0.0, 50.0))
def test_the_hybrid_line_lies_between(alpha: float, before: float, last: float) -> None:
    """Above the fixed design, whose noise is known in all, and below the e-process, log(1/alpha) + nu/2."""
    fixed, process = tail.critical(alpha, before + last), math.log(1 / alpha) + (before + last) / 2
    assert fixed - 2e-9 <= tail.critical_hybrid(alpha, before, last) <= process + 2e-9


def test_the_hybrid_line_at_the_figures_of_its_statement() -> None:
    """Noise of sd 1.6 at alpha 0.045: one round, two, five, and the e-process."""
    nu = 1.6**2
    found = [tail.critical(0.045, nu), *(tail.critical_hybrid(0.045, nu * (k - 1) / k, nu / k) for k in (2, 5))]
    assert [round(each, 2) for each in (*found, math.log(1 / 0.045) + nu / 2)] == [2.86, 3.13, 3.44, 4.38]


@pytest.mark.parametrize("s", [1.0, 1.3, 2.0, 5.0, 40.0])
def test_discrete_noise_is_at_most_gaussian_noise_plus_one(s: float) -> None:
    """P(X >= k) <= P(N(0, s^2) >= k - 1) for every k; and without the shift it is not so."""
    k = np.arange(-int(12 * s) - 12, int(12 * s) + 13)
    mass = np.exp(-0.5 * (k / s) ** 2)
    upper = np.cumsum(mass[::-1])[::-1] / mass.sum()
    assert np.all(upper <= norm.sf((k - 1) / s) * (1 + 1e-9) + 1e-15)
    assert np.any(upper > norm.sf(k / s) * (1 + 1e-3))


def test_the_shift_is_the_sum_of_slopes() -> None:
    assert tail.discrete_shift(np.array([0.5, -2.0, 0.0])) == 2.5


def test_discrete_noise_at_the_boundary() -> None:
    """200,000 draws of the worst law with discrete noise of scale 1: level kept with the shift, broken without it.

    Of the kept one a false alarm needs 5 standard deviations, below 1e-6; the control fails by more than 20.
    """
    rng, alpha, s, b, draws = np.random.default_rng(7), 0.045, 1.0, 0.9, 200_000
    k = np.arange(-12, 13)
    mass = np.exp(-0.5 * (k / s) ** 2)
    nu = (b * s) ** 2
    noise = b * rng.choice(k, draws, p=mass / mass.sum())
    worst = {}
    for name, c in {
        "with": tail.critical(alpha, nu) + float(tail.discrete_shift(np.array([b]))),
        "without": tail.critical(alpha, nu),
    }.items():
        log_w = np.linspace(0.0, c + 6.0, 400)
        exact = [math.exp(-x) * mass[b * k >= c - x].sum() / mass.sum() for x in log_w]
        x = log_w[int(np.argmax(exact))]
        worst[name] = float(((rng.random(draws) < math.exp(-x)) & (x + noise >= c)).mean())
    deviation = math.sqrt(alpha * (1 - alpha) / draws)
    assert worst["with"] <= alpha + 5 * deviation
    assert worst["without"] > alpha + 20 * deviation
