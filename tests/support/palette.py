"""Contrast of the card's colours, as WCAG defines it, computed from its stylesheet."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

from fedsrc.report import html

STYLE = Path(html.__file__).parent / "templates" / "card.css"


def schemes() -> dict[str, dict[str, str]]:
    """The colour variables of the light page, the dark page and the print."""
    found = re.findall(r"(?m)^ *:root \{(?: color-scheme: light dark;)? (--paper[^}]*)\}", STYLE.read_text())
    return {
        name: dict(re.findall(r"--(\w+): (#[0-9a-f]{3,6});", text))
        for name, text in zip(("light", "dark", "print"), found, strict=True)
    }


def contrast(one: str, other: str) -> float:
    """The ratio of two colours' luminances."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def lowest() -> float:
    """The lowest contrast of any text colour on any background of its scheme."""
    return min(
        contrast(colours[text], colours[back])
        for colours in schemes().values()
        for text, back in product(("ink", "muted", "accent", "good", "warn", "bad"), ("paper", "soft"))
    )


def _luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * each for each in colour[1:])
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
