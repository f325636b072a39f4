"""Evaluation events, as JSON lines or CSV: OpenTelemetry's, in OTLP or flat, and annotations of Phoenix and Langfuse.

An answer is what was evaluated: a span, or a trace. OpenTelemetry does not tell whether a person evaluated; its strings
are pinned here, because the convention still moves.
"""

from __future__ import annotations

import csv
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fedsrc.common.durable import check_regular
from fedsrc.data.answers import json_lines
from fedsrc.data.logs import SOURCE, Entry, Reading, Word, text_in
from fedsrc.errors import FedsrcError

NAME, VALUE, LABEL = (f"gen_ai.evaluation.{each}" for each in ("name", "score.value", "score.label"))
UNIT = ("gen_ai.conversation.id", "session.id", "user.id", "enduser.id", *SOURCE)
ASKED = ("gen_ai.input.messages", "gen_ai.retrieval.query.text", "input.value")
SAID = ("gen_ai.output.messages", "output.value")
FOUND = ("gen_ai.retrieval.documents", "retrieval.documents")  # the second in parts: .0.document.content
MODEL = ("gen_ai.response.model", "gen_ai.request.model", "llm.model_name")
OTLP = (("resourceLogs", "scopeLogs", "logRecords"), ("resourceSpans", "scopeSpans", "spans"))
PEOPLE = {"HUMAN": True, "LLM": False, "CODE": False, "ANNOTATION": True, "EVAL": False}


class _Item(NamedTuple):
    """A span, an event or an evaluation, under one form: its link and its attributes."""

    trace: str
    span: str
    attributes: dict[str, Any]
    human: bool | None = None


def is_events(path: Path) -> bool:
    """Whether a file holds events or spans, by its first line."""
    if not {".jsonl", ".ndjson", ".csv"} & set(path.suffixes):
        return False
    try:
        _, row = next(_lines(path), ("", {}))
    except FedsrcError:
        return False
    if {"evidence", "response"} <= row.keys():
        return False  # a file of answers, whatever else it holds
    linked = any(_link(row)) and ("attributes" in row or _kind(row) != "")
    return linked or NAME in row or any(outer in row for outer, *_ in OTLP)


def read_events(files: Iterable[Path], reading: Reading) -> tuple[list[Entry], Counter[str]]:
    """Read what was evaluated, with the texts of its span and the documents of its trace."""
    words, own, around, documents = (defaultdict[Any, Any](kind) for kind in (list, dict, dict, list))
    skipped = Counter[str]()
    for path in files:
        for where, row in _lines(path):
            for item in _items(row, where):
                name, key = item.attributes.get(NAME), (item.trace, item.span)
                if name is not None and (not isinstance(name, str) or not any(key)):
                    skipped["evaluations without a name, or without trace and span"] += 1
                    continue
                if name is not None:
                    words[key].append(_word(name, item))
                for into in (own[key], around[item.trace or key]):
                    into |= {each: value for each, value in item.attributes.items() if each not in into}
                documents[item.trace or key].append(_documents(item.attributes))
    found = [
        _entry(key, said, own[key], around[key[0] or key], documents[key[0] or key], reading)
        for key, said in words.items()
    ]
    skipped["spans and other events that nobody evaluated"] = len(own.keys() - words.keys())
    return found, skipped


def _lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of a file, each with its place."""
    if path.suffix != ".csv":
        yield from json_lines(path)
        return
    check_regular(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            for number, row in enumerate(csv.DictReader(file), start=1):
                yield f"{path} row {number}", {name: cell for name, cell in row.items() if name and cell}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FedsrcError(f"cannot be read: {error}", where=str(path)) from error


def _word(name: str, item: _Item) -> Word:
    value, label = item.attributes.get(VALUE), item.attributes.get(LABEL)
    return Word(name, label if value is None else value, item.human, label)


def _entry(
    key: tuple[str, str], words: Iterable[Word], own: dict[str, Any], around: dict[str, Any], documents: list[Any],
    reading: Reading,
) -> Entry:  # fmt: skip
    """Turn what was evaluated into an entry, by its own attributes and those around it in its trace."""
    return Entry(
        id="/".join(filter(None, key)),
        words=tuple(words),
        source=reading.source(own, UNIT) or reading.source(around, UNIT),
        question=text_in(_first(own, ASKED)),
        evidence=text_in(_documents(own) or [each for each in documents if each]),
        response=text_in(_first(own, SAID)),
        generator=text_in(_first(own, MODEL)) or "unknown",
    )


def _items(row: dict[str, Any], where: str) -> Iterator[_Item]:
    """Yield what a line holds."""
    outers = [names for names in OTLP if names[0] in row]
    if not outers:
        yield from _flat(row)
    for outer, scope, inner in outers:
        try:
            records = [each for one in row[outer] for two in one.get(scope, ()) for each in two.get(inner, ())]
            for record in records:
                link = _link(record)
                yield _Item(*link, _attributes(record))
                yield from (_Item(*link, _attributes(event)) for event in record.get("events", ()))
        except (AttributeError, TypeError, KeyError, RecursionError) as error:
            raise FedsrcError(f"is not OTLP: {outer} is not as it should be", where=where) from error


def _flat(row: dict[str, Any]) -> Iterator[_Item]:
    """Read a line that is one thing: as OpenTelemetry's exporters write it to a console, or an annotation."""
    attributes = row["attributes"] if isinstance(row.get("attributes"), Mapping) else {}
    kind, link, attributes = _kind(row), _link(row), {**row, **attributes}
    if kind:
        result = row["result"] if isinstance(row.get("result"), Mapping) else row
        attributes[NAME] = row.get("annotation_name", row.get("name"))
        attributes[LABEL] = result.get("label", row.get("stringValue"))
        attributes[VALUE] = result.get("score", row.get("value"))
    yield _Item(*link, attributes, PEOPLE.get(kind))
    for event in row["events"] if isinstance(row.get("events"), list) else ():
        if isinstance(event, Mapping) and isinstance(event.get("attributes"), Mapping):
            yield _Item(*link, {**event["attributes"]})


def _kind(row: Mapping[str, Any]) -> str:
    """Return who annotated, as Phoenix and Langfuse say it."""
    kind = row.get("annotator_kind", row.get("source"))
    return kind if isinstance(kind, str) and kind in (*PEOPLE, "API") else ""


def _link(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return the trace and the span that a thing is of, in hexadecimal digits alone."""
    context = row["context"] if isinstance(row.get("context"), Mapping) else row
    names = (("traceId", "trace_id"), ("spanId", "span_id", "observationId"))
    trace, span = (next((context[name] for name in each if isinstance(context.get(name), str)), "") for each in names)
    return trace.lower().removeprefix("0x"), span.lower().removeprefix("0x")


def _attributes(record: Mapping[str, Any]) -> dict[str, Any]:
    return {each["key"]: _any(each.get("value", {})) for each in record.get("attributes", ())}


def _any(value: Mapping[str, Any]) -> Any:
    """Return what OTLP wraps: whole numbers are text there."""
    kind: str
    inner: Any
    kind, inner = next(iter(value.items()), ("", None))
    if kind == "arrayValue":
        return [_any(each) for each in inner.get("values", ())]
    if kind == "kvlistValue":
        return {each["key"]: _any(each.get("value", {})) for each in inner.get("values", ())}
    return inner


def _first(attributes: Mapping[str, Any], names: Iterable[str]) -> Any:
    """Return the first attribute that is there; messages and documents are often JSON in text."""
    value = next((attributes[name] for name in names if attributes.get(name) not in (None, "")), None)
    if isinstance(value, str) and value[:1] in ("[", "{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _documents(attributes: Mapping[str, Any]) -> Any:
    """Return the documents of a span, in one attribute or in one for each."""
    ends = (f"{FOUND[1]}.", ".document.content")
    parts = [value for name, value in attributes.items() if name.startswith(ends[0]) and name.endswith(ends[1])]
    return _first(attributes, FOUND) or parts
