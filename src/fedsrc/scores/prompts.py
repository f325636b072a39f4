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
    lender = _Lender(answers, control)
    borrowed = [lender.evidence_for(answer) for answer in answers]
    if control == "shuffled":
        return borrowed
    return [
        _filled(f"{other} ", length(answer.evidence), length) for answer, other in zip(answers, borrowed, strict=True)
    ]


class _Lender:
    """Evidence of other sources: of the same group (shuffled), or of another group where there is one (irrelevant).

    Which source lends is a hash of the borrower's name, so that it does not depend on the order of answers.
    """

    def __init__(self, answers: Sequence[Answer], control: Control) -> None:
        self._control = control
        self._shelf = sorted({(answer.source, answer.evidence, answer.group) for answer in answers})
        self._same: dict[str, list[tuple[str, str, str]]] = {}
        for entry in self._shelf:
            self._same.setdefault(entry[2], []).append(entry)

    def evidence_for(self, answer: Answer) -> str:
        same = self._control == "shuffled"
        shelf = self._same[answer.group] if same else self._shelf
        elsewhere = not same and len(self._same) > 1
        start = int.from_bytes(hashlib.sha256(f"{self._control}:{answer.source}".encode()).digest()[:8], "big")
        for step in range(len(shelf)):
            source, evidence, group = shelf[(start + step) % len(shelf)]
            if source != answer.source and evidence != answer.evidence and not (elsewhere and group == answer.group):
                return evidence
        raise FedsrcError(
            f"evidence control {self._control!r} needs answers of other sources", hint="score more answers at once"
        )


def _filled(text: str, target: int, length: Length) -> str:
    """Text repeated, then cut, to a given length."""
    whole, once = text, max(1, length(text))
    if target > once:
        whole = text * (target // once + 2)
    low, high = 0, len(whole)
    while low < high:  # the longest prefix of at most the target length
        middle = (low + high + 1) // 2
        low, high = (middle, high) if length(whole[:middle]) <= target else (low, middle - 1)
    return whole[:low]
