"""What the registered audit finds is what the trials of its study say; times are a machine's, and are left alone.

Mutants killed: a count, an interval, a cell or a total edited on the page or made from other records; the other target;
a policy or a cell left out; violations of one method for another's; a worst limit or a number of false certificates in
the head that is not the table's; trials said to be the same under two policies that are not.

Chance of a false alarm: none, nothing is random.
"""

from __future__ import annotations

import polars as pl
import pytest

from fedsrc.audit.study import Study
from research.benchmarks import audit
from research.benchmarks.audit import Engine
from research.pages import FIGURES, RESULTS, markdown

STUDIES = FIGURES / "studies"


def words(text: str) -> str:
    """A text without the places where its lines end."""
    return " ".join(text.split())


@pytest.fixture(scope="module")
def published() -> str:
    return (RESULTS / "audit.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def made() -> Engine:
    """The published study at the page's target: its settings, trials and table."""
    text = audit.STUDY.read_text(encoding="utf-8")
    both, one = Study.from_toml(text), Study.from_toml(text.replace(audit.TARGETS, audit.ONE_TARGET))
    places = {i: one.settings.index(each) for i, each in enumerate(both.settings) if each in one.settings}
    assert len(places) == len(one.settings) == 36 == len(both.settings) / 2
    columns = ["setting", "method", "trial", "fired", "missed", "records"]
    trials = pl.read_parquet(STUDIES / "registered.parquet", columns=columns).sort("setting", "method", "trial")
    table = pl.read_csv(STUDIES / "registered.csv")
    return Engine(one, kept(trials, places), kept(table, places), trials_s=0, table_s=0, peak_bytes=0)


def kept(frame: pl.DataFrame, places: dict[int, int]) -> pl.DataFrame:
    """Rows of some settings, which have other numbers now."""
    here = frame.filter(pl.col("setting").is_in(list(places)))
    return here.with_columns(pl.col("setting").replace_strict(places))


def test_every_row_of_the_page_is_the_study_s(made: Engine, published: str) -> None:
    methods = [cell for name in made.study.methods for cell in (f"{name}: violations", "fired")]
    rows = list(audit.result_rows(made))
    assert len(rows) == 36
    for table in (
        markdown(["cell", "epsilon", "policy", *methods], rows),
        markdown(audit.CELL_HEADER, audit.cell_rows(made)),
        markdown(audit.TOTAL_HEADER, audit.total_rows(made)),
    ):
        assert f"\n{table}\n" in published


def test_what_the_page_says_of_them_is_so(made: Engine, published: str) -> None:
    for text in (audit.finding(made), audit.results_head(made), audit.results_reading(made)):
        assert words(text) in words(published)
    assert "are one set of trials, not three" in words(audit.results_head(made))


def test_the_table_counts_the_trials(made: Engine) -> None:
    """The table that the page is made from, beside the trials themselves."""
    counts = made.records.group_by("setting", "method").agg(pl.col("fired").sum(), pl.len().alias("trials"))
    both = made.table.select("setting", "method", "fired", "trials").join(counts, on=["setting", "method"])
    assert both.height == made.table.height == 3 * 36
    assert (both["fired"] == both["fired_right"]).all()
    assert (both["trials"] == both["trials_right"]).all()
