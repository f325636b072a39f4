"""A table read in batches: a site's own table becomes releases without ever being in memory whole.

What is held at once is a batch of rows, however many there are: rows are counted in table order, and a `Window` says
of each row, from its number alone, whether its place in the intake's order is among those asked for. For units that
are records; a table of sources is read whole.

Parquet is read row group by row group, so a batch is at least what the writer made a row group: a file of one giant
row group is decoded whole. CSV is read ahead by a fixed amount (some hundreds of megabytes) and JSON lines are mapped
once to find the types of their columns, in pages that the system can drop; neither grows with the rows beyond that.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedsrc.errors import FedsrcError
from fedsrc.keys import Key
from fedsrc.ledger import IN_ORDER, Intake, Ledger
from fedsrc.maths.basis import Ints
from fedsrc.records import (
    LOCAL_SITE,
    Check,
    Columns,
    Missing,
    Part,
    Records,
    Units,
    file_digest,
    read_records,
    readable,
    scan,
    several_answers,
)
from fedsrc.registration import Development, Registration
from fedsrc.release import histogram
from fedsrc.site import Site, cut_words, open_sites

BATCH = 1 << 17  # rows
DIGIT = 16  # bits of a key that one pass of the selection decides
Keys = NDArray[np.uint64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Table:
    """A table on disk, under the names of its columns; nothing is read before it is asked for."""

    path: Path
    columns: Columns = field(default_factory=Columns)
    missing: Missing = "refuse"
    batch: int = BATCH

    def whole(self) -> Records:
        """The table in memory."""
        return read_records(self.path, columns=self.columns, missing=self.missing)

    def frames(self, *wanted: str) -> Iterator[pl.DataFrame]:
        """The table in its own order, at most a batch of rows at a time; only the wanted columns, if any are named."""
        with readable(self.path):
            table, _ = scan(self.path)
            if wanted:
                table = table.select(wanted)
            for frame in table.collect_batches(chunk_size=self.batch, maintain_order=True, engine="streaming"):
                yield from frame.iter_slices(self.batch)

    def parts(self, *, everything: bool = True) -> Iterator[Part]:
        """The same, checked: a bad value is an error after the last part. Without everything, score and loss alone.

        Every field of a text file is read when everything is asked for, because a line with too many fields shows
        in no other way; of a Parquet file, the columns that have a meaning.
        """
        with readable(self.path):
            table, place = scan(self.path)
            present = table.collect_schema().names()
        check = Check(place, self.columns, self.missing, present)
        names = [getattr(self.columns, what) for what in (Check.ORDER if everything else ("score", "loss"))]
        wanted = dict.fromkeys(name for name in names if name in present)
        for frame in self.frames(*(() if everything and place.word == "line" else wanted)):
            yield check.part(frame)
        check.finish()
