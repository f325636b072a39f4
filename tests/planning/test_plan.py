"""Plans become registrations: what was planned is what is asked, and what cannot be sealed is left open.

Mutants killed: rounds that shrink, batches for all units where fewer were planned, a default that cannot be registered,
capacities and weights ignored, units of unknown sites counted, acceptance of a look that a run does not reach.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fedsrc.errors import FedsrcError
from fedsrc.federation.local import plan_table
from fedsrc.planning.aim import Objective
from fedsrc.planning.plan import Planned, Wish, evidence, plan
from fedsrc.planning.register import Choices, development_part, register
from fedsrc.protocol.judgements import Sealed
from tests.support.helpers import table

CHOICES = Choices(target_risk=0.2, epsilon=4.0, public_development=True)


def planned(choices: Choices, wish: Wish, sites: tuple[str, ...] = ("local",), units: int = 1600) -> Planned:
    found = table(1000, sites=sites)
    part = development_part(found, choices.unit, 1.0)
    base = register(choices, found, part)
    known = evidence(base, found, part)
    assert known is not None
    return plan(base, known, dict.fromkeys(sites, units), wish)


@pytest.mark.parametrize("objective", ["acceptance", "records", "labels", "rounds"])
@pytest.mark.parametrize("looks", [1, 2, 5])
def test_every_objective_is_registered_for_as_many_looks(looks: int, objective: Objective) -> None:
    made = planned(CHOICES, Wish(looks=looks, objective=objective)).registration
    assert isinstance(made.judgement, Sealed)
    assert len(made.judgement.looks) == made.schedule.rounds <= (1 if objective == "rounds" else looks)
    assert objective != "acceptance" or made.schedule.rounds == looks
    assert made.most_units <= 1600 + made.schedule.rounds  # each round is rounded by itself


def test_fewer_records_are_asked_where_fewer_were_planned() -> None:
    few = planned(CHOICES, Wish(objective="records"))
    assert few.registration.schedule.rounds > 1
    assert few.expected.units < 1000
    one = planned(CHOICES, Wish(objective="records", looks=1))
    assert one.registration.most_units == one.expected.units < 1600


def test_a_target_that_is_too_fine_to_seal_is_left_open_unless_sealing_is_wished() -> None:
    fine = replace(CHOICES, target_risk=1 / 3)
    assert planned(fine, Wish()).kind == "open"
    with pytest.raises(FedsrcError, match="decimals"):
        planned(fine, Wish("sealed"))


def test_a_plan_is_for_what_will_be_asked() -> None:
    """Capacities bound it, and a site without weight is asked for nothing."""
    bounded = planned(replace(CHOICES, capacities={"a": 50, "b": 70}), Wish(), ("a", "b"), 500)
    assert bounded.units == 120
    weighed = planned(replace(CHOICES, weights={"a": 1.0, "b": 0.0}), Wish(), ("a", "b"), 500)
    assert weighed.units == 500


@pytest.mark.parametrize("looks", [0, -1, 1000])
def test_as_many_looks_as_nobody_needs_are_refused(looks: int) -> None:
    with pytest.raises(FedsrcError, match="looks"):
        Wish(looks=looks)


def test_units_of_no_site_are_refused_before_anything_is_released(tmp_path: Path) -> None:
    found = table(1000, sites=("a", "b"))
    part = development_part(found, "record", 1.0)
    with pytest.raises(FedsrcError, match="'east', which is no site"):
        plan_table(CHOICES, found, part, tmp_path / "ledger", Wish(), units={"a": 500, "east": 500})
    assert not (tmp_path / "ledger").exists()


def test_the_acceptance_of_several_looks_is_that_of_the_first_certificate() -> None:
    """A run ends there: it cannot be expected to accept more than as many units in one look would."""
    four, one = planned(CHOICES, Wish(looks=4)).expected, planned(CHOICES, Wish(), units=400).expected
    assert four.units == one.units == 400
    assert four.acceptance < one.acceptance
