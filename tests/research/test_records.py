"""Pages of results are what the records of every trial say: made again from them, they come out byte for byte.

Mutants killed: a page edited by hand or made from other records; a trial left out or kept twice (times aside: there as
many are kept as fitted in); an abstention counted as no records; a mean for a median or the other way round; table (b)
of RAGTruth decided at the first certificate; a ring in the last round not counted, a delay from deployment on, runs cut
off later; another percentile; the worst turn for the best; each time of a request counted once, however many took it.
"""

from __future__ import annotations

import polars as pl
import pytest

from research.kept import PAGES


@pytest.mark.parametrize("name", PAGES)
def test_the_page_follows_from_the_records(name: str) -> None:
    kept = PAGES[name]
    frame = pl.read_parquet(kept.records)
    assert frame.height == frame.select(kept.keys).n_unique()
    assert kept.trials in (None, frame.height)  # as many as fitted into the time where times are measured
    assert kept.published(name) == kept.text()
