"""Information limits: closed forms, isotonic pooling against brute force, never above what our certificate needs.

Mutants killed: kl arguments swapped, isotonic direction flipped, floor ignored, noise term dropped.
"""

from __future__ import annotations

import math
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsrc.maths import limits
from fedsrc.maths.binomial import clopper_pearson
from tests.support.formulas import information_per_release, records_gaussian


@given(st.floats(0, 1), st.floats(0.01, 0.99))
def test_kl_is_a_divergence(p: float, q: float) -> None:
    assert limits.kl(p, q) >= -1e-15
    assert limits.kl(q, q) == pytest.approx(0, abs=1e-12)


def test_kl_at_the_edges() -> None:
    assert limits.kl(0, 0.2) == pytest.approx(-math.log(0.8))
    assert limits.kl(1, 0.2) == pytest.approx(-math.log(0.2))
    assert math.isinf(limits.kl(0.5, 0.0))


def test_population_l_limit() -> None:
    """log(20) / (a kl(R, r)): larger risk, smaller acceptance and smaller alpha all cost records."""
    base = limits.records_single(0.3, 0.1, 0.2, 0.05)
    assert base == pytest.approx(math.log(20) / (0.3 * limits.kl(0.1, 0.2)))
    assert limits.records_single(0.3, 0.15, 0.2, 0.05) > base
    assert limits.records_single(0.2, 0.1, 0.2, 0.05) > base
    assert limits.records_single(0.3, 0.1, 0.2, 0.01) > base
    assert math.isinf(limits.records_single(0.3, 0.2, 0.2, 0.05))
    assert limits.records_single(0.3, 0.1, 0.2, 0.05, a_min=0.29) > base
    assert math.isinf(limits.records_single(0.3, 0.1, 0.2, 0.05, a_min=0.3))
    assert limits.records_single(0.3, 0.1, 0.2, 0.05, b=0.1) < base


def test_graded_information_equals_kl_for_binary_losses() -> None:
    losses = np.array([1.0] * 10 + [0.0] * 90)
    assert limits.k_inf(losses - 0.2, 0.2) == pytest.approx(limits.kl(0.1, 0.2), rel=1e-6)
    assert limits.k_inf(np.full(10, 0.3), 0.2) == pytest.approx(0, abs=1e-9)
    with_rejected = np.concatenate([losses - 0.2, np.zeros(300)])
    assert limits.k_inf(with_rejected, 0.2) == pytest.approx(0.25 * limits.kl(0.1, 0.2), rel=1e-6)
    law = np.array([0.1, 0.9])
    assert limits.k_inf(np.array([0.8, -0.2]), 0.2, law) == pytest.approx(limits.kl(0.1, 0.2), rel=1e-6)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 10)), min_size=1, max_size=5))
def test_isotonic_information_is_the_best_monotone_bet(raw: list[tuple[int, int]]) -> None:
    """Brute force over consecutive blocks: I_any is the largest information of any blocking with falling errors."""
    p = np.array([each[0] for each in raw], dtype=np.float64)
    p /= p.sum()
    e, r = np.array([each[1] / 10 for each in raw]), 0.35
    best = 0.0
    n = p.size
    for cuts in (c for k in range(n) for c in combinations(range(1, n), k)):
        edges = [0, *cuts, n]
        blocks = [(p[i:j].sum(), float(p[i:j] @ e[i:j] / p[i:j].sum())) for i, j in pairwise(edges)]
        errors = [error for _, error in blocks]
        if all(b <= a + 1e-12 for a, b in pairwise(errors)):
            best = max(best, sum(mass * limits.kl(error, r) for mass, error in blocks if error < r))
    found = limits.records_any(p, e, r, 0.05)
    assert (math.log(20) / found if math.isfinite(found) else 0.0) == pytest.approx(best, abs=1e-9)


def test_noise_only_costs() -> None:
    exact = information_per_release(0.3, 0.1, 0.2, 200, L=6, sigma=0.0, one_hot=True)
    assert exact == pytest.approx(200 * 0.3 * limits.kl(0.1, 0.2))
    noisy = information_per_release(0.3, 0.1, 0.2, 200, L=6, sigma=8.0, one_hot=True)
    assert noisy < exact
    assert information_per_release(0.3, 0.1, 0.2, 200, L=6, sigma=8.0, one_hot=False) == pytest.approx(noisy / 2)
    few = records_gaussian(0.3, 0.1, 0.2, 0.05, 200, L=6, sigma=1.0, one_hot=True)
    many = records_gaussian(0.3, 0.1, 0.2, 0.05, 200, L=6, sigma=4.0, one_hot=True)
    assert limits.records_single(0.3, 0.1, 0.2, 0.05) <= few < many
    assert math.isinf(records_gaussian(0.3, 0.2, 0.2, 0.05, 200, L=6, sigma=1.0, one_hot=True))


@pytest.mark.parametrize("n", [1, 7, 40])
def test_clopper_pearson_covers_exactly(n: int) -> None:
    """Coverage at every p of a grid is at least 95%, by summing the binomial law."""
    intervals = [clopper_pearson(k, n) for k in range(n + 1)]
    for p in np.linspace(0.001, 0.999, 97):
        pmf = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
        inside = sum(q for q, each in zip(pmf, intervals, strict=True) if each.low <= p <= each.high)
        assert inside >= 0.95 - 1e-12
