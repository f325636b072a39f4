"""Labels by file: what is to be labelled, out; people's words, in. CSV, JSON lines, or Label Studio's JSON.

A file is taken whole or not at all, and taken twice in a row it changes nothing.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from fedsrc.common.clock import utc_now
from fedsrc.common.durable import read_text, write_whole
from fedsrc.common.values import describe
from fedsrc.errors import FedsrcError
from fedsrc.labelling.queue import WORDS, Task, tidy_name
from fedsrc.labelling.texts import SHOWN, Text
from fedsrc.site.label_file import Label

MAX_BYTES = 1_000_000_000
FORMULA = re.compile(r"^(?='*[=+\-@\t\r])")  # spreadsheets compute such cells: they get a quote before them
QUOTED = re.compile(r"^'(?='*[=+\-@\t\r])")
CONFIG = """\
<View>
  <Header value="Question"/><Text name="question" value="$question"/>
  <Header value="Evidence"/><Text name="evidence" value="$evidence"/>
  <Header value="Answer"/><Text name="response" value="$response"/>
  <Header value="Does the evidence support the answer?"/>
  <Choices name="label" toName="response" choice="single" required="true" showInline="true">
    <Choice value="supported" hotkey="s"/><Choice value="unsupported" hotkey="u"/><Choice value="unsure" hotkey="n"/>
  </Choices>
</View>
"""


class Word(NamedTuple):
    """What a file says of an answer, and where in the file; `shown` is what it says of the texts."""

    answer: str
    loss: float | None
    by: str
    shown: Text | None
    where: str


def write_tasks(path: Path, tasks: Iterable[Task], texts: Mapping[str, Text]) -> list[Path]:
    """Write what is to be labelled; return the files made. The suffix names the format."""
    if path.exists():
        raise FedsrcError("exists already", where=str(path), hint="it may hold labels: take them, or name another file")
    rows = [{"id": task.answer, **asdict(texts[task.answer])} for task in tasks]
    written = {path: _form(path)[0](rows)}
    if path.suffix.lower() == ".json":
        written[path.with_suffix(".xml")] = CONFIG.encode()
    for place, data in written.items():
        write_whole(place, data, mode=0o600)
    return list(written)


def read_words(path: Path, by: str | None) -> list[Word]:
    """Read people's words from a file; `by` is the person where it names none. Rows without a word are left out."""
    return list(_form(path)[1](read_text(path, MAX_BYTES).removeprefix("\ufeff"), str(path), by))


def new_labels(words: Sequence[Word], tasks: Sequence[Task], texts: Mapping[str, Text]) -> list[Label]:
    """Return the labels that words make, without those that are known; refuse words on what is not to be labelled."""
    open_now, found = {task.answer: task for task in tasks}, list[Label]()
    known = {(task.answer, label.by): label for task in tasks for label in task.labels}  # the last of each person
    for word in words:
        task = open_now.get(word.answer)
        if task is None:
            what, hint = f"answer {word.answer!r} is not in the open round", "labels count while their round is open"
            raise FedsrcError(what, where=word.where, hint=hint, private=(word.answer,))
        before = known.get((word.answer, word.by))
        label = _label(word, task, word.shown or texts[word.answer])
        if before is None or label.model_copy(update={"at": before.at}) != before:
            found.append(label)
            known[word.answer, word.by] = label
    return found


def _label(word: Word, task: Task, shown: Text) -> Label:
    try:
        return Label(
            answer=word.answer, loss=word.loss, by=word.by, at=utc_now(), shown=shown.digest,
            round=task.round.request.digest,
        )  # fmt: skip
    except ValidationError as error:
        raise FedsrcError(describe(error), where=word.where) from error
    except UnicodeEncodeError as error:
        raise FedsrcError("a text holds half a character (a lone surrogate)", where=word.where) from error


def _csv_out(rows: Sequence[dict[str, str]]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, ["id", *SHOWN, "label", "by"])
    writer.writeheader()
    writer.writerows({name: FORMULA.sub("'", cell, 1) for name, cell in row.items()} for row in rows)
    return text.getvalue().encode()


def _csv_in(text: str, where: str, by: str | None) -> Iterator[Word]:
    usual = csv.field_size_limit(MAX_BYTES)
    try:
        reader, first = csv.DictReader(io.StringIO(text, newline="")), 2
        for row in reader:
            cells = {name: QUOTED.sub("", cell, 1) if isinstance(cell, str) else cell for name, cell in row.items()}
            yield from _row(cells, f"{where} line {first}", by)
            first = reader.line_num + 1
    except csv.Error as error:
        raise FedsrcError(f"cannot be read as CSV: {error}", where=where) from error
    finally:
        csv.field_size_limit(usual)


def _lines_out(rows: Sequence[dict[str, str]]) -> bytes:
    return "".join(json.dumps({**row, "label": ""}, ensure_ascii=False) + "\n" for row in rows).encode()


def _lines_in(text: str, where: str, by: str | None) -> Iterator[Word]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield from _row(_json(line, f"{where} line {number}"), f"{where} line {number}", by)


def _row(row: Any, where: str, by: str | None) -> Iterator[Word]:
    """Read an object with `id` (or `answer`) and `label`, a word or a loss; and perhaps `by` and the texts."""
    name = next((row[key] for key in ("id", "answer") if key in row), None) if isinstance(row, dict) else None
    if name is None or "label" not in row:
        raise FedsrcError("has no 'id' or no 'label'", where=where, hint="each row names an answer and what it is")
    if row["label"] in (None, ""):
        return
    who = tidy_name(str(row.get("by") or by or ""))
    if not who:
        raise FedsrcError("does not say who labelled", where=where, hint="fill in 'by', or name the person with `by=`")
    yield Word(str(name).strip(), _loss(row["label"], where), who, _shown(row), where)


def _loss(said: Any, where: str) -> float | None:
    """Read a word, or a loss in [0, 1]."""
    word = said.strip().lower() if isinstance(said, str) else said
    if isinstance(word, str) and word in WORDS:
        return WORDS[word]
    try:
        number = -1.0 if isinstance(word, bool) else float(word)
    except (TypeError, ValueError):
        number = -1.0
    if not 0 <= number <= 1:
        hint = f"use {', '.join(WORDS)}, or a loss from 0 (supported) to 1"
        raise FedsrcError(f"label {str(said)[:40]!r} is none", where=where, hint=hint)
    return number


def _shown(row: Mapping[str, Any]) -> Text | None:
    """Return the texts that a row has, if it has them."""
    if not all(isinstance(row.get(name), str) for name in ("evidence", "response")):
        return None
    return Text(str(row.get("question") or ""), row["evidence"], row["response"])


def _studio_out(rows: Sequence[dict[str, str]]) -> bytes:
    return json.dumps([{"data": row} for row in rows], ensure_ascii=False, indent=1).encode()


def _studio_in(text: str, where: str, by: str | None) -> Iterator[Word]:
    """Read Label Studio's JSON export: of each task all annotations but cancelled ones; drafts and predictions, no."""
    found = _json(text, where)
    for number, task in enumerate(found if isinstance(found, list) else [None], start=1):
        place = f"{where} task {number}"
        try:
            data, given = task["data"], [each for each in task["annotations"] if not each.get("was_cancelled")]
            given.sort(key=lambda each: str(each.get("updated_at") or each.get("created_at") or ""))
            for each in given:
                chosen = [part["value"]["choices"] for part in each["result"] if part.get("from_name") == "label"]
                if len(chosen) > 1 or any(len(words) > 1 for words in chosen):
                    raise FedsrcError("an annotation has several labels", where=place)
                for word in (word for words in chosen for word in words):
                    yield from _row({**data, "label": word, "by": _annotator(each.get("completed_by"))}, place, by)
        except (TypeError, KeyError, AttributeError) as error:
            hint = "export as JSON (not JSON-MIN) from a project with the tasks and the configuration made here"
            raise FedsrcError("is not a task with annotations of Label Studio", where=place, hint=hint) from error


def _annotator(said: Any) -> str | None:
    """Return who annotated: an address where the export has one, else the number of the user."""
    if isinstance(said, dict):
        said = said.get("email") or said.get("id")
    return None if said is None else f"user {said}" if isinstance(said, int) else str(said)


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FedsrcError("is not JSON", where=where) from error


_Out = Callable[[Sequence[dict[str, str]]], bytes]
_In = Callable[[str, str, str | None], Iterator[Word]]
FORMS: dict[str, tuple[_Out, _In]] = {
    ".csv": (_csv_out, _csv_in),
    ".jsonl": (_lines_out, _lines_in),
    ".json": (_studio_out, _studio_in),
}


def _form(path: Path) -> tuple[_Out, _In]:
    if path.suffix.lower() not in FORMS:
        hint = "use .csv, .jsonl, or .json for Label Studio"
        raise FedsrcError(f"the suffix {path.suffix!r} names no format", where=str(path), hint=hint)
    return FORMS[path.suffix.lower()]
