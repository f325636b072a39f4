"""What pages of results share: arrays as records, Markdown tables, and where pages and their figures lie."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from fedsrc.maths.arrays import Floats
from fedsrc.records.order import Positions
from fedsrc.records.units import Records

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"  # pages
FIGURES = ROOT / "research" / "results"  # what they are made from: records, tables, times


def records_of(
    score: Floats, loss: Floats, site: Positions, names: Sequence[str], source: Positions | None = None
) -> Records:
    """Arrays as a checked table would give them."""
    codes = np.zeros(0, np.int64) if source is None else np.unique(source)
    return Records(
        digest=hashlib.sha256(score.tobytes() + loss.tobytes()).hexdigest(),
        score=score,
        loss=loss,
        site=site,
        site_names=tuple(names),
        source=None if source is None else np.searchsorted(codes, source).astype(np.int64),
        source_names=tuple(str(code) for code in codes),
        ids=None,
    )


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; columns of figures are aligned to the right."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def publish(name: str, parts: Iterable[str]) -> None:
    """Print a result and write it to docs/results."""
    text = "\n\n".join(parts) + "\n"
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / name).write_text(text, encoding="utf-8")
    print(text)


def words(epsilon: float) -> str:
    """An epsilon as tables show it."""
    return "none" if math.isinf(epsilon) else f"{epsilon:g}"
