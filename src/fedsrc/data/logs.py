"""Answers from the logs of other tools: what people said becomes the label, what judges said a column of scores.

A log is read into entries, one for each answer, and entries into answers. What becomes of an entry depends on it and on
what was asked for, and on no other: of several labels the worst counts, as everywhere; of several scores of one name
the last. A score keeps the name and the direction that it has in the log.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from fedsrc.common.label_words import ONE, ZERO, End, check_words, end_of_one, meaning, plain_name, plain_word
from fedsrc.common.words import count, plain
from fedsrc.data.answers import Answer, check_ids, text_of
from fedsrc.errors import FedsrcError, UndecidedError

EVIDENCE = ("evidence", "retrieved_contexts", "retrieval_context", "contexts", "context", "documents", "passages")
SOURCE = ("session_id", "user_id", "thread_id", "conversation_id", "question_id")  # of which the first there counts
INNER = ("page_content", "content", "text", "parts", "document", "messages", "choices", "message")
DEEPEST, TOO_DEEP = 30, "(nested too deep)"
SCORES = {
    **dict.fromkeys((*ONE, "pass", "passed", "correct"), 1.0),
    **dict.fromkeys((*ZERO, "fail", "failed", "incorrect", "no answer"), 0.0),
    "partially correct": 0.5,
}
LOSSES = {"pass": 0.0, "passed": 0.0, "fail": 1.0, "failed": 1.0, "unsure": 1.0}  # besides the words that tables know
MOST_WORDS = 8  # that one message names


@dataclass(frozen=True)
class Reading:
    """What whoever has a log says of it: whose words are labels, which are scores, and which field tells units apart.

    `unsupported` and `supported` are words that labels are written in, besides those that everybody uses.
    """

    label_from: tuple[str, ...] = ()
    score_from: tuple[str, ...] = ()
    source_from: str | None = None
    unsupported: tuple[str, ...] = ()
    supported: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_words(self.unsupported, self.supported)

    def source(self, found: Mapping[str, Any], usual: Iterable[str]) -> Source | None:
        """Return the first field that is there: the one that was named, or else a usual one."""
        names = usual if self.source_from is None else (self.source_from,)
        there = ((name, found[name]) for name in names if name in found)
        return next((Source(name, str(value)) for name, value in there if _is_name(value)), None)


class Word(NamedTuple):
    """What was said of an answer under a name, by people or by a judge (None where the log does not tell), and the same
    in a word, where there is one: a label is taken from that."""

    name: str
    value: Any
    human: bool | None = None
    label: Any = None

    @property
    def said(self) -> Any:
        return self.value if _is_empty(self.label) else self.label


class Source(NamedTuple):
    """Whom or what several answers share, and the field that says so."""

    field: str
    name: str


@dataclass(frozen=True)
class Entry:
    """An answer of a log with all that was said of it, in the order in which it was said."""

    id: str
    words: tuple[Word, ...]
    source: Source | None = None
    question: str = ""
    evidence: str = ""
    response: str = ""
    generator: str = "unknown"
    group: str = ""


class Read(NamedTuple):
    """The answers of a log, who labelled them, and what is to be told of it."""

    answers: list[Answer]
    annotation: str
    told: tuple[str, ...]


def answers_of(entries: Sequence[Entry], reading: Reading, where: str, skipped: Mapping[str, int]) -> Read:
    """Turn a log's entries into answers. `skipped` counts what was no answer, by the reason."""
    if not entries:
        reasons = "".join(f"; {words}: {number:,}" for words, number in skipped.items() if number)
        raise FedsrcError(f"there are no answers in it{reasons}", where=where)
    labels = _labels(entries, reading, where)
    found = Counter(word.name for entry in entries for word in entry.words if _is_score(word, labels))
    missing = [name for name in reading.score_from if name not in found]
    if missing:
        raise FedsrcError(f"no judge's score is called {missing[0]!r}", where=where, hint=_there(found))
    wanted = reading.score_from or tuple(sorted(found))
    values = {name: [_last(entry, name, labels) for entry in entries] for name in wanted}
    columns = _column_names(name for name in wanted if any(value is not None for value in values[name]))
    losses = _losses(entries, labels, reading, where)
    answers = [
        _answer(entry, loss, tuple((column, values[name][i]) for name, column in columns.items()), where)
        for i, (entry, loss) in enumerate(zip(entries, losses, strict=True))
    ]
    check_ids(answers, where)
    told = (
        *(f"{words}: {number:,}, left out." for words, number in skipped.items() if number),
        *_about_sources(entries, reading, where),
        *_about_words(entries, labels, wanted),
        *_about_scores(values, columns),
    )
    return Read(answers, f"said under {' and '.join(labels)}; the worst counts" if labels else "none", told)


def _labels(entries: Sequence[Entry], reading: Reading, where: str) -> tuple[str, ...]:
    """Return under which names labels stand: those that were named, or the only one that people used."""
    may_be = {word.name for entry in entries for word in entry.words if word.human is not False}
    for name in reading.label_from:
        if name not in may_be:
            raise FedsrcError(f"nobody but judges spoke under {name!r}, if anybody", where=where, hint=_there(may_be))
    people = sorted({word.name for entry in entries for word in entry.words if word.human})
    if reading.label_from or len(people) < 2:
        return reading.label_from or tuple(people)
    answers = {f"{name!r} says whether an answer is supported": name for name in people}
    raise UndecidedError("people spoke under several names", "label_from", answers, where=where)


def _is_label(word: Word, labels: Sequence[str]) -> bool:
    return word.human is not False and word.name in labels


def _is_score(word: Word, labels: Sequence[str]) -> bool:
    return not word.human and not _is_label(word, labels)


def _losses(entries: Iterable[Entry], labels: Sequence[str], reading: Reading, where: str) -> list[float | None]:
    """Return the worst of each entry's labels; None for one that has none."""
    strange, found = dict[str, str](), list[float | None]()
    for entry in entries:
        said = [word for word in entry.words if _is_label(word, labels) and not _is_empty(word.said)]
        losses = [_loss(word, reading, where) for word in said]
        strange |= {_spelt(word.said): entry.id for word, loss in zip(said, losses, strict=True) if loss is None}
        found.append(max((loss for loss in losses if loss is not None), default=None))
    if strange:
        words = " or ".join(repr(plain(each)) for each in [*strange][:MOST_WORDS])
        where = f"{where}, answer {plain(next(iter(strange.values())))}"
        hint = "say of each what it means, `unsupported=` or `supported=`"
        raise FedsrcError(f"nobody said what the label {words} means", where=where, hint=hint, private=tuple(strange))
    return found


def _loss(word: Word, reading: Reading, where: str) -> float | None:
    """Return the loss that a label says; None if nobody knows it. "Unsure" counts as unsupported, as everywhere."""
    said, one_is = _spelt(word.said), _one_is(word.name, reading)
    found, number = meaning(said, one_is, reading.unsupported, reading.supported), _number(word.said)
    share = number is not None and 0 <= number <= 1
    if found is None and one_is is None and (share or plain_word(said) in ONE | ZERO):
        answers = {"1 is unsupported, 0 is supported": "1", "0 is unsupported, 1 is supported": "0"}
        what = f"the name {word.name!r} does not say whether 1 (or true, or yes) is good or bad"
        raise UndecidedError(what, "unsupported", answers, where=where)
    if found is None and number is not None and share:
        return number if one_is == "unsupported" else 1 - number
    return LOSSES.get(plain_word(said)) if found is None else found


def _one_is(name: str, reading: Reading) -> End | None:
    """Return what a 1 means under a name: correctness is to correct as its column of a table would be."""
    for each in (name, plain_name(name).removesuffix("ness")):
        if found := end_of_one(each, reading.unsupported, reading.supported):
            return found
    return None


def _last(entry: Entry, name: str, labels: Sequence[str]) -> float | None:
    said = [word.value for word in entry.words if word.name == name and _is_score(word, labels)]
    return score_of(said[-1]) if said else None


def score_of(value: Any) -> float | None:
    """Return a judge's word as a number: a number, a yes or a no, a grade; None for what is none of them."""
    number = _number(value)
    return SCORES.get(plain_word(_spelt(value))) if number is None and isinstance(value, str | bool) else number


def _number(value: Any) -> float | None:
    """Return a finite number, however it is written; a truth value is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def _spelt(value: Any) -> str:
    number = _number(value)
    return str(value) if number is None else f"{number:.15g}"


def _is_empty(value: Any) -> bool:
    return value is None or value != value or (isinstance(value, str) and not value.strip())  # noqa: PLR0124 NaN


def _is_name(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool) and str(value).strip() != ""


def _column_names(names: Iterable[str]) -> dict[str, str]:
    """Name the column of each score after it, unless answers have a field of that name."""
    taken = {each.name for each in fields(Answer)}
    found = dict[str, str]()
    for name in names:
        column = text_of(name, "a score's name", "the log") or "score"
        while column in taken:
            column += "_score"
        taken.add(column)
        found[name] = column
    return found


def _answer(entry: Entry, loss: float | None, scores: tuple[tuple[str, float | None], ...], where: str) -> Answer:
    place = f"{where}, answer {plain(entry.id)}"
    source = entry.id if entry.source is None else entry.source.name
    names = ("id", "question", "evidence", "response", "generator", "group")
    texts: dict[str, Any] = {name: text_of(getattr(entry, name), name, place) for name in names}
    return Answer(**texts, source=text_of(source, "source", place), loss=loss, scores=scores)


def _about_sources(entries: Sequence[Entry], reading: Reading, where: str) -> Iterator[str]:
    by = Counter(entry.source.field if entry.source else "" for entry in entries)
    if reading.source_from is not None and by.keys() == {""}:
        raise FedsrcError(f"no answer has a field {reading.source_from!r}", where=where, hint="name another")
    for name, number in sorted(by.items()):
        none = "no session, person or question is named, so each is a source of its own; `source_from=` names a field"
        yield f"{count(number, 'answer')}: {f'their source is {plain(name)}' if name else none}."


def _about_words(entries: Sequence[Entry], labels: Sequence[str], wanted: Sequence[str]) -> Iterator[str]:
    words = [word for entry in entries for word in entry.words]
    unused = Counter(w.name for w in words if not _is_label(w, labels) and (w.human or w.name not in wanted))
    several = sum(sum(_is_label(word, labels) for word in entry.words) > 1 for entry in entries)
    if not labels:
        yield "Nobody is said to be a person, so no answer is labelled; `label_from=` names whose words are labels."
    if several:
        yield f"{count(several, 'answer')} labelled more than once: the worst counts."
    for name, number in sorted(unused.items()):
        yield f"{count(number, 'word')} under {plain(name)!r} not used."


def _about_scores(values: Mapping[str, Sequence[float | None]], columns: Mapping[str, str]) -> Iterator[str]:
    """Say what each column of scores holds. Whether a high score is good is left to whoever certifies."""
    for name, column in values.items():
        missing = sum(each is None for each in column)
        under = "no column, for none is a number" if name not in columns else f"column {plain(columns[name])!r}"
        lacks = f", missing in {count(missing, 'answer')}" if missing and name in columns else ""
        yield f"Scores of {plain(name)!r}: {under}{lacks}."


def _there(names: Iterable[str]) -> str:
    return f"there are: {', '.join(map(repr, sorted(map(plain, names))))}" if names else "the log has none"


def text_in(value: Any, keys: Sequence[str] = (), depth: int = 0) -> str:
    """Return the text of what logs call an input, an output or documents: text, messages, or an object that holds it
    under one of the keys; of another object its JSON."""
    if isinstance(value, str) or value is None:
        return value or ""
    if depth > DEEPEST:
        return TOO_DEEP
    if isinstance(value, Sequence):
        texts = ((_role(each) if len(value) > 1 else "") + text_in(each, keys, depth + 1) for each in value)
        return "\n\n".join(filter(None, texts))
    if isinstance(value, Mapping):
        found = next((value[key] for key in (*keys, *INNER) if value.get(key) not in (None, "")), None)
        with suppress(RecursionError):
            return text_in(found, keys, depth + 1) if found else json.dumps(value, ensure_ascii=False, default=str)
        return TOO_DEEP
    return str(value)


def _role(message: Any) -> str:
    return f"{message['role']}: " if isinstance(message, Mapping) and isinstance(message.get("role"), str) else ""
