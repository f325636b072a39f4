"""Lexical support: how much of an answer's wording stands in the evidence. No model."""

from __future__ import annotations

import re
from itertools import pairwise

_COMMON = """a an the of in on at to for and or is was were are be by with from as that this it its which who whom whose
what when where how did does do has had have not no he she they his her their but also"""
STOP_WORDS = frozenset(_COMMON.split())
SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


def words(text: str) -> list[str]:
    """Return the lower-case runs of letters and digits."""
    return re.findall(r"[^\W_]+", text.lower())


def sentences(text: str) -> list[str]:
    """Return the sentences that hold a word; of a text without words, the text."""
    return [each for each in SENTENCE_END.split(text.strip()) if words(each)] or [text.strip()]


def lexical_support(answer: str, evidence: str) -> float:
    """Return the mean of two shares: content words found in the evidence, and adjacent word pairs found in it.

    An answer of stop words only is judged by all its words; one word has no pair and counts its word share twice; an
    empty answer scores 0.
    """
    answered, given = words(answer), words(evidence)
    content = [word for word in answered if word not in STOP_WORDS] or answered
    if not content:
        return 0.0
    known, known_pairs = set(given), set(pairwise(given))
    word_share = sum(word in known for word in content) / len(content)
    pairs = list(pairwise(answered))
    pair_share = sum(pair in known_pairs for pair in pairs) / len(pairs) if pairs else word_share
    return (word_share + pair_share) / 2
