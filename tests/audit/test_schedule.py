"""The recruiter asks every trial by itself, as one run alone; dropout is a coin tossed beforehand.

Chance of a false alarm: seeds are fixed, so none (hypothesis' examples must agree exactly, whatever they are).
Mutants killed: a level that passes the site which runs out, units asked that can only lose, sums of weights in another
order, halves rounded up, ties to the last site or the lightest, exhausted sites asked, a remainder of half a batch
taken whole, deficits from the batch instead of what is drawn, trials that share a total, dropped and arrived swapped,
coins that depend on who is asked, batches that do not grow.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsrc.audit.events import arrivals
from fedsrc.errors import FedsrcError
from fedsrc.protocol.registration import Registration
from fedsrc.server.recruiter import asked, next_slots
from fedsrc.server.tally import empty
from fedsrc.simulate.pool import ENDLESS
from tests.support.helpers import registration

FIELDS = registration(thresholds=1, grid=True).model_dump()


def plan(
    sites: int, weights: list[float] | None = None, *, batch: int = 10, policy: str = "first", growth: float = 1.0
) -> Registration:
    """A registration of so many sites."""
    each: list[float] | list[None] = weights or [None] * sites
    named: list[dict[str, Any]] = [{"name": f"s{k}", "weight": weight} for k, weight in enumerate(each)]
    schedule = {**FIELDS["schedule"], "batch": batch, "policy": policy, "growth": growth}
    return Registration.model_validate({**FIELDS, "sites": named, "schedule": schedule})


def one_by_one(reg: Registration, drawn: list[list[int]], left: list[list[int]], round: int = 1) -> list[list[int]]:
    """What the real recruiter asks, trial by trial."""
    tallies = [replace(empty(reg), slots=tuple(row)) for row in drawn]
    return [next_slots(reg, tally, room, round=round) for tally, room in zip(tallies, left, strict=True)]


def ask(reg: Registration, drawn: list[list[int]], left: list[list[int]]) -> list[list[int]]:
    return ask_in(reg, drawn, left, 1)


def ask_in(reg: Registration, drawn: list[list[int]], left: list[list[int]], round: int) -> list[list[int]]:
    found = asked(reg, np.asarray(drawn), np.asarray(left), round=round)
    assert found.dtype == np.int64
    rows: list[list[int]] = found.tolist()
    return rows


@st.composite
def registrations(draw: st.DrawFn) -> Registration:
    """Small batches and weights in few parts, so that ties, halves and remainders are common."""
    sites, weights = draw(st.integers(1, 6)), None
    if draw(st.booleans()):
        parts = draw(st.lists(st.integers(0, 4), min_size=sites, max_size=sites).filter(any))
        weights = [part / sum(parts) for part in parts]
    policy = draw(st.sampled_from(["first", "final", "recruit"]))
    growth = draw(st.sampled_from([1.0, 1.3, 2.0]))
    return plan(sites, weights, batch=draw(st.integers(1, 9)), policy=policy, growth=growth)


@settings(deadline=None)
@given(registrations(), st.data())
def test_every_trial_is_asked_as_the_recruiter_asks(reg: Registration, data: st.DataObject) -> None:
    trials, sites = data.draw(st.integers(1, 6)), len(reg.sites)
    room = st.one_of(st.just(0), st.integers(0, 20), st.just(ENDLESS))
    drawn, left = (
        data.draw(st.lists(st.lists(each, min_size=sites, max_size=sites), min_size=trials, max_size=trials))
        for each in (st.integers(0, 30), room)
    )
    assert ask(reg, drawn, left) == one_by_one(reg, drawn, left)


@settings(deadline=None)
@given(registrations(), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.2, 0.4]))
def test_whole_runs_agree_round_by_round(reg: Registration, seed: int, rate: float) -> None:
    """Tallies that a schedule with dropout really reaches: dropped requests use units and are not drawn."""
    rng = np.random.default_rng(seed)
    left = rng.integers(0, 60, (4, len(reg.sites)))
    drawn = np.zeros_like(left)
    for round in range(1, 13):
        slots = asked(reg, drawn, left, round=round)
        assert slots.tolist() == one_by_one(reg, drawn.tolist(), left.tolist(), round)
        assert (slots <= left).all()
        left = left - slots
        drawn = drawn + slots * arrivals(rng, rate, slots)


def test_whole_batches_and_remainders() -> None:
    reg = plan(6, batch=10)
    left = [[0, 1, 14, 15, 16, ENDLESS]]
    assert ask(reg, [[0] * 6], left) == [[0, 1, 14, 10, 10, 10]]
    odd = plan(3, batch=5)
    assert ask(odd, [[0] * 3], [[7, 8, 3]]) == [[7, 5, 3]]  # one and a half batches are 7.5


def test_batches_grow_by_the_registered_factor() -> None:
    """Whatever the policy; the most units count every round's own batch, and no batch grows without end."""
    sizes = [10, 15, 23, 34, 51]  # 10 x 1.5^k, halves rounded up
    for policy, weights in [("first", None), ("final", [0.5, 0.5]), ("recruit", None)]:
        reg = plan(2, weights, growth=1.5, policy=policy)
        drawn = [0, 0]
        for round, size in enumerate(sizes, start=1):
            slots = next_slots(reg, replace(empty(reg), slots=tuple(drawn)), [ENDLESS] * 2, round=round)
            assert sum(slots) == (size if policy == "recruit" else 2 * size)
            assert ask_in(reg, [drawn], [[ENDLESS] * 2], round) == [slots]
            drawn = [a + b for a, b in zip(drawn, slots, strict=True)]
        assert reg.units_in(5) == sum(sizes) * (1 if policy == "recruit" else 2)
    assert plan(1, growth=10.0).schedule.size(1_000) == 10_000_000


def test_halves_go_to_the_even_number() -> None:
    reg = plan(2, [0.5, 0.5], batch=1)
    rows = [[1, 0], [0, 3], [3, 2]]
    assert ask(reg, rows, [[9, 9]] * 3) == [[1, 2], [2, 0], [1, 2]]  # 1.5 is 2, 2.5 is 2, 3.5 is 4


def test_due_slots_stop_at_what_is_left_and_never_go_below_zero() -> None:
    """The level stops where a site runs out: at 10 in both trials, 5 being all that half the weight has, then at 18."""
    reg = plan(3, [0.5, 0.25, 0.25], batch=4)
    assert ask(reg, [[0, 0, 0], [0, 20, 0]], [[5, 9, 0], [9, 9, 9]]) == [[5, 2, 0], [9, 0, 4]]


def test_recruiting_breaks_ties_by_weight_and_then_by_order() -> None:
    reg = plan(4, [0.2, 0.3, 0.3, 0.2], policy="recruit")
    full, nothing = [99] * 4, [0] * 4
    assert ask(reg, [nothing, nothing], [full, [99, 0, 99, 99]]) == [[0, 10, 0, 0], [0, 0, 10, 0]]
    assert ask(reg, [nothing], [[99, 0, 0, 99]]) == [[10, 0, 0, 0]]
    even = plan(3, policy="recruit")
    assert ask(even, [[10, 0, 0], [10, 10, 0], [0, 0, 0]], [[99] * 3] * 3) == [[0, 10, 0], [0, 0, 10], [10, 0, 0]]


def test_recruiting_takes_the_largest_deficit_that_has_units() -> None:
    reg = plan(3, [0.6, 0.3, 0.1], policy="recruit")
    rows = [[50, 50, 0], [50, 50, 0], [50, 50, 0], [50, 50, 0]]
    left = [[99, 99, 99], [0, 99, 99], [0, 3, 0], [0, 0, 0]]
    assert ask(reg, rows, left) == [[10, 0, 0], [0, 0, 8], [0, 0, 0], [0, 0, 0]]  # 50 are 0.6 of 83, of which c has 0.1


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.4, 1.0])
def test_requests_are_dropped_at_the_rate(rate: float) -> None:
    every = np.full((20_000, 3), 7)
    came = arrivals(np.random.default_rng(5), rate, every)
    assert came.shape == every.shape
    assert came.dtype == np.bool_
    assert came.mean(axis=0) == pytest.approx(np.full(3, 1 - rate), abs=0.0 if rate in (0, 1) else 0.015)
    if 0 < rate < 1:
        assert np.abs(np.corrcoef(came.T) - np.eye(3)).max() < 0.03


def test_coins_do_not_depend_on_who_is_asked() -> None:
    every, some = np.full((50, 4), 3), np.arange(200).reshape(50, 4) % 3
    all_coins, coins = (arrivals(np.random.default_rng(2), 0.4, slots) for slots in (every, some))
    assert (coins == (all_coins & (some > 0))).all()
    assert not coins[some == 0].any()


def test_rates_are_probabilities() -> None:
    for rate in (-0.1, 1.1, math.nan):
        with pytest.raises(FedsrcError, match="not a probability"):
            arrivals(np.random.default_rng(0), rate, np.ones((1, 1), dtype=np.int64))
