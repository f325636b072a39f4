"""Tables that recorded runs are made of: scores that order their losses well, from a fixed seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

GROUPS, GROUP_SHARES, GROUP_BAD = ("day", "night", "else"), (0.6, 0.3, 0.1), (0.25, 0.4, 0.5)


def write_table(
    path: Path, count: int, *, sites: Sequence[str] = (), answers: int = 1, levels: int = 1, bad: float = 0.35,
    labels: bool = True, mixed: bool = False,
) -> Path:  # fmt: skip
    """Write a table of so many units; losses have levels 0, 1/levels, ..., 1, and where answers are mixed, those of a
    source are of several groups. Return its path."""
    draw, rows = random.Random(path.stem), list[dict[str, Any]]()
    for i in range(count):
        group = draw.choices(range(len(GROUPS)), GROUP_SHARES)[0]
        for k in range(answers):
            group = draw.choices(range(len(GROUPS)), GROUP_SHARES)[0] if mixed else group
            loss = draw.randint(1, levels) / levels if draw.random() < bad * (0.5 + GROUP_BAD[group]) / 0.8 else 0.0
            score, other = (min(1.0, max(0.0, draw.gauss(0.75 - gap * loss, 0.13))) for gap in (0.32, 0.36))
            row: dict[str, Any] = {"id": f"{path.stem}-{i}-{k}"}
            row |= {"site": sites[i % len(sites)]} if sites else {}
            row |= {"source": f"{path.stem}-s{i}"} if answers > 1 else {}
            row |= {"score": round(score, 3), "grounding": round(100 * (1 - other), 1), "group": GROUPS[group]}
            rows.append(row | ({"loss": loss} if labels else {}))
    path.parent.mkdir(parents=True, exist_ok=True)
    pl.DataFrame(rows).write_csv(path)
    return path
