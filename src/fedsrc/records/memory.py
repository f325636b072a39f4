"""Tables that are in memory already: frames of several libraries, mappings and arrays, as a polars frame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from fedsrc.errors import FedsrcError

KINDS = (
    "a path, a polars or pandas frame, a mapping of columns, or two arrays: scores and losses, each with one number"
    " for each answer"
)


def is_frame(value: object) -> bool:
    """Whether a value has named columns, rather than being one."""
    if isinstance(value, pl.DataFrame | pl.LazyFrame | Mapping):
        return True
    return (hasattr(value, "__arrow_c_stream__") or hasattr(value, "isna")) and hasattr(value, "columns")


def as_frame(value: Any) -> pl.DataFrame:
    """Any frame as a polars one, with its columns in their order. The index of a pandas frame is left out."""
    if isinstance(value, pl.DataFrame):
        return value
    try:
        if isinstance(value, pl.LazyFrame):
            return value.collect()
        if hasattr(value, "isna"):
            return _from_pandas(value)
        return pl.DataFrame(value)
    except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
        what = f"a {type(value).__name__} cannot be read as a table: {str(error).splitlines()[0]}"
        raise FedsrcError(what, hint=f"give {KINDS}") from error


def from_arrays(scores: ArrayLike, losses: ArrayLike) -> pl.DataFrame:
    """Scores and losses, one of each for every answer, as a table."""
    columns = {what: _column(values, what) for what, values in (("score", scores), ("loss", losses))}
    rows = [len(column) for column in columns.values()]
    if rows[0] != rows[1]:
        raise FedsrcError(f"there are {rows[0]:,} scores and {rows[1]:,} losses", hint="each answer has one of each")
    return pl.DataFrame(columns)


def _column(values: Any, what: str) -> pl.Series:
    """One array as a column."""
    many = values if hasattr(values, "__len__") and not isinstance(values, str | bytes | Mapping) else None
    if many is None or is_frame(many):
        raise FedsrcError(f"the {what} is a {type(values).__name__}, not an array", hint=f"give {KINDS}")
    if isinstance(many, pl.Series):
        return many.alias(what)
    try:
        array = np.asarray(many)
    except (TypeError, ValueError) as error:  # lists of lists that differ in length, say
        raise FedsrcError(f"the {what} is not an array of numbers: {error}", hint=f"give {KINDS}") from error
    if array.ndim != 1:
        raise FedsrcError(
            f"the {what} is an array of shape {array.shape}, not of one dimension", hint="`array.ravel()` may be meant"
        )
    return _series(what, array)


def _from_pandas(frame: Any) -> pl.DataFrame:
    """A pandas frame by its own methods, so that neither pandas nor pyarrow need be there."""
    names = [str(name) for name in frame.columns]
    if len(set(names)) < len(names):
        raise FedsrcError("two columns of the frame have the same name", hint="give each a name of its own")
    absent = frame.isna()
    columns = [(name, frame.iloc[:, i], absent.iloc[:, i].to_numpy()) for i, name in enumerate(names)]
    return pl.DataFrame([_series(name, each.to_numpy(), missing) for name, each, missing in columns])


def _series(name: str, values: Any, absent: Any = None) -> pl.Series:
    """An array as a column. Numbers and times stay what they are; what is neither, nor text, becomes text."""
    if values.dtype.kind in "biuf":
        return pl.Series(name, np.ascontiguousarray(values))
    if values.dtype.kind == "M":
        return pl.Series(name, np.ascontiguousarray(values).astype("datetime64[us]"))
    empty = [value is None for value in values] if absent is None else absent
    kept = [None if gone else value for value, gone in zip(values.tolist(), empty, strict=True)]
    types = {type(value) for value in kept} - {type(None)}
    if len(types) == 1 and types <= {bool, int, float, str}:
        return pl.Series(name, kept)
    if types <= {bool, int, float}:
        return pl.Series(name, [None if value is None else float(value) for value in kept], dtype=pl.Float64)
    return pl.Series(name, [None if value is None else str(value) for value in kept], dtype=pl.String)
