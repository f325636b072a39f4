"""Text from outside made safe to show: nothing in it can steer a terminal or a page, or mislead the reader's eye."""

from __future__ import annotations

LONGEST = 600
ADJACENCY = {
    "zero-out": "being this one, or one that scores below every threshold",
    "replacement": "being this one or any other",
}


def plain(text: str) -> str:
    """Put text on one line, with control and direction characters escaped, truncated if it is very long."""
    cut = text[:LONGEST]
    shown = "".join(letter if letter.isprintable() else f"\\u{{{ord(letter):x}}}" for letter in cut)
    return shown if len(text) <= LONGEST else f"{shown}... ({len(text) - LONGEST:,} more characters)"


def risk_words(risk_upper: float) -> str:
    """A risk bound in words."""
    return "no bound yet" if risk_upper >= 1 else f"risk at most {risk_upper:.3g}"


def count(number: int, noun: str) -> str:
    """1 round, 2 rounds."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
