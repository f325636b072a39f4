"""A table read in batches: a site's own table becomes releases without ever being in memory whole.

Memory use is one batch of rows, whatever the table's size. Rows are counted in table order, and a `Window` decides from
a row's number alone whether its place in the intake's order was asked for. Units are records; a table of sources is
read whole.

Parquet is read in stretches of a few batches; a row group's bytes are read together, so a file that is one giant row
group needs memory for its columns as they are stored. CSV is read ahead by what the reader allows itself (some hundred
megabytes). JSON lines are mapped once to find the types of their columns, in pages that the system can drop. Ids and
sources are sorted on disk, in the system's folder for temporary files.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import polars as pl
from polars.selectors import by_name

from fedsrc.common.canonical import file_digest
from fedsrc.errors import FedsrcError
from fedsrc.protocol.registration import Registration
from fedsrc.records.columns import NEEDED, Columns
from fedsrc.records.guess import settle
from fedsrc.records.rows import Digests, row_digests, tidy
from fedsrc.records.scan import Place, Version, check_version, file_version, readable, scan
from fedsrc.records.table import Check, LabelState, Missing, as_text, collect_records, comparable
from fedsrc.records.units import LOCAL_SITE, Names, Records, check_owner, several_answers

BATCH = 1 << 17  # rows
AHEAD = 8  # batches that the reader of a Parquet file may be ahead
SMALL = 8_000_000  # bytes of a file that may be held in memory
SORTER_KILOBYTES = 16_384


@dataclass(frozen=True)
class Table:
    """A table on disk, under the names of its columns. Nothing is read before it is needed."""

    path: Path
    columns: Columns = field(default_factory=Columns)
    missing: Missing = "refuse"
    batch: int = BATCH
    _held: dict[Version, list[pl.DataFrame]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def whole(self, *, labels: LabelState = "there") -> Records:
        """The table in memory."""
        return collect_records(*self._scan, self.columns, self.missing, labels=labels)

    def under(self, registration: Registration) -> Table:
        """Return the same table under a registration, which says what scores are called and how they are written."""
        return replace(self, columns=self.columns.bound(registration))

    @cached_property
    def settled(self) -> Columns:
        """The columns; where nobody named them, by the beginning of the table."""
        if all(self.columns.name(what) in self.present for what in NEEDED):
            return self.columns
        with readable(self.path):
            head = self._scan[0].head(self.batch).collect()
        return settle(self.columns, head, str(self.path), whole=False)

    def check(self) -> Check:
        """Return a check of this table's parts; refuse a missing column at once."""
        return Check(self._scan[1], self.settled, self.missing, self.present)

    @cached_property
    def present(self) -> list[str]:
        """The table's columns."""
        with readable(self.path):
            return self._scan[0].collect_schema().names()

    @property
    def meaningful(self) -> list[str]:
        """The columns that are used."""
        others = [name for name, _ in self.settled.others]
        return list(dict.fromkeys([*self.settled.used(self.present).values(), *others]))

    @property
    def like_source(self) -> list[str]:
        """The columns that are not used, although their name suggests a source."""
        return self.settled.like_source(self.present)

    def frames(self, columns: list[str] | None = None) -> Iterator[pl.DataFrame]:
        """Yield the table in its own order, at most a batch of rows at a time; all columns, or some.

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
        """Return what changes when the file does, without reading it."""
        _, place = self._scan
        return file_version(Path(place.path))

    @cached_property
    def _scan(self) -> tuple[pl.LazyFrame, Place]:
        with readable(self.path):
            return scan(self.path, self.columns.names)


@dataclass(frozen=True)
class Contents:
    """A table that a first pass has checked whole, and what is kept of that pass."""

    table: Table
    rows: int
    digest: str
    version: Version

    def names(self) -> Names:
        """Return every id and source, and what every row holds, in table order."""
        present, columns = self.table.present, self.table.settled
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


class _Owners:
    """Whose rows a table holds: the site's own, and of the others the alphabetically first and last."""

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
    """Text values sorted on disk, to find one that occurs more than once."""

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
        """Return the alphabetically first value that was added more than once."""
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
