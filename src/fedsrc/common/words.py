"""Text from outside made safe to show: nothing in it can steer a terminal or a page, or mislead the reader's eye."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import ROUND_CEILING, Context

LONGEST = 600
ADJACENCY = {
    "zero-out": "being this one, or one that scores below every threshold",
    "replacement": "being this one or any other",
    "same-group": "being this one or any other that counts in the same groups, as much in each",
}
NO_GROUP = "being this one, or one of no listed group"


def neighbour(adjacency: str, floor: str | None = None) -> str:
    """What a unit could be instead. Where the `floor` is a share of a group, releases hold the group's total: a unit
    that scores below every threshold is in it, and only one of no listed group adds nothing."""
    return NO_GROUP if (adjacency, floor) == ("zero-out", "group") else ADJACENCY[adjacency]


def plain(text: str) -> str:
    """Put text on one line, with control and direction characters escaped, truncated if it is very long."""
    cut = text[:LONGEST]
    shown = "".join(letter if letter.isprintable() else f"\\u{{{ord(letter):x}}}" for letter in cut)
    return shown if len(text) <= LONGEST else f"{shown}... ({len(text) - LONGEST:,} more characters)"


def risk_words(risk_upper: float) -> str:
    """A risk bound in words."""
    return "no bound yet" if risk_upper >= 1 else f"risk at most {rounded_up(risk_upper)}"


def rounded_up(bound: float) -> str:
    """An upper bound in three digits, never less than it is."""
    return f"{float(Context(prec=3, rounding=ROUND_CEILING).create_decimal(repr(float(bound)))):g}"


def count(number: int, noun: str) -> str:
    """1 round, 2 rounds."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def moment(time: str) -> str:
    """A time of a file, to the minute: 2026-11-16 22:10 UTC; "" for none."""
    return time and f"{datetime.fromisoformat(time).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
