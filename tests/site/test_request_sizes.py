"""What a site is told of the size of requests, before it allows them, is what the server then asks.

Mutants killed: the batch told in place of the site's share, the rest that joins the last request forgotten, a capacity
ignored, growth ignored. Chance of a false alarm: none, seeds are fixed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedsrc.planning.register import Choices, register_grid
from fedsrc.protocol.registration import Registration
from fedsrc.server.recruiter import next_slots
from fedsrc.server.tally import empty
from fedsrc.site.policy import describe_registration, request_sizes

NAMES = ("a", "b", "c")
KINDS: dict[str, dict[str, Any]] = {
    "no weights": {},
    "weights": {"weights": {"a": 0.5, "b": 0.3, "c": 0.2}},
    "odd weights": {"weights": {"a": 0.37, "b": 0.3511, "c": 0.2789}, "batch": 37},
    "one by one": {"policy": "recruit", "weights": {"a": 0.6, "b": 0.4, "c": 0.0}},
    "small batches": {"batch": 7},
}


def registered(kind: str, capacities: dict[str, int]) -> Registration:
    choices = {"target_risk": 0.2, "epsilon": 4.0, "grid": True, "batch": 100, **KINDS[kind]}
    return register_grid(Choices(**choices, capacities=capacities), NAMES)


@pytest.mark.parametrize("kind", KINDS)
def test_no_request_asks_for_more_than_was_said(kind: str) -> None:
    rng, attained, fresh = np.random.default_rng(5), 0.0, 0
    for _ in range(120):
        capacities = dict(zip(NAMES, rng.integers(1, 700, 3).tolist(), strict=True))
        reg = registered(kind, capacities)
        left, tally = np.array(list(capacities.values())), empty(reg)
        for turn in range(1, 12):
            slots = np.array(next_slots(reg, tally, left.tolist(), round=turn))
            for name, asked in zip(NAMES, slots.tolist(), strict=True):
                told = request_sizes(reg, name)
                assert asked <= told.most <= capacities[name]
                attained = max(attained, asked / max(1, told.usual))
            fresh += bool(slots.any())
            left = left - slots
            tally = replace(tally, slots=tuple((np.array(tally.slots) + slots).tolist()))
    assert fresh > 200
    assert attained > 1.3, "a rest does join a request"


def test_a_site_reads_both_numbers() -> None:
    reg = registered("weights", {"a": 1000, "b": 1000, "c": 1000})
    assert request_sizes(reg, "a") == (150, 225)
    said = " ".join(describe_registration(reg, "a"))
    assert "about 150 records at a time (at most 225 in one request, more if it is behind), and at most 1,000" in said
