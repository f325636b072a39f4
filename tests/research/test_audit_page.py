"""What the registered audit finds is what the trials of its study say; times are a machine's, and are left alone.

Mutants killed: a count, an interval, a cell or a total edited on the page or made from other records; the other target;
a policy or a cell left out; violations of one method for another's; a worst limit or a number of false certificates in
the head that is not the table's; trials said to be the same under two policies that are not.

Chance of a false alarm: none, nothing is random.
"""

from __future__ import annotations

import polars as pl
import pytest

from research import audit_page
from research.audit_page import Engine
from research.pages import RESULTS


@pytest.fixture(scope="module")
def published() -> str:
    return (RESULTS / "audit.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def made() -> Engine:
    return audit_page.recorded()


def test_the_page_ends_with_what_the_trials_say(made: Engine, published: str) -> None:
    found = audit_page.findings(made)
    assert len(list(audit_page.result_rows(made))) == len(made.study.settings) == 36
    assert "are one set of trials, not three" in " ".join(found[0].split())
    assert published.endswith("\n\n" + "\n\n".join(found) + "\n")


def test_the_head_says_the_same(made: Engine, published: str) -> None:
    head = published.partition("\n## ")[0]
    assert " ".join(audit_page.finding(made).split()) in " ".join(head.split())


def test_the_table_counts_the_trials(made: Engine) -> None:
    """The table that the page is made from, beside the trials themselves."""
    counts = made.records.group_by("setting", "method").agg(pl.col("fired").sum(), pl.len().alias("trials"))
    both = made.table.select("setting", "method", "fired", "trials").join(counts, on=["setting", "method"])
    assert both.height == made.table.height == 3 * 36
    assert (both["fired"] == both["fired_right"]).all()
    assert (both["trials"] == both["trials_right"]).all()
    assert set(made.table["target_risk"]) == {0.2}
