"""Labelled records: reading a table and refusing what is not one.

A table has a score and a loss in [0, 1] per row, and optionally a site, a source, a group and an id. A unit is what
privacy protects and independence is assumed of: one record, or one source with all its answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from fedsrc.common.canonical import file_digest
from fedsrc.common.label_words import plain_word
from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats
from fedsrc.protocol.scale import Scale
from fedsrc.records.cells import numbers, percents, stripped
from fedsrc.records.columns import NEEDED, ORDER, UNIT, Columns
from fedsrc.records.guess import settle, unclear
from fedsrc.records.order import Positions
from fedsrc.records.rows import Rows, content_digest, tidy
from fedsrc.records.scan import Place, check_version, file_version, readable, scan
from fedsrc.records.units import LOCAL_SITE, Records, Units

NO_GROUP = (
    "fill it in, for an answer of no listed group with any word that is not listed; leave the column out only where no"
    " groups are"
)
Missing = Literal["refuse", "keep"]
LabelState = Literal["there", "on demand", "none"]
NO_WORDS = pl.DataFrame(schema={"row": pl.UInt32, "word": pl.String})
MOST_WORDS = 8  # that one message names
MISSING_SCORE = -1.0  # below every threshold: bin 0


def read_records(
    path: Path, *, columns: Columns | None = None, missing: Missing = "refuse", labels: LabelState = "there"
) -> Records:
    """Read and check a CSV, Parquet or JSON-lines table; the first bad value is named with its line.

    On demand, some labels may be missing, and a table is known without them. Without labels every loss is 1, whatever
    the table holds.
    """
    names = columns or Columns()
    with readable(path):
        table, place = scan(path, names.names)
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
    names = settle(names, frame, str(place.path), labelled=labels == "there")
    loss, known = names.name("loss"), frame
    if labels != "there":
        known, digest = frame.drop(loss, strict=False), None
    if labels == "none" or (labels == "on demand" and names.loss is None and loss not in frame.columns):
        loss = "loss" if labels == "none" else loss
        frame = frame.with_columns(pl.lit(1.0 if labels == "none" else None, pl.Float64).alias(loss))
    read_as = replace(names, loss=None) if labels == "none" else names
    check = Check(place, read_as, missing, frame.columns, later=labels == "on demand")
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
        loss=np.ones(frame.height) if labels == "none" else np.where(np.isnan(part.loss), 1.0, part.loss),
        site=site,
        site_names=site_names,
        source=source,
        source_names=source_names,
        ids=None if ids is None else ids.to_list(),
        group=found["group"][0] if "group" in found else None,
        group_names=found["group"][1] if "group" in found else (),
        others=part.others,
        like_source=next((name for name in names.like_source(frame.columns) if repeats(comparable(frame[name]))), None),
        rows=Rows(known, labelled=labels == "there"),
        cut_by=names.cut_by(frame.columns if labels == "there" else known.columns),
        labelled=~np.isnan(part.loss) if labels == "on demand" else None,
        columns=names,
        words=tuple(sorted(check.words)),
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
    others: Floats | None = None  # further scores, (rows, scores)

    def units(self, rows: Positions) -> Units:
        """Return some rows as units, records one by one."""
        group, names = _codes(self.text["group"].gather(rows)) if "group" in self.text else (None, ())
        others = None if self.others is None else self.others[rows]
        start = np.arange(rows.size + 1, dtype=np.int64)
        return Units(start, self.score[rows], self.loss[rows], None, None, group, names, others)

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
        self._percent: bool | None = None  # whether scores have percent signs, once one was seen
        self._strange: dict[str, str] = {}  # labels that nobody knows, and where each stands first
        self.words: set[tuple[str, float]] = set()  # labels that are words, and the loss that each means

    def part(self, frame: pl.DataFrame) -> Part:
        """Check the next rows; missing values get a stand-in (NaN for a loss that comes later), bad ones are noted."""
        names, refuse = self._names, self._missing == "refuse"
        score = self._score(frame[names.name("score")], refuse=refuse)
        loss = self._loss(frame[names.name("loss")], refuse=refuse and not self._later)
        columns = {what: name for what, name in names.used(frame.columns).items() if what not in NEEDED}
        texts = {what: self._text(frame[name], what) for what, name in columns.items()}
        others = [self._other(frame[name], scale, refuse=refuse) for name, scale in names.others]
        self.rows += frame.height
        return Part(score, loss, texts, np.stack(others, axis=1) if others else None)

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
        if self._strange:
            (word, where), words = next(iter(self._strange.items())), ", ".join(map(repr, self._strange))
            told = f"say what each means, `unsupported={word!r}` or `supported={word!r}`: {words}"
            what = f"loss {word!r} is neither a number nor a label that fedsrc knows"
            self._note("loss", self.KIND, FedsrcError(what, where=where, hint=told, private=tuple(self._strange)))
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

    def _score(self, column: pl.Series, *, refuse: bool) -> Floats:
        """Return scores as floats in [0, 1], from the scale that they are written on."""
        scale, (array, words) = self._names.scale or UNIT, self._numbers(column, "score")
        if words.height:
            index, word = int(words["row"][0]), str(words["word"][0])
            self._note_row("score", self.KIND, index, f"score {word!r} is not a number", _bad_score(word), word)
            array[words["row"].to_numpy()] = scale.worst
        if column.dtype == pl.String and self._signed(percents(column)):
            if {scale.worst, scale.best} == {0.0, 1.0}:
                array = array / 100.0
            elif {scale.worst, scale.best} != {0.0, 100.0}:
                hint = "write scores as they were registered, without percent signs"
                self._note_row("score", self.KIND, 0, f"score is a percentage, and not on the scale {scale}", hint)
        found = scale.unit(array)
        outside = f"the scale {scale}" if scale != UNIT else "[0, 1]"
        self._check_interval(found, array, "score", outside, refuse=refuse)
        return np.where(np.isnan(found), MISSING_SCORE, found)

    def _other(self, column: pl.Series, scale: Scale, *, refuse: bool) -> Floats:
        """Return a further score as floats in [0, 1]; it is written in plain numbers."""
        array, words = self._numbers(column, "score")
        signed = percents(column).fill_null(value=False)
        if words.height or signed.any():
            index = int(words["row"][0]) if words.height else signed.arg_max() or 0
            what = f"score {column[index]!r} of column {column.name!r} is not a plain number"
            self._note_row("score", self.KIND, index, what, "further scores are plain numbers", str(column[index]))
        found = scale.unit(array)
        interval = f"{'[0, 1]' if scale == UNIT else f'the scale {scale}'}, in column {column.name!r}"
        said = [f"{column.name}=0:100"]
        hint = f"if it is written otherwise, say the worst and the best it can be: `also_scores={said!r}`"
        self._check_interval(found, array, "score", interval, refuse=refuse, hint=hint)
        return np.where(np.isnan(found), MISSING_SCORE, found)

    def _signed(self, signs: pl.Series) -> bool:
        """Whether scores have percent signs, as the first one has; note one that has not, or has one beside it."""
        known = signs.drop_nulls()
        if self._percent is None and len(known):
            self._percent = bool(known[0])
        other = (signs != bool(self._percent)).fill_null(False)
        if other.any():
            hint = "write all scores in one way, with percent signs or without"
            what = f"score has {'no' if self._percent else 'a'} percent sign, unlike those before"
            self._note_row("score", self.KIND, other.arg_max() or 0, what, hint)
        return bool(self._percent)

    def _loss(self, column: pl.Series, *, refuse: bool) -> Floats:
        """Return losses as floats in [0, 1]: numbers, the right way round, and words."""
        names, (array, words) = self._names, self._numbers(column, "loss")
        found = 1.0 - array if names.one_is == "supported" else array.copy()
        signs = percents(column).fill_null(value=False)
        if signs.any():
            what, hint = "loss is a percentage, not a number in [0, 1]", _bad_value("loss")
            self._note_row("loss", self.KIND, signs.arg_max() or 0, what, hint)
        said = names.said_numbers
        for number, loss in said.items():
            found[array == number] = loss
        unsaid = ~np.isnan(array) & ~np.isin(array, [*said])
        if names.one_is is None and unsaid.any():
            hint = "`unsupported='1'` if 1 is unsupported, `unsupported='0'` if 0 is"
            self._note_row("loss", self.KIND, int(np.argmax(unsaid)), unclear(names.name("loss")), hint)
        for (word,), rows in words.group_by("word", maintain_order=True):
            meant, where = names.meaning(str(word)), rows["row"].to_numpy()
            found[where] = 0.0 if meant is None else meant
            if meant is not None:
                self.words.add((plain_word(str(word)), meant))
            elif len(self._strange) < MOST_WORDS:
                self._strange.setdefault(str(word), self._place.row(self.rows + int(where[0])))
        self._check_interval(found, array, "loss", "[0, 1]", refuse=refuse)
        return np.where(np.isnan(found), float("nan") if self._later else 1.0, found)

    def _check_interval(
        self, found: Floats, written: Floats, what: str, interval: str, *, refuse: bool, hint: str = ""
    ) -> None:
        """Note the first value that is missing, if that is refused, and the first that is outside [0, 1]."""
        absent = np.isnan(found)
        if refuse and absent.any():
            index = int(np.argmax(absent))
            self._note_row(what, self.MISSING, index, f"{what} is missing or NaN", _missing_value(what))
        outside = ~absent & ~((found >= 0) & (found <= 1))
        if outside.any():
            index = int(np.argmax(outside))
            words = f"{what} {written[index]:g} is outside {interval}"
            self._note_row(what, self.PLACE, index, words, hint or _bad_value(what))

    def _numbers(self, column: pl.Series, what: str) -> tuple[Floats, pl.DataFrame]:
        """Return a column as floats, NaN where it is empty, and the words in it: what they are and in which rows."""
        if not (column.dtype.is_numeric() or column.dtype in (pl.String, pl.Boolean, pl.Null)):
            self._note_kind(column, what, "numbers")
            return np.zeros(len(column)), NO_WORDS
        words = NO_WORDS
        if column.dtype == pl.String:
            found = pl.DataFrame({"word": stripped(column)}).with_row_index("row")
            strange = numbers(column).is_null()
            if what == "loss":  # 1% is neither 1 nor 0.01, until somebody says so
                strange |= found["word"].str.ends_with("%").fill_null(False)
            words = found.filter(found["word"].is_not_null() & strange)
        return numbers(column).fill_null(float("nan")).to_numpy().astype(np.float64), words

    def _text(self, column: pl.Series, what: str) -> pl.Series:
        """Return a column as text, ids and sources tidied; note its first empty value."""
        try:
            values = as_text(column.alias(what))  # the reader takes some names for patterns
            values = tidy(values) if what in ("id", "source", "group") else values
        except pl.exceptions.PolarsError:
            self._note_kind(column, what, "text")
            return pl.Series(what, [], dtype=pl.String)
        if values.null_count():
            index = values.is_null().arg_max() or 0
            hint = NO_GROUP if what == "group" else "fill it in, or leave the column out"
            self._note_row(what, self.MISSING, index, f"{column.name} is empty", hint)
        return values

    def _note_kind(self, column: pl.Series, what: str, wanted: str) -> None:
        words = f"column {column.name!r} holds {column.dtype}, not {wanted}"
        self._note(what, self.KIND, FedsrcError(words, where=str(self._place.path)))


def _bad_value(what: str) -> str:
    return {
        "score": "if scores are written otherwise, say the worst and the best they can be: `score_scale='0:100'`",
        "loss": "a loss is 1 for an unsupported answer, 0 for a supported one, or a fraction between",
    }[what]


def _bad_score(word: str) -> str:
    if re.fullmatch(r"[-+]?\d*,\d+", word):
        return f"write numbers with a point: {word.replace(',', '.')}"
    return "a score is a number"


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
