"""Rows known by what they hold, whatever their columns are called and in whatever order columns and rows stand.

A cell counts by its value: a number as a number (0.50 in a text file is 0.5 in a Parquet file), anything else as text
without white space around it, in Unicode's composed form. A row's digest is made of its cells in the order of their
keys, so it knows no column by name or place. Digests are kept on disk: what makes them is written out here and must
never change with a library.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

Digests = NDArray[np.uint8]  # a row of 16 bytes for each row of a table
_CellKeys = NDArray[np.uint64]
WIDTH = 16  # bytes of a digest
NUMBERS_BELOW = 1e15  # a longer whole number is a name: as a float it could lose its last digits
LANES = (0x243F6A8885A308D3, 0x13198A2E03707344)  # where the two halves of a digest start: digits of pi
MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))  # the steps of SplitMix64
STEP = 0x9E3779B97F4A7C15


class Rows:
    """The rows of a table in memory; their digests are made when they are first asked for."""

    def __init__(self, frame: pl.DataFrame, *, labelled: bool = True) -> None:
        self._frame, self._labelled = frame, labelled

    @property
    def width(self) -> int:
        """How many cells a row has; below zero where its label is unknown: such rows are like no labelled ones."""
        return self._frame.width if self._labelled else -self._frame.width

    def column(self, name: str) -> pl.Series | None:
        """Return a column, if the table has it."""
        return self._frame[name] if name in self._frame.columns else None

    @cached_property
    def digests(self) -> Digests:
        return row_digests(self._frame)


def row_digests(frame: pl.DataFrame) -> Digests:
    """Return a digest of 16 bytes for each row, of all its cells."""
    cells = np.column_stack([_cells(column) for column in frame.iter_columns()])
    cells.sort(axis=1)
    halves = [_folded(cells, np.uint64(start)) for start in LANES]
    return np.column_stack(halves).astype("<u8").view(np.uint8).reshape(frame.height, WIDTH)


def content_digest(frame: pl.DataFrame, named: Mapping[str, pl.Series]) -> str:
    """SHA-256 of a table in memory: its cells by value, in row order, under the names of their columns.

    Sites, sources and ids count letter by letter too, as they are `named`: by them units are told apart and ordered, so
    "7" and "007", the same number, do not make the same table.
    """
    whole = hashlib.sha256(json.dumps([sorted(frame.columns), frame.height]).encode())
    for name in sorted(frame.columns):
        whole.update(_cells(frame[name]).astype("<u8").tobytes())
    for what in sorted(named):
        whole.update(what.encode() + _text_keys(named[what]).astype("<u8").tobytes())
    return whole.hexdigest()


def tidy(column: pl.Series) -> pl.Series:
    """Return a column as stripped text in Unicode's composed form (NFC)."""
    return column.cast(pl.String).str.strip_chars().str.normalize("NFC")


def _folded(cells: _CellKeys, start: np.uint64) -> _CellKeys:
    """Mix each row's cells, one after the other, into 64 bits."""
    found = np.full(len(cells), start)
    for cell in cells.T:
        found = _mixed((found ^ cell) + np.uint64(STEP))
    return found


def _mixed(values: _CellKeys) -> _CellKeys:
    """SplitMix64's own mixing: every bit of a value moves every bit of the result."""
    for shift, factor in MIX:
        values = (values ^ (values >> np.uint64(shift))) * np.uint64(factor)
    return values ^ (values >> np.uint64(31))


def _cells(column: pl.Series) -> _CellKeys:
    """Return 64 bits for every cell: the number's own, or a digest of its text. Empty and NaN are the same."""
    column = column.alias("cell")  # the reader takes some names for patterns
    if column.dtype.is_float() or column.dtype == pl.Boolean:
        return _number_keys(column.cast(pl.Float64))
    text = _as_text(column)
    numbers = text.cast(pl.Float64, strict=False)
    named = numbers.is_null() | ~(numbers.abs() < NUMBERS_BELOW).fill_null(False)
    keys = _number_keys(numbers)
    if named.any():
        keys[named.to_numpy()] = _text_keys(text.filter(named))
    return keys


def _as_text(column: pl.Series) -> pl.Series:
    """Return any column as tidy text; what has none of its own (a list, bytes) as Python writes it."""
    if isinstance(column.dtype, pl.Datetime):
        column = column.cast(pl.Datetime("us", column.dtype.time_zone))  # one time, whatever it is counted in
    try:
        return tidy(column).fill_null("")
    except pl.exceptions.PolarsError:
        return pl.Series("cell", [repr(each) for each in column.to_list()], dtype=pl.String)


def _number_keys(numbers: pl.Series) -> _CellKeys:
    """Return the bits of each number; there is one zero, and NaN is empty."""
    values = numbers.fill_null(float("nan")).to_numpy() + 0.0
    keys = values.view(np.uint64).copy()
    keys[np.isnan(values)] = _text_key("")
    return keys


def _text_keys(texts: pl.Series) -> _CellKeys:
    distinct = texts.unique()
    keys = pl.Series([_text_key(each) for each in distinct.to_list()], dtype=pl.UInt64)
    return texts.replace_strict(distinct, keys, return_dtype=pl.UInt64).to_numpy()


def _text_key(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
