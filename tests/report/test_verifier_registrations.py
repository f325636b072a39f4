"""Registrations changed in one place at random: whatever fedsrc refuses to read, the page's verifier refuses too.

A forger chooses the registration and writes its canonical form, so the verifier must know every rule by itself.

Mutants killed: budgets, weights, bets, looks or shapes that are not checked; pairs that do not go together.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from fedsrc.common.canonical import canonical_bytes
from fedsrc.errors import FedsrcError
from fedsrc.protocol.names import REGISTRATION
from fedsrc.protocol.registration import Registration
from tests.report.verifier_node import NODE, ask, out_of_reach
from tests.support.recordings import RUNS, recorded

pytestmark = pytest.mark.skipif(NODE is None, reason="Node is not installed: it runs the page's verifier")

TEXTS = (
    "", "x", "betting", "sealed", "first", "enough", "recruit", "final", "adversarial", "independent", "paired",
    "complementary", "levels", "moments", "bins", "suffix", "source", "record", "zero-out", "replacement", "noised",
    "public", "development", "grid", "declared", "hybrid", "within", "exact", "answer", "paper", "tight",
)  # fmt: skip
TRIES = 600
STRICTER = "another noise than stated"  # of a development release: fedsrc does not compute it again


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield from places(each, (*path, name))
        return
    yield path, value
    if isinstance(value, list):
        for i, each in enumerate(value):
            yield from places(each, (*path, i))


def other(value: Any, rng: random.Random) -> Any:
    """A value in its stead."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        new = rng.choice([0, -value, value * 1.5, value + 1, value / 2, 1, 2, 1e-9, value - 1, round(value * 1.3, 3)])
        return int(new) if abs(new) < 2**53 and new == int(new) else new
    if isinstance(value, list):
        return rng.choice([value[:-1], [*value, *value[-1:]], value[::-1], []])
    return rng.choice(TEXTS if isinstance(value, str) else (0, 1, 5, "a" * 64, []))


def put(value: Any, path: tuple[Any, ...], new: Any) -> None:
    for step in path[:-1]:
        value = value[step]
    value[path[-1]] = new


def changed(name: str, rng: random.Random) -> tuple[str, Any, Any]:
    """A registration with one value changed: which and how, the canonical form that a forger would write, and all of
    its fields."""
    read = Registration.read(RUNS / name / REGISTRATION)
    whole, stated = json.loads(json.dumps(read.model_dump())), json.loads(canonical_bytes(read.model_dump()))
    near = [each for each in places(stated) if len(each[0]) <= 3 or rng.random() < 0.1]
    path, value = rng.choice([each for each in near if each[1] != "inf" and each[0] != ("development", "seed")])
    new = other(value, rng)
    put(stated, path, new)
    put(whole, path, new)
    return f"{name}: {'.'.join(map(str, path))} = {str(new)[:60]}", stated, whole


def is_read(whole: Any) -> bool:
    try:
        Registration.model_validate(whole)
    except (ValidationError, FedsrcError):
        return False
    return True


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(2, 10))])
def test_what_is_not_read_is_refused(seed: int) -> None:
    rng = random.Random(seed)
    names = [name for name in recorded() if not out_of_reach(name)]
    found = [changed(rng.choice(names), rng) for _ in range(TRIES)]
    answers = ask(registrations=[stated for _, stated, _ in found])
    counts = Counter[str]()
    for (where, _, whole), answer in zip(found, answers, strict=True):
        read, problem = is_read(whole), answer["error"] or ""
        assert read or problem, where
        assert not read or problem in ("", "Beyond") or STRICTER in answer["message"], (where, answer)
        counts[f"{'read' if read else 'not read'}: {problem}"] += 1
    assert counts["not read: Wrong"] > TRIES / 3
    assert counts["read: "] > TRIES / 30
