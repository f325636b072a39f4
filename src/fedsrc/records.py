"""Labelled records: reading a table, refusing what is not one, and dealing it into units per site.

A table has a score and a loss in [0, 1] per row, and optionally a site, a source, a group and an id. A unit is what
privacy protects and independence is assumed of: one record, or one source with all its answers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedsrc.errors import FedsrcError

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]
Unit = Literal["record", "source"]
Missing = Literal["refuse", "keep"]
LOCAL_SITE = "local"
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
        if self.site_names not in ((LOCAL_SITE,), (site,)):
            other = next(name for name in self.site_names if name != site)
            raise FedsrcError(
                f"the table has rows of site {other!r}", hint=f"give site {site!r} a table of its own rows alone"
            )
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
    frame, place = _read_frame(path)
    for column in (names.score, names.loss):
        if column not in frame.columns:
            raise FedsrcError(
                f"no column {column!r}; the table has {', '.join(map(repr, frame.columns)) or 'none'}",
                where=str(path),
                hint="name the columns with --score-column and --loss-column",
            )
    if frame.height == 0:
        raise FedsrcError(
            "the table has no rows", where=str(path), hint="it needs labelled records with score and loss"
        )
    score = _unit_interval(frame[names.score], "score", place, missing, MISSING_SCORE)
    loss = _unit_interval(frame[names.loss], "loss", place, missing, 1.0)
    site, site_names = _codes(frame, names.site, place) or (np.zeros(frame.height, np.int64), (LOCAL_SITE,))
    source = _codes(frame, names.source, place)
    ids = _codes(frame, names.id, place)
    if ids is not None and len(ids[1]) < frame.height:
        repeated = np.flatnonzero(np.bincount(ids[0]) > 1)[0]
        raise FedsrcError(
            f"id {ids[1][repeated]!r} stands in more than one row",
            where=str(path),
            hint="ids must be unique; several answers of one source share a 'source', not an 'id'",
        )
    groups = _codes(frame, names.group, place)
    return Records(
        digest=file_digest(path),
        score=score,
        loss=loss,
        site=site,
        site_names=site_names,
        source=None if source is None else source[0],
        source_names=() if source is None else source[1],
        ids=None if ids is None else [ids[1][code] for code in ids[0]],
        groups=() if groups is None else groups[1],
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
        raise FedsrcError(
            "some sources have several answers, so records are not independent",
            where=where,
            hint="--unit source makes the source the unit; --unit record asserts that records are independent",
        )
    return "record"


def shuffled(count: int, seed: int) -> Positions:
    """A permutation of range(count) that only the seed decides, on every machine and numpy version.

    numpy promises stable raw bit streams, not stable permutations, so the raw stream is sorted.
    """
    keys = np.random.PCG64(seed).random_raw(count)
    return np.argsort(np.asarray(keys, dtype=np.uint64), kind="stable").astype(np.int64)


def public_seed(purpose: str) -> int:
    """A fixed seed per purpose. It must not depend on the table: changing one unit would then move all the others."""
    return int(hashlib.sha256(f"fedsrc: {purpose}".encode()).hexdigest()[:15], 16)


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True)
class _Place:
    """Turns a row number into words: line 812 of a text file, row 811 of a Parquet file."""

    path: Path
    word: Literal["line", "row"]
    first: int

    def row(self, index: int) -> str:
        return f"{self.path} {self.word} {index + self.first}"


def _read_frame(path: Path) -> tuple[pl.DataFrame, _Place]:
    """The table, and how its rows are counted."""
    suffix = path.suffix.lower()
    if not path.is_file():
        raise FedsrcError("there is no such file", where=str(path))
    try:
        if suffix == ".parquet":
            return pl.read_parquet(path), _Place(path, "row", 1)
        if suffix in (".jsonl", ".ndjson"):
            return pl.read_ndjson(path, infer_schema_length=None), _Place(path, "line", 1)
        if suffix in (".csv", ".tsv"):
            separator = "\t" if suffix == ".tsv" else ","
            return pl.read_csv(path, separator=separator, infer_schema=False), _Place(path, "line", 2)
    except (pl.exceptions.PolarsError, OSError, ValueError) as error:
        raise FedsrcError(
            f"cannot be read as {suffix[1:]}: {_first_line(error)}",
            where=str(path),
            hint="every line needs the same number of fields" if suffix in (".csv", ".tsv") else None,
        ) from error
    raise FedsrcError(
        f"unknown kind of table {suffix!r}", where=str(path), hint="use .csv, .tsv, .parquet, .jsonl or .ndjson"
    )


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _unit_interval(column: pl.Series, what: str, place: _Place, missing: Missing, stand_in: float) -> Floats:
    """A column as floats in [0, 1]; the first value that is not one is named."""
    if column.dtype == pl.String:
        text = column.str.strip_chars()
        values = text.cast(pl.Float64, strict=False)
        empty = text.is_null() | (text == "")
        words = values.is_null() & ~empty
        if words.any():
            index = words.arg_max() or 0
            raise FedsrcError(f"{what} {text[index]!r} is not a number", where=place.row(index), hint=_bad_value(what))
    elif column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.Null):
        values = column.cast(pl.Float64)
    else:
        raise FedsrcError(f"column {column.name!r} holds {column.dtype}, not numbers", where=str(place.path))
    array = values.fill_null(float("nan")).to_numpy().astype(np.float64)
    absent = np.isnan(array)
    if absent.any() and missing == "refuse":
        index = int(np.argmax(absent))
        raise FedsrcError(f"{what} is missing or NaN", where=place.row(index), hint=_missing_value(what))
    outside = ~absent & ~((array >= 0) & (array <= 1))
    if outside.any():
        index = int(np.argmax(outside))
        raise FedsrcError(f"{what} {array[index]:g} is outside [0, 1]", where=place.row(index), hint=_bad_value(what))
    return np.where(absent, stand_in, array)


def _bad_value(what: str) -> str:
    return {
        "score": "rescale scores to [0, 1], higher meaning better supported",
        "loss": "a loss is 1 for an unsupported answer, 0 for a supported one, or a fraction between",
    }[what]


def _missing_value(what: str) -> str:
    meaning = "it is then never accepted" if what == "score" else "it then counts as unsupported"
    return f"complete the row, or pass --missing keep ({meaning})"


def _codes(frame: pl.DataFrame, name: str, place: _Place) -> tuple[Positions, tuple[str, ...]] | None:
    """A text column as codes into its sorted distinct values, or None where the table lacks it."""
    if name not in frame.columns:
        return None
    column = frame[name].cast(pl.String)
    if column.null_count():
        index = column.is_null().arg_max() or 0
        raise FedsrcError(f"{name} is empty", where=place.row(index), hint="fill it in, or leave the column out")
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
