"""Lexical support: how much of an answer's wording stands in the evidence. No model."""

from __future__ import annotations

import re
from itertools import pairwise

STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        """a an the of in on at to for and or is was were are be by with from as that this it its which who whom whose
        what when where how did does do has had have not no he she they his her their but also""",
    )
)


def words(text: str) -> list[str]:
    """Lower-case runs of letters and digits."""
    return re.findall(r"[^\W_]+", text.lower())


def lexical_support(answer: str, evidence: str) -> float:
    """Mean of two shares: content words found in the evidence, and adjacent word pairs found in it.

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
