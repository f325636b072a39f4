"""Choosing answers of a collection: of a task, generators, a split; one of each source; one part of three."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fedsrc.data.answers import Answer
from fedsrc.data.manifest import Finding
from fedsrc.data.split import DEFAULT, Part, assign, join_sources, one_per_source, select, torn
from fedsrc.errors import FedsrcError


@dataclass(frozen=True)
class Selection:
    """What was chosen; the manifest holds it. `seed` and `shares` are public."""

    task: str | None = None
    generators: tuple[str, ...] = ()
    split: str | None = None
    pairs: int | None = None
    join_sources: bool = False
    one_per_source: bool = False
    part: Part | None = None
    seed: int = 0
    shares: dict[str, float] = field(default_factory=lambda: dict(DEFAULT))


class Chosen(NamedTuple):
    """The answers left, the part of every source before one part was taken, and what is to be said of the parts."""

    answers: list[Answer]
    parts: dict[str, Part]
    findings: list[Finding]


def select_answers(answers: Iterable[Answer], choice: Selection) -> Chosen:
    """Apply a choice, in the order of its fields; `pairs` was applied when the collection was read."""
    kept = keep(answers, task=choice.task, generators=choice.generators, split=choice.split)
    kept = join_sources(kept) if choice.join_sources else kept
    parts = assign(kept, choice.seed, choice.shares)
    findings = [] if choice.part is None else list(_about_parts(torn(kept, parts)))
    kept = one_per_source(kept, choice.seed) if choice.one_per_source else kept
    kept = select(kept, parts, choice.part) if choice.part is not None else kept
    if not kept:
        raise FedsrcError(f"no answer is in the part {choice.part}", hint="choose other shares or another seed")
    return Chosen(kept, parts, findings)


def keep(
    answers: Iterable[Answer], *, task: str | None = None, generators: Sequence[str] = (), split: str | None = None
) -> list[Answer]:
    """Keep the answers of a task (their group), of any of the generators, and of an original split; ignore case."""
    kept = list(answers)
    kept = _with("task", [answer.group for answer in kept], kept, [task] if task else [])
    kept = _with("generator", [answer.generator for answer in kept], kept, generators)
    return _with("split", [answer.split for answer in kept], kept, [split] if split else [])


def _with(word: str, values: Sequence[str], answers: list[Answer], wanted: Sequence[str]) -> list[Answer]:
    """Keep the answers whose value is one of those wanted; every one wanted must be there."""
    there = {value.casefold() for value in values}
    for name in wanted:
        if name.casefold() not in there:
            listed = ", ".join(sorted(set(values) - {""}))
            hint = f"there are: {listed}" if listed else f"the answers name no {word}"
            raise FedsrcError(f"no answer that is left has the {word} {name!r}", hint=hint)
    names = {name.casefold() for name in wanted} or there
    return [answer for answer, value in zip(answers, values, strict=True) if value.casefold() in names]


def _about_parts(shared: int) -> Iterator[Finding]:
    if shared:
        texts = "1 text of evidence stands" if shared == 1 else f"{shared:,} texts of evidence stand"
        text = f"{texts} in more than one part, under different source names (--join-sources keeps them together)."
        yield Finding("warning", text)
