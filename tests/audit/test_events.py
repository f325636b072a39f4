"""Who is asked, what arrives, and what methods then see: step by step as in a real run, and in law as declared.

Surrogates whose thresholds separate every two scores give each unit a bin of its own: sums then say which units were
drawn, and how often.

Chance of a false alarm: seeds are fixed, so none. Over the choice of seeds, means lie within six standard deviations
and variances within six of theirs: a chance of 2e-9 for each of fewer than 500 comparisons, so at most 1e-6 in all.
Mutants killed. Schedule: moved weights recruited by, deficits blind to what was withheld, dropped requests counted,
drawn or noised, coins swapped, halved, or from the stream of draws, no end when units end. Draws: uniform in place of
the law, a law shifted by one atom, the same order or the same draws in all trials or rounds, one draw repeated, a unit
too many, units used twice, touched units forgotten or of one site only. Withheld: the best in place of the worst, twice
or half as many, rejected answers or top bins in the contrast, masses kept, charges without slots, without either
margin, without their sum over rounds, by the wrong request number, or none. Noise: scale not raised or raised too much
by queries, rounded down, its budget or the number of messages forgotten, variance of a sum for a mean, halved, shared
by trials, vectors, sites or rounds, not cumulative, for releases that never came; the coordinate's variance without its
grid, its step or its reading. Transfer without its half, its drift or its weights, and below one before any record.
Facts of arrived, equal or declared weights in each other's place. Looks of another block, trial or look.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from fedsrc.audit import events, evidence
from fedsrc.audit.cell import Cell, build
from fedsrc.audit.engine import run_study, run_task
from fedsrc.audit.events import Events, happen
from fedsrc.audit.evidence import aim_of, exact, facts_of, payload_bytes, released, spent
from fedsrc.audit.looks import looks
from fedsrc.audit.methods import METHODS
from fedsrc.audit.methods.setting import Evidence
from fedsrc.audit.outcomes import Block
from fedsrc.audit.study import Binormal, Boundary, Population, Printed, Setting, Study
from fedsrc.audit.study_folder import read_trials, tasks
from fedsrc.maths import contrast, privacy
from fedsrc.maths.basis import Basis, sensitivity_squared
from fedsrc.maths.betting import Covariance
from fedsrc.maths.transfer import eta
from fedsrc.protocol.registration import Registration
from fedsrc.server.recruiter import next_slots
from fedsrc.server.tally import Tally, empty, lose, masses, transfer
from fedsrc.simulate.pool import ENDLESS
from fedsrc.simulate.population import Support, truth

SEED = (5, 2)  # of a study, and a block
RELEASES = ("paper", "default")
Ways = dict[str, Any]
PRINTED = Printed(name="p", acceptance=(0.7, 0.4, 0.2), risk=(0.3, 0.2, 0.1), about="")
LINES = Boundary(name="p", boundary=True, spread=0.15)


def cell_of(population: Population = PRINTED, **setting: Any) -> Cell:
    return build(Setting(population="p", **setting), population, seed=1, folder=Path())


def units(records: int = 40, seed: int = 0, **setting: Any) -> Cell:
    """A cell in which every unit has a bin of its own."""
    population = Binormal(name="p", records=records, unsupported=0.4, auc=0.8, seed=seed, about="")
    return cell_of(population, thresholds_from="support", thresholds=records - 1, **setting)


def drawn(cell: Cell, masses: Any) -> Any:
    """How often each unit was drawn."""
    first, second = np.moveaxis(masses, -2, 0)
    return first if cell.registration.histograms.kind == "paired" else first + second


def steps(x: Any) -> Any:
    """What each look adds to a cumulative array (B, T, ...)."""
    return np.diff(x, axis=1, prepend=0)


def plan_of(cell: Cell) -> Registration:
    """What the recruiter follows: moved weights say where answers will be deployed, not who calibrates."""
    values = cell.registration.model_dump()
    if cell.setting.moved:
        values["sites"] = [{**site, "weight": None} for site in values["sites"]]
    return Registration.model_validate(values)


def supply(cell: Cell) -> list[int]:
    """Units that each site has to give."""
    return [site.law.size if cell.setting.draw == "once" else ENDLESS for site in cell.sites]


def more(tally: Tally, slots: Sequence[int]) -> Tally:
    """The tally after that many slots have arrived from each site."""
    grown = tuple(a + b for a, b in zip(tally.slots, slots, strict=True))
    return replace(tally, slots=grown, noises=tally.noises + sum(n > 0 for n in slots))


def asked(cell: Cell) -> list[tuple[int, ...]]:
    """Slots after every round of the real recruiter, when everybody answers."""
    plan, left = plan_of(cell), supply(cell)
    tally, found = empty(plan), []
    for _ in range(plan.schedule.rounds):
        slots = next_slots(plan, tally, left)
        if not any(slots):
            break
        left = [room - n for room, n in zip(left, slots, strict=True)]
        tally = more(tally, slots)
        found.append(tally.slots)
    return found


# ---------------------------------------------------------------- the schedule


SCHEDULES: dict[str, Ways] = {
    "all sites": {},
    "as calibrated": {"weights": "as calibrated"},
    "moved": {"moved": 0.3},
    "recruit": {"policy": "recruit"},
    "recruit, matched": {"policy": "recruit", "matched": True},
    "recruit, moved": {"policy": "recruit", "moved": 0.3},
    "by size": {"weights": "by size"},
    "recruit, by size": {"policy": "recruit", "weights": "by size", "matched": True},
    "final": {"policy": "final", "weights": "as calibrated"},
}


@pytest.mark.parametrize("draw", ["with replacement", "once"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_slots_are_those_of_the_recruiter(name: str, draw: str) -> None:
    cell = units(90, draw=draw, batch=7, rounds=8, partition="log-normal", sites=4, **SCHEDULES[name])
    found, expected = happen(cell, trials=3, seed=SEED), asked(cell)
    assert [list(map(tuple, trial)) for trial in found.slots.tolist()] == [expected] * 3
    assert not found.missing.any()
    assert not found.dropped.any()
    assert not found.withheld.any()
    np.testing.assert_array_equal(found.answered, steps(found.slots) > 0)
    np.testing.assert_array_equal(found.records, found.slots.sum(axis=-1))


def test_moved_weights_move_nobody_s_participation() -> None:
    for policy in ("first", "recruit"):
        still, moved = (
            happen(units(policy=policy, moved=moved, batch=5, rounds=10), trials=2, seed=SEED) for moved in (0.0, 0.5)
        )
        np.testing.assert_array_equal(still.slots, moved.slots)
        assert np.ptp(moved.slots[:, -1]) == 0


def test_once_uses_every_unit_at_most_once_and_ends_with_them() -> None:
    cell = units(60, draw="once", batch=4, rounds=1000, partition="log-normal", sites=3, weights="as calibrated")
    found = happen(cell, trials=5, seed=SEED)
    each = drawn(cell, found.masses)
    assert each.max() == 1
    assert (each[:, -1] == 1).all()
    assert found.touched[:, -1].tolist() == [60] * 5
    assert found.slots[:, -1].tolist() == [[site.law.size for site in cell.sites]] * 5
    assert found.slots.shape[1] < 100
    orders = {tuple(trial[0]) for trial in each.tolist()}
    assert len(orders) == 5  # every trial has an order of its own


def test_with_replacement_there_is_no_end() -> None:
    cell = units(20, batch=50, rounds=3, sites=2)
    found = happen(cell, trials=4, seed=SEED)
    assert found.slots[:, -1].tolist() == [[150, 150]] * 4
    assert drawn(cell, found.masses)[:, -1].max() > 5


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("draw", ["with replacement", "once"])
def test_touched_units_are_counted_once(draw: str, release: str) -> None:
    cell = units(draw=draw, release=release, batch=3, rounds=5, dropout=0.3, sites=3)
    found = happen(cell, trials=6, seed=SEED)
    np.testing.assert_array_equal(found.touched, (drawn(cell, found.masses) > 0).sum(axis=-1))
    np.testing.assert_array_equal(drawn(cell, found.masses).sum(axis=-1), found.records)
    assert found.touched.max() > 10


def test_laws_without_units_touch_nothing() -> None:
    assert not happen(cell_of(rounds=2), trials=2, seed=SEED).touched.any()
    assert not happen(units(label_missed=0.1, rounds=2), trials=2, seed=SEED).touched.any()


def unsupported_and_supported(cell: Cell, found: Events) -> list[Any]:
    first, second = np.moveaxis(found.masses, -2, 0)
    paired = cell.registration.histograms.kind == "paired"
    return [second.tolist(), (first - second if paired else first).tolist()]


@pytest.mark.parametrize("population", ["units", "printed"])
def test_events_do_not_depend_on_privacy_release_or_target(population: str) -> None:
    def all_of(*, per_site: bool = False, **setting: Any) -> list[Any]:
        ways: Ways = {"rounds": 4, "batch": 5, "dropout": 0.2, "sites": 3, **setting}
        cell = units(**ways) if population == "units" else cell_of(**ways)
        found = happen(cell, trials=3, seed=SEED, per_site=per_site)
        return [*unsupported_and_supported(cell, found), found.slots.tolist(), found.dropped.tolist()]

    base = all_of()
    for setting in (
        {"epsilon": 1.0}, {"epsilon": 4.0, "queries": 2}, {"epsilon": 4.0, "queries": 2, "reading": "as fresh"},
        {"delta": 1e-3}, {"release": "default"}, {"target_risk": 0.05}, {"min_acceptance": 0.5},
        {"failure_probability": 0.2}, {"policy": "final"}, {"per_site": True},
    ):  # fmt: skip
        assert all_of(**setting) == base
    assert all_of(batch=6) != base


def test_blocks_and_studies_have_events_of_their_own() -> None:
    cell = units(rounds=3, batch=5)
    ways = [happen(cell, trials=2, seed=seed).masses.tolist() for seed in ((5, 2), (5, 3), (6, 2), (2, 5))]
    assert len({str(each) for each in ways}) == 4
    assert happen(cell, trials=2, seed=(5, 2)).masses.tolist() == ways[0]
    assert ways[0][0] != ways[0][1]


def test_streams_of_a_block_differ() -> None:
    assert len({events.DRAWS, events.COINS, evidence.NOISE, evidence.NORMALS}) == 4


@pytest.mark.parametrize("release", RELEASES)
def test_masses_of_the_sites_add_up(release: str) -> None:
    cell = units(release=release, rounds=4, batch=5, dropout=0.3, sites=3)
    found = happen(cell, trials=4, seed=SEED, per_site=True)
    assert found.by_site is not None
    np.testing.assert_array_equal(found.by_site.sum(axis=2), found.masses)
    np.testing.assert_array_equal(drawn(cell, found.by_site).sum(axis=-1), found.slots)
    for k, site in enumerate(cell.sites):
        own = site.masses.any(axis=(0, 1))
        assert not found.by_site[:, :, k][..., ~own].any()
    assert happen(cell, trials=4, seed=SEED).by_site is None


@pytest.mark.parametrize("release", RELEASES)
def test_evidence_of_the_sites_adds_up(release: str) -> None:
    cell = units(release=release, rounds=4, batch=5, dropout=0.3, sites=3)
    found = happen(cell, trials=4, seed=SEED, per_site=True)
    seen = exact(cell, found, seed=SEED)
    assert seen.sites is not None
    np.testing.assert_allclose(seen.sites.accepted.sum(axis=2), seen.accepted)
    np.testing.assert_allclose(seen.sites.unsupported.sum(axis=2), seen.unsupported)
    np.testing.assert_array_equal(seen.sites.records, found.slots)
    assert exact(cell, happen(cell, trials=4, seed=SEED), seed=SEED).sites is None


@pytest.mark.parametrize("release", RELEASES)
def test_exact_sums_are_the_sums_of_what_was_drawn(release: str) -> None:
    """Accepted and unsupported answers above each threshold, unit by unit."""
    cell = units(release=release, rounds=3, batch=5, sites=3)
    found = happen(cell, trials=3, seed=SEED)
    seen, often = exact(cell, found, seed=SEED), drawn(cell, found.masses)
    bad = np.sum([site.masses[:, 1].sum(axis=0) for site in cell.sites], axis=0)
    for j in range(39):
        np.testing.assert_allclose(seen.accepted[..., j], often[..., j + 1 :].sum(axis=-1))
        np.testing.assert_allclose(seen.unsupported[..., j], (often * bad)[..., j + 1 :].sum(axis=-1))


# ---------------------------------------------------------------- laws


def moments(site: Support) -> tuple[Any, Any]:
    """Mean and variance of what one draw adds, coordinate by coordinate."""
    atoms, law = site.masses.astype(np.float64), site.law[:, None, None]
    mean = (law * atoms).sum(axis=0)
    return mean, (law * (atoms - mean) ** 2).sum(axis=0)


LAWS: dict[str, tuple[Population, Ways]] = {
    "printed": (PRINTED, {}),
    "boundary": (LINES, {"thresholds": 3}),
    "drift": (LINES, {"thresholds": 3, "drift": 0.01}),
    "noisy labels": (LINES, {"thresholds": 3, "label_missed": 0.2, "label_invented": 0.1}),
    "graded": (Boundary(name="p", boundary=True, graded=True), {"thresholds": 3}),
    "sources": (Boundary(name="p", boundary=True, answers=4), {"thresholds": 2, "unit": "source"}),
    "uniform": (
        Binormal(name="p", records=30, unsupported=0.4, auc=0.8, about=""), {"thresholds": 3, "partition": "log-normal"}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LAWS)
def test_draws_follow_the_law_of_the_site(name: str) -> None:
    """Sums of independent draws: mean and variance of each coordinate are n times those of one draw."""
    population, setting = LAWS[name]
    cell, trials, n = cell_of(population, sites=2, batch=20, rounds=3, **setting), 3000, 60
    found = happen(cell, trials=trials, seed=SEED, per_site=True)
    assert found.by_site is not None
    for k, site in enumerate(cell.sites):
        mean, variance = moments(site)
        total, some = found.by_site[:, -1, k], variance > 0
        z = (total.mean(axis=0) - n * mean)[some] / np.sqrt(n * variance[some] / trials)
        assert np.abs(z).max() < 6
        np.testing.assert_allclose(total.var(axis=0)[some] / (n * variance[some]), 1, atol=6 * math.sqrt(2.5 / trials))
        assert (total[:, ~some] == (n * mean)[~some]).all()


def test_rounds_and_sites_are_independent() -> None:
    """No draw is used twice: sums of different rounds, sites and trials are uncorrelated."""
    cell, trials = cell_of(sites=2, batch=20, rounds=2), 3000
    found = happen(cell, trials=trials, seed=SEED, per_site=True)
    assert found.by_site is not None
    count = steps(found.by_site)[:, :, :, 1, 1:].sum(axis=-1).reshape(trials, 4)
    rolled = np.roll(count[:, 0], 1)
    apart = np.corrcoef(np.column_stack([count, rolled]), rowvar=False) - np.eye(5)
    assert np.abs(apart).max() < 6 / math.sqrt(trials)


def test_orders_of_once_are_uniform() -> None:
    cell, trials = units(12, draw="once", batch=3, rounds=1, sites=2), 3000
    often = drawn(cell, happen(cell, trials=trials, seed=SEED).masses)[:, 0].mean(axis=0)
    assert np.abs(often - 0.5).max() < 6 * math.sqrt(0.25 / trials)


# ---------------------------------------------------------------- dropout


@pytest.mark.parametrize("draw", ["with replacement", "once"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_with_dropout_only_what_is_answered_counts(name: str, draw: str) -> None:
    """Trial by trial: what is asked follows from what arrived, and every request is answered whole or not at all."""
    cell = units(90, draw=draw, batch=7, rounds=9, partition="log-normal", sites=4, dropout=0.4, **SCHEDULES[name])
    found, plan = happen(cell, trials=4, seed=SEED), plan_of(cell)
    for trial, gains in enumerate(steps(found.slots).tolist()):
        tally, left = empty(plan), supply(cell)
        for look, got in enumerate(gains):
            wanted = next_slots(plan, tally, left)
            assert all(n in (0, most) for n, most in zip(got, wanted, strict=True))
            assert found.answered[trial, look].tolist() == [n > 0 for n in got]
            assert found.dropped[trial, look].tolist() == [most > n for n, most in zip(got, wanted, strict=True)]
            tally, left = more(tally, got), [room - n for room, n in zip(left, got, strict=True)]
        assert not any(next_slots(plan, tally, left)) or len(gains) == plan.schedule.rounds
    assert found.dropped.any()
    np.testing.assert_array_equal(drawn(cell, found.masses).sum(axis=-1), found.records)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("release", RELEASES)
def test_noise_and_transfer_are_of_what_arrived(name: str, release: str) -> None:
    cell = units(release=release, batch=7, rounds=9, sites=4, dropout=0.4, epsilon=2.0, drift=0.05, **SCHEDULES[name])
    found, reg = happen(cell, trials=5, seed=SEED), cell.registration
    seen = released(cell, found, seed=SEED)
    drift = np.asarray([site.drift for site in reg.sites])
    releases = found.answered.sum(axis=-1).cumsum(axis=1)
    for trial, look in np.ndindex(releases.shape):
        slots = found.slots[trial, look]
        weights = slots / max(1, slots.sum()) if reg.weights is None else np.asarray(reg.weights)
        expected = eta(weights, slots.astype(np.float64), drift) if slots.sum() else 1.0
        assert seen.eta[trial, look] == pytest.approx(expected, abs=1e-12)
        assert seen.records[trial, look] == max(1, slots.sum())
        check_noise(seen, reg, trial, look, float(releases[trial, look]))
    assert len(np.unique(releases[:, -1])) > 1


def test_transfer_weighs_each_site_s_drift() -> None:
    for declared in (True, False):
        values = cell_of(sites=3).registration.model_dump()
        given: list[Ways] = [{"weight": w, "drift": g} for w, g in ((0.5, 0.3), (0.3, 0.0), (0.2, 0.1))]
        values["sites"] = [
            {**site, **(each if declared else {"drift": each["drift"], "weight": None})}
            for site, each in zip(values["sites"], given, strict=True)
        ]
        reg, slots = Registration.model_validate(values), np.asarray([[10, 20, 30], [60, 0, 0]])
        for row, found in zip(slots.astype(np.float64), evidence.transfer(reg, slots), strict=True):
            weights = np.asarray(reg.weights or row / row.sum())
            assert found == pytest.approx(eta(weights, row, np.asarray([0.3, 0.0, 0.1])), abs=1e-12)


def test_evidence_says_what_methods_must_know() -> None:
    for setting, declared in ((Ways(), True), ({"weights": "as calibrated"}, False), ({"moved": 0.1}, True)):
        cell = cell_of(epsilon=1.0, rounds=2, **setting)
        found = happen(cell, trials=1, seed=SEED)
        assert released(cell, found, seed=SEED).declared == exact(cell, found, seed=SEED).declared == declared
    for name, binary in (("printed", True), ("boundary", True), ("graded", False), ("sources", False)):
        population, ways = LAWS[name]
        cell = cell_of(population, rounds=2, **ways)
        assert exact(cell, happen(cell, trials=1, seed=SEED), seed=SEED).binary == binary


def check_noise(seen: Evidence, reg: Registration, trial: int, look: int, releases: float) -> None:
    """The covariance proxy is that of so many registered releases."""
    nothing = np.zeros((2, reg.mechanism.basis.p), dtype=np.int64)
    for found, expected in zip(seen.noise, masses(reg, nothing, releases).noise, strict=True):
        np.testing.assert_allclose(found[trial, look], expected, rtol=1e-12)


def test_dropout_is_decided_before_any_record_is_looked_at() -> None:
    """Coins are the same whatever the records say and however many are drawn, and as many fall as the rate says."""
    ways: Ways = {"dropout": 0.3, "rounds": 20, "batch": 2, "weights": "as calibrated", "sites": 3}
    one, two = (happen(units(seed=seed, **ways), trials=200, seed=SEED) for seed in (0, 1))
    np.testing.assert_array_equal(one.dropped, two.dropped)
    assert not np.array_equal(one.masses, two.masses)
    larger = happen(units(**{**ways, "batch": 5}), trials=200, seed=SEED)
    np.testing.assert_array_equal(one.dropped, larger.dropped)
    assert abs(one.dropped.mean() - 0.3) < 6 * math.sqrt(0.21 / one.dropped.size)
    assert np.abs(one.dropped.mean(axis=(0, 1)) - 0.3).max() < 6 * math.sqrt(0.21 / 4000)


# ---------------------------------------------------------------- noise


READINGS = [(1, "mean"), (2, "mean"), (4, "mean"), (2, "one"), (4, "one"), (2, "as fresh"), (4, "as fresh")]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(("queries", "reading"), READINGS)
def test_noise_has_the_variance_that_is_claimed(queries: int, reading: str, release: str) -> None:
    """At every look and threshold, of unsupported and supported mass and of both together; and it is centred."""
    trials = 4000
    cell = cell_of(
        release=release, epsilon=1.0, queries=queries, reading=reading, sites=2, batch=2, rounds=3, dropout=0.3
    )
    found = happen(cell, trials=trials, seed=SEED)
    noise = noise_of(cell, found, queries if reading == "as fresh" else 1)
    seen = released(cell, found, seed=SEED)
    scale = Covariance(*(np.where(seen.noise.uu > 0, each, 1.0) for each in seen.noise))
    u, s = noise[0] / np.sqrt(scale.uu), noise[1] / np.sqrt(scale.ss)
    some = (seen.noise.uu > 0).mean(axis=0)
    correlation = (seen.noise.us / np.sqrt(scale.uu * scale.ss)).mean(axis=0)
    bound = 6 / math.sqrt(trials)
    assert max(np.abs(u.mean(axis=0)).max(), np.abs(s.mean(axis=0)).max()) < bound
    assert np.abs((u * u).mean(axis=0) - some).max() < math.sqrt(2) * bound
    assert np.abs((s * s).mean(axis=0) - some).max() < math.sqrt(2) * bound
    assert np.abs((u * s).mean(axis=0) - correlation).max() < math.sqrt(2) * bound
    assert 0.8 < some.min() < some.max() <= 1


def noise_of(cell: Cell, found: Events, fresh: int) -> list[Any]:
    """Released less exact sums, each unit counted so often: of unsupported and of supported mass."""
    seen, plain = released(cell, found, seed=SEED), exact(cell, found, seed=SEED)
    return [seen.unsupported - fresh * plain.unsupported, seen.supported - fresh * plain.supported]


def test_noise_of_looks_and_trials_is_fresh() -> None:
    """Noise of later releases is not correlated with that of earlier ones, nor with that of other trials, nor with
    what was drawn."""
    trials = 4000
    cell = cell_of(epsilon=1.0, sites=1, batch=2, rounds=3)
    found = happen(cell, trials=trials, seed=SEED)
    (noise, _), plain = noise_of(cell, found, 1), exact(cell, found, seed=SEED)
    columns = [*steps(noise)[:, :, 0].T, np.roll(noise[:, 0, 0], 1), *steps(plain.unsupported)[:, :, 0].T]
    apart = np.corrcoef(columns) - np.eye(7)
    assert np.abs(apart).max() < 6 / math.sqrt(trials)


def test_noise_does_not_depend_on_target_or_records() -> None:
    ways: Ways = {"epsilon": 1.0, "rounds": 3, "batch": 5, "sites": 2}
    first = noise_of(units(**ways), happen(units(**ways), trials=3, seed=SEED), 1)
    for cell in (units(target_risk=0.05, **ways), units(seed=1, **ways), units(policy="final", **ways)):
        np.testing.assert_allclose(noise_of(cell, happen(cell, trials=3, seed=SEED), 1), first, atol=1e-9)
    cell = units(**ways)
    other = released(cell, happen(cell, trials=3, seed=SEED), seed=(5, 3)).accepted
    assert not np.allclose(other, released(cell, happen(cell, trials=3, seed=SEED), seed=SEED).accepted)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(("queries", "reading"), READINGS)
def test_the_unit_is_the_variance_of_one_coordinate(queries: int, reading: str, release: str) -> None:
    """The highest threshold's mass is one coordinate of a release, whatever the grid of masses."""
    for population in (PRINTED, Boundary(name="p", boundary=True, graded=True)):
        cell = cell_of(population, release=release, epsilon=1.0, queries=queries, reading=reading, sites=1, rounds=1)
        seen = released(cell, happen(cell, trials=1, seed=SEED), seed=SEED)
        assert seen.unit == pytest.approx(float(seen.noise.uu[0, 0, -1]), rel=1e-9)


def test_without_privacy_nothing_is_added() -> None:
    for release in RELEASES:
        cell = units(release=release, rounds=3, batch=5)
        found = happen(cell, trials=3, seed=SEED)
        seen, plain = released(cell, found, seed=SEED), exact(cell, found, seed=SEED)
        np.testing.assert_allclose(seen.accepted, plain.accepted, atol=1e-9)
        np.testing.assert_allclose(seen.unsupported, plain.unsupported, atol=1e-9)
        assert not seen.noised
        assert not plain.noised
        assert seen.unit == plain.unit == 1.0
    noisy = units(epsilon=1.0, rounds=3, batch=5)
    assert not exact(noisy, happen(noisy, trials=3, seed=SEED), seed=SEED).noised


def test_readings_of_several_messages() -> None:
    """Together the messages cost one release, so their mean is as good as it, up to rounding of the scale; one of them
    alone is worse, and counting each as fresh (a control) pretends to more records."""

    def seen(queries: int, reading: str) -> Evidence:
        cell = cell_of(epsilon=1.0, queries=queries, reading=reading, sites=2, batch=3, rounds=2)
        return released(cell, happen(cell, trials=2, seed=SEED), seed=SEED)

    plain = seen(1, "mean")
    for queries in (2, 4):
        for reading, factor, fresh in (("mean", 1, 1), ("one", queries, 1), ("as fresh", queries**2, queries)):
            found = seen(queries, reading)
            np.testing.assert_allclose(found.V_A, factor * plain.V_A, rtol=1e-5)
            np.testing.assert_array_equal(found.records, fresh * plain.records)
            np.testing.assert_array_equal(found.eta, plain.eta)


# ---------------------------------------------------------------- the accountant


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("queries", [1, 2, 3, 4])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0, 8.0])
def test_all_messages_together_cost_the_registered_budget(epsilon: float, queries: int, release: str) -> None:
    cell = cell_of(release=release, epsilon=epsilon, queries=queries)
    settings, charge, registration = cell.registration.privacy, spent(cell), cell.registration
    basis = Basis(registration.histograms.basis, 3, registration.histograms.basis_bits)
    squared = sensitivity_squared(basis, registration.histograms.kind, settings.adjacency) * settings.mass_grid**2
    assert charge.rho == pytest.approx(squared / (2 * charge.scale**2), rel=1e-12)
    budget = privacy.rho_of(epsilon, settings.delta, settings.conversion)
    assert charge.total_rho == pytest.approx(queries * charge.rho, rel=1e-12)
    assert 0.9999 * budget < charge.total_rho <= budget
    assert charge.total_rho <= cell.registration.mechanism.rho * (1 + 1e-12)
    assert 0.999 * epsilon < charge.epsilon <= epsilon


def test_without_privacy_there_is_nothing_to_charge() -> None:
    charge = spent(cell_of())
    assert charge.scale == 0
    assert math.isinf(charge.epsilon)
    assert math.isinf(charge.rho)


def test_a_message_has_two_vectors_of_64_bits() -> None:
    assert payload_bytes(cell_of(release="paper").registration) == 2 * 4 * 8
    assert payload_bytes(cell_of(release="default").registration) == 2 * 3 * 8


def test_methods_with_a_release_of_their_own() -> None:
    """They get exact sums, and one normal per release and threshold."""
    trials = 3000
    cell = cell_of(epsilon=1.0, sites=3, batch=2, rounds=4, dropout=0.4)
    found = happen(cell, trials=trials, seed=SEED)
    own, plain = released(cell, found, seed=SEED).unreleased, exact(cell, found, seed=SEED)
    assert own is not None
    np.testing.assert_array_equal(own.accepted, plain.accepted)
    np.testing.assert_array_equal(own.unsupported, plain.unsupported)
    np.testing.assert_array_equal(own.releases, found.answered.sum(axis=-1).cumsum(axis=1))
    assert own.rho == spent(cell).rho
    scaled = own.normals / np.sqrt(np.maximum(1, own.releases))[..., None]
    some = (own.releases > 0).mean(axis=0)[:, None]
    assert np.abs(scaled.mean(axis=0)).max() < 6 / math.sqrt(trials)
    assert np.abs((scaled**2).mean(axis=0) - some).max() < 6 * math.sqrt(2 / trials)


# ---------------------------------------------------------------- withheld releases


def charged(cell: Cell, found: Events, trial: int) -> Iterator[Tally]:
    """The tally after every look, by `lose` for what was withheld; sums are left out."""
    reg, number = cell.registration, 0
    tally, left = empty(reg), supply(cell)
    for look in range(found.slots.shape[1]):
        wanted = next_slots(reg, tally, left)
        for site, n in enumerate(wanted):
            number += n > 0
            if found.withheld[trial, look, site]:
                tally = lose(reg, tally, [(site, n)], number)
            elif n:
                tally = more(tally, [n if k == site else 0 for k in range(len(wanted))])
        left = [room - n for room, n in zip(left, wanted, strict=True)]
        yield tally


def without_charge(found: Events) -> Events:
    """The same events, as if nothing had been asked of who withheld; noise is that of what arrived."""
    return replace(found, withheld=np.zeros_like(found.withheld), missing=np.zeros_like(found.missing))


WITHHELD: dict[str, tuple[Population | None, Ways]] = {
    "units once": (None, {"draw": "once", "batch": 6}),
    "recruit": (None, {"policy": "recruit", "rounds": 16}),
    "as calibrated": (None, {"weights": "as calibrated", "drift": 0.02}),
    "exact": (None, {"epsilon": math.inf}),
    "boundary": (LINES, {"thresholds": 4}),
    "boundary, recruit": (LINES, {"thresholds": 4, "policy": "recruit", "rounds": 20}),
}


@pytest.mark.parametrize("name", WITHHELD)
def test_withheld_releases_are_charged_as_a_real_run_does(name: str) -> None:
    population, setting = WITHHELD[name]
    ways: Ways = {
        "release": "default",
        "epsilon": 2.0,
        "withheld": 0.3,
        "batch": 10,
        "rounds": 7,
        "sites": 4,
        **setting,
    }
    cell = units(120, **ways) if population is None else cell_of(population, **ways)
    found = happen(cell, trials=4, seed=SEED)
    seen, arrived = released(cell, found, seed=SEED), released(cell, without_charge(found), seed=SEED)
    assert found.withheld.any()
    for trial in range(4):
        for look, tally in enumerate(charged(cell, found, trial)):
            here = (trial, look)
            assert (tuple(found.slots[here]), tuple(found.missing[here])) == (tally.slots, tally.missing)
            gained = [seen.unsupported[here] - arrived.unsupported[here], seen.accepted[here] - arrived.accepted[here]]
            np.testing.assert_allclose(gained, [tally.charge.unsupported, tally.charge.accepted], rtol=1e-7, atol=1e-11)
            assert seen.records[here] == tally.total
            assert seen.eta[here] == pytest.approx(transfer(cell.registration, tally), abs=1e-12)
            check_noise(seen, cell.registration, trial, look, tally.noises)
    np.testing.assert_array_equal(drawn(cell, found.masses).sum(axis=-1), found.records)
    np.testing.assert_array_equal(found.dropped, found.withheld)
    assert not (found.answered & found.withheld).any()


def test_supported_mass_is_charged_as_a_real_run_does() -> None:
    """Each mass is taken at its own worst, so supported mass is not the difference of the other two."""
    cell = cell_of(LINES, thresholds=4, release="default", epsilon=2.0, withheld=0.3, batch=10, rounds=7)
    found = happen(cell, trials=4, seed=SEED)
    seen, arrived = released(cell, found, seed=SEED), released(cell, without_charge(found), seed=SEED)
    for trial in range(4):
        for look, tally in enumerate(charged(cell, found, trial)):
            supported = arrived.supported[trial, look] + tally.charge.supported
            np.testing.assert_allclose(seen.supported[trial, look], supported)


@pytest.mark.parametrize("reading", ["mean", "one"])
def test_a_charge_covers_the_noise_of_what_is_read(reading: str) -> None:
    """Margins are so many deviations of the noise, however messages are read; or withheld messages are refused."""
    ways: Ways = {"thresholds": 4, "release": "default", "epsilon": 2.0, "withheld": 0.3, "rounds": 1, "sites": 4}
    try:
        several = cell_of(LINES, queries=4, reading=reading, **ways)
    except ValueError:
        return
    margins = []
    for cell in (cell_of(LINES, **ways), several):
        found = happen(cell, trials=20, seed=SEED)
        seen, arrived = released(cell, found, seed=SEED), released(cell, without_charge(found), seed=SEED)
        withheld = found.withheld.sum(axis=-1) == 1
        deviation = np.sqrt(seen.noise.uu / 4)[withheld]  # of one release
        margins.append((arrived.accepted - seen.accepted)[withheld] / deviation)
    np.testing.assert_allclose(margins[1], margins[0], rtol=1e-4)


def test_exact_sums_are_of_what_arrived() -> None:
    """A reference knows nothing of releases that were withheld, and is not charged for them."""
    cell = cell_of(LINES, thresholds=4, release="default", withheld=0.3, batch=10, rounds=7)
    found = happen(cell, trials=4, seed=SEED)
    seen, plain = exact(cell, found, seed=SEED), exact(cell, without_charge(found), seed=SEED)
    np.testing.assert_array_equal(seen.records, np.maximum(1, found.slots.sum(axis=-1)))
    np.testing.assert_array_equal([seen.accepted, seen.unsupported], [plain.accepted, plain.unsupported])
    np.testing.assert_array_equal(seen.eta, plain.eta)
    assert (found.records < (found.slots + found.missing).sum(axis=-1)).any()


@pytest.mark.parametrize("share", [0.1, 0.3])
@pytest.mark.parametrize("answers", [1, 2])
def test_as_many_releases_are_withheld_as_asked(answers: int, share: float) -> None:
    """About as many: the limit is that of a normal, and a sum of 200 is nearly one."""
    population = Boundary.model_validate({"name": "p", "boundary": True, "answers": answers, "spread": 0.1})
    cell = cell_of(
        population, release="default", unit="source" if answers > 1 else "record", withheld=share, sites=2, rounds=10,
        thresholds=3,
    )  # fmt: skip
    found = happen(cell, trials=300, seed=SEED)
    assert found.withheld.mean(axis=(0, 1)) == pytest.approx([share, share], abs=0.03)


def test_the_worst_releases_are_withheld() -> None:
    """What arrives is better than the law, by what the tail of a normal holds: phi(z) / (1 - share) deviations."""
    cell = cell_of(LINES, release="default", withheld=0.2, sites=2, rounds=10, thresholds=3)
    found = happen(cell, trials=300, seed=SEED, per_site=True)
    assert found.by_site is not None
    for k in range(2):
        a, z = cell.acceptance[k, 0], cell.unsupported[k, 0]
        mean, square = z - 0.2 * a, z * 0.8**2 + (a - z) * 0.2**2
        here = found.answered[:, :, k]
        supported, unsupported = (steps(found.by_site[:, :, k, i, 1:].sum(axis=-1))[here] for i in (0, 1))
        off = (0.8 * unsupported - 0.2 * supported - 200 * mean) / math.sqrt(200 * (square - mean**2))
        assert off.max() <= 0.8416 + 1e-3
        assert off.mean() == pytest.approx(-0.35, abs=0.06)


# ---------------------------------------------------------------- looks without records


def quiet(**setting: Any) -> tuple[Cell, Events]:
    """Trials with looks before the first record, and rounds in which nobody answers."""
    population = Printed(name="p", acceptance=(0.6,), risk=(0.01,), about="")
    cell = cell_of(population, dropout=0.6, **{"rounds": 6, "sites": 2, **setting})
    reads = {method.reads for method in METHODS.values()}
    return cell, happen(cell, trials=30, seed=SEED, per_site=True, reads=reads)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", METHODS)
def test_a_look_before_any_record_certifies_nothing(name: str, release: str) -> None:
    cell, found = quiet(release=release, epsilon=8.0)
    method, before = METHODS[name], found.records == 0
    if method.reads.endswith("development") and release == "paper":
        pytest.skip("only the default release is planned")
    seen = Block(cell, found, SEED).seen(method)
    assert 5 < before[:, 0].sum() < 25
    assert (seen.eta[before] == 1).all()
    assert (seen.records[before] == 1).all()
    verdict = method.judge(seen, aim_of(cell.registration))
    assert not verdict.certified[before].any()


def test_the_same_trials_certify_later() -> None:
    """So that the test above is not about evidence that no method could use."""
    cell, found = quiet(rounds=20)
    seen = released(cell, found, seed=SEED)
    for name in ("fed-src-c", "betting", "private-sequence"):
        certified = METHODS[name].judge(seen, aim_of(cell.registration)).certified[found.records[:, 0] == 0, -1]
        assert certified.mean() > 0.5


def test_a_round_without_an_answer_costs_no_capital() -> None:
    """Nothing was bet in it: the verdict at the end is that of the looks at which something arrived."""
    cell, found = quiet(rounds=150, batch=20, sites=1)
    seen, capital, aim = released(cell, found, seed=SEED), METHODS["capital"], aim_of(cell.registration)
    arrived = [capital.judge(seen.at(([trial], found.answered[trial, :, 0])), aim) for trial in range(30)]
    with np.errstate(invalid="ignore"):
        whole = capital.judge(seen, aim)
    assert sum(bool(each.certified[-1, 0]) for each in arrived) > 10
    assert whole.certified[:, -1, 0].tolist() == [bool(each.certified[-1, 0]) for each in arrived]


@pytest.mark.parametrize("name", METHODS)
def test_a_trial_is_judged_by_itself(name: str) -> None:
    """Whatever trials it is judged with: a few looks in full are then those that the records came from."""
    cell, found = quiet(rounds=20, batch=50, epsilon=8.0, release="default")
    method, aim = METHODS[name], aim_of(cell.registration)
    seen = Block(cell, found, SEED).seen(method)
    every = method.judge(seen, aim)
    for trial in range(6):
        alone = method.judge(seen.at(slice(trial, trial + 1)), aim)
        np.testing.assert_array_equal(alone.certified[0], every.certified[trial])
        np.testing.assert_allclose(alone.acceptance_lower[0], every.acceptance_lower[trial], atol=1e-12)


def test_a_look_before_any_record_plans_no_bet() -> None:
    """The bet of private e-values is planned from records per release: a look without a release says nothing of it."""
    cell, found = quiet(rounds=20, sites=1, epsilon=8.0)
    seen, method, aim = released(cell, found, seed=SEED), METHODS["private-e-values"], aim_of(cell.registration)
    prompt = found.records[:, 0] > 0
    alone, among = method.judge(seen.at(prompt), aim), method.judge(seen, aim)
    assert 0 < prompt.sum() < prompt.size
    assert alone.certified[:, -1].any()
    np.testing.assert_array_equal(among.certified[prompt], alone.certified)


# ---------------------------------------------------------------- facts


def test_facts_of_declared_weights_are_the_same_at_every_look() -> None:
    cell = cell_of(LINES, moved=0.05, thresholds=3, dropout=0.5, rounds=4)
    facts = facts_of(cell, happen(cell, trials=3, seed=SEED))
    exactly = truth(cell.registration, cell.sites, cell.weights.tolist())
    np.testing.assert_allclose(facts.acceptance, exactly.acceptance)
    np.testing.assert_allclose(facts.risk, exactly.risk)
    np.testing.assert_allclose(facts.risk, 0.2)


@pytest.mark.parametrize("setting", [{"dropout": 0.5}, {"withheld": 0.3, "release": "default"}, {"policy": "recruit"}])
def test_facts_of_undeclared_weights_are_those_of_the_mixture_drawn(setting: Ways) -> None:
    cell = cell_of(LINES, weights="as calibrated", thresholds=3, rounds=4, sites=3, **setting)
    found = happen(cell, trials=5, seed=SEED)
    facts = facts_of(cell, found)
    for trial, look in np.ndindex(found.records.shape):
        slots = (found.slots + found.missing)[trial, look]
        mixture = slots / slots.sum() if slots.sum() else np.full(3, 1 / 3)
        exactly = truth(cell.registration, cell.sites, mixture.tolist())
        np.testing.assert_allclose(facts.acceptance[trial, look], exactly.acceptance)
        np.testing.assert_allclose(facts.risk[trial, look], exactly.risk)
    assert np.ptp(facts.risk) > 0.01 or setting.get("withheld")  # withheld slots count as drawn


def test_facts_are_of_the_deployment_and_of_true_labels() -> None:
    still = facts_of(units(), happen(units(), trials=1, seed=SEED))
    noisy = units(label_missed=0.3)
    drifted = units(drift=0.1)
    assert facts_of(noisy, happen(noisy, trials=1, seed=SEED)).risk.tolist() == still.risk.tolist()
    moved = facts_of(drifted, happen(drifted, trials=1, seed=SEED)).risk
    assert moved[0] == pytest.approx(still.risk[0] + 0.1, abs=0.02)


# ---------------------------------------------------------------- every look in full


LOOKS = """
name = "looks"
seed = 9
trials = 6
block = 4
methods = ["fed-src-c", "ltt-hb-bonferroni"]
[[populations]]
name = "P"
acceptance = [0.8, 0.5, 0.3]
risk = [0.2, 0.05, 0.02]
about = ""
[setting]
rounds = 12
batch = 400
sites = 3
failure_probability = 0.1
[sweep]
epsilon = [inf, 4.0, 1.0]
dropout = [0.0, 0.5]
policy = ["first", "recruit"]
"""


def rows(frame: pl.DataFrame, **where: Any) -> list[dict[str, Any]]:
    return frame.filter(**where).rows(named=True)


SEVERAL = LOOKS.replace("[inf, 4.0, 1.0]", "[8.0, 4.0, 1.0]").replace(
    "[setting]", '[setting]\nrelease = "default"\nqueries = 2'
)


@pytest.mark.parametrize(("text", "unit"), [(LOOKS, 1.0), (SEVERAL, 1 / 2**16 / 2)], ids=["paper", "default"])
def test_a_row_is_enough_to_recompute_the_certificate(text: str, unit: float) -> None:
    """With the study's claim, and v0: the squared noise scale of the paper's release; in the default release, of the
    mean of two messages in steps of 2^-8."""
    study = Study.from_toml(text)
    frame, certified = looks(study, Path(), trials=3), 0
    assert frame.height == 12 * 2 * 3 * 12
    for row in rows(frame, method="fed-src-c"):
        setting, v0 = study.settings[row["setting"]], row["noise_scale"] ** 2 * unit or 1.0
        A, Z, N = np.asarray(row["accepted"]), np.asarray(row["unsupported"]), int(row["records"])
        ways: Ways = {"eta": row["eta"], "alpha_s": 0.05, "alpha_n": 0.05, "v0": v0}
        d = contrast.d_upper(Z - 0.2 * A, N, np.asarray(row["noise_variance_contrast"]), r_star=0.2, **ways)
        a = contrast.a_lower(A, N, np.asarray(row["noise_variance_accepted"]), **ways)
        assert row["contrast_upper"] == pytest.approx(d.tolist(), abs=2e-9)  # rounded outward to 9 decimals
        assert row["acceptance_lower"] == pytest.approx(a.tolist(), abs=2e-9)
        assert row["certified"] == ((d <= 0) & (a >= setting.min_acceptance)).tolist()
        assert row["seed"] == 9
        certified += any(row["certified"])
    assert 100 < certified < 400


def test_a_row_says_who_took_part_and_what_it_cost() -> None:
    study = Study.from_toml(LOOKS)
    frame = looks(study, Path(), trials=3)
    for index, setting in enumerate(study.settings):
        for trial in range(3):
            found = rows(frame, setting=index, method="fed-src-c", trial=trial)
            assert [row["look"] for row in found] == list(range(1, 13))
            gains = np.diff([row["slots"] for row in found], axis=0, prepend=0)
            assert [row["answered"] for row in found] == (gains > 0).tolist()
            assert not any(a and d for row in found for a, d in zip(row["answered"], row["dropped"], strict=True))
            assert any(any(row["dropped"]) for row in found) <= (setting.dropout > 0)
            assert [row["records"] for row in found] == [max(1, sum(row["slots"])) for row in found]
            assert all(row["epsilon_per_unit"] <= setting.epsilon for row in found)
            assert all(row["true_risk"] == pytest.approx([0.2, 0.05, 0.02]) for row in found)
            assert all(row["true_acceptance"] == pytest.approx([0.8, 0.5, 0.3]) for row in found)


def test_looks_are_those_of_the_records_of_the_study() -> None:
    """The first look with a certificate is where the study's own record of that trial says it fired."""
    study = Study.from_toml(LOOKS)
    frame = looks(study, Path(), trials=100)
    assert frame["trial"].unique().sort().to_list() == [0, 1, 2, 3, 4, 5]  # of both blocks
    assert looks(study, Path(), trials=2).equals(frame.filter(pl.col("trial") < 2))
    fired = 0
    for task in tasks(study):
        for record in rows(pl.read_parquet(run_task(LOOKS, "", task).data), method="fed-src-c"):
            found = rows(frame, setting=record["setting"], method="fed-src-c", trial=record["trial"])
            first = next((row["look"] for row in found if any(row["certified"])), None)
            assert (first is not None) == record["fired"]
            assert first in (None, record["look"])
            fired += record["fired"]
    assert 18 < fired < 72


def test_a_study_may_sweep_the_number_of_sites(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(LOOKS.replace("sites = 3\n", "").replace("policy = [", "sites = [2, 3]\n# ["))
    study = run_study(tmp_path / "study.toml", tmp_path / "out", jobs=1)
    _, records = read_trials(tmp_path / "out")
    for index, setting in enumerate(study.settings):
        assert {len(row["slots"]) for row in rows(records, setting=index)} == {setting.sites}
