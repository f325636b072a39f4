"""Each source once: pages are what the records of every split say, and a split uses no source twice.

Mutants killed: a page edited by hand or made from other records, a split left out, held-out sources that calibrate, a
risk above target counted with `<`, acceptance without the splits that abstain.
"""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from research.pages import RESULTS
from research.studies import honest, sources_once
from research.studies.sources_once import EPSILONS, EXACT, OLD, RECORDS, SPLITS, TARGETS, VARIANTS


@pytest.fixture(scope="module")
def frame() -> pl.DataFrame:
    return pl.read_parquet(RECORDS)


def test_the_page_follows_from_the_records(frame: pl.DataFrame) -> None:
    made = "\n\n".join(sources_once.page(frame)) + "\n"
    assert (RESULTS / "sources-once.md").read_text(encoding="utf-8") == made


def test_the_page_of_what_can_be_certified_leads_with_it(frame: pl.DataFrame) -> None:
    text = (RESULTS / "studies" / "certified-today.md").read_text(encoding="utf-8")
    made = "\n\n".join(honest.parts())
    assert text.startswith(f"# What can be certified today\n\n{made}\n\n## The paper's regime\n")


def test_every_method_saw_every_split_once(frame: pl.DataFrame) -> None:
    counted = frame.group_by("detector", "target", "epsilon", "method").agg(pl.col("split").n_unique(), pl.len())
    assert set(counted["split"]) == set(counted["len"]) == {SPLITS}
    expected = len(TARGETS) * (len(EPSILONS) * (3 + len(OLD)) + len(EXACT)) + len(EPSILONS) * (len(VARIANTS) - 3)
    assert counted.height == 4 * expected


def test_a_split_uses_no_source_twice() -> None:
    rng = np.random.default_rng(1)
    table = sources_once.Table(rng.random(300), (rng.random(300) < 0.2).astype(np.float64), np.arange(0, 300, 3))
    parts = [set(part.tolist()) for part in sources_once.split(table, 0).parts]
    assert [len(part) for part in parts] == [20, 60, 20]
    assert len(set.union(*parts)) == 100


def test_cells_count_abstentions_and_held_out_risks_above_target() -> None:
    outcomes = pl.DataFrame(
        {
            "certified": [True, True, True, False], "acceptance": [0.5, 0.3, 0.4, 0.0],
            "held_out": [10.0, 10.0, 20.0, 0.0], "held_out_unsupported": [3.0, 2.0, 1.0, 0.0],
        }
    )  # fmt: skip
    found = sources_once.cell(outcomes, 0.2)
    assert (found.splits, found.certified, found.above) == (4, 3, 1)  # 2 of 10 is at the target, not above it
    assert found.acceptance == pytest.approx(0.3)
    assert found.risk == pytest.approx(6 / 40)
    assert found.mostly
    assert sources_once.cell(outcomes.tail(1), 0.2).risk is None
