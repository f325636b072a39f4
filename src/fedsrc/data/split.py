"""Three-way split: development, calibration, evaluation, with all outputs of a source together.

The part of a source, and the one answer that stands for it where only one may, depend on names and a recorded seed
alone, so adding sources moves no other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

from fedsrc.common.canonical import digest
from fedsrc.common.durable import write_whole
from fedsrc.data.answers import Answer
from fedsrc.errors import FedsrcError

Part = Literal["development", "calibration", "evaluation"]
PARTS: tuple[Part, ...] = get_args(Part)
DEFAULT = {"development": 0.2, "calibration": 0.5, "evaluation": 0.3}


def part_of(source: str, seed: int, shares: Mapping[str, float] = DEFAULT) -> Part:
    """Return the part of a source: a hash of seed and name against the cumulative shares."""
    place = int.from_bytes(hashlib.sha256(f"{seed}:{source}".encode()).digest()[:8], "big") / 2**64
    edge = 0.0
    for part in PARTS:
        edge += shares[part]
        if place < edge:
            return part
    return PARTS[-1]


def assign(answers: Iterable[Answer], seed: int, shares: Mapping[str, float] = DEFAULT) -> dict[str, Part]:
    """Assign a part to every source of the answers."""
    fair = set(shares) == set(PARTS) and all(share >= 0 for share in shares.values())
    if not (fair and abs(sum(shares.values()) - 1) <= 1e-9):  # false for NaN
        raise FedsrcError(f"shares must name {', '.join(PARTS)} and sum to one")
    return {source: part_of(source, seed, shares) for source in sorted({answer.source for answer in answers})}


def write_assignments(path: Path, assignments: Mapping[str, Part], seed: int) -> None:
    """Write the split to a file, so that others can use it."""
    value = {"format": 1, "seed": seed, "parts": dict(assignments)}
    write_whole(path, json.dumps(value, indent=1, sort_keys=True).encode() + b"\n")


def select(answers: Iterable[Answer], assignments: Mapping[str, Part], part: Part) -> list[Answer]:
    """Return the answers of one part."""
    return [answer for answer in answers if assignments[answer.source] == part]


def torn(answers: Iterable[Answer], assignments: Mapping[str, Part]) -> int:
    """Count texts of evidence that are in more than one part, under different source names."""
    parts: dict[str, set[Part]] = {}
    for answer in answers:
        if answer.evidence.strip():
            parts.setdefault(answer.evidence.strip(), set()).add(assignments[answer.source])
    return sum(len(each) > 1 for each in parts.values())


def join_sources(answers: Sequence[Answer]) -> list[Answer]:
    """Make sources that share a text of evidence one, under the name that comes first in the file."""
    heads = {answer.source: answer.source for answer in answers}

    def head(source: str) -> str:
        while heads[source] != source:
            heads[source] = heads[heads[source]]
            source = heads[source]
        return source

    places = {source: place for place, source in enumerate(heads)}
    first: dict[str, str] = {}
    for answer in answers:
        if not answer.evidence.strip():
            continue
        one, other = head(answer.source), head(first.setdefault(answer.evidence.strip(), answer.source))
        early, late = sorted((one, other), key=places.__getitem__)
        heads[late] = early
    return [replace(answer, source=head(answer.source)) for answer in answers]


def one_per_source(answers: Iterable[Answer], seed: int) -> list[Answer]:
    """Keep one answer of each source: the one whose id and seed hash lowest, whatever its label."""
    lowest: dict[str, tuple[str, str]] = {}
    kept = list(answers)
    for answer in kept:
        rank = digest(["one per source", seed, answer.source, answer.id]), answer.id
        lowest[answer.source] = min(rank, lowest.get(answer.source, rank))
    chosen = {(source, name) for source, (_, name) in lowest.items()}
    return [answer for answer in kept if (answer.source, answer.id) in chosen]
