"""Labelled records: reading a table and refusing what is not one.

A table has a score and a loss in [0, 1] per row, and optionally a site, a source, a group and an id. A unit is what
privacy protects and independence is assumed of: one record, or one source with all its answers.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from fedsrc.common.canonical import file_digest
from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats
from fedsrc.records.order import Positions
from fedsrc.records.rows import Rows, content_digest, tidy
from fedsrc.records.scan import SEPARATORS, Place, check_version, file_version, readable, scan
from fedsrc.records.units import LOCAL_SITE, Records

Missing = Literal["refuse", "keep"]
LabelState = Literal["there", "on demand", "none"]
ORDER = ("score", "loss", "site", "source", "id", "group")
NEEDED = ("score", "loss")
MISSING_SCORE = -1.0  # below every threshold: bin 0
SOURCE_NAME = re.compile(  # what people call the thing that several answers share
    r"(source|question|query|prompt|document|doc|article|passage|patient|person|user|customer|session|conversation"
    r"|dialogue|dialog|thread|chat|encounter|ticket|case|account|context|call|email|claim|order)s?"
    r"(id|ids|no|nr|num|number|key|name|uuid|hash|text|)"
)


@dataclass(frozen=True)
class Columns:
    """What the table's columns are called. One that is named must be there; one that is not (None) goes by its own
    word, and may be absent."""

    score: str | None = None
    loss: str | None = None
    site: str | None = None
    source: str | None = None
    group: str | None = None
    id: str | None = None

    def name(self, what: str) -> str:
        """Return the name of a column."""
        return getattr(self, what) or what

    def check(self, present: Collection[str], where: str) -> None:
        """Refuse a table that lacks a column which is needed, or which somebody named."""
        for what in ORDER:
            name = self.name(what)
            if name not in present and (what in NEEDED or getattr(self, what)):
                raise FedsrcError(
                    f"no column {name!r} (`{what}_column=`); the table has {', '.join(map(repr, present)) or 'none'}",
                    where=where,
                    hint=_other_name(name, what, present),
                )
            if what not in NEEDED and name in (self.name("score"), self.name("loss")):
                raise FedsrcError(
                    f"column {name!r} is the score or the loss, and cannot be the {what} (`{what}_column=`) too",
                    where=where,
                )

    def used(self, present: Collection[str]) -> dict[str, str]:
        """Return the name of each column that is used."""
        return {what: self.name(what) for what in ORDER if self.name(what) in present}

    def cut_by(self, present: Collection[str]) -> str:
        """Return the columns that decide units, sites, scores and losses, as a ledger remembers them."""
        return json.dumps({what: name for what, name in self.used(present).items() if what != "group"})

    def unused(self, present: Collection[str]) -> list[str]:
        """Return the columns that are not used."""
        used = set(self.used(present).values())
        return [name for name in present if name not in used]

    def like_source(self, present: Collection[str]) -> list[str]:
        """Return the columns that are not used, although their name suggests a source."""
        return [name for name in self.unused(present) if SOURCE_NAME.fullmatch(re.sub(r"[\W_]+", "", name.lower()))]


def read_records(
    path: Path, *, columns: Columns | None = None, missing: Missing = "refuse", labels: LabelState = "there"
) -> Records:
    """Read and check a CSV, Parquet or JSON-lines table; the first bad value is named with its line.

    On demand, some labels may be missing, and a table is known without them. Without labels every loss is 1, whatever
    the table holds.
    """
    names = columns or Columns()
    with readable(path):
        table, place = scan(path)
    return collect_records(table, place, names, missing, labels=labels)


def collect_records(
    table: pl.LazyFrame, place: Place, names: Columns, missing: Missing, *, labels: LabelState = "there"
) -> Records:
    """Read and check a table that was scanned."""
    path = Path(place.path)
    with readable(path):
        version = file_version(path)
        frame = table.collect()
    found = _checked(frame, place, names, missing, labels, lambda: file_digest(path))
    check_version(path, version)
    return found


def frame_records(
    frame: pl.DataFrame, *, columns: Columns | None = None, missing: Missing = "refuse", name: str = "the table",
    labels: LabelState = "there",
) -> Records:  # fmt: skip
    """Check a table in memory, which is known by its content, as `read_records` checks a file; the first bad value is
    named with its row."""
    return _checked(frame, Place(name, "row", 1), columns or Columns(), missing, labels)


def _checked(
    frame: pl.DataFrame, place: Place, names: Columns, missing: Missing, labels: LabelState,
    digest: Callable[[], str] | None = None,
) -> Records:  # fmt: skip
    """Check a table whose digest is that of its file, or else of what it holds. Labels that come later change neither
    the table nor its rows."""
    loss, known = names.name("loss"), frame
    if labels != "there":
        known, digest = frame.drop(loss, strict=False), None
    if labels == "none" or (labels == "on demand" and names.loss is None and loss not in frame.columns):
        frame = frame.with_columns(pl.lit(1.0 if labels == "none" else None, pl.Float64).alias(loss))
    check = Check(place, names, missing, frame.columns, later=labels == "on demand")
    part = check.part(frame)
    ids = part.text.get("id")
    check.repeated_id(None if ids is None else _repeated(ids))
    check.finish()
    found = {what: _codes(column) for what, column in part.text.items() if what != "id"}
    site, site_names = found.get("site", (np.zeros(frame.height, np.int64), (LOCAL_SITE,)))
    source, source_names = found.get("source", (None, ()))
    return Records(
        digest=digest() if digest is not None else content_digest(known, part.named),
        score=part.score,
        loss=np.where(np.isnan(part.loss), 1.0, part.loss),
        site=site,
        site_names=site_names,
        source=source,
        source_names=source_names,
        ids=None if ids is None else ids.to_list(),
        groups=found["group"][1] if "group" in found else (),
        like_source=next((name for name in names.like_source(frame.columns) if repeats(comparable(frame[name]))), None),
        rows=Rows(known, labelled=labels == "there"),
        cut_by=names.cut_by(frame.columns if labels == "there" else known.columns),
        labelled=~np.isnan(part.loss) if labels == "on demand" else None,
    )


def comparable(column: pl.Series) -> pl.Series | None:
    """Return a column of text or whole numbers as text, without empty values; None for other columns."""
    if column.dtype.is_integer() or column.dtype in (pl.String, pl.Categorical, pl.Enum):
        return column.alias("value").cast(pl.String).drop_nulls()
    return None


def as_text(column: pl.Series) -> pl.Series:
    """Write names as text: where one of them has decimals, all are read as floats, and 7 must stay 7."""
    return column.cast(pl.String).str.strip_suffix(".0") if column.dtype.is_float() else column.cast(pl.String)


def repeats(column: pl.Series | None) -> bool:
    """Whether a column holds some value more than once."""
    return column is not None and bool(column.is_duplicated().any())


class Part(NamedTuple):
    """Rows of a table in its order; `text` holds what it has of site, source, id and group."""

    score: Floats
    loss: Floats
    text: dict[str, pl.Series]

    @property
    def named(self) -> dict[str, pl.Series]:
        """What makes units and sites."""
        return {what: column for what, column in self.text.items() if what != "group"}


class Check:
    """Checks a table, whole or part by part, and names the same bad value either way.

    Of all bad values that is the one in the first column of ORDER, first of the wrong kind, then out of place; after
    all columns come missing values; and of each kind the one in the first row. So nothing is said before `finish`,
    which names the first fault with its hint and the others beside it.
    """

    KIND, PLACE, MISSING = range(3)

    def __init__(
        self, place: Place, names: Columns, missing: Missing, present: Collection[str], *, later: bool = False
    ) -> None:
        names.check(present, str(place.path))
        self.rows = 0
        self._place, self._names, self._missing, self._later = place, names, missing, later
        self._found: dict[tuple[bool, int, int], FedsrcError] = {}

    def part(self, frame: pl.DataFrame) -> Part:
        """Check the next rows; missing values get a stand-in (NaN for a loss that comes later), bad ones are noted."""
        names, refuse = self._names, self._missing == "refuse"
        score = self._unit_interval(frame[names.name("score")], "score", MISSING_SCORE, refuse=refuse)
        stand_in = float("nan") if self._later else 1.0
        loss = self._unit_interval(frame[names.name("loss")], "loss", stand_in, refuse=refuse and not self._later)
        columns = {what: name for what, name in names.used(frame.columns).items() if what not in NEEDED}
        texts = {what: self._text(frame[name], what) for what, name in columns.items()}
        self.rows += frame.height
        return Part(score, loss, texts)

    def repeated_id(self, repeated: str | None) -> None:
        """Note the first id, in alphabetical order, that stands in more than one row."""
        if repeated is not None:
            what = f"id {repeated!r} stands in more than one row"
            hint = "ids must be unique; several answers of one source share a 'source', not an 'id'"
            self._note("id", self.PLACE, FedsrcError(what, where=str(self._place.path), hint=hint, private=(repeated,)))

    def finish(self) -> None:
        """After the last part: refuse the table if it is empty or anything in it is bad."""
        if self.rows == 0:
            raise FedsrcError(
                "the table has no rows",
                where=str(self._place.path),
                hint="it needs labelled records with score and loss",
            )
        if self._found:
            first, *others = (self._found[key] for key in sorted(self._found))
            also = "; ".join(f"{str(each.where).removeprefix(f'{self._place.path} ')}: {each.what}" for each in others)
            hint = f"{first.hint or ''}\nalso: {also}".strip() if also else first.hint
            private = tuple(name for each in (first, *others) for name in each.private)
            raise FedsrcError(first.what, where=first.where, hint=hint, private=private)

    def _note(self, what: str, kind: int, error: FedsrcError) -> None:
        self._found.setdefault((kind == self.MISSING, ORDER.index(what), kind), error)

    def _note_row(self, what: str, kind: int, index: int, words: str, hint: str, *private: str) -> None:
        where = self._place.row(self.rows + index)
        self._note(what, kind, FedsrcError(words, where=where, hint=hint, private=private))

    def _unit_interval(self, column: pl.Series, what: str, stand_in: float, *, refuse: bool) -> Floats:
        """Return a column as floats in [0, 1]; note the first value that is not."""
        array = self._floats(column, what)
        absent = np.isnan(array)
        if refuse and absent.any():
            index = int(np.argmax(absent))
            self._note_row(what, self.MISSING, index, f"{what} is missing or NaN", _missing_value(what))
        outside = ~absent & ~((array >= 0) & (array <= 1))
        if outside.any():
            index = int(np.argmax(outside))
            words = f"{what} {array[index]:g} is outside [0, 1]"
            self._note_row(what, self.PLACE, index, words, _bad_value(what))
        return np.where(absent, stand_in, array)

    def _floats(self, column: pl.Series, what: str) -> Floats:
        """Return a column as floats, NaN where it is empty; words are noted, and do not count as missing."""
        if column.dtype == pl.String:
            stripped = column.alias(what).str.strip_chars()
            values = stripped.cast(pl.Float64, strict=False)
            words = values.is_null() & stripped.is_not_null() & (stripped != "")
            if words.any():
                index = words.arg_max() or 0
                word = stripped[index]
                self._note_row(what, self.KIND, index, f"{what} {word!r} is not a number", _bad_word(what, word), word)
                values = values.set(words, 0.0)
        elif column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.Null):
            values = column.alias(what).cast(pl.Float64)
        else:
            self._note_kind(column, what, "numbers")
            return np.zeros(len(column))
        return values.fill_null(float("nan")).to_numpy().astype(np.float64)

    def _text(self, column: pl.Series, what: str) -> pl.Series:
        """Return a column as text, ids and sources tidied; note its first empty value."""
        try:
            values = as_text(column.alias(what))  # the reader takes some names for patterns
            values = tidy(values) if what in ("id", "source") else values
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


def _bad_word(what: str, word: str) -> str:
    if re.fullmatch(r"[-+]?\d*,\d+", word):
        return f"write numbers with a point: {word.replace(',', '.')}"
    return _bad_value(what)


def _other_name(name: str, what: str, present: Collection[str]) -> str:
    """Suggest what to do about a missing column."""
    if any(";" in each for each in present):
        return SEPARATORS
    near = difflib.get_close_matches(name, present, n=1)
    if near:
        return f"is it {near[0]!r}? `{what}_column={near[0]!r}`"
    names = [f"`{each}_column=`" for each in ("score", "loss", "site", "source", "id")]
    return f"name the columns with {', '.join(names[:-1])} and {names[-1]}"


def _missing_value(what: str) -> str:
    meaning = "it is then never accepted" if what == "score" else "it then counts as unsupported"
    return f"complete the row, or pass `missing='keep'` ({meaning})"


def _repeated(column: pl.Series) -> str | None:
    """Return the alphabetically first value that a column holds more than once."""
    found = column.filter(column.is_duplicated()).min()
    return None if found is None else str(found)


def _codes(column: pl.Series) -> tuple[Positions, tuple[str, ...]]:
    """Return a text column as codes into its sorted distinct values."""
    names = column.unique().sort()
    codes = column.cast(pl.Enum(names)).to_physical().to_numpy().astype(np.int64)
    return codes, tuple(names.to_list())
