"""How a cell is read: numbers with or without a percent sign, and the words that labels are written in.

What a label word means is fixed: `supported` and `hallucinated` mean what they say in any column. Whether 1, true and
yes are good or bad, the column's name says, or whoever has the table.
"""

from __future__ import annotations

import re
from typing import Literal

import numpy as np
import polars as pl

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
NEUTRAL_NAME = re.compile(r"(human)?(labels?|verdict|judge?ment|annotation|rating|outcome)")


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


def numbers(column: pl.Series) -> pl.Series:
    """Return a column as floats; null where a cell is empty or no number. 66.5% is 66.5."""
    if column.dtype != pl.String:
        return column.alias("number").cast(pl.Float64)
    return stripped(column).str.strip_suffix("%").str.strip_chars_end().cast(pl.Float64, strict=False)


def stripped(column: pl.Series) -> pl.Series:
    """Return a column of text without space around it; null where nothing is left."""
    text = column.alias("number").str.strip_chars()  # the reader takes some names for patterns
    return text.set(text == "", None)


def percents(column: pl.Series) -> pl.Series:
    """Return which cells of a column have a percent sign; null where one of text is empty."""
    if column.dtype != pl.String:
        return pl.Series("number", np.zeros(len(column), dtype=np.bool_))
    return stripped(column).str.ends_with("%")
