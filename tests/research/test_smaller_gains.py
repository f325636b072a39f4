"""The smaller gains: their inequalities hold, are reached, and cannot be had for less.

Mutants killed: the continuous curve for coarse discrete noise, a recentred bet without its factor, a closed test that
forgets the sets that fall short, columns that are scaled without their inverse.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from fedsrc.maths.arrays import Floats
from fedsrc.maths.privacy import delta_gaussian
from research.studies import smaller_gains
from research.studies.smaller_gains import ALPHA, closed, delta_discrete, recentred, union


def law(s: float, v: tuple[int, ...]) -> tuple[int, Floats]:
    """The exact law of v.X: its least value, and probabilities."""
    reach = int(np.ceil(12 * s))
    x = np.arange(-reach, reach + 1)
    one = np.exp(-(x**2) / (2 * s * s))
    one /= one.sum()
    least, whole = 0, np.ones(1)
    for step in v:
        spread = np.zeros((x.size - 1) * step + 1)
        spread[::step] = one
        least, whole = least - reach * step, np.convolve(whole, spread)
    return least, whole


def smallest_delta(s: float, v: tuple[int, ...], eps: float) -> float:
    """delta(eps) of discrete Gaussians between neighbours that differ by v, to 1e-15."""
    least, whole = law(s, v)
    values, norm = least + np.arange(whole.size), float(np.dot(v, v))
    above = [whole[values > eps * s * s + sign * norm / 2].sum() for sign in (-1, 1)]
    return float(above[0] - math.exp(eps) * above[1])


CASES = [
    (s, v, eps)
    for s in (1.0, 1.5, 4.0, 12.0)
    for v in ((1,), (3,), (1, 1), (2, 3), (1, 1, 1), (1, 2, 5))
    for eps in (0.0, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
]


def bound(s: float, v: tuple[int, ...], eps: float, h: float) -> float:
    return delta_discrete(math.sqrt(np.dot(v, v)) / s, eps, h)


def test_discrete_noise_keeps_the_shifted_curve_and_not_the_continuous_one() -> None:
    exact = np.array([smallest_delta(*case) for case in CASES])
    shifted = np.array([bound(*case, math.sqrt(len(case[1])) / case[0]) for case in CASES])
    assert np.all(exact <= shifted + 1e-14)
    continuous = np.array([bound(*case, 0.0) for case in CASES])
    assert continuous == pytest.approx([delta_gaussian(math.sqrt(np.dot(v, v)) / s, eps) for s, v, eps in CASES])
    assert np.any(exact > continuous * 1.05 + 1e-9), "the mutant without a shift"


def test_more_sensitivity_and_more_shift_are_less_private() -> None:
    for eps, h in itertools.product((0.0, 0.5, 4.0), (0.0, 0.01, 0.5)):
        deltas = [delta_discrete(mu, eps, h) for mu in np.geomspace(0.05, 20, 200)]
        assert np.all(np.diff(deltas) >= -1e-15)
        assert delta_discrete(1.0, eps, h) <= delta_discrete(1.0, eps, h + 0.01)


def test_a_recentred_bet_has_the_mean_that_the_theorem_needs() -> None:
    """At every law of an answer and every centre; exactly so at the right centre. The mutant without its factor does
    not."""
    r, rng = 0.2, np.random.default_rng(0)
    beyond = []
    for theta in (0.1, 0.6, 1.1):
        for bad, good, none in rng.dirichlet(np.ones(3), 200):
            mean = r * good - (1 - r) * bad
            for lam in (theta * (1 - r) + 0.01, 0.7, 1.0, 1.4, 1 - theta * mean):
                if lam <= theta * (1 - r):
                    continue
                x, y, z = recentred(np.array(theta), np.array(lam), r)
                found = math.exp(z) * (bad * math.exp(x) + good * math.exp(y) + none)
                assert found <= math.exp(theta * mean) * (1 + 1e-12)
                if lam == 1 - theta * mean:
                    assert found == pytest.approx(math.exp(theta * mean), rel=1e-12)
                beyond.append(lam * (bad * math.exp(x) + good * math.exp(y) + none) > math.exp(theta * mean))
    assert any(beyond)


def test_the_closed_test_is_that_of_all_sets() -> None:
    rng, w = np.random.default_rng(1), np.array([0.1, 0.2, 0.3, 0.4])
    wealth = rng.normal(3.0, 2.0, (500, 4))
    expected = np.ones(wealth.shape, dtype=bool)
    for size in range(1, 5):
        for S in itertools.combinations(range(4), size):
            fails = (w * np.exp(wealth))[:, S].sum(axis=1) < w[list(S)].sum() / ALPHA
            expected[np.ix_(fails, S)] = False
    assert closed(wealth, w).tolist() == expected.tolist()
    assert np.all(closed(wealth, w) >= union(wealth, w))
    assert closed(wealth, w).sum() > union(wealth, w).sum()


@pytest.mark.parametrize("m", [1, 3, 7, 20])
def test_columns_of_one_norm_are_a_basis_of_suffixes(m: int) -> None:
    """Its columns have norm one and no negative inner product, so that it is as private; suffixes come out of it."""
    suffixes = np.triu(np.ones((m, m)))
    matrix = np.linalg.solve(smaller_gains.even_columns(m), suffixes)
    gram = matrix.T @ matrix
    assert np.diag(gram) == pytest.approx(np.ones(m))
    assert gram.min() >= -1e-12
    largest = np.linalg.norm(np.linalg.solve(smaller_gains.toeplitz(m), suffixes), axis=0).max()
    assert largest == pytest.approx(1.0, rel=1e-9)
