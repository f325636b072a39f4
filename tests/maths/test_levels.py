"""Levels of a graded loss: mean wealth at the null is exactly one, the noise term fits, the sensitivity is attained.

Chance of a false alarm: none; everything is enumerated. Mutants killed: a level's bet at another loss, one level
without noise, the noise of two levels only, units counted at two levels, replacement without its factor.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from fedsrc.maths import betting, levels
from fedsrc.maths.arrays import Floats
from fedsrc.maths.basis import Basis
from fedsrc.maths.levels import LevelCode


def one_bet(r: float, theta: float) -> betting.Ladder:
    return betting.Ladder(np.array([r]), np.array([[theta]]), np.ones(1))


def log_wealth(C: Floats, v: float, N: int, rungs: betting.Ladder) -> float:
    """At one threshold, of counts by level."""
    seen = levels.data(C[:, None], np.array([v]), N, 0.0)
    return float(betting.log_mixture(seen, levels.weights(rungs, C.size - 1), rungs.p)[0, 0])


@pytest.mark.parametrize("g", [1, 2, 4])
@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
def test_mean_wealth_at_the_null_is_exactly_one(g: int, share: float) -> None:
    """Also where totals would lose: a mean loss of exactly r among units of every level."""
    r, n, loss = 0.3, 3, np.arange(g + 1) / g
    law = np.where(loss > r, 1.0, 0.0)
    law *= 0.2 / law.sum()
    law[0] += (law @ loss) / r - law.sum()
    law = np.append(law, 1 - law.sum())  # the rest is rejected
    assert law[:-1] @ (loss - r) == pytest.approx(0.0, abs=1e-15)
    mean = 0.0
    for outcome in product(range(g + 2), repeat=n):
        counts = np.bincount(outcome, minlength=g + 2)[:-1].astype(float)
        wealth = log_wealth(counts, 0.0, n, one_bet(r, share / (1 - r)))
        mean += law[list(outcome)].prod() * math.exp(wealth)
    assert mean == pytest.approx(1.0, abs=1e-12)


def test_two_levels_are_the_bets_on_totals() -> None:
    rng, rungs = np.random.default_rng(0), betting.ladder([0.1, 0.2, 0.4])
    S, U, v = rng.uniform(50, 300, 8), rng.uniform(0, 60, 8), rng.uniform(0, 10, 8)
    seen = levels.data(np.stack([S, U]), v, 600, 0.01)
    found = betting.log_mixture(seen, levels.weights(rungs, 1), rungs.p)
    cover = LevelCode(Basis("suffix", 8), 1).covariance(v)
    np.testing.assert_allclose(cover, [v, 0 * v, v])
    expected = betting.log_wealth(U, S, cover, 600, eta=0.01, rungs=rungs)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("g", [1, 4])
def test_the_noise_term_is_half_the_variance_of_what_noise_adds(g: int) -> None:
    rungs, none = one_bet(0.2, 0.7), np.zeros(g + 1)
    slopes = [log_wealth(each, 0.0, 9, rungs) for each in np.eye(g + 1)]
    assert -log_wealth(none, 1.0, 9, rungs) == pytest.approx(np.dot(slopes, slopes) / 2, rel=1e-12)


@pytest.mark.parametrize("m", [1, 4, 9])
def test_every_unit_is_at_one_level_and_none_is_farther_than_stated(m: int) -> None:
    code = LevelCode(Basis("suffix", m), 3)
    units = np.zeros((4 * (m + 1), 2, m + 1), dtype=np.int64)
    for i, (level, place) in enumerate(product(range(4), range(m + 1))):
        units[i, :, place] = 3 - level, level
    bins = code.bins(units)
    assert (bins.sum(axis=(1, 2)) == 1).all()
    assert all(bins[i, level, place] for i, (level, place) in enumerate(product(range(4), range(m + 1))))
    lattice = code.encode(bins)
    assert max((each**2).sum() for each in lattice) == code.sensitivity_squared("zero-out")
    apart = max(((a - b) ** 2).sum() for a in lattice for b in lattice)
    assert apart == code.sensitivity_squared("replacement") == 2 * code.sensitivity_squared("zero-out")
    assert np.abs(lattice).max() == code.largest()
