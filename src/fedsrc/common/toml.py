"""TOML from outside: checked before it is parsed, because the parser's time grows with the square of a dotted key's
length.

Strings and comments are taken out first. A key lies in one line, so in what is left a key of many parts is a run of
words and dots, and nesting is brackets.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

PARTS = 16  # of a dotted key, or of the name of a table
DOTS = 100_000  # in all of these
DEPTH = 32  # brackets in brackets
KEYS = 500_000
QUOTED = re.compile(  # groups may backtrack: possessive ones match wrongly in Python 3.11 before 3.11.5
    r'"""[^"\\]*+(?:(?:\\.|"(?!""))[^"\\]*+)*(?:"{3,5}|\\?\Z)'  # one that never ends takes all that follows with it:
    r"|'''[^']*+(?:'(?!'')[^']*+)*(?:'{3,5}|\Z)"  # there the parser stops, too
    r'|"[^"\\\n]*+(?:\\[^\n][^"\\\n]*+)*"?'
    r"|'[^'\n]*+'?"
    r"|\#[^\n]*+",
    re.DOTALL,
)
BLANK = re.compile(r"[ \t]+")
DOTTED = re.compile(rf"(?:\.[\w-]*+){{{PARTS}}}")
NAMED = re.compile(r"(?<![\w.-])[\w.-]++[=\]]")  # a key or a table's name; the last number of a list, too
PAIR = re.compile(r"\[\]|\{\}")
NO_BRACKETS = re.compile(r"[^][{}]+")


def parse_toml(text: str) -> dict[str, Any]:
    """Parse a TOML text; raise ValueError if it is not one, or is nested or long beyond any need."""
    bare = BLANK.sub("", QUOTED.sub("q", text))
    if DOTTED.search(bare):
        raise ValueError(f"a key has more than {PARTS} parts")
    if sum(each.count(".") for each in NAMED.findall(bare)) > DOTS:
        raise ValueError(f"its keys have more than {DOTS:,} dots")
    if _nested(NO_BRACKETS.sub("", bare)):
        raise ValueError(f"it is nested more than {DEPTH} deep")
    if bare.count("=") > KEYS:
        raise ValueError(f"it has more than {KEYS:,} keys")
    return tomllib.loads(text)


def _nested(brackets: str) -> bool:
    """Whether brackets are too deep: pairs are taken out from the inside. A few without a partner are the parser's."""
    for _ in range(DEPTH):
        brackets = PAIR.sub("", brackets)
    return len(brackets) > DEPTH
