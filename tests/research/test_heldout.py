"""The page of held-out answers is what its rows say, and the rows are what the studies give.

Chance of a false alarm: none, everything is recomputed from fixed seeds.
Mutants killed: a number edited in the page or the table, a threshold left out, the rows of another study.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from research.pages import RESULTS
from research.studies.catalogue import missing_tables, study_of
from research.studies.heldout import STUDIES, TABLE, computed, page


def test_the_page_is_what_the_rows_say() -> None:
    assert (RESULTS / "heldout.md").read_text(encoding="utf-8") == "\n\n".join(page(pl.read_csv(TABLE))) + "\n"


def test_the_rows_are_those_of_the_studies_that_need_no_table() -> None:
    free = tuple(name for name in STUDIES if not missing_tables(study_of(name), Path("nowhere")))
    kept = pl.read_csv(TABLE)
    assert free == ("halueval",)
    assert kept["study"].unique(maintain_order=True).to_list() == list(STUDIES)
    made, known = computed(free, Path()), kept.filter(pl.col("study").is_in(free))
    assert made.columns == known.columns
    assert made.height == known.height == 20
    for name in made.columns:
        if made[name].dtype.is_float():
            assert (made[name] - known[name]).abs().max() < 1e-6  # type: ignore[operator]
        else:
            assert made[name].to_list() == known[name].to_list()
