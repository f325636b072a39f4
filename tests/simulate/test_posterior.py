"""Laws drawn from what is known: their means and spread are those of the sample, and noise widens them.

Mutants killed: one law for all trials, weights that ignore how often a unit came, sites that share a sample but not its
draws, a prior that outweighs the sample, noise left out, masses that rise, a forecast that takes the sample for the
truth or that few records are enough for.

Chance of a false alarm: seeds are fixed, so none; the limits are at five standard errors.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from fedsrc.planning.forecast import forecast, from_development
from fedsrc.planning.reach import known_units, sampled_rates
from fedsrc.protocol.registration import Registration
from fedsrc.records.units import Records, units_of
from fedsrc.server.tally import empty
from fedsrc.simulate.population import Support, suffix_masses, uniform
from fedsrc.simulate.posterior import UNSEEN, falling, from_samples, from_tally
from tests.support.helpers import registration, table

TRIALS = 4000
RECORDS = table(400)


def laws_of(reg: Registration) -> list[Support]:
    return uniform(reg, [units_of(RECORDS, "local", "record")])


def contrasts(reg: Registration, law: Support) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """The contrast at every threshold in every trial."""
    accepted, unsupported = suffix_masses(reg, np.tensordot(law.law, law.masses, axes=([1], [0])))
    return np.asarray(unsupported - 0.2 * accepted)


def copies(records: Records, times: int) -> Records:
    tiled = [np.tile(each, times) for each in (records.score, records.loss)]
    return replace(records, score=tiled[0], loss=tiled[1], site=np.tile(records.site, times))


def test_draws_have_the_mean_and_the_standard_error_of_the_sample() -> None:
    reg = registration(RECORDS, grid=True, epsilon=math.inf)
    [law] = from_samples(reg, laws_of(reg), TRIALS, 1)
    assert law.law.shape[0] == TRIALS
    assert np.allclose(law.law.sum(axis=1), 1.0)
    found, known = contrasts(reg, law), sampled_rates(reg, laws_of(reg), [1.0])
    few = UNSEEN / len(RECORDS)  # what the prior can move
    assert np.abs(found.mean(axis=0) - known.contrast).max() < few + 5 * known.contrast_error.max() / math.sqrt(TRIALS)
    middle = known.acceptance > 0.3
    [each] = laws_of(reg)
    accepted, unsupported = suffix_masses(reg, each.masses)
    error = (unsupported - 0.2 * accepted).std(axis=0) / math.sqrt(len(RECORDS))
    assert found.std(axis=0)[middle] == pytest.approx(error[middle], rel=0.15)


def test_sites_that_share_a_sample_share_its_draws() -> None:
    pair = table(300, sites=("a", "b"))
    reg = registration(pair, grid=True, epsilon=math.inf)
    one, other = from_samples(reg, from_development(reg, replace(pair, site_names=("a", "c"))), 5, 2)
    assert not np.array_equal(one.law.shape, other.law.shape)
    [alone] = laws_of(reg)
    first, second = from_samples(reg, [alone] * 2, 5, 2)
    assert first is second
    assert known_units([alone] * 2, [0.5, 0.5]) == pytest.approx(len(RECORDS))
    assert known_units([alone, laws_of(reg)[0]], [0.5, 0.5]) == pytest.approx(2 * len(RECORDS))
    assert known_units([alone, laws_of(reg)[0]], [1.0, 0.0]) == pytest.approx(len(RECORDS))


def test_noise_widens_what_sums_leave_open() -> None:
    """One release of a thousand units: with epsilon 1 its noise is as large as the sampling error, and with none it is
    that error alone."""
    widths = {}
    for epsilon in (math.inf, 1.0):
        reg = registration(RECORDS, grid=True, epsilon=epsilon)
        [law] = laws_of(reg)
        exact = reg.mechanism.basis.encode(np.rint(1000 * np.tensordot(law.law, law.masses, 1)).astype(np.int64)[None])
        tally = replace(empty(reg), slots=(1000,), noises=1, sums=exact[0])
        widths[epsilon] = contrasts(reg, from_tally(reg, tally, 1000, 3)).std(axis=0)
        error = np.sqrt(sampled_rates(reg, [law], [1.0]).contrast_error ** 2 * len(RECORDS) / 1000)
        assert widths[epsilon].max() < (1.5 if math.isinf(epsilon) else 9) * error.max()
    assert (widths[1.0] > widths[math.inf]).mean() > 0.8


def test_noised_masses_are_made_falling() -> None:
    for seed in range(20):
        noised = 100 * np.linspace(1, 0, 20) + np.random.default_rng(seed).normal(0, 30, 20)
        assert (np.diff(falling(noised)) <= 0).all()
        assert falling(noised).min() >= 0
    kept = np.array([[9.0, 9.0, 4.0, 0.5], [4.0, 6.0, 5.0, -1.0]])
    assert falling(kept).tolist() == [[9.0, 9.0, 4.0, 0.5], [5.0, 5.0, 5.0, 0.0]]


def test_nine_of_ten_is_further_off_where_fewer_records_are_known() -> None:
    """The same rates from 150 and from 15,000 records: the first leave more open, and the second nearly nothing."""
    few, many = table(150, seed=4), copies(table(150, seed=4), 100)
    reg = registration(few, grid=True, epsilon=math.inf, batch=5, rounds=60)
    whole = Registration.model_validate({**reg.model_dump(), "development": None})
    told = [
        forecast(whole, from_development(whole, each), 0.2, math.inf, sampled=True).records_90 for each in (few, many)
    ]
    plain = forecast(whole, from_development(whole, few), 0.2, math.inf).records_90
    assert told[0] is not None
    assert told[1] is not None
    assert plain is not None
    assert told[0] > told[1]
    assert abs(told[1] - plain) <= 10


@pytest.mark.parametrize("target", [0.15, 0.2, 0.3])
def test_a_number_needs_four_times_the_limit(target: float) -> None:
    """Copies of records have the same rates, and so the same limit, and are more evidence. Mutants killed: evidence of
    the sample taken for granted, records of a shared sample counted once for every site."""
    some = table(30, seed=4)
    reg = registration(some, grid=True, epsilon=math.inf, thresholds=3)
    whole = Registration.model_validate({**reg.model_dump(), "development": None})
    limit = forecast(whole, from_development(whole, some), target, math.inf).limit
    enough = math.ceil(4 * limit / len(some))
    for times in {1, enough - 1, enough} - {0}:
        laws = from_development(whole, copies(some, times))
        told = forecast(whole, laws, target, math.inf, sampled=True)
        assert (told.records is not None, told.too_few) == (times >= enough, times < enough)


def test_where_it_is_too_few_to_tell_there_is_no_number() -> None:
    """Eight supported answers of eight, target 0.1: their own spread is nothing, and they show nothing."""
    lucky = replace(table(8), loss=np.zeros(8), score=np.full(8, 0.9))
    reg = registration(table(400), grid=True, thresholds=3)
    whole = Registration.model_validate({**reg.model_dump(), "development": None})
    told = forecast(whole, from_development(whole, lucky), 0.1, math.inf, sampled=True)
    assert (told.too_few, told.records, told.records_90) == (True, None, None)
    assert math.isinf(told.limit)
    assert not any(letter.isdigit() for letter in told.sentence().split(":")[1])
