"""The errors that mean that a table cannot be read."""

from __future__ import annotations

import polars as pl

UNREADABLE = (pl.exceptions.PolarsError, pl.exceptions.PanicException)  # a damaged file can make polars panic
