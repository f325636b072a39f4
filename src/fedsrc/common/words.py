"""Text from outside, made fit to be shown: nothing in it can steer a terminal, a page or the reader's eye."""

from __future__ import annotations

LONGEST = 600
ADJACENCY = {
    "zero-out": "being this one, or one that scores below every threshold",
    "replacement": "being this one or any other",
}


def plain(text: str) -> str:
    """The text on one line, with control and direction characters written out, cut where it is very long."""
    cut = text[:LONGEST]
    shown = "".join(letter if letter.isprintable() else f"\\u{{{ord(letter):x}}}" for letter in cut)
    return shown if len(text) <= LONGEST else f"{shown}... ({len(text) - LONGEST:,} more characters)"


def risk_words(risk_upper: float) -> str:
    """A risk bound in words."""
    return "no bound yet" if risk_upper >= 1 else f"risk at most {risk_upper:.3g}"


def count(number: int, noun: str) -> str:
    """1 round, 2 rounds."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
