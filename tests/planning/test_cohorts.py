"""Plans and forecasts of cohorts: noise of |C| / (|C| - t) releases a round, and lines for noise that may be less.

Mutants killed: a cohort's noise counted once per site or once in all, or added up otherwise in another Python; a plan
with the exact line; a cohort forecast at no privacy refused, or at an epsilon that cannot be registered; what a cohort
would give left out beside sites that add their own.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from fedsrc.errors import FedsrcError
from fedsrc.planning.forecast import forecast, from_declared
from fedsrc.planning.plan import Planned, Wish, availability_words, evidence, plan
from fedsrc.planning.register import Choices, development_part, register
from fedsrc.protocol.judgements import Sealed
from fedsrc.protocol.registration import Registration
from fedsrc.server.recruiter import noises
from fedsrc.server.tally import Given, add, empty
from tests.support.cohorts import cohort_registration, member
from tests.support.helpers import table

FIVE = [member(name) for name in "abcde"]
NAMES = tuple(each.name for each in FIVE)


def planned(**choices: Any) -> Planned:
    """A plan for 300 units of each of five sites."""
    records = table(1000, sites=NAMES)
    settings = {"target_risk": 0.2, "epsilon": 1.0, "public_development": True, **choices}
    picked, part = Choices(**settings), development_part(records, "record", 1.0)
    base = register(picked, records, part)
    known = evidence(base, records, part)
    assert known is not None
    return plan(base, known, dict.fromkeys(NAMES, 300), Wish())


def in_cohort(**choices: Any) -> dict[str, Any]:
    words = [each.word for each in FIVE]
    return {"aggregation": "cohorts", "mask_keys": words, "capacities": dict.fromkeys(NAMES, 300), **choices}


def test_a_round_has_the_noise_of_its_cohorts() -> None:
    one, two = cohort_registration(FIVE), cohort_registration(FIVE, {"x": NAMES[:2], "y": NAMES[2:]})
    assert noises(one, [10] * 5) == pytest.approx(5 / 4, rel=1e-5)
    assert noises(one, [10, 0, 0, 0, 0]) == noises(one, [10] * 5)  # every member adds its share, with or without units
    assert noises(two, [10] * 5) == pytest.approx(2 / 1 + 3 / 2, rel=1e-5)
    assert noises(two, [0, 0, 10, 10, 10]) == pytest.approx(3 / 2, rel=1e-5)
    assert noises(two, [0] * 5) == 0
    assert noises(one, [10] * 5) >= 5 / 4  # shares are rounded up, so a sum is never said to have less than it has


def test_a_plan_of_a_cohort_lies_between_own_noise_and_one_holder() -> None:
    own, cohort, one = planned(), planned(**in_cohort()), planned(aggregation="holder")
    assert own.expected.acceptance < cohort.expected.acceptance <= one.expected.acceptance + 0.02
    made = cohort.registration.judgement
    assert isinstance(made, Sealed)
    assert made.line == "within"
    assert own.together is not None
    assert own.together.acceptance == pytest.approx(cohort.expected.acceptance, abs=0.02)
    assert "Were its sites one cohort" in "".join(own.lines())
    assert (one.together, cohort.together) == (None, None)
    assert "77 of 100 of its rounds count" in "".join(cohort.lines())


def records(reg: Registration, epsilon: float) -> float:
    found = forecast(reg, from_declared(reg, 0.5, 0.05), 0.2, epsilon).records
    return math.inf if found is None else found


def test_a_forecast_knows_cohorts() -> None:
    settings: dict[str, Any] = {"batch": 50, "rounds": 40, "capacities": dict.fromkeys(NAMES, 100_000)}
    cohort = cohort_registration(FIVE, **settings)
    apart: dict[str, Any] = {**settings, "mask_keys": (), "dropout": "adversarial"}
    own, one = (cohort_registration(FIVE, aggregation=each, **apart) for each in ("own", "holder"))
    assert records(one, 1.0) <= records(cohort, 1.0) < records(own, 1.0)
    assert records(cohort, math.inf) == records(own, math.inf)
    assert availability_words(own) == []


def test_what_cannot_be_registered_is_not_forecast() -> None:
    """At a large epsilon a member's share of the noise is too small; that is said in words."""
    reg = cohort_registration(FIVE)
    with pytest.raises(FedsrcError, match=r"epsilon 1e\+06 cannot be forecast: a member's share of the noise"):
        forecast(reg, from_declared(reg, 0.5, 0.05), 0.2, 1e6)


def test_noise_adds_up_alike_everywhere() -> None:
    """To the float nearest to the sum: `sum` of floats is another number in Python 3.11 than in later versions."""
    sites = [member(f"s{i}") for i in range(12)]
    names = [each.name for each in sites]
    reg = cohort_registration(sites, {"three": names[:3], "four": names[3:7], "five": names[7:]})
    each = [reg.noise_of(name) for name in ("three", "four", "five")]
    given = [Given([(0, 1)], (0,) * 10, noise) for noise in each]
    assert noises(reg, [1] * 12) == add(empty(reg), given).noises == math.fsum(each)
