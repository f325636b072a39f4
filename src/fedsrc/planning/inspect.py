"""What a table looks like to whoever has it, before anything is decided: nothing is spent or written."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fedsrc.common.words import count, plain
from fedsrc.errors import FedsrcError, UndecidedError
from fedsrc.planning.labels import development_labels
from fedsrc.planning.register import development_part
from fedsrc.protocol.scale import Scale
from fedsrc.records.columns import ORDER, Columns
from fedsrc.records.guess import settle
from fedsrc.records.scan import readable, scan
from fedsrc.records.table import Missing, collect_records
from fedsrc.records.units import Records, check_unit

BARE = ("score", "loss", "site", "group")  # by which rows are not told apart
PART = 0.2  # of the table: the share that `certify` sets apart, and the only one whose scores are held against labels
MOST_LABELS = 12


@dataclass(frozen=True)
class Inspection:
    """What a table is: how it is stored and read, what is odd about it, and what only its owner can say.

    `settings` are the options under which it is read, `open` what is asked, each with the options that answer it.
    """

    written: str
    rows: int
    columns: dict[str, str]
    unused: list[str]
    labels: dict[str, int]
    scale: str | None
    scores: tuple[float, float] | None
    missing: dict[str, int]
    unsupported: float | None
    sources: dict[str, int]
    odd: list[str]
    open: list[dict[str, Any]]
    settings: dict[str, Any]


def inspect(path: Path, columns: Columns, missing: Missing = "refuse") -> Inspection:
    """Look at a table as `certify` would read it. What it would ask or refuse is listed instead."""
    with readable(path):
        table, place = scan(path, columns.names)
        frame = table.collect()
    questions, odd, records = list[dict[str, Any]](), list[str](), None
    read_as = columns
    while records is None:
        try:
            read_as = settle(read_as, frame, str(path))
            records = collect_records(frame.lazy(), place, read_as, missing)
        except UndecidedError as question:
            questions.append(_question(question))
            read_as = _answered(read_as, question)
        except FedsrcError as error:
            odd.append(str(error).removeprefix(str(path)).lstrip(": ").replace("\n", "; "))
            break
    found = Inspection(
        written=place.written, rows=frame.height, columns=read_as.used(frame.columns),
        unused=read_as.unused(frame.columns), labels=_labels(frame, read_as),
        scale=None if records is None else str(records.columns.scale), scores=None, missing=_missing(frame, read_as),
        unsupported=None, sources={}, odd=odd, open=questions, settings=_settings(columns, read_as, questions, missing),
    )  # fmt: skip
    return (
        found if records is None else _of_records(found, records, frame, read_as, path, said=columns.scale is not None)
    )


def _of_records(
    found: Inspection, records: Records, frame: pl.DataFrame, columns: Columns, path: Path, *, said: bool
) -> Inspection:
    """Add what only a table shows that can be read: its scores, its sources, and what is odd."""
    scored, odd, asked = records.score[records.score >= 0], [*found.odd, *copies_words(records)], [*found.open]
    settings, sources = dict(found.settings), dict[str, int]()
    for name in (columns.name("source"), *columns.like_source(frame.columns)):
        if name in frame.columns and frame[name].n_unique() < frame.height:
            sources[name] = frame[name].n_unique()
    try:
        check_unit(records, None, str(path))
    except FedsrcError as error:
        if sources:
            name = next(iter(sources))
            answers = {f"answers of one {name} belong together": "source", "all answers are independent": "record"}
            asked.append({"what": error.what, "argument": "unit", "answers": answers})
            settings["source_column"] = None if name == "source" else name
    if scored.size and np.ptp(scored) == 0:
        odd.append("all scores are equal")
    if np.ptp(records.loss) == 0:
        odd.append("all labels are the same")
    if not {"score_scale", "unsupported"} & {each["argument"] for each in asked}:
        try:
            part = development_part(records, "record", PART)
            warning = development_labels(records, part, "record").check(records, str(path), said=said)
            odd += [] if warning is None else [warning]
        except UndecidedError as question:
            asked.append(_question(question))
            settings.pop("score_scale", None)  # it was found by its values, and the labels speak against it
        except FedsrcError as error:
            odd.append(error.what)
    shown = (records.columns.scale or Scale()).value
    ends = (shown(float(scored.min())), shown(float(scored.max()))) if scored.size else None
    return replace(
        found, scores=None if ends is None else (min(ends), max(ends)), unsupported=float(records.loss.mean()),
        sources=sources, odd=odd, open=asked, settings=settings,
    )  # fmt: skip


def _question(question: UndecidedError) -> dict[str, Any]:
    return {"what": question.what, "argument": question.argument, "answers": question.answers}


def copies_words(records: Records) -> list[str]:
    """Say how many rows are copies of others, where rows hold more than scores and labels, and there are many kinds of
    them: elsewhere equal rows are no sign."""
    counts = records.row_counts
    if records.copies > 1:
        return [f"every row stands in the table {records.copies} times"]
    extra = int(counts.sum() - counts.size)
    bare = sum(
        records.rows is not None and records.rows.column(records.columns.name(what)) is not None for what in BARE
    )
    told_apart = records.rows is not None and records.rows.width > bare and counts.size * 3 >= counts.sum()
    if not extra or not told_apart:
        return []
    return [
        f"{count(extra, 'row')} repeat others letter for letter: if they are copies of the same answers, delete them"
    ]


def _answered(columns: Columns, question: UndecidedError) -> Columns:
    """Take an answer, to look further: the one that leaves a score and its labels as they are written."""
    first, *_, last = question.answers.values()
    if question.argument == "score_scale":
        return replace(columns, scale=Scale.of(last))
    if question.argument == "unsupported":
        return replace(columns, unsupported=(*columns.unsupported, first))
    name = question.argument.removesuffix("_column")
    return replace(columns, score=first) if name == "score" else replace(columns, loss=first)


def _labels(frame: pl.DataFrame, columns: Columns) -> dict[str, int]:
    """Count the labels, if they are few."""
    name = columns.name("loss")
    if name not in frame.columns or frame[name].n_unique() > MOST_LABELS:
        return {}
    counts = frame[name].cast(pl.String, strict=False).drop_nulls().value_counts(sort=True, name="rows")
    return {plain(str(label)): int(rows) for label, rows in counts.iter_rows()}


def _missing(frame: pl.DataFrame, columns: Columns) -> dict[str, int]:
    used = {what: name for what, name in columns.used(frame.columns).items() if frame[name].null_count()}
    return {what: frame[name].null_count() for what, name in used.items()}


def _settings(asked: Columns, found: Columns, questions: list[dict[str, Any]], missing: Missing) -> dict[str, Any]:
    """Return what to say to read the table so again; not what only its owner can answer."""
    left = {each["argument"] for each in questions}
    settings: dict[str, Any] = {}
    for what in ORDER:
        name = getattr(found, what)
        if name is not None and name != what and f"{what}_column" not in left:
            settings[f"{what}_column"] = name
    if found.scale not in (None, Scale()) and not {"score_scale", "score_column"} & left:
        settings["score_scale"] = str(found.scale)
    for end in ("unsupported", "supported"):
        if words := getattr(asked, end):
            settings[end] = list(words)
    return settings | ({"missing": missing} if missing != "refuse" else {})
