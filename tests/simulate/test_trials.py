"""Simulated trials walk the same path as real runs.

Chance of a false alarm: seeds are fixed, so none.
Mutants killed: noise missing or doubled in trials, a stream that depends on the method, units drawn twice in `once`,
an enumeration that counts rejected answers.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedsrc.protocol.registration import Registration
from fedsrc.records.masses import histogram
from fedsrc.records.units import Units, units_of
from fedsrc.simulate.population import from_cells, truth, uniform
from fedsrc.simulate.trials import discrete_gaussian, simulate, streams
from tests.support.helpers import changed, registration, table

SITES = ("a", "b")


RECORDS = table(800, sites=SITES)


def supports(reg: Registration) -> list[Units]:
    return [units_of(RECORDS, name, "record") for name in SITES]


def test_truth_is_the_enumeration() -> None:
    for preset in ("default", "paper"):
        reg = registration(RECORDS, preset=preset)
        exact = truth(reg, uniform(reg, supports(reg)), [0.5, 0.5])
        for j, threshold in enumerate(reg.thresholds.values):
            accepted = RECORDS.score >= threshold
            assert exact.acceptance[j] == pytest.approx(accepted.mean())
            assert exact.risk[j] == pytest.approx(RECORDS.loss[accepted].mean())


def test_cells_are_a_law() -> None:
    for preset in ("default", "paper"):
        reg = registration(thresholds=3, grid=True, preset=preset)
        support = from_cells(reg, np.array([1.0, 2.0, 0.0, 3.0]), np.array([2.0, 0.0, 1.0, 1.0]))
        exact = truth(reg, [support], [1.0])
        assert exact.acceptance.tolist() == pytest.approx([0.7, 0.5, 0.4])
        assert exact.risk.tolist() == pytest.approx([2 / 7, 2 / 5, 1 / 4])


def test_streams_do_not_depend_on_method_or_privacy() -> None:
    counts = []
    for preset, epsilon in [("default", 4.0), ("default", math.inf), ("paper", 1.0)]:
        reg = registration(RECORDS, preset=preset, epsilon=epsilon, rounds=3, batch=50)
        paired = preset == "paper"
        total = [t for _, t in streams(reg, uniform(reg, supports(reg)), trials=4, seed=9)][-1]
        first, second = total[:, 0], total[:, 1]
        counts.append(np.stack([first - second if paired else first, second]).tolist())
    assert counts[0] == counts[1] == counts[2]


def test_once_uses_every_unit_once() -> None:
    reg = registration(RECORDS, batch=130)
    sites = supports(reg)
    everything = sum(histogram(reg, units) for units in sites)
    *_, (tally, total) = streams(reg, uniform(reg, sites), trials=3, seed=1, draw="once")
    assert tally.slots == tuple(len(units) for units in sites)
    for trial in total:
        np.testing.assert_array_equal(trial, everything)


def test_seeded_noise_is_the_discrete_gaussian() -> None:
    for scale in (0.7, 3.0, 460.0):
        values = discrete_gaussian(np.random.default_rng(0), scale, (200_000,))
        z = np.arange(-int(10 * scale) - 2, int(10 * scale) + 3)
        p = np.exp(-(z**2) / (2 * scale**2))
        variance = float((z**2) @ (p / p.sum()))
        assert (values**2).mean() / variance == pytest.approx(1, abs=0.02)
        assert abs(values.mean()) < 0.02 * scale


def test_trials_certify_and_are_right() -> None:
    reg = registration(RECORDS, batch=100)
    sites = uniform(reg, supports(reg))
    runs = simulate(reg, sites, trials=30, seed=3)
    exact = truth(reg, sites, [0.5, 0.5])
    assert runs.certified.all()
    assert (exact.risk[runs.threshold] <= 0.2).all()
    assert (exact.acceptance[runs.threshold] >= runs.acceptance_lower).all()
    assert (runs.records == runs.slots.sum(axis=1)).all()
    private = simulate(changed(reg, privacy={"epsilon": 0.5}), sites, trials=30, seed=3)
    assert np.median(private.records) > np.median(runs.records)


def test_trials_carry_noise() -> None:
    """Every unit used in every trial: without privacy all trials end alike, with privacy noise tells them apart."""
    reg = registration(RECORDS, batch=10_000, policy="final")
    sites = uniform(reg, supports(reg))
    bare = changed(reg, privacy={"epsilon": math.inf})
    ends = [len(set(simulate(r, sites, trials=20, seed=1, draw="once").acceptance_lower)) for r in (bare, reg)]
    assert ends == [1, 20]


def test_policy_final_decides_at_the_end() -> None:
    reg = registration(RECORDS, batch=100, policy="final", rounds=5)
    runs = simulate(reg, uniform(reg, supports(reg)), trials=5, seed=0)
    assert (runs.records == 1000).all()
    assert (runs.rounds == 5).all()
