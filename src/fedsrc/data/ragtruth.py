"""RAGTruth in its original format: `response.jsonl` and `source_info.jsonl` in one folder (plain or gzipped).

Labels are spans of the response that annotators marked. Any span makes the response unsupported (binary loss); the
share of marked characters is the graded loss. A response is factual if every span is `implicit_true`: correct, but not
in the evidence. Annotators judged no supported text as false, so without a span it counts as factual.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from fedsrc.common.canonical import digest_bytes
from fedsrc.data.answers import Answer, Notes, Span, check_ids, json_lines, text_of
from fedsrc.errors import FedsrcError

DAMAGED = "the line is damaged; fetch the file again"
HOTTEST = 100  # temperature


class Noted(NamedTuple):
    """An answer, and what the annotators said of it beyond the label."""

    answer: Answer
    notes: Notes


class _Source(NamedTuple):
    task: str
    question: str
    evidence: str
    prompt: str  # its digest, where the collection has it


def read_noted(folder: Path) -> list[Noted]:
    """Read responses with their sources, each with its spans and the annotators' note on its quality."""
    sources = _sources(find(folder, "source_info"))
    found = [_noted(row, sources, where) for where, row in json_lines(find(folder, "response"))]
    check_ids((each.answer for each in found), str(folder))
    if not found:
        raise FedsrcError("there are no responses in it", where=str(folder))
    return found


def evidence_of(source: dict[str, Any], where: str = "source_info") -> tuple[str, str]:
    """Return (question, evidence) of a source: passages for QA, the document for Summary, the record for Data2txt."""
    info = _field(source, "source_info", where)
    if isinstance(info, str):
        return "", text_of(info, "source_info", where)
    if not isinstance(info, dict):
        raise FedsrcError("source_info is neither text nor an object", where=where, hint=DAMAGED)
    if "passages" in info:
        return _text(info, "question", where), _text(info, "passages", where)
    try:
        record = json.dumps(info, ensure_ascii=False)
    except RecursionError as error:
        raise FedsrcError("source_info is nested too deep", where=where, hint=DAMAGED) from error
    return "", text_of(record, "source_info", where)


def find(folder: Path, name: str) -> Path:
    """Find `response` or `source_info` in the folder, plain or gzipped."""
    for suffix in (".jsonl", ".jsonl.gz"):
        if (folder / f"{name}{suffix}").is_file():
            return folder / f"{name}{suffix}"
    hint = "fetch RAGTruth (ParticleMedia/RAGTruth) and name its folder"
    raise FedsrcError(f"there is no {name}.jsonl", where=str(folder), hint=hint)


def _sources(path: Path) -> dict[str, _Source]:
    found: dict[str, _Source] = {}
    for where, row in json_lines(path):
        name = text_of(_field(row, "source_id", where), "source_id", where)
        if name in found:
            raise FedsrcError(f"source {name!r} occurs twice", where=where)
        prompt = "" if row.get("prompt") is None else digest_bytes(_text(row, "prompt", where).encode())
        found[name] = _Source(_text(row, "task_type", where), *evidence_of(row, where), prompt)
    return found


def _noted(row: dict[str, Any], sources: dict[str, _Source], where: str) -> Noted:
    name = text_of(_field(row, "source_id", where), "source_id", where)
    if name not in sources:
        raise FedsrcError(f"source {name!r} is not in source_info", where=where)
    source, response, spans = sources[name], _text(row, "response", where), _spans(row, where)
    places = [(span.start, span.end) for span in spans]
    answer = Answer(
        id=text_of(_field(row, "id", where), "id", where),
        source=name,
        question=source.question,
        evidence=source.evidence,
        response=response,
        loss=float(bool(spans)),
        span_fraction=marked_fraction(response, places),
        spans=_inside(response, places),
        generator=_text(row, "model", where),
        group=source.task,
        split=_text(row, "split", where),
        factual=float(all(span.implicit_true for span in spans)),
    )
    quality = _text(row, "quality", where) if row.get("quality") is not None else ""
    return Noted(answer, Notes(spans, quality, _decoding(row, where), source.prompt))


def _decoding(row: dict[str, Any], where: str) -> str:
    """Return how the response was drawn, as far as the collection says."""
    value = row.get("temperature")
    if value is None:
        return ""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= HOTTEST:
        raise FedsrcError(f"temperature is not a number from 0 to {HOTTEST}", where=where, hint=DAMAGED)
    return f"temperature {value:g}"


def _spans(row: dict[str, Any], where: str) -> tuple[Span, ...]:
    labels = _field(row, "labels", where)
    if not isinstance(labels, list) or not all(isinstance(label, dict) for label in labels):
        raise FedsrcError("labels is not a list of marked spans", where=where, hint=DAMAGED)
    return tuple(_span(label, f"{where}, span {number}") for number, label in enumerate(labels, start=1))


def _span(label: dict[str, Any], where: str) -> Span:
    for name in ("start", "end"):
        if type(_field(label, name, where)) is not int:
            raise FedsrcError(f"{name} is not a whole number", where=where, hint=DAMAGED)
    for name in ("implicit_true", "due_to_null"):
        if not isinstance(label.get(name, False), bool):
            raise FedsrcError(f"{name} is neither true nor false", where=where, hint=DAMAGED)
    return Span(
        start=label["start"],
        end=label["end"],
        text=_text(label, "text", where) if label.get("text") is not None else None,
        implicit_true=label.get("implicit_true", False),
        due_to_null=label.get("due_to_null", False),
    )


def _inside(response: str, places: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Cut places to those parts that lie in the response."""
    cut = ((max(0, first), min(len(response), last)) for first, last in places)
    return tuple((start, end) for start, end in cut if start < end)


def marked_fraction(response: str, places: Iterable[tuple[int, int]]) -> float:
    """Return the share of the response's characters inside at least one marked span."""
    marked = bytearray(len(response))
    for start, end in _inside(response, places):
        marked[start:end] = b"\x01" * (end - start)
    return sum(marked) / len(marked) if marked else 0.0


def _text(row: dict[str, Any], name: str, where: str) -> str:
    value = _field(row, name, where)
    if not isinstance(value, str):
        raise FedsrcError(f"{name} is not text", where=where, hint=DAMAGED)
    return text_of(value, name, where)


def _field(row: dict[str, Any], name: str, where: str) -> Any:
    if name not in row:
        raise FedsrcError(f"{name} is missing", where=where, hint="is this RAGTruth's file?")
    return row[name]
