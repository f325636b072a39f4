"""Forecasts agree with what runs take, and call out of reach only what the records rule out.

Chance of a false alarm: seeds are fixed, so none.
Mutants killed: a forecast below the information limit, few records or noise taken for certainty.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedsrc.maths.basis import covariance
from fedsrc.planning.forecast import after_abstention, forecast, from_declared, from_development
from fedsrc.planning.reach import noised_rates, sampled_rates
from fedsrc.planning.sealed_forecast import smallest
from fedsrc.protocol.registration import Registration
from fedsrc.records.units import Records, Units, units_of
from fedsrc.server.state import Replay
from fedsrc.server.tally import Masses, suffix_variance
from fedsrc.simulate.population import uniform
from fedsrc.simulate.trials import Trials, simulate
from tests.support.helpers import registration, table

SITES = ("a", "b")


RECORDS = table(800, sites=SITES)


def supports(reg: Registration) -> list[Units]:
    return [units_of(RECORDS, name, "record") for name in SITES]


def test_forecast_is_near_what_runs_take() -> None:
    reg = registration(RECORDS, batch=50)
    told = forecast(reg, from_development(reg, RECORDS), 0.2, 4.0)
    runs = simulate(reg, uniform(reg, supports(reg)), trials=60, seed=5)
    assert told.records is not None
    assert told.records_90 is not None
    assert told.limit <= told.records <= told.records_90
    assert 0.4 < told.records / np.median(runs.records) < 2.5
    assert told.certified_within_schedule == 1.0


def test_forecast_from_declared_rates() -> None:
    reg = registration(RECORDS)
    easy, hard = (forecast(reg, from_declared(reg, 0.3, risk), 0.2, 4.0) for risk in (0.02, 0.12))
    assert easy.records is not None
    assert hard.records is not None
    assert hard.records > 2 * easy.records
    hopeless = forecast(reg, from_declared(reg, 0.3, 0.25), 0.2, 4.0)
    assert math.isinf(hopeless.limit)
    assert "out of reach" in hopeless.sentence()


def noised(reg: Registration, records: Records, seed: int) -> Masses:
    """Suffix masses of all the records of a table, noised as one release is."""
    values = np.asarray(reg.thresholds.values)
    accepted = records.score[:, None] >= values
    bad, good = (np.sum(accepted * each[:, None], axis=0) for each in (records.loss, 1 - records.loss))
    variance = suffix_variance(reg.mechanism)
    noise = covariance(reg.histograms.kind, variance)
    rng = np.random.default_rng(seed)
    u, s = bad + rng.normal(0, np.sqrt(noise.uu)), good + rng.normal(0, np.sqrt(noise.ss))
    return Masses(u, s, u + s, noise)


def verdicts(records: Records, seeds: int, **choices: Any) -> set[str]:
    reg = registration(records, grid=True, **choices)
    floor = reg.claim.min_acceptance
    return {noised_rates(reg, noised(reg, records, seed), len(records)).reach(floor) for seed in range(seeds)}


@pytest.mark.parametrize("count", [5, 36, 60])
def test_few_records_rule_nothing_out(count: int) -> None:
    """Mutants killed: noise left out of the error, a verdict by the sign alone, acceptance not looked at.

    Seeds are fixed. The population certifies with a few hundred records."""
    rng = np.random.default_rng(7)
    loss = (rng.random(count) < 0.35).astype(np.float64)
    records = replace(table(count), loss=loss, score=np.clip(rng.normal(np.where(loss > 0, 0.45, 0.7), 0.15), 0, 1))
    found = verdicts(records, 200)
    assert "out of reach" not in found
    assert "too few" in found


def test_many_records_rule_out_what_is_out_of_reach() -> None:
    """A score that says nothing, 40% unsupported, target 0.1; and a population that keeps its target."""
    records = table(20_000)
    blind = replace(records, score=np.random.default_rng(1).random(len(records)))
    assert verdicts(blind, 50, target_risk=0.1) == {"out of reach"}
    assert verdicts(records, 50) == {"in reach"}
    assert verdicts(table(2_000), 50, min_acceptance=0.9) == {"out of reach"}  # no threshold below 0.2 accepts so much


def test_the_verdict_by_samples_agrees_with_that_by_masses() -> None:
    """Without noise both see the same records."""
    for records in (RECORDS, table(40), replace(RECORDS, loss=np.ones(len(RECORDS)))):
        reg = registration(records, epsilon=math.inf, grid=True)
        units = [units_of(records, name, "record") for name in records.site_names]
        law = uniform(reg, [Units(np.arange(len(records) + 1), records.score, records.loss, None)])
        by_sample = sampled_rates(reg, law, [1.0])
        by_masses = noised_rates(reg, noised(reg, records, 0), len(records))
        assert by_sample.contrast == pytest.approx(by_masses.contrast)
        assert by_sample.contrast_error == pytest.approx(by_masses.contrast_error)
        assert by_sample.acceptance == pytest.approx(by_masses.acceptance)
        apart = sampled_rates(reg, uniform(reg, units), [len(each) / len(records) for each in units])
        assert apart.contrast == pytest.approx(by_sample.contrast)
        assert (apart.contrast_error >= by_sample.contrast_error - 1e-12).all()


def test_development_records_rule_nothing_out_lightly() -> None:
    """Three of ten unsupported, at every score: target 0.2 is not ruled out by ten records, and by a thousand it is."""
    for count, too_few in ((10, True), (1000, False)):
        records = replace(table(count), loss=(np.arange(count) % 10 < 3).astype(float), score=np.full(count, 0.9))
        reg = registration(records, grid=True, thresholds=3)
        whole = Registration.model_validate({**reg.model_dump(), "development": None})
        told = forecast(whole, from_development(whole, records), 0.2, 4.0, sampled=True)
        assert (told.too_few, math.isinf(told.limit)) == (too_few, True)
        assert ("too few units to tell" in told.sentence()) is too_few
        assert ("out of reach" in told.sentence()) is not too_few


def test_a_trial_takes_the_smallest_size_from_which_on_it_certifies() -> None:
    """Mutants killed: the smallest that certifies by luck, the largest, a trial that never certifies counted."""
    ever = [(False, False, True), (True, False, True), (False, True, True), (True, True, True), (True, True, False)]
    none, slots = np.zeros(5, dtype=np.int64), np.zeros((5, 1), dtype=np.int64)
    runs = [
        Trials(
            np.array([each[size] for each in ever]),
            none,
            np.full(5, 10 * size),
            none,
            slots,
            np.zeros(5),
            none[:, None],
        )
        for size in range(3)
    ]
    found = smallest(runs)
    assert found.certified.tolist() == [True, True, True, True, False]
    assert found.records.tolist() == [20, 20, 10, 0, 20]


def test_nothing_to_say_before_any_release() -> None:
    assert after_abstention(Replay(registration())) is None
