"""One logged answer and tables of them: question, evidence, response, label, and where it came from.

A user's own JSON lines or Parquet needs `evidence` and `response`; `question`, `loss`, `id`, `source`, `site`, `group`,
`generator` are used when there.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import IO, Any

import polars as pl

from fedsrc.errors import FedsrcError


@dataclass(frozen=True)
class Answer:
    """A response with the evidence it should rest on. `loss` is 1 for unsupported, 0 for supported, None if unlabelled.

    `span_fraction` is the share of the response's characters that annotators marked as unsupported.
    """

    id: str
    source: str
    evidence: str
    response: str
    question: str = ""
    loss: float | None = None
    span_fraction: float | None = None
    generator: str = "unknown"
    group: str = ""
    site: str = ""
    split: str = ""


TEXT = {"id", "source", "evidence", "response", "question", "generator", "group", "site", "split"}
NUMBER = {"loss", "span_fraction"}


def read_answers(path: Path) -> list[Answer]:
    """A user's own answers: JSON lines (.jsonl, .ndjson, also .gz) or Parquet, checked row by row."""
    answers = [answer_of(row, where) for where, row in _rows(path)]
    if not answers:
        raise FedsrcError("there are no answers in it", where=str(path))
    seen: set[str] = set()
    for answer in answers:
        if answer.id in seen:
            raise FedsrcError(f"id {answer.id!r} stands twice", where=str(path), hint="ids must be unique")
        seen.add(answer.id)
    return answers


def answer_of(row: dict[str, Any], where: str) -> Answer:
    """A checked answer; `where` names the row and stands in for a missing id."""
    for name in ("evidence", "response"):
        if not isinstance(row.get(name), str) or not row[name].strip():
            raise FedsrcError(f"{name} is missing or empty", where=where, hint=f"every answer needs a text {name!r}")
    known = {field.name for field in fields(Answer)}
    values: dict[str, Any] = {"id": where, "source": row.get("id", where)}
    values |= {name: row[name] for name in known & row.keys() if row[name] is not None}
    for name in TEXT & values.keys():
        values[name] = _text(values[name], name, where)
    for name in NUMBER & values.keys():
        values[name] = _fraction(values[name], name, where)
    return Answer(**values)


def write_answers(path: Path, answers: Iterable[Answer]) -> None:
    """Answers as JSON lines."""
    with path.open("w", encoding="utf-8") as file:
        for answer in answers:
            file.write(json.dumps(asdict(answer), ensure_ascii=False) + "\n")


def json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Objects of a JSON-lines file, plain or gzipped, each with its place."""
    try:
        with _open(path) as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield f"{path} line {number}", _object(line, f"{path} line {number}")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise FedsrcError(f"cannot be read: {error}", where=str(path)) from error


def _open(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    return path.open(encoding="utf-8")


def _object(line: str, where: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FedsrcError("not a JSON object", where=where) from error
    if not isinstance(value, dict):
        raise FedsrcError("not a JSON object", where=where)
    return value


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    if path.suffix == ".parquet":
        try:
            frame = pl.read_parquet(path)
        except (pl.exceptions.PolarsError, OSError) as error:
            raise FedsrcError(f"cannot be read as Parquet: {error}", where=str(path)) from error
        yield from ((f"{path} row {i}", row) for i, row in enumerate(frame.iter_rows(named=True), start=1))
        return
    if path.suffix in (".jsonl", ".ndjson") or path.suffixes[-2:] in ([".jsonl", ".gz"], [".ndjson", ".gz"]):
        yield from json_lines(path)
        return
    raise FedsrcError(f"unknown kind of file {path.suffix!r}", where=str(path), hint="use .jsonl or .parquet")


def _text(value: Any, name: str, where: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise FedsrcError(f"{name} is not text", where=where)


def _fraction(value: Any, name: str, where: str) -> float:
    if isinstance(value, bool | int | float) and not math.isnan(value) and 0 <= value <= 1:
        return float(value)
    raise FedsrcError(f"{name} {value!r} is not a number in [0, 1]", where=where)
