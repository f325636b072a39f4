"""Labelled records: reading a table, refusing what is not one, and dealing it into units per site.

A table has a score and a loss in [0, 1] per row, and optionally a site, a source, a group and an id. A unit is what
privacy protects and independence is assumed of: one record, or one source with all its answers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedsrc.canonical import file_digest
from fedsrc.errors import FedsrcError

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]
Keys = NDArray[np.uint64]
Unit = Literal["record", "source"]
Missing = Literal["refuse", "keep"]
LOCAL_SITE = "local"
UNREADABLE = (pl.exceptions.PolarsError, pl.exceptions.PanicException)  # a damaged file can make polars panic
MISSING_SCORE = -1.0  # below every threshold: bin 0


@dataclass(frozen=True)
class Columns:
    """What the table's columns are called."""

    score: str = "score"
    loss: str = "loss"
    site: str = "site"
    source: str = "source"
    group: str = "group"
    id: str = "id"


@dataclass(frozen=True)
class Records:
    """A checked table. Rows keep the table's order; `site` and `source` are codes into the name lists."""

    digest: str
    score: Floats
    loss: Floats
    site: Positions
    site_names: tuple[str, ...]
    source: Positions | None
    source_names: tuple[str, ...]
    ids: Sequence[str] | None
    groups: tuple[str, ...] = ()

    def __len__(self) -> int:
        return self.score.size

    def at(self, site: str) -> Records:
        """The table as one site's own: without a site column all rows are; with one, all must be."""
        check_owner(self.site_names, site)
        return replace(self, site_names=(site,))

    @property
    def repeats_sources(self) -> bool:
        """Whether some source has more than one answer, so that records are not independent."""
        return self.source is not None and np.unique(self.source).size < len(self)


@dataclass(frozen=True)
class Units:
    """Units of one site: unit i owns answers start[i]:start[i+1] of `score` and `loss`. Never leaves the site."""

    start: Positions
    score: Floats
    loss: Floats
    ids: tuple[str, ...] | None

    def __len__(self) -> int:
        return self.start.size - 1

    def take(self, positions: Positions) -> Units:
        """The units at those positions, in that order."""
        sizes = np.diff(self.start)[positions]
        start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        rows = np.repeat(self.start[positions] - start[:-1], sizes) + np.arange(start[-1])
        ids = None if self.ids is None else tuple(self.ids[i] for i in positions)
        return Units(start, self.score[rows], self.loss[rows], ids)


def read_records(path: Path, *, columns: Columns | None = None, missing: Missing = "refuse") -> Records:
    """Read and check a CSV, Parquet or JSON-lines table; the first bad value is named with its line."""
    names = columns or Columns()
    with readable(path):
        table, place = scan(path)
        frame = table.collect()
    check = Check(place, names, missing, frame.columns)
    part = check.part(frame)
    ids = part.text.get("id")
    check.repeated_id(None if ids is None else _repeated(ids))
    check.finish()
    found = {what: _codes(column) for what, column in part.text.items() if what != "id"}
    site, site_names = found.get("site", (np.zeros(frame.height, np.int64), (LOCAL_SITE,)))
    source, source_names = found.get("source", (None, ()))
    return Records(
        digest=file_digest(path),
        score=part.score,
        loss=part.loss,
        site=site,
        site_names=site_names,
        source=source,
        source_names=source_names,
        ids=None if ids is None else ids.to_list(),
        groups=found["group"][1] if "group" in found else (),
    )


def units_of(
    records: Records, site: str, unit: Unit, *, max_answers: int = 1, keep: NDArray[np.bool_] | None = None
) -> Units:
    """One site's units. `keep` masks rows (the development part is left out); sources keep at most max_answers."""
    at_site = np.asarray([name == site for name in records.site_names])[records.site]
    rows = np.flatnonzero(at_site if keep is None else at_site & keep)
    if unit == "record":
        ids = None if records.ids is None else tuple(records.ids[i] for i in rows.tolist())
        return Units(np.arange(rows.size + 1, dtype=np.int64), records.score[rows], records.loss[rows], ids)
    rows, start = _by_source(records, rows, max_answers)
    names = tuple(records.source_names[code] for code in _source_codes(records)[rows[start[:-1]]])
    return Units(start, records.score[rows], records.loss[rows], names)


def unit_codes(records: Records, unit: Unit) -> Positions:
    """The unit each row belongs to, as codes 0..n-1."""
    return np.arange(len(records), dtype=np.int64) if unit == "record" else _source_codes(records)


def most_answers(records: Records, rows: NDArray[np.bool_]) -> int:
    """The largest number of answers that one source has among those rows."""
    return int(np.bincount(_source_codes(records)[rows]).max())


def unit_count(records: Records, unit: Unit) -> int:
    """How many units the table holds."""
    return len(records) if unit == "record" else len(records.source_names)


def check_unit(records: Records, unit: Unit | None, where: str) -> Unit:
    """The unit to use: as asked, or the record when that is plainly right; otherwise the user must decide."""
    if unit == "source":
        _source_codes(records)
        _one_site_per_source(records, where)
        return unit
    if unit is None and records.repeats_sources:
        raise several_answers(where)
    return "record"


def several_answers(where: str) -> FedsrcError:
    """The error for a table of records whose sources answer more than once."""
    return FedsrcError(
        "some sources have several answers, so records are not independent",
        where=where,
        hint="--unit source makes the source the unit; --unit record asserts that records are independent",
    )


def check_owner(names: tuple[str, ...], site: str) -> None:
    """Refuse a table, by its sorted site names, that holds other rows than one site's own."""
    if names not in ((LOCAL_SITE,), (site,)):
        other = next(name for name in names if name != site)
        raise FedsrcError(
            f"the table has rows of site {other!r}", hint=f"give site {site!r} a table of its own rows alone"
        )


def shuffled(count: int, seed: int) -> Positions:
    """A permutation of range(count) that only the seed decides, on every machine and numpy version: rows by key."""
    return np.argsort(key_stream(seed)(count), kind="stable").astype(np.int64)


def key_stream(seed: int) -> Callable[[int], Keys]:
    """The keys of rows 0, 1, 2, ..., so many with every call.

    numpy promises stable raw bit streams, not stable permutations, so the raw stream is sorted.
    """
    raw = np.random.PCG64(seed).random_raw
    return lambda count: np.asarray(raw(count), dtype=np.uint64)


def public_seed(purpose: str) -> int:
    """A fixed seed per purpose. It must not depend on the table: changing one unit would then move all the others."""
    return int(hashlib.sha256(f"fedsrc: {purpose}".encode()).hexdigest()[:15], 16)


@dataclass(frozen=True)
class Place:
    """Turns a row number into words: line 812 of a text file, row 811 of a Parquet file."""

    path: Path
    word: Literal["line", "row"]
    first: int

    def row(self, index: int) -> str:
        return f"{self.path} {self.word} {index + self.first}"


def scan(path: Path) -> tuple[pl.LazyFrame, Place]:
    """The table, not yet read, and how its rows are counted."""
    suffix = path.suffix.lower()
    if not path.is_file():
        raise FedsrcError("there is no such file", where=str(path))
    if suffix == ".parquet":
        return pl.scan_parquet(path, glob=False), Place(path, "row", 1)
    if suffix in (".jsonl", ".ndjson"):
        return pl.scan_ndjson(path, infer_schema_length=None), Place(path, "line", 1)
    if suffix in (".csv", ".tsv"):
        separator = "\t" if suffix == ".tsv" else ","
        return pl.scan_csv(path, separator=separator, infer_schema=False, glob=False), Place(path, "line", 2)
    raise FedsrcError(
        f"unknown kind of table {suffix!r}", where=str(path), hint="use .csv, .tsv, .parquet, .jsonl or .ndjson"
    )


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """While a table is read: what the reader cannot make sense of is an error that names the file."""
    suffix = path.suffix.lower()
    try:
        yield
    except (*UNREADABLE, OSError, ValueError) as error:
        raise FedsrcError(
            f"cannot be read as {suffix[1:]}: {_first_line(error)}",
            where=str(path),
            hint="every line needs the same number of fields" if suffix in (".csv", ".tsv") else None,
        ) from error


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


class Part(NamedTuple):
    """Rows of a table in its order; `text` holds what it has of site, source, id and group."""

    score: Floats
    loss: Floats
    text: dict[str, pl.Series]


class Check:
    """Checks a table, whole or part by part, and names the same bad value either way.

    Of all bad values that is the one in the first column of ORDER; there, first of the wrong kind, then missing, then
    out of place; and of these the one in the first row. So nothing is said before `finish`.
    """

    ORDER = ("score", "loss", "site", "source", "id", "group")
    KIND, MISSING, PLACE = range(3)

    def __init__(self, place: Place, names: Columns, missing: Missing, present: Collection[str]) -> None:
        for column in (names.score, names.loss):
            if column not in present:
                raise FedsrcError(
                    f"no column {column!r}; the table has {', '.join(map(repr, present)) or 'none'}",
                    where=str(place.path),
                    hint="name the columns with --score-column and --loss-column",
                )
        self.rows = 0
        self._place, self._names, self._missing = place, names, missing
        self._found: dict[tuple[int, int], FedsrcError] = {}

    def part(self, frame: pl.DataFrame) -> Part:
        """The next rows; what is missing has its stand-in, what is bad is noted."""
        names = self._names
        score = self._unit_interval(frame[names.score], "score", MISSING_SCORE)
        loss = self._unit_interval(frame[names.loss], "loss", 1.0)
        columns = {what: getattr(names, what) for what in self.ORDER[2:]}
        texts = {what: self._text(frame[name], what) for what, name in columns.items() if name in frame.columns}
        self.rows += frame.height
        return Part(score, loss, texts)

    def repeated_id(self, repeated: str | None) -> None:
        """Note the first id, in alphabetical order, that stands in more than one row."""
        if repeated is not None:
            what = f"id {repeated!r} stands in more than one row"
            hint = "ids must be unique; several answers of one source share a 'source', not an 'id'"
            self._note("id", self.PLACE, FedsrcError(what, where=str(self._place.path), hint=hint))

    def finish(self) -> None:
        """After the last part: refuse the table if it is empty or anything in it is bad."""
        if self.rows == 0:
            raise FedsrcError(
                "the table has no rows",
                where=str(self._place.path),
                hint="it needs labelled records with score and loss",
            )
        if self._found:
            raise self._found[min(self._found)]

    def _note(self, what: str, kind: int, error: FedsrcError) -> None:
        self._found.setdefault((self.ORDER.index(what), kind), error)

    def _note_row(self, what: str, kind: int, index: int, words: str, hint: str) -> None:
        self._note(what, kind, FedsrcError(words, where=self._place.row(self.rows + index), hint=hint))

    def _unit_interval(self, column: pl.Series, what: str, stand_in: float) -> Floats:
        """A column as floats in [0, 1]; the first value that is not one is noted."""
        array = self._floats(column, what)
        absent = np.isnan(array)
        if self._missing == "refuse" and absent.any():
            index = int(np.argmax(absent))
            self._note_row(what, self.MISSING, index, f"{what} is missing or NaN", _missing_value(what))
        outside = ~absent & ~((array >= 0) & (array <= 1))
        if outside.any():
            index = int(np.argmax(outside))
            words = f"{what} {array[index]:g} is outside [0, 1]"
            self._note_row(what, self.PLACE, index, words, _bad_value(what))
        return np.where(absent, stand_in, array)

    def _floats(self, column: pl.Series, what: str) -> Floats:
        """A column as floats, NaN where it is empty; words are noted."""
        if column.dtype == pl.String:
            stripped = column.alias(what).str.strip_chars()
            values = stripped.cast(pl.Float64, strict=False)
            words = values.is_null() & stripped.is_not_null() & (stripped != "")
            if words.any():
                index = words.arg_max() or 0
                self._note_row(what, self.KIND, index, f"{what} {stripped[index]!r} is not a number", _bad_value(what))
        elif column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.Null):
            values = column.alias(what).cast(pl.Float64)
        else:
            self._note_kind(column, what, "numbers")
            return np.full(len(column), np.nan)
        return values.fill_null(float("nan")).to_numpy().astype(np.float64)

    def _text(self, column: pl.Series, what: str) -> pl.Series:
        """A column as text; its first empty value is noted."""
        try:
            values = column.alias(what).cast(pl.String)  # the reader takes some names for patterns
        except pl.exceptions.PolarsError:
            self._note_kind(column, what, "text")
            return pl.Series(what, [], dtype=pl.String)
        if values.null_count():
            index = values.is_null().arg_max() or 0
            hint = "fill it in, or leave the column out"
            self._note_row(what, self.MISSING, index, f"{column.name} is empty", hint)
        return values

    def _note_kind(self, column: pl.Series, what: str, wanted: str) -> None:
        words = f"column {column.name!r} holds {column.dtype}, not {wanted}"
        self._note(what, self.KIND, FedsrcError(words, where=str(self._place.path)))


def _bad_value(what: str) -> str:
    return {
        "score": "rescale scores to [0, 1], higher meaning better supported",
        "loss": "a loss is 1 for an unsupported answer, 0 for a supported one, or a fraction between",
    }[what]


def _missing_value(what: str) -> str:
    meaning = "it is then never accepted" if what == "score" else "it then counts as unsupported"
    return f"complete the row, or pass --missing keep ({meaning})"


def _repeated(column: pl.Series) -> str | None:
    """The first value, in alphabetical order, that a column holds more than once."""
    found = column.filter(column.is_duplicated()).min()
    return None if found is None else str(found)


def _codes(column: pl.Series) -> tuple[Positions, tuple[str, ...]]:
    """A text column as codes into its sorted distinct values."""
    names = column.unique().sort()
    codes = column.cast(pl.Enum(names)).to_physical().to_numpy().astype(np.int64)
    return codes, tuple(names.to_list())


def _source_codes(records: Records) -> Positions:
    if records.source is None:
        raise FedsrcError("unit = 'source' needs a source column", hint="add a 'source' column, or use --unit record")
    return records.source


def _one_site_per_source(records: Records, where: str) -> None:
    pairs = np.unique(np.stack([_source_codes(records), records.site]), axis=1)
    if pairs.shape[1] > np.unique(pairs[0]).size:
        raise FedsrcError(
            "a source has answers at more than one site",
            where=where,
            hint="a source must live at one site: otherwise neither its privacy nor independence holds",
        )


def _by_source(records: Records, rows: Positions, max_answers: int) -> tuple[Positions, Positions]:
    """Rows grouped by source, at most max_answers each (picked by row number through a fixed stream), and starts."""
    source = _source_codes(records)[rows]
    blind = np.random.PCG64(public_seed("answers kept")).random_raw(len(records))[rows]
    order = np.lexsort((blind, source))
    rows, source = rows[order], source[order]
    first = np.flatnonzero(np.concatenate([[True], source[1:] != source[:-1]])) if rows.size else np.zeros(0, np.int64)
    rank = np.arange(rows.size) - np.repeat(first, np.diff(np.append(first, rows.size)))
    kept = rank < max_answers
    sizes = np.add.reduceat(kept.astype(np.int64), first) if rows.size else np.zeros(0, np.int64)
    return rows[kept], np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
