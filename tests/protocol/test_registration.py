"""Registrations: the file round-trips, every field is in the digest, nonsense is refused.

Mutants killed: a field left out of the digest, a field that is not checked, a changed file taken for damaged TOML.
"""

from __future__ import annotations

import math
from copy import deepcopy
from typing import Any

import pytest

from fedsrc.common.canonical import digest
from fedsrc.errors import FedsrcError
from fedsrc.protocol.registration import Registration
from tests.support.helpers import changed, registration, table

REG = registration(thresholds=20, grid=True)


@pytest.mark.parametrize("epsilon", [4.0, math.inf, 0.1])
@pytest.mark.parametrize("preset", ["default", "paper"])
def test_the_file_round_trips(epsilon: float, preset: str) -> None:
    reg = registration(table(300, sites=("a", "ü b")), epsilon=epsilon, preset=preset, weights={"a": 0.25, "ü b": 0.75})
    again = Registration.from_toml(reg.to_toml())
    assert again == reg
    assert again.digest == reg.digest


def leaves(value: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in leaves(item, (*path, key))]
    return [path]


def test_every_field_is_in_the_digest() -> None:
    fields = REG.model_dump()
    for path in leaves(fields):
        copy = REG.model_dump()
        place = copy
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = "another value"
        assert digest(copy) != REG.digest, path


NONSENSE: dict[str, tuple[str, dict[str, Any], str]] = {
    "target": ("claim", {"target_risk": 1.0}, "target_risk"),
    "nan target": ("claim", {"target_risk": math.nan}, "target_risk"),
    "off ladder": ("claim", {"target_risk": 0.123}, "must be a rung"),
    "epsilon zero": ("privacy", {"epsilon": 0.0}, "epsilon"),
    "epsilon nan": ("privacy", {"epsilon": math.nan}, "epsilon"),
    "unordered": ("thresholds", {"values": [0.5] * 20}, "strictly increasing"),
    "outside": ("thresholds", {"values": [i / 10 for i in range(20)]}, r"\[0, 1\]"),
    "weights short": ("thresholds", {"weights": [1.0]}, "one weight per threshold"),
    "weights sum": ("thresholds", {"weights": [0.04] * 20}, "sum to one"),
    "overspent": ("certificate", {"risk_budget": 0.05}, "more than the failure probability"),
    "ladder": ("certificate", {"ladder": [0.3, 0.2]}, "strictly increasing"),
    "no ladder": ("certificate", {"ladder": []}, "ladder"),
    "no refusal budget": ("certificate", {"refusal_budget": -1.0}, "refusal_budget"),
    "unknown field": ("schedule", {"speed": 1}, "Extra inputs"),
    "text for number": ("schedule", {"batch": "200"}, "batch"),
    "zero batch": ("schedule", {"batch": 0}, "batch"),
    "shrinking": ("schedule", {"growth": 0.9}, "growth"),
    "priors short": ("certificate", {"bets": {"count": 2, "priors": [[0.5, 0.5]]}}, "one prior per threshold"),
    "prior of other bets": ("certificate", {"bets": {"priors": [[0.5, 0.5]] * 20}}, "every bet"),
    "prior of nothing": ("certificate", {"bets": {"count": 2, "priors": [[1.0, 0.0]] * 20}}, "positive share"),
    "answers of a record": ("privacy", {"max_answers": 3}, "max_answers"),
    "too fine": ("privacy", {"unit": "source", "max_answers": 12, "loss_grid": 100}, "too fine"),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_is_refused(name: str) -> None:
    section, values, message = NONSENSE[name]
    with pytest.raises(ValueError, match=message):
        changed(REG, **{section: values})


def test_what_came_later_is_written_only_where_it_is_used() -> None:
    """Registrations without planned bets or growing batches keep their bytes and digests."""
    assert "growth" not in REG.model_dump()["schedule"]
    assert "priors" not in REG.model_dump()["certificate"]["bets"]
    planned = changed(REG, schedule={"growth": 1.5}, certificate={"bets": {"count": 2, "priors": [[0.25, 0.75]] * 20}})
    assert len({REG.digest, planned.digest, changed(planned, schedule={"growth": 1.0}).digest}) == 3
    assert Registration.from_toml(planned.to_toml()) == planned
    assert changed(REG, schedule={"growth": 1.0}, certificate={"bets": {"priors": None}}).digest == REG.digest


def test_sites_are_checked() -> None:
    for sites, message in [
        ([], "sites"),
        ([{"name": "a"}, {"name": "a"}], "must differ"),
        ([{"name": "a", "weight": 1.0}, {"name": "b"}], "every site a weight"),
        ([{"name": "a", "weight": 0.4}, {"name": "b", "weight": 0.4}], "sum to one"),
        ([{"name": "bad\nname"}], "name"),
    ]:
        with pytest.raises(ValueError, match=message):
            Registration.model_validate({**REG.model_dump(), "sites": sites})
    with pytest.raises(FedsrcError, match="not in the registration"):
        REG.site("nowhere")


def test_adversarial_dropout_needs_the_betting_certificate() -> None:
    with pytest.raises(ValueError, match="needs the betting certificate"):
        changed(registration(preset="paper"), schedule={"dropout": "adversarial"})


@pytest.mark.parametrize("text", ["", "format = 1", "not toml", "format = 2\n", "a = [" * 5000, 'format = "1"'])
def test_files_that_are_none(text: str) -> None:
    with pytest.raises(FedsrcError, match=r"r\.toml: "):
        Registration.from_toml(text, where="r.toml")


def test_a_file_that_was_changed_is_said_to_be() -> None:
    """One that fedsrc wrote was valid; only of another one is it said how to get a valid one."""
    text = registration(table(300)).to_toml().replace("target_risk = 0.2", "target_risk = 2.0")
    for written, hint in ((text, "changed since"), (text.partition("\n")[2], "writes a valid one")):
        with pytest.raises(FedsrcError, match=hint):
            Registration.from_toml(written)


def test_a_copy_keeps_nothing_that_was_cached() -> None:
    """A copy with another epsilon has another digest and other noise, also where the original's were known."""
    dear = REG.model_copy(update={"privacy": REG.privacy.model_copy(update={"epsilon": 1.0})})
    before = (REG.digest, REG.mechanism)
    again = REG.model_copy(update={"privacy": dear.privacy})
    assert again == dear
    assert again.digest == dear.digest != before[0]
    assert again.mechanism == dear.mechanism != before[1]
    assert REG.mechanism is before[1]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_no_way_of_copying_keeps_what_was_cached() -> None:
    """Nor one that pydantic keeps from its first version, nor a deep one, as its older versions make it."""
    dear = REG.privacy.model_copy(update={"epsilon": 1.0})
    assert REG.digest
    assert REG.mechanism
    for copied in (REG.copy(update={"privacy": dear}), REG.model_copy(update={"privacy": dear}, deep=True)):
        assert copied.digest == REG.model_copy(update={"privacy": dear}).digest != REG.digest
        assert copied.mechanism.scale > REG.mechanism.scale
    assert not {"digest", "mechanism"} & set(vars(deepcopy(REG)))
