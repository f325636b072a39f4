"""Which score development answers choose, as the page of compared scores keeps it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from fedsrc.common.canonical import file_digest
from fedsrc.scores.choose import choose
from research.pages import FIGURES
from research.tables.scores import passes, scores_of

NAMES = {
    "ragtruth": "RAGTruth QA", "halueval-qa": "QA", "halueval-dialogue": "dialogue",
    "halueval-summarization": "summarization",
}  # fmt: skip
KEPT = FIGURES / "scores_chosen.json"
CONTROLS = ("shortness",)


class Chosen(NamedTuple):
    """What development answers chose, and what came next."""

    name: str
    auc: float
    next: str
    next_auc: float


def chosen(path: Path, frame: pl.DataFrame, most: tuple[int, int]) -> dict[str, Any]:
    """Choose on development answers, none of which are of the frame's sources."""
    development = pl.read_parquet(path)
    candidates = [each for each in scores_of(development) if each not in CONTROLS]
    found = choose(development, candidates, passes(scores_of(development), most), records_sha256=file_digest(path))
    found.check(map(str, frame["source"]))
    order = sorted(found.candidates.items(), key=lambda item: (item[0] != found.chosen, -item[1].auc))
    (first, own), (second, other) = order[:2]
    kept = Chosen(first, round(own.auc, 3), second, round(other.auc, 3))
    return {"development_sha256": found.records_sha256, "chosen": kept._asdict()}
