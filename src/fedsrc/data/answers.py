"""One logged answer and files of them: question, evidence, response, label, and where it came from.

A user's own JSON lines or Parquet needs `evidence` and `response`; `question`, `loss`, `id`, `source`, `site`, `group`,
`generator`, `factual` and `spans` (places of unsupported text, [[start, end], ...]) are used when there. A row without
an id is named after the file and its place in it.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import IO, Any

import polars as pl

from fedsrc.common.durable import check_regular
from fedsrc.common.parquet import UNREADABLE, check_unpacked
from fedsrc.errors import FedsrcError


@dataclass(frozen=True)
class Answer:
    """A response with the evidence it should rest on. `loss` is 1 for unsupported, 0 for supported, None if unlabelled.

    `spans` are the places of its characters that annotators marked as unsupported, `span_fraction` their share.
    `factual` is 1 if what it says is true, whether or not the evidence says so, 0 if not, None if nobody judged that.
    """

    id: str
    source: str
    evidence: str
    response: str
    question: str = ""
    loss: float | None = None
    span_fraction: float | None = None
    spans: tuple[tuple[int, int], ...] = ()
    generator: str = "unknown"
    group: str = ""
    site: str = ""
    split: str = ""
    factual: float | None = None
    scores: tuple[tuple[str, float | None], ...] = ()  # of a log's judges, by column


@dataclass(frozen=True)
class Span:
    """A stretch of a response that annotators marked, as the collection gives it; its places are not checked yet.

    `implicit_true`: correct, but not in the evidence. `due_to_null`: about a field that the evidence leaves empty.
    """

    start: int
    end: int
    text: str | None = None
    implicit_true: bool = False
    due_to_null: bool = False


@dataclass(frozen=True)
class Notes:
    """What a collection says of an answer beyond its label: marked spans, a word on the response's quality, how it was
    decoded, and the digest of the prompt that it answers."""

    spans: tuple[Span, ...] = ()
    quality: str = ""
    decoding: str = ""
    prompt: str = ""


TEXT = {"id", "source", "evidence", "response", "question", "generator", "group", "site", "split"}
NUMBER = {"loss", "span_fraction", "factual"}


def read_answers(path: Path) -> list[Answer]:
    """Read a user's own answers: JSON lines (.jsonl, .ndjson, also .gz) or Parquet, checked row by row."""
    answers = [answer_of(row, where, path.name + where.removeprefix(str(path))) for where, row in _rows(path)]
    if not answers:
        raise FedsrcError("there are no answers in it", where=str(path))
    check_ids(answers, str(path))
    return answers


def check_ids(answers: Iterable[Answer], where: str) -> None:
    """Refuse an id that occurs twice."""
    seen: set[str] = set()
    for answer in answers:
        if answer.id in seen:
            raise FedsrcError(f"id {answer.id!r} occurs twice", where=where, hint="ids must be unique")
        seen.add(answer.id)


def answer_of(row: dict[str, Any], where: str, name: str | None = None) -> Answer:
    """Check a row; `where` names it in errors, and `name` (or `where`) stands in for a missing id."""
    for field in ("evidence", "response"):
        if not isinstance(row.get(field), str) or not row[field].strip():
            raise FedsrcError(f"{field} is missing or empty", where=where, hint=f"every answer needs a text {field!r}")
    known = {each.name for each in fields(Answer)} - {"scores"}
    given = {field: row[field] for field in known & row.keys() if row[field] not in (None, "")}
    key = given.get("id", where if name is None else name)
    values: dict[str, Any] = {"id": key, "source": key, **given}
    for field in TEXT & values.keys():
        values[field] = text_of(values[field], field, where)
    for field in NUMBER & values.keys():
        values[field] = _fraction(values[field], field, where)
    if "spans" in values:
        values["spans"] = _places(values["spans"], len(row["response"]), where)
    return Answer(**values)


def answers_bytes(answers: Iterable[Answer], *, logged: bool = False) -> bytes:
    """Return the bytes of a file of answers. Those of a log have scores as columns, nothing for a question that is not
    there, and no column that is empty but for what people see: so the file is a table that can be certified."""
    rows = [asdict(answer) for answer in answers]
    for row in rows:
        row.update(row.pop("scores"), **({"question": row["question"] or None} if logged else {}))
    filled = {name for row in rows for name, value in row.items() if value or value == 0} | {"evidence", "response"}
    kept = [{name: row[name] for name in row if not logged or name in filled} for row in rows]
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in kept).encode()


def json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a JSON-lines file, plain or gzipped, each with its place."""
    check_regular(path)
    try:
        with _open(path) as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield f"{path} line {number}", json_object(line, f"{path} line {number}")
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise FedsrcError(f"cannot be read: {error}", where=str(path)) from error


def _open(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig")
    return path.open(encoding="utf-8-sig")


def json_object(line: str | bytes, where: str, problem: str = "not a JSON object") -> dict[str, Any]:
    """Parse a line that must hold a JSON object."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise FedsrcError(problem, where=where)
    return value


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    if path.suffix == ".parquet":
        try:
            check_unpacked(path)
            frame = pl.read_parquet(path)
        except (*UNREADABLE, OSError, ValueError) as error:
            raise FedsrcError(f"cannot be read as Parquet: {error}", where=str(path)) from error
        yield from ((f"{path} row {i}", row) for i, row in enumerate(frame.iter_rows(named=True), start=1))
        return
    if path.suffix in (".jsonl", ".ndjson") or path.suffixes[-2:] in ([".jsonl", ".gz"], [".ndjson", ".gz"]):
        yield from json_lines(path)
        return
    raise FedsrcError(f"unknown kind of file {path.suffix!r}", where=str(path), hint="use .jsonl or .parquet")


def text_of(value: Any, name: str, where: str) -> str:
    """Return a field's text, of a whole number its digits; refuse anything else, and broken Unicode."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**100:
        return f"{value:d}"
    if not isinstance(value, str):
        raise FedsrcError(f"{name} is not text", where=where)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise FedsrcError(f"{name} holds half a character (a lone surrogate)", where=where) from error
    return value


def _fraction(value: Any, name: str, where: str) -> float:
    if isinstance(value, bool | int | float) and 0 <= value <= 1:  # false for NaN
        return float(value)
    shown = repr(value)[:40] if isinstance(value, str | int | float) else f"({type(value).__name__})"
    raise FedsrcError(f"{name} {shown} is not a number in [0, 1]", where=where)


def _places(value: Any, length: int, where: str) -> tuple[tuple[int, int], ...]:
    """Check [start, end) places inside a response."""
    if not isinstance(value, list):
        raise FedsrcError("spans is not a list", where=where, hint="give [[start, end], ...]")
    for span in value:
        whole = isinstance(span, list) and len(span) == 2 and all(type(each) is int for each in span)
        if not whole or not 0 <= span[0] < span[1] <= length:
            raise FedsrcError(f"{span!r} is not a place in the response", where=where, hint="give [[start, end], ...]")
    return tuple((start, end) for start, end in value)
