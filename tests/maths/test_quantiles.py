"""Thresholds from noised masses: near the quantiles where there are many units, the grid where noise leaves nothing.

Mutants killed: levels from the wrong end, shares that may rise, a grid that is even, the doubt dropped or its sign
flipped, noise of one of the two vectors forgotten, the mass grid forgotten. Chance of a false alarm: seeds are fixed.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from fedsrc.maths.arrays import Floats
from fedsrc.maths.basis import Basis
from fedsrc.maths.quantiles import doubt, noised_quantiles, released_quantiles, score_grid

GRID = score_grid()
X = np.asarray(GRID)
LAWS = {
    "even": lambda rng, n: rng.random(n),
    "at both ends": lambda rng, n: rng.beta(0.2, 0.2, n),
    "high": lambda rng, n: 1 - 0.05 * rng.random(n) ** 2,
    "few values": lambda rng, n: rng.choice([0.1, 0.35, 0.9], n),
}


def masses(score: Floats, basis: Basis, grid: int) -> list[list[int]]:
    """The exact integers: half of everything supported, half not."""
    counts = np.bincount(np.searchsorted(X, score, side="right"), minlength=X.size + 1)
    first = counts * (grid // 2)
    found: list[list[int]] = basis.encode(np.stack([first, counts * grid - first])).tolist()
    return found


def test_the_grid_is_fine_and_dense_at_both_ends() -> None:
    assert X.size == 111
    assert (np.diff(X) > 0).all()
    assert (X[0], X[-1]) == (0.0001, 0.9999)
    np.testing.assert_allclose(X, 1 - X[::-1], atol=1e-15)
    assert np.diff(X).max() <= 0.01 + 1e-12


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("grid", [1, 12])
def test_without_noise_they_are_the_nearest_points_to_the_quantiles(name: str, grid: int) -> None:
    score = LAWS[name](np.random.default_rng(1), 4000)
    basis = Basis("suffix", X.size)
    found = released_quantiles(GRID, masses(score, basis, grid), 20, k=8, g=grid, s=0.0, n=4000, known=True)
    accepted = np.asarray([(score >= x).mean() for x in X])
    for j in range(1, 21):
        best = np.abs(accepted - (1 - j / 21)).min()
        assert min(abs((score >= x).mean() - (1 - j / 21)) for x in found) <= best + 1e-9
    assert list(found) == sorted(set(found))
    assert set(found) <= set(X.tolist())


@pytest.mark.parametrize(("units", "off"), [(100, 0.3), (400, 0.1), (2000, 0.03)])
def test_with_noise_they_are_near_the_quantiles(units: int, off: float) -> None:
    """At the noise of epsilon 1. The largest step from one accepted share to the next, beyond 1/21: median of 50."""
    scale = 256 * 7.2
    rng, basis = np.random.default_rng(2), Basis("suffix", X.size)
    far = []
    for _ in range(50):
        score = rng.beta(0.3, 0.3, units)
        noisy = np.asarray(masses(score, basis, 1)) + np.rint(scale * rng.standard_normal((2, X.size))).astype(np.int64)
        found = released_quantiles(GRID, noisy.tolist(), 20, k=8, g=1, s=scale, n=units, known=True)
        assert 1 <= len(found) <= 20
        shares = [1.0, *((score >= x).mean() for x in found), 0.0]
        far.append(max(a - b for a, b in pairwise(shares)) - 1 / 21)
    assert np.median(far) < off


def test_where_noise_leaves_nothing_the_grid_itself_is_spread() -> None:
    assert doubt(10, 25.0) == 1
    assert doubt(100, 25.0) == pytest.approx(0.1)
    assert doubt(0, 1.0) == doubt(-5, 1.0) == 1
    for total in (-3.0, 0.0, 9.9):
        found = noised_quantiles(X, np.random.default_rng(3).normal(0, 50, X.size), total, 25.0, 10)
        np.testing.assert_allclose(np.searchsorted(X, found), 112 * np.arange(1, 11) / 11 - 1, atol=0.5)


def test_an_unknown_mass_is_what_the_first_suffix_says() -> None:
    """Units of half a mass each: with n for the mass of all, no threshold would accept more than half."""
    score, basis = np.random.default_rng(4).random(4000), Basis("suffix", X.size)
    half = (np.asarray(masses(score, basis, 2)) // 2).tolist()
    known, unknown = (released_quantiles(GRID, half, 9, k=8, g=2, s=0.0, n=4000, known=each) for each in (True, False))
    assert (len(known), len(unknown)) == (5, 9)
    assert unknown[0] == pytest.approx(0.1, abs=0.02)
    assert known[0] == X[0]
