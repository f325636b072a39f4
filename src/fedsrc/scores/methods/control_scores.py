"""Controls that need no model: length, wording that the evidence lacks, and refusals."""

from __future__ import annotations

import re

from fedsrc.scores.methods.lexical import STOP_WORDS, words

REFUSALS = re.compile(
    r"\b(?:unable to answer|cannot (?:answer|be answered|determine)|can['’]t (?:answer|be answered|determine)"
    r"|not (?:possible|able) to (?:answer|determine)"
    r"|(?:passages?|context|documents?|text|information|evidence|sources?|articles?)(?: \w+)?"
    r" (?:(?:do|does|did) not|don['’]t|doesn['’]t|didn['’]t)"
    r" (?:say|state|answer|provide|contain|include|mention|specify|give)"
    r"|insufficient information|not enough information"
    r"|no (?:specific )?information (?:is|was|about|on|regarding|in))\b",
    re.IGNORECASE,
)
REFUSAL_WORDS = 40


def shortness(response: str) -> float:
    """Return 1 / (1 + words / 50): a control, not a score of support. Shorter is higher."""
    return 1.0 / (1.0 + len(words(response)) / 50.0)


def novel_words(response: str, evidence: str) -> int:
    """Return how many distinct content words of the response the evidence (and the question in it) lacks."""
    known = set(words(evidence))
    return len({word for word in words(response) if word not in STOP_WORDS and word not in known})


def familiarity(response: str, evidence: str) -> float:
    """Return 1 / (1 + novel content words), in (0, 1], 1 when every content word stands in the evidence."""
    return 1.0 / (1.0 + novel_words(response, evidence))


def is_refusal(response: str) -> bool:
    """Return whether a short response only says that the evidence does not answer: it claims nothing."""
    return len(words(response)) <= REFUSAL_WORDS and REFUSALS.search(response) is not None
