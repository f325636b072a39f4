"""Pages of results are what the records of every trial say: made again from them, they come out byte for byte.

Mutants killed: a page edited by hand or made from other records; a trial left out or kept twice (times aside: there as
many are kept as fitted in); an abstention counted as no records; a mean for a median or the other way round; table (b)
of RAGTruth decided at the first certificate; a ring in the last round not counted, a delay from deployment on, runs cut
off later; another percentile; the worst turn for the best; each time of a request counted once, however many took it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

from research.benchmarks import gate, monitor, population_l, ragtruth, speed
from research.pages import RESULTS


class Kept(NamedTuple):
    """A page, its records, how it is made from them, which columns name a trial, and where what they say ends."""

    records: Path
    made: Callable[[pl.DataFrame], list[str]]
    keys: tuple[str, ...]
    trials: int | None = None
    until: str = ""


PAGES = {
    "population-l.md": Kept(
        population_l.RECORDS, population_l.page, ("draw", "target", "epsilon", "batch", "preset", "trial"), 7_600
    ),
    "ragtruth.md": Kept(
        ragtruth.RECORDS, ragtruth.page, ("draw", "preset", "target", "epsilon", "batch", "policy", "seed"), 2_320
    ),
    "monitor.md": Kept(
        monitor.RECORDS, monitor.page, ("table", "setting", "epsilon", "after", "run"), 129_000, f"\n{monitor.REAL}\n"
    ),
    "speed.md": Kept(speed.KEPT, speed.page, ("table", "what", "thresholds", "repetition")),
    "gate.md": Kept(gate.KEPT, gate.page, ("table", "what", "clients", "rate", "microseconds", "wrong")),
}


@pytest.mark.parametrize("name", PAGES)
def test_the_page_follows_from_the_records(name: str) -> None:
    kept = PAGES[name]
    frame = pl.read_parquet(kept.records)
    assert frame.height == frame.select(kept.keys).n_unique()
    assert kept.trials in (None, frame.height)  # as many as fitted into the time where times are measured
    made = "\n\n".join(kept.made(frame)) + "\n"
    text = (RESULTS / name).read_text(encoding="utf-8")
    assert text[: text.index(kept.until) if kept.until else None] == made
