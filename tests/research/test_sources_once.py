"""Each source once: pages are what the records of every split say, and a split uses no source twice.

Mutants killed: a page edited by hand or made from other records, a split left out, held-out sources that calibrate, a
risk above target counted with `<`, acceptance without the splits that abstain, labels on demand without those of
development sources or of splits that abstain, a plan on demand that sees exact development labels under privacy,
rivals of the default compared at another epsilon, or on splits with a certificate alone.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

from research.pages import RESULTS
from research.studies import honest, on_demand, sources_once
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


def against(frame: pl.DataFrame, one: str, other: str) -> pl.DataFrame:
    """Certified splits and mean acceptance of two methods, by detector, target and epsilon."""
    means = frame.group_by("detector", "target", "epsilon", "method").agg(pl.col("certified", "acceptance").sum())
    mine, yours = (means.filter(method=name) for name in (one, other))
    return mine.join(yours, on=("detector", "target", "epsilon"), suffix="_other")


def test_the_lead_says_who_does_better_than_the_default(frame: pl.DataFrame) -> None:
    free = frame.filter(pl.col("epsilon") == math.inf)
    accepts, certifies = (pl.col(name) < pl.col(f"{name}_other") for name in ("acceptance", "certified"))
    old = against(free, "open, second moments", "old default").filter(accepts)
    furthest = old.sort(pl.col("acceptance") - pl.col("acceptance_other")).row(0, named=True)
    bets = against(free, "open, second moments", "per-unit betting")
    sites = against(frame.filter(target="0.2"), "three sites, own noise", "one look").filter(pl.col("epsilon") < 9)
    issued = frame.filter("certified", method="old default")
    away = issued.filter(pl.col("held_out_unsupported") > pl.col("held_out") * pl.col("target").cast(pl.Float64))
    shown = [f"{furthest[name] / SPLITS:.2f}" for name in ("acceptance_other", "acceptance")]
    fewer, more = (sites.filter(each).height for each in (certifies, pl.col("certified") > pl.col("certified_other")))
    text = "\n".join(honest.parts())
    for says in (
        f"Of the old default's {issued.height:,} certificates {away.height} have.",
        f"accepts more in {old.height} ({' beside '.join(shown)} where it is furthest ahead); bets",
        f"certify more often in {bets.filter(certifies).height} and accept more in {bets.filter(accepts).height}.",
        f"one holder in {fewer} of {sites.height} combinations of detector and epsilon at target 0.2, more often in"
        f" {more},",
    ):
        assert says in text, says


def test_every_method_saw_every_split_once(frame: pl.DataFrame) -> None:
    counted = frame.group_by("detector", "target", "epsilon", "method").agg(pl.col("split").n_unique(), pl.len())
    assert set(counted["split"]) == set(counted["len"]) == {SPLITS}
    expected = len(TARGETS) * (len(EPSILONS) * (3 + len(OLD)) + len(EXACT)) + len(EPSILONS) * (len(VARIANTS) - 3)
    assert counted.height == 4 * expected


def test_labels_on_demand_saw_every_split_once() -> None:
    frame = pl.read_parquet(honest.ON_DEMAND)
    assert frame.height == 4 * len(TARGETS) * len(EPSILONS) * SPLITS
    assert frame.height == frame.select("detector", "target", "epsilon", "split").n_unique()


def test_labels_on_demand_count_development_and_abstentions() -> None:
    rows = [
        ("d", "0.2", 4.0, 0, 2_160, True, 100, 540, 0.5, 9.0, 1.0),
        ("d", "0.2", 4.0, 1, 2_160, False, 300, 540, 0.0, 0.0, 0.0),
    ]
    frame = pl.DataFrame(rows, schema=on_demand.SCHEMA, orient="row")
    assert honest._labels(frame, "d", "0.2", 4.0) == ["2,160", "50", "0.25", "0/1", "740"]


def test_a_private_plan_on_demand_sees_the_noised_release_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the release fixed, exact losses of development sources change nothing; without privacy they do."""
    rng = np.random.default_rng(2)
    score, starts = rng.random(900), np.arange(0, 900, 3)
    loss = (rng.random(900) > score).astype(np.float64)
    data = sources_once.split(sources_once.Table(score, loss, starts), 0)
    released = sources_once.development(data, 4.0, np.random.default_rng(3))
    monkeypatch.setattr(sources_once, "development", lambda *_: released)
    turned = loss.copy()
    for source in data.parts[0]:
        turned[starts[source] : starts[source] + 3] = 1.0 - turned[starts[source] : starts[source] + 3]
    other = sources_once.split(sources_once.Table(score, turned, starts), 0)
    private, exact = (
        [on_demand.play(each, Fraction("0.3"), epsilon) for each in (data, other)] for epsilon in (4.0, math.inf)
    )
    assert private[0] == private[1]
    assert exact[0] != exact[1]


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
