"""Prompts and evidence controls: the same question with the evidence present, removed, or replaced.

Only the evidence changes between controls; every other field of the prompt is held fixed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Literal

from fedsrc.data.answers import Answer
from fedsrc.errors import FedsrcError

Control = Literal["present", "removed", "neutral", "shuffled", "irrelevant"]
TEMPLATE = "Context:\n{evidence}\n\nQuestion: {question}\nAnswer: "
NO_QUESTION = "Context:\n{evidence}\n\nAnswer: "
NEUTRAL = "This passage holds nothing about the matter at hand. "
Length = Callable[[str], int]


def prompt(answer: Answer, evidence: str) -> str:
    """The prompt for an answer with that evidence."""
    template = TEMPLATE if answer.question else NO_QUESTION
    return template.format(evidence=evidence, question=answer.question)


def controlled(answers: Sequence[Answer], control: Control, length: Length = len) -> list[str]:
    """Each answer's evidence under a control.

    neutral: filler of the same length. shuffled: another source's evidence of the same group. irrelevant: evidence of
    another group (or source) cut to the same length. `length` counts what "length" means, characters or tokens.
    """
    if control == "present":
        return [answer.evidence for answer in answers]
    if control == "removed":
        return ["" for _ in answers]
    if control == "neutral":
        return [_filled(NEUTRAL, length(answer.evidence), length) for answer in answers]
    return [_borrowed(answers, answer, control, length) for answer in answers]


def _borrowed(answers: Sequence[Answer], answer: Answer, control: Control, length: Length) -> str:
    same = control == "shuffled"
    others = sorted(
        {(a.source, a.evidence) for a in answers if a.source != answer.source and (a.group == answer.group) == same}
    )
    if not others and not same:
        others = sorted({(a.source, a.evidence) for a in answers if a.source != answer.source})
    if not others:
        raise FedsrcError(
            f"evidence control {control!r} needs answers of other sources", hint="score more answers at once"
        )
    place = int.from_bytes(hashlib.sha256(f"{control}:{answer.source}".encode()).digest()[:8], "big")
    evidence = others[place % len(others)][1]
    return evidence if same else _filled(evidence + " ", length(answer.evidence), length)


def _filled(text: str, target: int, length: Length) -> str:
    """Text repeated, then cut, to a given length."""
    whole = text
    while length(whole) < target:
        whole += text
    low, high = 0, len(whole)
    while low < high:  # the longest prefix of at most the target length
        middle = (low + high + 1) // 2
        low, high = (middle, high) if length(whole[:middle]) <= target else (low, middle - 1)
    return whole[:low]
