"""A table read in batches: a site's own table becomes releases without ever being in memory whole.

What is held at once is a batch of rows, however many there are. Rows are counted in table order, and a `Window` says
of each, from its number alone, whether its place in the intake's order is among those asked for. Units are records;
a table of sources is read whole.

Parquet is read in stretches of a few batches; a row group's bytes are read together, so a file that is one giant row
group needs memory for its columns as they are stored. CSV is read ahead by what the reader allows itself (some hundred
megabytes). JSON lines are mapped once to find the types of their columns, in pages that the system can drop. Ids and
sources are sorted on disk, in the system's folder for temporary files.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from polars.selectors import by_name

from fedsrc.common.canonical import file_digest
from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Ints
from fedsrc.records.order import IN_ORDER, Keys, key_stream
from fedsrc.records.rows import Digests, row_digests, tidy
from fedsrc.records.table import (
    Check,
    Columns,
    Missing,
    Place,
    Version,
    as_text,
    check_version,
    collect_records,
    comparable,
    file_version,
    readable,
    scan,
)
from fedsrc.records.units import LOCAL_SITE, Names, Records, check_owner, several_answers

BATCH = 1 << 17  # rows
AHEAD = 8  # batches that the reader of a Parquet file may be ahead
DIGIT = 16  # bits of a key that one pass decides
KEY = 64  # bits of a key
SMALL = 8_000_000  # bytes of a file that may be held in memory
SORTER_KILOBYTES = 16_384
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Table:
    """One look at a table on disk, under the names of its columns. Nothing is read before it is asked for."""

    path: Path
    columns: Columns = field(default_factory=Columns)
    missing: Missing = "refuse"
    batch: int = BATCH
    _held: dict[Version, list[pl.DataFrame]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def whole(self) -> Records:
        """The table in memory."""
        return collect_records(*self._scan, self.columns, self.missing)

    def check(self) -> Check:
        """A check of this table's parts; a missing column is refused at once."""
        return Check(self._scan[1], self.columns, self.missing, self.present)

    @cached_property
    def present(self) -> list[str]:
        """The columns that the table has."""
        with readable(self.path):
            return self._scan[0].collect_schema().names()

    @property
    def meaningful(self) -> list[str]:
        """Those of them that mean something here."""
        return list(dict.fromkeys(self.columns.used(self.present).values()))

    @property
    def like_source(self) -> list[str]:
        """Those that mean nothing here, although they are called what a source would be."""
        return self.columns.like_source(self.present)

    def frames(self, columns: list[str] | None = None) -> Iterator[pl.DataFrame]:
        """The table in its own order, at most a batch of rows at a time; all of its columns, or only some.

        A small file is read once, and held until it changes.
        """
        version = self.version()
        if version.size > SMALL:
            yield from self._read(columns)
            return
        if version not in self._held:
            self._held.clear()
            self._held[version] = list(self._read(None))
        for frame in self._held[version]:
            yield frame if columns is None else frame.select(by_name(*columns))

    def _read(self, columns: list[str] | None) -> Iterator[pl.DataFrame]:
        table, _ = self._scan
        if columns is not None:
            table = table.select(by_name(*columns))  # a name is a name, whatever pattern it looks like
        with readable(self.path):
            for piece in self._stretches(table):
                for frame in piece.collect_batches(chunk_size=self.batch, maintain_order=True, engine="streaming"):
                    yield from frame.iter_slices(self.batch)

    def _stretches(self, table: pl.LazyFrame) -> Iterator[pl.LazyFrame]:
        """A Parquet file a few batches at a time: the more cores, the further its reader would run ahead. Text files
        can only be read from their beginning."""
        if self.path.suffix.lower() != ".parquet":
            yield table
            return
        rows = int(table.select(pl.len()).collect().item())
        for start in range(0, rows, AHEAD * self.batch):
            yield table.slice(start, AHEAD * self.batch)

    def version(self) -> Version:
        """What changes when the file does, told without reading it."""
        _, place = self._scan
        return file_version(Path(place.path))

    @cached_property
    def _scan(self) -> tuple[pl.LazyFrame, Place]:
        with readable(self.path):
            return scan(self.path)


@dataclass(frozen=True)
class Contents:
    """A table that a first pass has checked whole, and all that is kept of that pass."""

    table: Table
    rows: int
    digest: str
    version: Version

    def names(self) -> Names:
        """Every id and source, and what every row holds, in table order."""
        present, columns = self.table.present, self.table.columns
        used = columns.used(present)
        ids, sources = (self._column(used[what]) if what in used else None for what in ("id", "source"))
        return Names(ids, sources, self._rows(), len(present), columns.cut_by(present))

    def _column(self, name: str) -> Iterator[str]:
        for frame in self.table.frames([name]):
            yield from tidy(as_text(frame.to_series().alias("name"))).to_list()
        self.check_same()

    def _rows(self) -> Iterator[Digests]:
        for frame in self.table.frames():
            yield row_digests(frame)
        self.check_same()

    def check_same(self) -> None:
        """Refuse if the file has changed since the first pass began: what is counted must be what was taken in."""
        check_version(self.table.path, self.version)


def examine(table: Table, site: str, *, independent: bool = False) -> Contents:
    """Check every row of a table that should be one site's own, before anything is taken in.

    Every field of a CSV file is read, because a line with too many of them shows in no other way.
    """
    version, check, owners = table.version(), table.check(), _Owners(site)
    alike = [] if independent else table.like_source
    columns = None if table.path.suffix.lower() in (".csv", ".tsv") else [*table.meaningful, *alike]
    with ExitStack() as stack:
        ids, sources, *others = (stack.enter_context(closing(_Sorter())) for _ in range(2 + len(alike)))
        for frame in table.frames(columns):
            text = check.part(frame).text
            owners.add(text.get("site"))
            ids.add(text.get("id"))
            sources.add(text.get("source"))
            for name, sorter in zip(alike, others, strict=True):
                sorter.add(comparable(frame[name]))
        check.repeated_id(ids.repeated())
        check.finish()
        owners.check()
        if not independent and sources.repeated() is not None:
            raise several_answers("the table")
        for name, sorter in zip(alike, others, strict=True):
            if sorter.repeated() is not None:
                raise several_answers("the table", name)
    contents = Contents(table, check.rows, file_digest(table.path), version)
    contents.check_same()
    return contents


class Window:
    """Which rows stand at places first, ..., first + slots - 1 of an order; asked of the rows in table order.

    The order is the table's own, or that of `records.shuffled`: by a key from a seeded stream, ties by row. The
    window's two ends are found by passes over the stream; then each row's key decides, so no order is ever stored.
    """

    def __init__(self, seed: str, rows: int, first: int, slots: int, batch: int = BATCH) -> None:
        ends = (first, first + slots)
        if seed == IN_ORDER:
            self._keys = _row_numbers()
            self._before_first, self._before_end = (_Before(end, 0) for end in ends)
        else:
            self._keys = key_stream(int(seed))
            self._before_first, self._before_end = (_find(int(seed), rows, end, batch) for end in ends)

    def take(self, rows: int) -> Mask:
        """The next rows of the table: which of them are in the window."""
        keys = self._keys(rows)
        return self._before_end.take(keys) & ~self._before_first.take(keys)


class _Before:
    """Rows before a place in the order by (key, row): those with smaller keys, and the first few that share its key."""

    def __init__(self, key: int, ties: int) -> None:
        self._key, self._ties = np.uint64(key), ties

    def take(self, keys: Keys) -> Mask:
        mask = keys < self._key
        ties = np.flatnonzero(keys == self._key)[: self._ties]
        mask[ties] = True
        self._ties -= ties.size
        return mask


def _find(seed: int, rows: int, place: int, batch: int) -> _Before:
    """A place in the order: keys that fit a batch are sorted; of more, the place's key is found digit by digit, each
    in one pass over the keys that counts the next digit of those which begin with the digits found."""
    if place <= 0:
        return _Before(0, 0)
    if place >= rows:
        return _Before((1 << KEY) - 1, rows)
    if rows <= batch:
        keys = np.sort(key_stream(seed)(rows))
        return _Before(int(keys[place]), place - int(np.searchsorted(keys, keys[place])))
    key, before = 0, 0
    for digits in range(KEY // DIGIT):
        below = np.cumsum(_digit_counts(seed, rows, key, digits, batch))
        digit = int(np.searchsorted(below, place - before, side="right"))
        before += int(below[digit - 1]) if digit else 0
        key = key << DIGIT | digit
    return _Before(key, place - before)


def _digit_counts(seed: int, rows: int, start: int, digits: int, batch: int) -> Ints:
    """Of the keys whose first digits are `start`: how often each next digit stands."""
    counts, keys = np.zeros(1 << DIGIT, dtype=np.int64), key_stream(seed)
    shift, last = np.uint64(KEY - DIGIT * (digits + 1)), np.uint64((1 << DIGIT) - 1)
    for row in range(0, rows, batch):
        heads = keys(min(batch, rows - row)) >> shift
        if digits:
            heads = heads[heads >> np.uint64(DIGIT) == np.uint64(start)]
        counts += np.bincount((heads & last).astype(np.int64), minlength=counts.size)
    return counts


def _row_numbers() -> Callable[[int], Keys]:
    """Keys that leave the table's order as it is."""
    seen = 0

    def keys(rows: int) -> Keys:
        nonlocal seen
        seen += rows
        return np.arange(seen - rows, seen, dtype=np.uint64)

    return keys


class _Owners:
    """Whose rows a table holds: the site's own if any, and of all the others the alphabetically first and last."""

    def __init__(self, site: str) -> None:
        self._site = site
        self._names = set[str]()

    def add(self, names: pl.Series | None) -> None:
        if names is not None:
            found = self._names.union(names.drop_nulls().unique().to_list())
            others = sorted(found - {self._site})
            self._names = (found & {self._site}) | {*others[:1], *others[-1:]}

    def check(self) -> None:
        check_owner(tuple(sorted(self._names)) or (LOCAL_SITE,), self._site)


class _Sorter:
    """Text values, put aside on disk and sorted there: which of them stands more than once?"""

    def __init__(self) -> None:
        with _on_disk():
            self._sql = sqlite3.connect("", isolation_level=None)  # a file without a name, gone when closed
            for setting in ("journal_mode = OFF", "synchronous = OFF", f"cache_size = -{SORTER_KILOBYTES}"):
                self._sql.execute(f"PRAGMA {setting}")
            self._sql.execute("CREATE TABLE value (text TEXT)")
            self._sql.execute("BEGIN")

    def add(self, values: pl.Series | None) -> None:
        if values is not None:
            with _on_disk():
                self._sql.executemany("INSERT INTO value VALUES (?)", zip(values.drop_nulls().to_list(), strict=True))

    def repeated(self) -> str | None:
        """The alphabetically first value that was added more than once."""
        query = "SELECT text FROM value GROUP BY text HAVING COUNT(*) > 1 ORDER BY text LIMIT 1"
        with _on_disk():
            row = self._sql.execute(query).fetchone()
        return None if row is None else str(row[0])

    def close(self) -> None:
        self._sql.close()


@contextmanager
def _on_disk() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise FedsrcError(
            f"ids or sources cannot be sorted on disk: {error}",
            hint="free some space where temporary files go, or set TMPDIR to a folder that has it",
        ) from error
