"""Prompts and evidence controls: the same question with the evidence present, removed, or replaced.

Only the evidence changes between controls; every other field of the prompt is held fixed.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from fedsrc.data.answers import Answer
from fedsrc.errors import FedsrcError

Control = Literal["present", "removed", "neutral", "shuffled", "irrelevant"]
TEMPLATE = "Context:\n{evidence}\n\nQuestion: {question}\nAnswer: "
NO_QUESTION = "Context:\n{evidence}\n\nAnswer: "
NEUTRAL = "This passage holds nothing about the matter at hand. "
Length = Callable[[str], int]


def prompt(answer: Answer, evidence: str) -> str:
    """Return the prompt for an answer with that evidence."""
    template = TEMPLATE if answer.question else NO_QUESTION
    return template.format(evidence=evidence, question=answer.question)


def controlled(answers: Sequence[Answer], control: Control, length: Length = len) -> list[str]:
    """Return each answer's evidence under a control.

    neutral: filler of the same length. shuffled: another source's evidence of the same group. irrelevant: evidence of
    another group (or source) cut to the same length. `length` counts characters or tokens.
    """
    if control == "present":
        return [answer.evidence for answer in answers]
    if control == "removed":
        return ["" for _ in answers]
    if control == "neutral":
        return [_filled(NEUTRAL, length(answer.evidence), length) for answer in answers]
    borrowed = _borrowed(answers, control)
    if control == "shuffled":
        return borrowed
    sizes = [length(answer.evidence) for answer in answers]
    return [_filled(f"{other} ", size, length) for other, size in zip(borrowed, sizes, strict=True)]


def by_prompt(prompts: Iterable[str]) -> dict[str, list[int]]:
    """Return where each distinct prompt stands."""
    found: dict[str, list[int]] = defaultdict(list)
    for place, each in enumerate(prompts):
        found[each].append(place)
    return found


def _borrowed(answers: Sequence[Answer], control: Control) -> list[str]:
    """Return evidence of another source for each answer: of its group (shuffled), or of another one (irrelevant).

    Which source lends is a hash of the borrower's name, so that it does not depend on the order of answers.
    """
    shelf = sorted({(answer.source, answer.evidence, answer.group) for answer in answers})
    groups: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
    for entry in shelf:
        groups[entry[2]].append(entry)
    shuffled = control == "shuffled"
    elsewhere = not shuffled and len(groups) > 1
    found = []
    for answer in answers:
        own = groups[answer.group] if shuffled else shelf
        start = int.from_bytes(hashlib.sha256(f"{control}:{answer.source}".encode()).digest()[:8], "big")
        lent = (
            evidence
            for source, evidence, group in (own[(start + step) % len(own)] for step in range(len(own)))
            if source != answer.source and evidence != answer.evidence and not (elsewhere and group == answer.group)
        )
        evidence = next(lent, None)
        if evidence is None:
            hint = "score more answers at once"
            raise FedsrcError(f"evidence control {control!r} needs answers of other sources", hint=hint)
        found.append(evidence)
    return found


def _filled(text: str, target: int, length: Length) -> str:
    """Return text repeated, then cut, to a given length."""
    whole, once = text, max(1, length(text))
    if target > once:
        whole = text * (target // once + 2)
    low, high = 0, len(whole)
    while low < high:  # the longest prefix of at most the target length
        middle = (low + high + 1) // 2
        low, high = (middle, high) if length(whole[:middle]) <= target else (low, middle - 1)
    return whole[:low]
