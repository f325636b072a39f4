"""What docs/format.md says, beside the code: schema and vectors are as committed.

Mutants killed: a field, limit or default changed without its schema; other canonical bytes, signed parts, chains,
scales, slots, bounds or roundings than those that other implementations are tested with. Chance of a false alarm: none.
"""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tests.support.format_files import FOLDER, schema, vectors

CLOSE = 1e-11  # relative: what another machine's last digits may differ by


def same(a: Any, b: Any) -> bool:
    """Compare plain values, floats up to their last digits."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=CLOSE, abs_tol=1e-13)
    return type(a) is type(b) and bool(a == b)


@pytest.mark.parametrize(("name", "make"), [("schema", schema), ("vectors", vectors)])
def test_files_beside_the_page_are_current(name: str, make: Any) -> None:
    """After a change that is meant to change them: python -m tests.support.format_files."""
    committed = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    made = json.loads(json.dumps(make()))
    assert committed.keys() == made.keys()
    for part in made:
        assert same(committed[part], made[part]), part


def test_close_values_are_told_apart() -> None:
    assert same({"a": [1, 0.1]}, {"a": [1, 0.1 + 1e-17]})
    assert not same({"a": [1, 0.1]}, {"a": [1, 0.1 + 1e-9]})
    assert not same({"a": 1}, {"a": 1.0})
