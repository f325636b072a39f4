"""How a cell is read: as a number, with or without a percent sign, or as text."""

from __future__ import annotations

import numpy as np
import polars as pl


def numbers(column: pl.Series) -> pl.Series:
    """Return a column as floats; null where a cell is empty or no number. 66.5% is 66.5."""
    if column.dtype != pl.String:
        return column.alias("number").cast(pl.Float64)
    return stripped(column).str.strip_suffix("%").str.strip_chars_end().cast(pl.Float64, strict=False)


def stripped(column: pl.Series) -> pl.Series:
    """Return a column of text without space around it; null where nothing is left."""
    text = column.alias("number").str.strip_chars()  # the reader takes some names for patterns
    return text.set(text == "", None)


def percents(column: pl.Series) -> pl.Series:
    """Return which cells of a column have a percent sign; null where one of text is empty."""
    if column.dtype != pl.String:
        return pl.Series("number", np.zeros(len(column), dtype=np.bool_))
    return stripped(column).str.ends_with("%")
