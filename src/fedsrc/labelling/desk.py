"""The desk that people label at: what each sees next, and every word on disk before it is acknowledged.

All state is the file of labels. A person's words are chained by `head`, the digest of their last one: a word that is
sent twice is kept once, and one that was meant for another moment is turned away.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedsrc.common.canonical import digest
from fedsrc.common.clock import utc_now
from fedsrc.errors import FedsrcError
from fedsrc.labelling.queue import Task, before, tasks, waiting
from fedsrc.labelling.texts import Text
from fedsrc.site.label_file import Label, LabelFile
from fedsrc.site.rounds import Round

Screen = dict[str, Any]
AGAIN = 30.0  # seconds until somebody who waits makes the run look again
UNSURE = {
    "worse": "Unsure counts as unsupported.",
    "third": "Unsure goes to another person; without one it counts as unsupported.",
}
STUCK = "What comes next failed. Whoever started this page sees the reason in the terminal."


class StaleError(FedsrcError):
    """A word that does not follow what its person said last, or is on something that is not shown any more."""


class Desk:
    """The open rounds, their texts and their labels; `advance` makes the run look when everything is labelled."""

    def __init__(
        self,
        labels: Path,
        rounds: Callable[[], list[Round]],
        texts: Callable[[Collection[str]], Mapping[str, Text]],
        advance: Callable[[], str],
    ) -> None:
        self._path, self._rounds_now, self._texts_of, self._advance = labels, rounds, texts, advance
        self._lock, self._runs = threading.Lock(), ThreadPoolExecutor(1, thread_name_prefix="advance")
        self._looking: Future[str] | None = None
        self._words, self._looked, self._seen = "", 0.0, -1  # what it said, when it looked, and at how many labels
        self._load()
        self._book: LabelFile | None = LabelFile(labels)

    def ask(self, by: str, back: str | None = None) -> Screen:
        """Return what a person sees: the next answer, or the one that they labelled before the one named."""
        with self._lock:
            book = self._opened()
            if back is not None:
                earlier = before(tasks(self._rounds, book.labels), book.labels, by, back)
                if earlier is not None:
                    return self._shown(earlier, by, book)
            return self._next(by, book)

    def take(self, by: str, answer: str, loss: float | None, shown: str, head: str) -> Screen:
        """Write a person's word down, and return what they see next. Sent again, it changes nothing."""
        with self._lock:
            book = self._opened()
            task = next((task for task in tasks(self._rounds, book.labels) if task.answer == answer), None)
            if task is None or self._texts[answer].digest != shown:
                raise StaleError("this answer is not to be labelled any more")
            label = Label(
                answer=answer, loss=loss, by=by, at=utc_now(), shown=shown, round=task.round.request.digest
            )  # fmt: skip
            if not _alike(label, _last(book, by)):
                if head != _head(book, by):
                    raise StaleError("this is not the answer that you were asked about last")
                if not _alike(label, task.word(by)):
                    self._add(label)
            return self._next(by, book)

    def close(self) -> None:
        """Let the file go."""
        self._runs.shutdown(wait=False, cancel_futures=True)
        if self._book is not None:
            self._book.close()

    def _load(self) -> None:
        self._rounds = self._rounds_now()
        self._texts = self._texts_of({name for each in self._rounds for name in each.needed})

    def _opened(self) -> LabelFile:
        self._book = self._book or LabelFile(self._path)
        return self._book

    def _add(self, label: Label) -> None:
        try:
            self._opened().add(label)
        except FedsrcError:  # what is half-written is cut when the file is opened again
            self._opened().close()
            self._book = None
            raise

    def _next(self, by: str, book: LabelFile) -> Screen:
        found = tasks(self._rounds, book.labels)
        own = waiting(found, by)
        if not own and self._look(len(book.labels), labelled=not waiting(found)):
            own = waiting(tasks(self._rounds, book.labels), by)
        if own:
            return self._shown(own[0], by, book)
        words = "One moment ..." if self._looking is not None else self._words
        return {"kind": "done", "words": words or "There is nothing more for you now. Others may still be labelling."}

    def _look(self, labels: int, *, labelled: bool) -> bool:
        """Once everything is labelled, have the run look, in a thread of its own; return whether it came back."""
        if self._looking is not None and self._looking.done():
            self._words, self._looking = self._looking.result(), None
            self._load()
            return True
        news = labels != self._seen or time.monotonic() - self._looked > AGAIN
        if self._looking is None and labelled and news:
            self._looked, self._seen = time.monotonic(), labels
            self._looking = self._runs.submit(self._advanced)
        return False

    def _advanced(self) -> str:
        try:
            return self._advance()
        except Exception as error:
            warnings.warn(f"{type(error).__name__}: {error}", stacklevel=1)
            return STUCK

    def _shown(self, task: Task, by: str, book: LabelFile) -> Screen:
        said = task.word(by)
        return {
            "kind": "answer", "answer": task.answer, **asdict(self._texts[task.answer]),
            "shown": self._texts[task.answer].digest, "head": _head(book, by),
            "said": "" if said is None else "unsure" if said.loss is None else f"{said.loss:g}",
            "note": UNSURE[task.labelling.disagreement],
        }  # fmt: skip


def _last(book: LabelFile, by: str) -> Label | None:
    return next((label for label in reversed(book.labels) if label.by == by), None)


def _head(book: LabelFile, by: str) -> str:
    last = _last(book, by)
    return "" if last is None else digest(last.model_dump())


def _alike(label: Label, other: Label | None) -> bool:
    """Return whether two labels say the same, whenever they were given."""
    return other is not None and label.model_copy(update={"at": other.at}) == other
