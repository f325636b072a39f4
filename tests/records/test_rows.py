"""Row digests: the same for the same values, whatever columns are called, in whatever order and format; fixed for ever.

Mutants killed: a column's name or place in the digest, text of numbers instead of their values, minus zero, NaN and
empty apart, long whole numbers rounded, half of the digest a copy of the other, a cell left out, a digest that depends
on the batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import numpy as np
import polars as pl

from fedsrc.records.memory import _series
from fedsrc.records.rows import Rows, row_digests

PINNED: dict[
    str, tuple[dict[str, list[object]], str]
] = {  # what ledgers hold; a change here is a new version of the ledger
    "score 0.5, loss 1": ({"score": [0.5], "loss": [1]}, "f7b63cc7cacd0a5ca79c3e1a837e33c9"),
    "a name and nothing": ({"id": ["Zo\u00eb"], "note": [None]}, "10d52cbb9f7ecf4f57b00378d3193c85"),
}


def hexes(columns: Mapping[str, object]) -> list[str]:
    return [each.tobytes().hex() for each in row_digests(pl.DataFrame(dict(columns), strict=False))]


def test_digests_are_fixed_for_ever() -> None:
    for columns, pinned in PINNED.values():
        assert hexes(columns) == [pinned]


def test_names_places_and_spellings_do_not_matter() -> None:
    ways: list[dict[str, list[object]]] = [
        {"id": ["7 ", "Zo\u00eb", "x"], "score": [0.5, 0.25, 0.0], "loss": [1, 0, 1], "note": [None, "t", "u"]},
        {"a": ["1.0", "0", "1"], "b": ["7", "Zoe\u0308", " x"], "c": ["", "t ", "u"], "d": ["0.50", "2.5e-1", "-0"]},
        {"n": [float("nan"), "t", "u"], "l": [True, False, True], "i": ["7", "Zo\u00eb", "x"], "s": [0.5, 0.25, -0.0]},
    ]
    assert hexes(ways[0]) == hexes(ways[1])
    assert hexes(ways[0])[1:] == hexes(ways[2])[1:]


def test_a_time_is_the_same_in_any_unit() -> None:
    """A pandas frame counts nanoseconds, polars microseconds, a Parquet file often milliseconds."""
    times = pl.Series("when", [datetime(2026, 1, 2, 3, 4, 5), None])
    ways = [times.cast(pl.Datetime(unit)) for unit in ("ms", "us", "ns")]
    arrays = [way.to_numpy() for way in ways] + [times.to_numpy().astype("datetime64[s]")]
    ways += [_series("when", array, np.isnat(array)) for array in arrays]  # as the columns of pandas frames come
    assert len({tuple(hexes({"when": way})) for way in ways}) == 1


def test_every_cell_counts() -> None:
    base: dict[str, list[object]] = {"a": ["x"], "b": [0.5], "c": [1]}
    others: list[dict[str, list[object]]] = [
        {**base, "a": ["y"]},
        {**base, "b": [0.5000001]},
        {**base, "c": [0]},
        {**base, "d": [None]},
    ]
    assert len({*hexes(base), *(hexes(each)[0] for each in others)}) == 5
    long = [str(10**17 + i) for i in range(3)]  # as floats these would be one
    assert len(set(hexes({"id": list(long)}))) == 3


def test_columns_of_any_kind_have_digests() -> None:
    frame = pl.DataFrame({"list": [[1, 2], [3]], "bytes": [b"\xff", b"a"], "day": [1, 2]}, strict=False)
    frame = frame.with_columns(pl.col("day").cast(pl.Date), struct=pl.struct("day", "list"), none=None)
    assert np.unique(row_digests(frame), axis=0).shape == (2, 16)


def test_batches_do_not_matter_and_bits_are_well_mixed() -> None:
    """100,000 rows of small values: no two alike in either half; every bit is one for half of them (8 sigma: 1e-12)."""
    number = np.arange(100_000)
    frame = pl.DataFrame({"a": number // 400, "b": [f"{i % 400}x" for i in range(number.size)]})
    found = Rows(frame).digests
    assert (np.concatenate([row_digests(each) for each in frame.iter_slices(777)]) == found).all()
    halves = np.ascontiguousarray(found).view(np.uint64)
    assert [np.unique(half).size for half in halves.T] == [100_000, 100_000]
    ones = np.unpackbits(found, axis=1).sum(axis=0, dtype=np.int64)
    assert np.abs(ones - 50_000).max() < 8 * np.sqrt(100_000 / 4)
