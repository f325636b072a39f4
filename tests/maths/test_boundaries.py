"""H, G, F and eta: epochs are exact at powers of two, boundaries follow their definitions, oracles by hand.

Mutants killed: float log2, floor for ceil, epoch off by one, factor c or m lost, missing drift or half in eta.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsrc.maths.boundaries import F, G, H, ceil_log2, x_q
from fedsrc.maths.transfer import eta


@given(st.integers(1, 1 << 50))
def test_ceil_log2_is_exact_on_integers(n: int) -> None:
    assert int(ceil_log2(n)) == (n - 1).bit_length()


@given(st.integers(-60, 60))
def test_ceil_log2_at_powers_of_two_and_just_above(q: int) -> None:
    power = 2.0**q
    assert int(ceil_log2(power)) == q
    assert int(ceil_log2(np.nextafter(power, np.inf))) == q + 1


def test_epoch_weights_sum_to_one() -> None:
    q = np.arange(200_000)
    assert np.sum(np.exp(-x_q(q, c=1, m=1, alpha=1.0))) == pytest.approx(1.0, abs=1e-5)


@given(st.integers(1, 10**9), st.integers(1, 3), st.integers(1, 50), st.floats(1e-6, 0.5))
def test_h_crosses_with_the_promised_probability(n: int, c: int, m: int, alpha: float) -> None:
    """At the end of its epoch, lambda b - lambda^2 u / 8 = x_q: the equality in the paper's proof."""
    q = (n - 1).bit_length()
    x = math.log(c * m * math.pi**2 * (q + 1) ** 2 / (6 * alpha))
    u, b = 2.0**q, float(H(n, c=c, m=m, alpha=alpha))
    rate = math.sqrt(8 * x / u)
    assert rate * b - rate**2 * u / 8 == pytest.approx(x, rel=1e-12)


@given(st.floats(1e-6, 1e9), st.floats(1e-3, 1e3))
def test_g_crosses_with_the_promised_probability(v: float, v0: float) -> None:
    g = float(G(v, c=2, m=20, alpha=0.025, v0=v0))
    q = max(0, math.ceil(math.log2(v / v0) - 1e-12))
    x = math.log(2 * 20 * math.pi**2 * (q + 1) ** 2 / (6 * 0.025))
    u = v0 * 2.0**q
    rate = math.sqrt(2 * x / u)
    assert rate * g - rate**2 * u / 2 == pytest.approx(x, rel=1e-9)


def test_g_is_zero_without_noise() -> None:
    assert G(np.array([0.0, 1.0]), c=2, m=20, alpha=0.025, v0=1.0)[0] == 0.0


@given(st.floats(0, 1e8))
def test_f_is_the_maximum_over_its_epochs(q: float) -> None:
    x = [math.log(3 * 20 * math.pi**2 * (i + 1) ** 2 / (6 * 0.025)) for i in range(40)]
    last = int(ceil_log2(max(q, 1.0)))
    expected = max(math.sqrt(2.0 ** (i + 1) * x[i]) + 2 / 3 * x[i] for i in range(last + 1))
    assert float(F(q, m=20, alpha=0.025)) == pytest.approx(expected, rel=1e-12)


@given(st.floats(0, 1e12), st.integers(1, 1000), st.floats(1e-6, 0.5))
def test_f_crosses_with_the_promised_probability(q: float, m: int, alpha: float) -> None:
    """Freedman's inequality at the boundary of an epoch costs at most the epoch's share, and not much less."""
    i = int(ceil_log2(max(q, 1.0)))
    s, u, x = float(F(q, m=m, alpha=alpha)), 2.0**i, float(x_q(i, c=3, m=m, alpha=alpha))
    exponent = s**2 / (2 * (u + s / 3))
    assert x <= exponent * (1 + 1e-12)
    assert exponent < 2 * x


@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=6), st.integers(0, 5))
def test_eta_bounds_every_difference_of_mixtures(raw: list[float], seed: int) -> None:
    """eta bounds |E f| differences over all f in [0, 1], and is attained by the worst f when sites do not overlap."""
    rng = np.random.default_rng(seed)
    w = np.asarray(raw) / np.sum(raw)
    counts = rng.integers(1, 50, w.size).astype(np.float64)
    gamma = rng.random(w.size) / 10
    share = counts / counts.sum()
    worst = np.sum(np.maximum(w - share, 0))  # f = 1 on sites that deployment weighs more
    assert eta(w, counts, gamma) == pytest.approx(worst + np.sum(w * gamma), rel=1e-12)
    assert eta(share, counts, np.zeros(w.size)) == pytest.approx(0, abs=1e-15)
