"""Sealed plans: functions of development evidence alone, public in two digits, judged with the noise there will be.

Mutants killed: weights that do not sum to one or run the wrong way, bets at or beyond 1/(1-r), noise left out of the
objective (more noise would not lower the forecast), releases counted once however many there are, a lattice as coarse
as the noise, a development release read with its parts exchanged or in another unit, a plan that reads the generator
in an order that depends on chance, second moments of shared masses larger than those of whole answers, the acceptance
floor ignored, the objective ignored.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from fedsrc.maths.arrays import Floats, Ints
from fedsrc.maths.basis import Basis
from fedsrc.maths.quantiles import score_grid
from fedsrc.planning.aim import Aim, Expected, Objective
from fedsrc.planning.sealed_plan import SealedPlan, plan_sealed, totals
from fedsrc.protocol.protection import Noised, Privacy
from fedsrc.simulate.posterior import Populations, from_release, from_units

TARGET = Fraction(1, 5)
GRID = tuple(j / 10 for j in range(1, 10))


def drawn(units: int, risk: float = 0.5, answers: int = 1, seed: int = 1) -> tuple[Floats, Floats]:
    """Scores and losses (units, answers); the risk of an answer falls with its score, from `risk` to almost none."""
    rng = np.random.default_rng(seed)
    scores = rng.random((units, answers))
    return scores, (rng.random(scores.shape) < 2 * risk * (1 - scores) ** 2).astype(np.float64)


def masses(scores: Floats, losses: Floats, thresholds: tuple[float, ...] = GRID) -> tuple[Floats, Floats]:
    above = scores[..., None] >= np.array(thresholds)
    return (above * losses[..., None]).mean(axis=1), (above * (1 - losses)[..., None]).mean(axis=1)


def populations(units: int = 200, risk: float = 0.5, answers: int = 1) -> Populations:
    return from_units(*masses(*drawn(units, risk, answers)), np.random.default_rng(5))


def planned(aim: Aim, known: Populations | None = None) -> tuple[SealedPlan, Expected]:
    return plan_sealed(known or populations(), aim, np.random.default_rng(7))


@pytest.mark.parametrize("grid", [1, 6])
@pytest.mark.parametrize("noise", [0.0, 1.3])
@pytest.mark.parametrize("looks", [1, 3])
def test_a_plan_can_be_registered(grid: int, noise: float, looks: int) -> None:
    plan, forecast = planned(Aim(TARGET, 300, noise=noise, mass_grid=grid, looks=looks), populations(answers=grid))
    assert list(plan.kept) == sorted(set(plan.kept))
    assert 0 <= plan.kept[0] <= plan.kept[-1] < len(GRID)
    assert len(plan.kept) == len(plan.weights) == len(plan.bets) == plan.encoding.m
    assert math.fsum(plan.weights) == pytest.approx(1.0, abs=1e-12)
    assert all(w > 0 and round(w, 2) == w for w in plan.weights)
    assert all(0 < theta < 1 / (1 - 0.2) and float(f"{theta:.2g}") == theta for theta in plan.bets)
    assert sum(plan.units) == 300
    assert len(plan.shares) == looks
    assert sum(plan.shares) == pytest.approx(1.0)
    assert plan.encoding.g == grid
    assert bool(plan.encoding.accepted) == (grid > 1)
    assert noise == 0 or plan.scale >= 1000 * math.sqrt(sum(plan.encoding.lengths))
    assert 0 <= forecast.acceptance <= forecast.certified <= 1


@pytest.mark.parametrize("thresholds", [(0.5,), (0.5, 0.9)])
@pytest.mark.parametrize("objective", ["acceptance", "records"])
def test_little_is_planned_too(thresholds: tuple[float, ...], objective: Objective) -> None:
    """One or two thresholds, three units, more looks than units: a plan, if not a good one."""
    known = from_units(*masses(*drawn(5), thresholds), np.random.default_rng(5))
    plan, forecast = planned(Aim(TARGET, 3, noise=1.3, looks=9, objective=objective), known)
    assert set(plan.kept) <= set(range(len(thresholds)))
    assert min(plan.units) > 0
    assert forecast.certified < 0.05
    wide = from_units(*masses(*drawn(500), (0.1, 0.8)), np.random.default_rng(5))
    assert 1 in planned(Aim(TARGET, 400), wide)[0].kept  # the lower one alone is hopeless


def test_a_plan_is_a_function_of_its_evidence() -> None:
    """The same units give the same plan, whatever was planned before; other units another one."""
    aim = Aim(TARGET, 300, noise=1.3)
    first = planned(aim)
    planned(replace(aim, noise=0.0), populations(90))
    assert planned(aim) == first
    assert planned(aim, populations(200, 0.9)) != first


def test_more_noise_lowers_the_forecast() -> None:
    """By more than the same 200 populations can differ in luck; three sites with own noise are 3 times the variance."""
    aim = Aim(TARGET, 250, noise=1.27)
    found = [planned(replace(aim, noise=noise))[1] for noise in (1.27, 2.38, 4.53, 40.0)]
    assert all(a.certified >= b.certified - 0.02 for a, b in pairwise(found))
    assert found[0].certified > found[2].certified + 0.1
    assert found[3].certified < 0.1
    many, loud = planned(replace(aim, releases=4))[1], planned(replace(aim, noise=2 * 1.27))[1]
    assert many.acceptance == pytest.approx(loud.acceptance, abs=0.02)


def test_hopeless_and_easy_tables() -> None:
    for noise in (0.0, 1.3):
        aim = Aim(TARGET, 400, noise=noise)
        scores, losses = drawn(200)
        blind = from_units(*masses(scores, losses[::-1]), np.random.default_rng(5))  # losses of other answers
        assert planned(aim, blind)[1].certified < 0.05
        assert planned(aim, populations(200, 0.05))[1].certified > 0.95
        assert planned(replace(aim, min_acceptance=0.9), populations(200, 0.3))[1].certified < 0.05


def test_the_forecast_is_what_happens() -> None:
    """Plans from 2,000 units, runs on the law they came from: the share certified is within 5 standard deviations of
    the forecast, in which 200 populations are drawn too (false alarm below 1e-6)."""
    rng, aim = np.random.default_rng(2), Aim(TARGET, 100, noise=2.38, looks=2)
    plan, forecast = planned(aim, populations(2000))
    runs = 400
    data = [totals(*masses(*drawn(100, seed=100 + i)), _rounds(plan.units), TARGET) for i in range(runs)]
    done = [plan.decide(each.at(plan.kept).plus(plan.noise(rng.standard_normal((2, 15))))) for each in data]
    share = np.mean([each.any() for each in done])
    assert abs(share - forecast.certified) < 5 * math.sqrt(0.25 / runs + 0.25 / 200)
    assert 0.2 < share < 0.98


def _rounds(units: tuple[int, ...]) -> Ints:
    """Each unit once, in its round."""
    ends = np.cumsum((0, *units))
    place = np.arange(sum(units))
    return np.array([(place >= a) & (place < b) for a, b in pairwise(ends)]).astype(np.int64)


def test_fewer_records_are_enough_where_they_count() -> None:
    easy = populations(400, 0.1)
    aim = Aim(TARGET, 4000, noise=1.3, looks=2)
    most, least, labels, rounds = (
        planned(replace(aim, objective=each), easy) for each in ("acceptance", "records", "labels", "rounds")
    )
    assert least[1].units < most[1].units / 2
    assert least[1].certified > 0.5
    assert labels[0].kept[0] >= least[0].kept[0]
    assert len(rounds[0].units) == 1


def released(units: int, scale: float) -> tuple[Noised, Floats, Floats]:
    """A development release of one-answer units, as a site makes it, with noise of that scale."""
    scores, losses = drawn(units)
    grid = score_grid()
    basis = Basis("suffix", len(grid), 8)
    bins = np.searchsorted(grid, scores[:, 0], side="right")
    held = [np.bincount(bins, weights=each, minlength=len(grid) + 1) for each in (1 - losses[:, 0], losses[:, 0])]
    noise = np.random.default_rng(3).normal(0, scale, (2, len(grid)))
    first, second = np.rint(basis.encode(np.array(held).astype(np.int64)) + noise).astype(np.int64).tolist()
    privacy = Privacy(epsilon=4.0, adjacency="replacement")
    return Noised(privacy=privacy, units=units, grid=grid, scale=scale, first=first, second=second), scores, losses


def test_a_noised_development_part_says_the_same_of_a_large_table() -> None:
    """At 20,000 units and noise of one unit both forecasts agree, and so do mean acceptance and risk."""
    release, scores, losses = released(20_000, 300.0)
    exact = from_units(*masses(scores, losses), np.random.default_rng(5))
    noised = from_release(release, GRID, np.random.default_rng(6))
    for one, other in ((exact, noised), (noised, exact)):
        assert np.allclose(one.accepted.mean(axis=0), other.accepted.mean(axis=0), atol=0.01)
        risk, other_risk = ((each.laws @ each.unsupported).mean(axis=0) for each in (one, other))
        assert np.allclose(risk, other_risk, atol=0.01)
    aim = Aim(TARGET, 200, noise=2.38)
    forecasts = planned(aim, exact)[1], planned(aim, noised)[1]
    assert forecasts[0].certified == pytest.approx(forecasts[1].certified, abs=0.12)
    assert forecasts[0].acceptance == pytest.approx(forecasts[1].acceptance, abs=0.08)


def test_noise_widens_what_development_leaves_possible() -> None:
    quiet, loud = (from_release(released(200, scale)[0], GRID, np.random.default_rng(6)) for scale in (1.0, 2000.0))
    assert loud.accepted.std(axis=0).mean() > 1.5 * quiet.accepted.std(axis=0).mean()
    assert np.all(np.diff(loud.accepted, axis=1) <= 0)
    assert loud.accepted.max() <= 1
    assert np.allclose(loud.laws.sum(axis=1), 1)
