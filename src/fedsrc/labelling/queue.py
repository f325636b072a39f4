"""Who is asked what: pure functions of the open rounds and the labels so far.

A person is asked about an answer once. Everyone has an order of their own, by hash: it tells nothing, and two people
who label at the same time seldom meet.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from fedsrc.common.canonical import digest
from fedsrc.protocol.registration import OnDemand
from fedsrc.site.label_file import Label, by_answer
from fedsrc.site.label_rule import Standing, looks, standing
from fedsrc.site.rounds import Round

WORDS: dict[str, float | None] = {"supported": 0.0, "unsupported": 1.0, "unsure": None}


class Task(NamedTuple):
    """An answer of an open round, and what was said of it so far."""

    round: Round
    answer: str
    labels: tuple[Label, ...]

    def word(self, by: str) -> Label | None:
        """Return a person's last word on it."""
        return next((label for label in reversed(self.labels) if label.by == by), None)

    @property
    def standing(self) -> Standing:
        """Where it stands by the registered rule."""
        labelling, registration = self.labelling, self.round.registration.digest
        return standing(labelling, looks(labelling, registration, self.answer), self.labels)

    @property
    def is_open(self) -> bool:
        """Whether somebody is still to speak on it."""
        return not self.labels or self.standing.loss is None

    @property
    def labelling(self) -> OnDemand:
        found = self.round.registration.labelling
        assert isinstance(found, OnDemand)  # no other registration opens rounds
        return found


class Agreement(NamedTuple):
    """Of the answers that two people labelled, how many they agree on."""

    alike: int
    both: int


def tasks(rounds: Sequence[Round], labels: Iterable[Label]) -> list[Task]:
    """Return the answers of the open rounds, each with its labels in the order they were given."""
    said = by_answer(labels)
    return [Task(each, name, tuple(said[each.request.digest, name])) for each in rounds for name in each.needed]


def waiting(found: Sequence[Task], by: str | None = None) -> list[Task]:
    """Return the tasks that still need a word: of anybody, or of this person, who has not spoken on them yet."""
    left = [task for task in found if task.is_open and (by is None or task.word(by) is None)]
    return sorted(left, key=lambda task: _place(task.round.request.digest, by or "", task.answer))


def before(found: Sequence[Task], labels: Iterable[Label], by: str, answer: str | None) -> Task | None:
    """Return the task on which a person spoke before this one, by when they first did; None before their first."""
    open_now = {(task.round.request.digest, task.answer): task for task in found}
    own = dict.fromkeys((label.round, label.answer) for label in labels if label.by == by)
    past = [open_now[key] for key in own if key in open_now]
    place = next((i for i, task in enumerate(past) if task.answer == answer), len(past))
    return past[place - 1] if place > 0 else None


def agreement(labels: Iterable[Label]) -> Agreement:
    """Compare the last words of the first two people on every answer that two have labelled."""
    pairs = []
    for said in by_answer(labels).values():
        words = list({label.by: label.loss for label in said}.values())
        pairs += [words[:2]] if len(words) > 1 else []
    return Agreement(sum(one == other for one, other in pairs), len(pairs))


def tidy_name(name: str) -> str:
    """Write a person's name in one way, so that a space or a capital letter does not make two people of one."""
    return " ".join(unicodedata.normalize("NFC", name.casefold()).split())


@lru_cache(maxsize=100_000)
def _place(request: str, by: str, answer: str) -> str:
    """Return what a person's queue is ordered by."""
    return digest(["queue", request, by, answer])
