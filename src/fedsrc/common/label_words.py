"""How labels are written: the words that everybody uses, and what the name of a column or a scorer says.

What a label word means is fixed: `supported` and `hallucinated` mean what they say under any name. Whether 1, true and
yes are good or bad, the name says, or whoever has the labels.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Literal

from fedsrc.errors import FedsrcError

End = Literal["unsupported", "supported"]
ONE, ZERO = frozenset(("1", "true", "yes", "y", "t")), frozenset(("0", "false", "no", "n", "f"))
SUPPORTED = frozenset((
    "supported", "grounded", "faithful", "correct", "accurate", "factual", "entailed", "entailment", "attributable",
    "consistent", "good", "not hallucinated", "no hallucination",
))  # fmt: skip
UNSUPPORTED = frozenset((
    "unsupported", "ungrounded", "unfaithful", "incorrect", "inaccurate", "nonfactual", "wrong", "hallucinated",
    "hallucination", "fabricated", "contradicted", "contradiction", "inconsistent", "bad", "not supported",
    "not grounded", "not faithful", "not correct",
))  # fmt: skip
LABEL_NAME = {  # what a column is called whose 1 is unsupported, or supported; in small letters and digits alone
    "unsupported": re.compile(
        r"(is|has|was|contains|human)?(loss|unsupported|ungrounded|unfaithful|incorrect|wrong|error|bad|fabricated"
        r"|hallucinated|hallucinations?|notsupported|notgrounded)(label|flag)?"
    ),
    "supported": re.compile(
        r"(is|was|human)?(supported|grounded|faithful|correct|accurate|factual|entailed|attributable|good|ok)(label|flag)?"
    ),
}
NEUTRAL_NAME = re.compile(
    r"(human|annotation|humanannotation)?(labels?|verdict|judge?ment|annotation|rating|outcome|feedback)"
)


def plain_name(name: str) -> str:
    """Return a column's name in small letters and digits alone."""
    return re.sub(r"[\W_]+", "", name.lower())


def plain_word(text: str) -> str:
    """Return a label in small letters, its words one space apart."""
    return re.sub(r"^([01])\.0+$", r"\1", re.sub(r"[\s_-]+", " ", text).strip().lower())


def end_of_name(name: str) -> End | None:
    """Return what a 1 means in a column of that name, where the name says so."""
    ends: tuple[End, ...] = ("unsupported", "supported")
    return next((end for end in ends if LABEL_NAME[end].fullmatch(plain_name(name))), None)


def check_words(unsupported: Collection[str], supported: Collection[str]) -> None:
    """Refuse a label that was said to mean both."""
    if both := {*map(plain_word, unsupported)} & {*map(plain_word, supported)}:
        raise FedsrcError(f"label {min(both)!r} cannot be both unsupported and supported")


def end_of_one(name: str, unsupported: Collection[str] = (), supported: Collection[str] = ()) -> End | None:
    """Return what a 1, a true and a yes mean under a name: as somebody says, or else the name."""
    bad, good = ({*map(plain_word, each)} for each in (unsupported, supported))
    if bad & ONE or good & ZERO:
        return "unsupported"
    if bad & ZERO or good & ONE:
        return "supported"
    return end_of_name(name) or ("unsupported" if plain_name(name).endswith("loss") else None)


def meaning(
    label: str, one_is: End | None, unsupported: Collection[str] = (), supported: Collection[str] = ()
) -> float | None:
    """Return the loss that a word stands for; None if nobody knows it."""
    word, bad = plain_word(label), {*map(plain_word, unsupported)}
    if word in bad or word in map(plain_word, supported):
        return float(word in bad)
    if word in SUPPORTED | UNSUPPORTED:
        return float(word in UNSUPPORTED)
    if one_is is None or word not in ONE | ZERO:
        return None
    return float((word in ONE) == (one_is == "unsupported"))
