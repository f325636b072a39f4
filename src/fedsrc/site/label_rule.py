"""From people's words to the loss that counts: how many people an answer needs, and what follows from what they say.

Who is asked follows from hashes and the registered rule alone. Asking again only where an answer was called
unsupported would bias the loss; "unsure" and differing words go to a third person where that is registered, both ways
alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fedsrc.common.canonical import digest
from fedsrc.protocol.registration import OnDemand
from fedsrc.site.label_file import Label

WHOLE = 1 << 256


class Standing(NamedTuple):
    """Where an answer stands: its loss, None while somebody is still to speak; whether that is a third person."""

    loss: float | None
    third: bool


def looks(labelling: OnDemand, registration_digest: str, answer: str) -> int:
    """Return how many people label an answer: two for the registered share, drawn by hash."""
    drawn = int(digest(["looks", registration_digest, answer]), 16)
    return 2 if drawn < labelling.twice * WHOLE else 1


def standing(labelling: OnDemand, looks: int, labels: Sequence[Label]) -> Standing:
    """Judge the labels of one answer, in the order they were given. The last word of each person counts.

    `worse`: the largest loss. `third`: the same while the first `looks` people agree and are sure; else whoever comes
    after them decides. "Unsure" counts as unsupported.
    """
    words = {label.by: label.loss for label in labels}  # in the order in which people first spoke
    first, later = list(words.values())[:looks], list(words.values())[looks:]
    if len(first) < looks:
        return Standing(None, third=False)
    if labelling.disagreement == "third" and (None in first or len(set(first)) > 1):
        return Standing(_largest(later), third=True) if later else Standing(None, third=True)
    return Standing(_largest([*first, *later]), third=False)


def _largest(words: list[float | None]) -> float:
    return max(1.0 if word is None else word for word in words)
