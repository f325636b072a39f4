"""Opening a set of answers by path or by name: RAGTruth, HaluEval, a log, or a user's own file; and where it is from.

A path that exists is taken as a path. Otherwise a known name (`ragtruth`, `halueval/qa`) is fetched once and kept.
`mlflow:EXPERIMENT` is asked of MLflow.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from fedsrc.common.canonical import file_digest
from fedsrc.data import halueval, hub, ragtruth
from fedsrc.data.answers import Answer, Notes, json_lines, read_answers
from fedsrc.data.evaluation_events import is_events, read_events
from fedsrc.data.inspect_logs import is_inspect, read_inspect
from fedsrc.data.logs import Reading, answers_of
from fedsrc.data.mlflow_traces import PREFIX, read_mlflow
from fedsrc.errors import FedsrcError

Known = Literal["original", "other", "unknown"]


@dataclass(frozen=True)
class SourceFile:
    """A file that answers were read from. `content_sha256` is of what a gzipped file holds, else the file's own.

    `known` compares the content with the public original's digest: the same, another, or no digest is known.
    """

    name: str
    bytes: int
    sha256: str
    content_sha256: str
    known: Known = "unknown"
    address: str | None = None


@dataclass(frozen=True)
class Collection:
    """Answers, who labelled them, what is noted of them by id, and the files they come from.

    A log's answers may lack texts; `told` is what is to be said of how it was read.
    """

    name: str
    annotation: str
    answers: Sequence[Answer]
    files: tuple[SourceFile, ...]
    notes: dict[str, Notes] = field(default_factory=dict)
    logged: bool = False
    told: tuple[str, ...] = ()


def open_collection(
    what: str,
    *,
    task: str | None = None,
    pairs: int | None = None,
    reading: Reading | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Collection:
    """Open the collection at a path or of a name. `task` picks HaluEval's file; `pairs` takes its first ones; `reading`
    says how a log is read."""
    log = _log(what, reading or Reading())
    if log is not None:
        return log
    if reading not in (None, Reading()):
        hint = "a log is a file or folder of Inspect's or OpenTelemetry's, or mlflow:EXPERIMENT"
        raise FedsrcError("this is no log whose labels, scores and sources could be named", where=what, hint=hint)
    path, name = Path(what), what.strip().lower().rstrip("/")
    name = f"halueval/{task.lower()}" if name == "halueval" and task is not None else name
    if not _exists(path):
        if name not in hub.COLLECTIONS:
            tasks = "which task? `task='qa'`, `task='dialogue'` or `task='summarization'`"
            hint = tasks if name == "halueval" else f"names are {', '.join(hub.COLLECTIONS)}"
            raise FedsrcError("there is no such file, and no collection of that name", where=what, hint=hint)
        path = hub.fetch(name, tell=tell)
        task = name.partition("/")[2] or task
    is_ragtruth = _is_ragtruth(path)
    found = None if is_ragtruth else _halueval_task(path, task)
    if found is not None:
        return _halueval(path, found, pairs)
    if pairs is not None:
        raise FedsrcError("`pairs=` belongs to HaluEval", hint="leave it out")
    if is_ragtruth:
        return _ragtruth(path if path.is_dir() else path.parent)
    return Collection(path.name, "not stated", read_answers(path), (source_file(path),))


def _log(what: str, reading: Reading) -> Collection | None:
    """Open a log; None if it is none."""
    path, files, others = Path(what), list[Path](), 0
    if _exists(path):
        inside = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
        logs, events = [*filter(is_inspect, inside)], [*filter(is_events, inside)]
        files, others = logs or events, len(inside) - len(logs or events)
        if not files:
            return None
        found = read_inspect(logs, reading) if logs else read_events(events, reading)
    elif what.startswith(PREFIX):
        found = read_mlflow(what.removeprefix(PREFIX), reading)
    else:
        return None
    entries, skipped = found
    answers, annotation, told = answers_of(entries, reading, what, {**skipped, "files that are no such logs": others})
    base = path if path.is_dir() else path.parent
    sources = tuple(replace(source_file(each), name=each.relative_to(base).as_posix()) for each in files)
    return Collection(path.name, annotation, answers, sources, logged=True, told=told)


def source_file(path: Path, original: hub.Original | None = None) -> SourceFile:
    """Return what the manifest says of a file."""
    try:
        size, sha256 = path.stat().st_size, file_digest(path)
        content = sha256
        if path.suffix == ".gz":
            with gzip.open(path, "rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, EOFError, zlib.error) as error:
        raise FedsrcError(f"cannot be read: {error}", where=str(path)) from error
    if original is None:
        return SourceFile(path.name, size, sha256, content)
    known: Known = "unknown" if original.sha256 is None else "original" if content == original.sha256 else "other"
    return SourceFile(path.name, size, sha256, content, known, original.url())


def _is_ragtruth(path: Path) -> bool:
    folder = path if path.is_dir() else path.parent
    if path.is_file() and path.name.split(".")[0] not in ("response", "source_info"):
        return False
    return any((folder / f"source_info{suffix}").is_file() for suffix in (".jsonl", ".jsonl.gz"))


def _ragtruth(folder: Path) -> Collection:
    responses, sources = hub.COLLECTIONS["ragtruth"]
    found = ragtruth.read_noted(folder)
    files = (
        source_file(ragtruth.find(folder, "response"), responses),
        source_file(ragtruth.find(folder, "source_info"), sources),
    )
    notes = {each.answer.id: each.notes for each in found}
    return Collection("ragtruth", "spans marked by annotators", [each.answer for each in found], files, notes)


def _halueval(path: Path, task: halueval.Task, pairs: int | None) -> Collection:
    name = f"halueval/{task}"
    answers = halueval.read_halueval(path, task, pairs=pairs)
    file = source_file(halueval.find(path, task), hub.COLLECTIONS[name][0])
    return Collection(name, "by construction: one response was written to be hallucinated", answers, (file,))


def _halueval_task(path: Path, task: str | None) -> halueval.Task | None:
    """Return which of HaluEval's tasks is there; None for a file that is not HaluEval's."""
    if path.is_dir():
        there = [each for each in halueval.TASKS if _has(path, each)]
        if not there:
            hint = "RAGTruth has response.jsonl and source_info.jsonl, HaluEval qa_data.json; or name a file"
            raise FedsrcError("there is no known collection in this folder", where=str(path), hint=hint)
        wanted = [each for each in there if task is None or each == task.lower()]
        if len(wanted) != 1:
            raise FedsrcError(
                "which of HaluEval's tasks?", where=str(path), hint=" or ".join(f"`task={each!r}`" for each in there)
            )
        return wanted[0]
    if not {".json", ".jsonl", ".ndjson"} & set(path.suffixes):
        return None
    first = next(json_lines(path), None)
    found = halueval.task_of(first[1]) if first else None
    if found is not None and task is not None and task.lower() != found:
        raise FedsrcError(
            f"this is HaluEval's {found} file", where=str(path), hint=f"`task={found!r}`, or leave it out"
        )
    return found


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name that no file can have
        return False


def _has(path: Path, task: halueval.Task) -> bool:
    try:
        return halueval.find(path, task).is_file()
    except FedsrcError:
        return False
