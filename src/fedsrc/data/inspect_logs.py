"""Logs of Inspect (`.eval`, `.json`): a sample's completion is an answer, its scorers' values are scores or labels.

A log does not tell which scorer is a person. Grades are read as Inspect reads them: C is correct and I incorrect; as
scores 1 and 0, with P one half and N nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fedsrc.common.durable import open_regular
from fedsrc.data.logs import EVIDENCE, SOURCE, Entry, Reading, Source, Word, text_in
from fedsrc.errors import FedsrcError, MissingExtraError

UNREAD = {"events", "events_data", "timelines", "store", "messages", "attachments"}  # large, and not needed
GRADES = {"C": "correct", "I": "incorrect", "P": "partially correct", "N": "no answer"}
HEAD = re.compile(rb'\s*\{\s*"version"\s*:\s*\d+\s*,\s*"status"\s*:')


def is_inspect(path: Path) -> bool:
    """Whether a file is a log of Inspect."""
    if path.suffix not in (".eval", ".json") or not path.is_file():
        return False
    with open_regular(path) as file:
        return path.suffix == ".eval" or HEAD.match(file.read(200)) is not None


def read_inspect(files: Iterable[Path], reading: Reading) -> tuple[list[Entry], Counter[str]]:
    """Read the samples of logs. One that several logs hold alike, as after a retry, counts once."""
    try:
        from inspect_ai.log import read_eval_log, read_eval_log_samples
    except ImportError as error:
        raise MissingExtraError("inspect-ai", "inspect") from error
    found, skipped = dict[str, Entry](), Counter[str]()
    for path in files:
        try:
            header = read_eval_log(str(path), header_only=True)
            samples = list(read_eval_log_samples(str(path), all_samples_required=False, exclude_fields=UNREAD))
        except Exception as error:  # its readers raise what zip, JSON and validation raise
            raise FedsrcError(f"cannot be read as a log of Inspect: {error}", where=str(path)) from error
        for sample in samples:
            if sample.error is not None or sample.invalidation is not None:
                skipped["samples that failed or were taken back"] += 1
                continue
            entry = entry_of(sample, header.eval.task, header.eval.model, reading)
            earlier = found.setdefault(entry.id, entry)
            if earlier is not entry:
                skipped["samples that stand in several logs, after the first"] += 1
                if repr(earlier) != repr(entry):  # by value, NaN is another each time
                    hint = "the later log was scored anew: name one of them"
                    raise FedsrcError(
                        f"sample {entry.id!r} differs from that of another log", where=str(path), hint=hint
                    )
    return [*found.values()], skipped


def entry_of(sample: Any, task: str, model: str, reading: Reading) -> Entry:
    """Turn a sample into an entry. Its source is its question, which all epochs and models share, unless metadata have
    another."""
    metadata: Mapping[str, Any] = sample.metadata or {}
    asked = sample.input
    if not isinstance(asked, str):
        asked = [{"role": message.role, "content": message.text} for message in asked]
    return Entry(
        id=sample.uuid or f"{task}/{model}/{sample.id}/{sample.epoch}",
        words=tuple(_words(sample.scores or {})),
        source=reading.source(metadata, SOURCE)
        or (Source("the sample's id", f"{task}/{sample.id}") if reading.source_from is None else None),
        question=text_in(asked),
        evidence=text_in(next((metadata[name] for name in EVIDENCE if metadata.get(name)), None)),
        response=sample.output.completion,
        generator=model,
        group=task,
    )


def _words(scores: Mapping[str, Any]) -> Iterator[Word]:
    for name, score in scores.items():
        several = score.value if isinstance(score.value, Mapping) else {"": score.value}
        for part, value in several.items():
            yield Word(
                f"{name}.{part}" if part else name, GRADES.get(value, value) if isinstance(value, str) else value
            )
