"""Three-way split: development, calibration, evaluation, with all outputs of a source together.

Which part a source falls into depends on its name and a recorded seed alone, so adding sources moves no other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from fedsrc.data.answers import Answer
from fedsrc.errors import FedsrcError
from fedsrc.files import write_whole

Part = Literal["development", "calibration", "evaluation"]
PARTS: tuple[Part, ...] = ("development", "calibration", "evaluation")
DEFAULT = {"development": 0.2, "calibration": 0.5, "evaluation": 0.3}


def part_of(source: str, seed: int, shares: Mapping[str, float] = DEFAULT) -> Part:
    """The part of a source: a hash of seed and name against the cumulative shares."""
    place = int.from_bytes(hashlib.sha256(f"{seed}:{source}".encode()).digest()[:8], "big") / 2**64
    edge = 0.0
    for part in PARTS:
        edge += shares[part]
        if place < edge:
            return part
    return PARTS[-1]


def assign(answers: Iterable[Answer], seed: int, shares: Mapping[str, float] = DEFAULT) -> dict[str, Part]:
    """Source -> part, for every source of the answers."""
    if set(shares) != set(PARTS) or min(shares.values()) < 0 or abs(sum(shares.values()) - 1) > 1e-9:
        raise FedsrcError(f"shares must name {', '.join(PARTS)} and sum to one")
    return {source: part_of(source, seed, shares) for source in sorted({answer.source for answer in answers})}


def write_assignments(path: Path, assignments: Mapping[str, Part], seed: int) -> None:
    """Write the split out, so that others can hold it."""
    text = json.dumps({"format": 1, "seed": seed, "parts": dict(assignments)}, indent=1, sort_keys=True)
    write_whole(path, text.encode() + b"\n")


def select(answers: Iterable[Answer], assignments: Mapping[str, Part], part: Part) -> list[Answer]:
    """The answers of one part."""
    return [answer for answer in answers if assignments[answer.source] == part]
