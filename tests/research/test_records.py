"""Pages of results are what the records of every trial say: made again from them, they come out byte for byte.

Mutants killed: a page edited by hand or made from other records; a trial left out or kept twice (times aside: there as
many are kept as fitted in); an abstention counted as no records; a mean for a median or the other way round; table (b)
of RAGTruth decided at the first certificate; a ring in the last round not counted, a delay from deployment on, runs cut
off later; another percentile; the worst turn for the best; each time of a request counted once, however many took it.

Of planned certificates: an arithmetic mean over draws, or one over all their trials; a trial with no certificate left
out; a draw whose limit is above the cap counted in; own noise and one holder swapped. Of finer releases: the mean of
certified runs alone, or all called certified. Of forecasts: a run that did not certify counted as within, or one that
took just as much as was said as over; splits without a number in the share; posterior and sample swapped. Of cohorts: a
count counted once; records beyond the cap; a trial left out; another holder's; an interval of trials, not of draws. Of
false certificates: a share of another part, of other labels or under another rule; the worst of rules that do not hold.
Of exact tests: other than four fifths; the first of the records for the fewest; an arithmetic mean; tests swapped. Of
the development part: an abstention left out; a risk at its target counted as above; a mean for a median; grids swapped.

Of the membership audit: evidence rounded to the nearest, towards zero, or to whole numbers; members and others swapped;
each kind of release counted once; a row with fewer releases than said, or with another claim or noise; a refuted claim
not told, or only where all are; too little noise noticed in some rows only, or by rho alone where epsilon must be.

Of the monitor on RAGTruth: risks of the two splits swapped, or of the lowest, the highest or the first run's threshold
for the usual one; abstentions watched; all runs for the certified ones; a monitor that never rang in the median, or
a mean for it; runs of stories mixed; shares of the splits swapped.

Of labels, panels and the boundary: a run without a certificate that is left out of a mean, or counts without its
labels; an epsilon, a split or a way in another's place; a control counted on the other release, or charged as the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from research import counted, forecast_coverage, membership, membership_page, monitor_stories
from research.kept import PAGES
from research.membership import ATTACKS, Audit, Bounds, Guesses
from research.pages import RESULTS
from research.studies import cohort_records, exact_tests, label_cost

LAST = "monitor.md, last table"
SAMPLE = membership_page.Setting("default", 1.0, 1e-6, 0.02, "as registered", 0.2)


@pytest.mark.parametrize("name", PAGES)
def test_the_page_follows_from_the_records(name: str) -> None:
    kept = PAGES[name]
    frame = kept.frame()
    assert frame.height == frame.select(kept.keys).n_unique()
    assert kept.trials in (None, frame.height)  # as many as fitted into the time where times are measured
    assert kept.published(name) == kept.text()


def labels(draw: int, limit: float, releases: int, records: Sequence[int | None]) -> pl.DataFrame:
    setting = label_cost.Setting("sealed", "zero-out", 4.0, releases, draw)
    rows = [(*setting, limit, trial, n) for trial, n in enumerate(records)]
    return pl.DataFrame(rows, schema=label_cost.SCHEMA, orient="row")


def test_records_over_the_limit_are_of_draws_that_could_certify() -> None:
    """Own noise: 200 / 100 and (30,000 + 2,000) / 2 / 500, so sqrt(2 x 32) = 8; a limit of 40,000 is left out."""
    own = [labels(0, 100.0, 5, [100, 300]), labels(30, 100.0, 5, [100, 300]), labels(31, 500.0, 5, [None, 2_000])]
    one = [labels(draw, 100.0, 1, [100, 200]) for draw in (0, 30, 31)]
    hard = [labels(32, 40_000.0, releases, [None, 20_000]) for releases in (5, 1)]
    _, seen, reading, unseen = label_cost.page(pl.concat([*own, *one, *hard]))
    assert seen.splitlines()[2:] == ["| sealed | zero-out | 4 | 2.00 | 1.50 | 1.00 | 1.00 |"]
    assert unseen.splitlines()[2:] == ["| sealed | zero-out | 4 | 8.00 | 1.50 | 0.75 | 1.00 |"]
    assert "its limit, 40,000, is above the 30,000 records that a trial has, and 2 of its 4\ntrials" in reading


def cohort(way: cohort_records.Way, draw: int, limit: float, counts: dict[int | None, int]) -> pl.DataFrame:
    rows = [("open", 4.0, *way, draw, limit, records, trials) for records, trials in counts.items()]
    return pl.DataFrame(rows, schema=cohort_records.SCHEMA, orient="row")


def test_cohorts_are_compared_with_one_holder_draw_by_draw() -> None:
    """Own noise takes (3 x 200 + 1,000) / 4 over 200 records and (2 x 30,000 + 2 x 800) / 4 over 7,000: 2 and 2.2 times
    as many, so sqrt(4.4), and the interval is that times or over exp(12.7062 log(1.1) / 2)."""
    holder, own = cohort_records.Way(5, 0), cohort_records.Way(5, 1)
    parts = [
        cohort(holder, 0, 100.0, {200: 4}), cohort(holder, 1, 385.0, {7_000: 4}),
        cohort(own, 0, 100.0, {200: 3, 1_000: 1}), cohort(own, 1, 385.0, {40_000: 1, None: 1, 800: 2}),
    ]  # fmt: skip
    _, table, _ = cohort_records.page(pl.concat(parts))
    assert table.splitlines()[2:] == [
        "| open | 4 | any | one holder | 1 | 6.03 | 1.00 | [1.00, 1.00] | 1.00 |",
        "| open | 4 | 5 | own noise | 5 | 12.65 | 2.10 | [1.14, 3.84] | 0.88 |",
    ]


def test_every_trial_of_a_cohort_is_counted() -> None:
    frame = pl.read_parquet(cohort_records.RECORDS)
    cells = frame.group_by(*cohort_records.SETTING, "draw").agg(pl.col("trials").sum())
    assert cells.height == 4 * len(cohort_records.WAYS) * 10
    assert set(cells["trials"]) == {cohort_records.TRIALS}


def test_runs_of_finer_releases_count_whether_they_certify_or_not() -> None:
    made, schema = PAGES["finer.md"].made, pl.read_parquet(PAGES["finer.md"].records).schema
    runs = {"histograms": [(True, 100), (False, 6_000)], "moments": [(True, 100), (True, 300)]}
    rows = [(0, 0.1, 2.0, 4.0, kind, i, *run) for kind, each in runs.items() for i, run in enumerate(each)]
    table = made(pl.DataFrame(rows, schema=schema, orient="row"))[-1]
    assert table.splitlines()[2:] == ["| sources of 6 answers | 0.1 | 2 | 4 | 3,050 (50% certified) | 200 | – |"]


def test_a_forecast_holds_where_runs_take_at_most_what_it_said() -> None:
    taken = [500] * 5 + [501] * 3 + [None] * 2
    told = [("a", None, 500, taken), ("a", 501, 499, taken), ("a", None, None, None), ("b", None, None, None)]
    rows = [(table, split, 50, 0.2, 4.0, *rest) for split, (table, *rest) in enumerate(told)]
    _, table = forecast_coverage.page(pl.DataFrame(rows, schema=forecast_coverage.SCHEMA, orient="row"))
    assert table.splitlines()[2:] == [
        "| a | 3 | 1 | 80% | 2 | 25% |", "| b | 1 | 0 | – | 0 | – |", "| all | 4 | 1 | 80% | 2 | 25% |"
    ]  # fmt: skip


def powers(name: str, needed: Sequence[int]) -> pl.DataFrame:
    """80% of the trials of each test certify at so many records, one less at half of that, more at twice as many."""
    tests = zip((*exact_tests.OURS, *exact_tests.EXACT), needed, strict=True)
    rows = [(name, test, round(n * x), 320 + more) for test, n in tests for x, more in ((0.5, -1), (2, 9), (1, 0))]
    return pl.DataFrame(rows, schema=exact_tests.SCHEMA, orient="row")


def test_exact_tests_are_compared_where_four_fifths_certify() -> None:
    _, table = exact_tests.page(pl.concat([powers("a", (100, 200, 400, 1_600)), powers("b", (400, 100, 100, 400))]))
    assert table.splitlines()[2:] == [
        "| a | 100 | 200 | 400 | 1,600 | 0.25 | 0.06 | 0.50 | 0.12 |",
        "| b | 400 | 100 | 100 | 400 | 4.00 | 1.00 | 1.00 | 0.25 |",
        "| geometric mean |  |  |  |  | 1.00 | 0.25 | 0.71 | 0.18 |",
    ]


def test_trials_of_the_development_part_are_counted() -> None:
    """The abstention counts the cap; of the certified risks one is above its target, and one at it."""
    kept = PAGES["development.md"]
    rows = [("cost", "L", 125, 0.05, 4.0, "exact", i, *run, None) for i, run in enumerate([
        (20, 1_000, 0.4, 0.04), (18, None, 0.0, 0.0), (18, 2_000, 0.2, 0.06), (16, 3_000, 0.2, 0.05),
    ])]  # fmt: skip
    found = pl.read_parquet(kept.records).filter((pl.col("table") == "grid") & (pl.col("population") == "L"))
    grid = found.with_columns(step=pl.when(pl.col("way") == "ours").then(pl.col("trial") / 1_000).otherwise(0.5))
    _, cost, _, steps, _ = kept.made(pl.concat([pl.DataFrame(rows, schema=grid.schema, orient="row"), grid]))
    assert cost.splitlines()[2:] == ["| L | 125 | 0.05 | 4 | exact | 18 | 3 | 9,000 | 2,500 | 3 | 0.200 | 1 |"]
    assert steps.splitlines()[2] == "| L | 100 | 4 | 0.500 | 0.500 | 0.500 | 0.500 | 0.050 | 0.500 | 0.500 |"


def test_false_certificates_are_told_as_they_were_counted() -> None:
    """With an interval of Clopper and Pearson (1934): [0.4425, 0.6602] for 50 of 90 and [0, 0.0402] for 0 of 90."""
    found = [("covered", "a", 0, 90), ("left out", "a", 50, 90), ("covered", "b", 1, 1_000)]
    frame = counted.frame(map(counted.Count._make, found))
    _, covered, _, _, left_out = PAGES["sealed-validity.md"].made(frame)
    assert covered.splitlines()[2:] == [
        "| a | 0 of 90 | 0.0000 | [0.0000, 0.0402] |", "| b | 1 of 1,000 | 0.0010 | [0.0000, 0.0056] |"
    ]  # fmt: skip
    assert left_out.splitlines()[2:] == ["| a | 50 of 90 | 0.5556 | [0.4470, 0.6604] |"]


def test_every_share_stands_in_the_column_of_its_labels() -> None:
    frame = pl.read_parquet(PAGES["lazy-labels.md"].records).sort("setting")
    table = PAGES["lazy-labels.md"].made(frame)[1].splitlines()
    names = [cell.strip() for cell in table[0].strip("|").split("|")]
    for line in table[2:]:
        kind, *shares = [cell.strip() for cell in line.strip("|").split("|")]
        for what, share in zip(names[1:], shares, strict=True):
            (false,) = frame.filter(pl.col("setting") == f"{kind}: {what}")["false"]
            assert share == f"{false / 100_000:.4f}"


def test_the_worst_of_the_rules_that_hold_is_told() -> None:
    """Counts 1 to 5 in the first row and 11 to 15 in the second, of 100: the third of the second is the worst."""
    frame = pl.read_parquet(PAGES["cohort-voids.md"].records)
    rules = frame["part"].unique(maintain_order=True).to_list()
    found = [
        counted.Count(rule, name, at + i, 100) for name, at in (("a", 1), ("b", 11)) for i, rule in enumerate(rules)
    ]
    _, table, worst = PAGES["cohort-voids.md"].made(counted.frame(reversed(found)))
    assert table.splitlines()[2:] == [
        "| b | 0.1100 | 0.1200 | 0.1300 | 0.1400 | 0.1500 |", "| a | 0.0100 | 0.0200 | 0.0300 | 0.0400 | 0.0500 |"
    ]  # fmt: skip
    assert "columns is 0.1300, with a 95% upper limit of\n0.2120." in worst


# The membership audit


@given(st.lists(st.tuples(st.floats(-6, 6) | st.integers(-100, 100).map(lambda i: i / 16), st.booleans()), min_size=1))
@settings(deadline=None)
def test_rounded_evidence_tells_every_attack_the_same(releases: list[tuple[float, bool]]) -> None:
    seen, coins = np.array([each for each, _ in releases]), np.array([coin for _, coin in releases])
    for each in ATTACKS:
        assert membership.guesses(each, membership.rounded(seen), coins) == membership.guesses(each, seen, coins)


def test_the_counts_give_the_audit_of_the_releases() -> None:
    rng = np.random.default_rng(1)
    coins = rng.random(20_000) < 0.5
    seen = rng.normal(coins - 0.5)
    frame = membership_page.kept(SAMPLE, seen, coins)
    assert frame["releases"].sum() == coins.size > 5 * frame.height
    ((setting, found),) = membership_page.audited(frame)
    assert setting == SAMPLE
    assert found == membership.audit(seen, coins, membership_page.DELTA, membership_page.FAILURE)
    assert found.bounds.rho > 0.2


def test_the_records_have_every_release_of_every_row() -> None:
    frame = pl.read_parquet(membership_page.RECORDS)
    parts = list(frame.group_by(*membership_page.SETTING, maintain_order=True))
    for (facts, part), row in zip(parts, membership_page.ROWS, strict=True):
        named = membership_page.setting_of(row)
        assert (facts[0], facts[4], part["releases"].sum()) == (named.preset, named.noise, row.releases)
        assert [*facts[1:4], facts[5]] == pytest.approx([*named.claim.__dict__.values(), named.mu], rel=1e-12)


def found(epsilon: float, rho: float) -> Audit:
    return Audit(Bounds(epsilon, rho), Guesses(9, 9, 9), Guesses(9, 9, 9))


def test_the_head_tells_a_refuted_claim_and_faults_that_were_not_noticed() -> None:
    """Claims are epsilon 1 and rho 0.02; epsilon must be refuted in the second row."""
    right, wrong = "as registered", "scale halved"
    kinds = [("default", right), ("default", wrong), ("paper", wrong), ("paper", right)]
    rows = [SAMPLE._replace(preset=preset, noise=noise) for preset, noise in kinds]
    fine = [found(0.9, 0.01), found(1.1, 0.03), found(0.9, 0.03), found(0.9, 0.01)]

    def told(place: int, audit: Audit) -> tuple[bool, bool]:
        audits = [*fine[:place], audit, *fine[place + 1 :]]
        result = membership_page.outcome(list(zip(rows, audits, strict=True)))
        return result.within, result.noticed

    assert told(0, fine[0]) == (True, True)
    assert told(0, found(1.1, 0.01)) == told(0, found(0.9, 0.03)) == (False, True)
    assert told(1, found(0.9, 0.03)) == told(2, found(0.9, 0.01)) == (True, False)


# The monitor on RAGTruth


def test_the_two_kinds_of_records_of_the_monitor_make_one_page() -> None:
    first, last = (PAGES[name].published(name) for name in ("monitor.md", LAST))
    assert f"{first}\n{last}" == (RESULTS / "monitor.md").read_text(encoding="utf-8")


def story(name: str, runs: Sequence[tuple[int | None, int | None]]) -> pl.DataFrame:
    """Runs by threshold and sources until the alarm; threshold j has risk j / 10, and j / 10 + 0.05 where deployed."""
    risks = [(None, None) if j is None else (j / 10, j / 10 + 0.05) for j, _ in runs]
    rows = [(name, "test", 0.3, 8.0, i, j, *risks[i], n, 0.42, 0.18) for i, (j, n) in enumerate(runs)]
    return pl.DataFrame(rows, schema=monitor_stories.SCHEMA, orient="row")


def test_the_last_table_says_what_its_runs_were() -> None:
    runs = [(4, None), (2, 50), (None, None), (2, 100), (1, 450), (1, None), (0, None)]
    told = [story("train", runs), story("again", [(0, None)]), story("never", [(None, None), (None, None)])]
    parts = monitor_stories.page(pl.concat(told))
    assert parts[1].startswith("42.0% of the answers of the train split without its development sources are unsupp")
    assert "unsupported, 18.0% of the test split." in parts[1]
    assert parts[2].splitlines()[2:] == [
        "| train | test | 0.3 | 8 | 6 of 7 | 0.100 | 0.150 | 3 of 6 | 100 |",
        "| again | test | 0.3 | 8 | 1 of 1 | 0.000 | 0.050 | 0 of 1 | never |",
        "| never | test | 0.3 | 8 | 0 of 2 |  |  | 0 of 0 | never |",
    ]


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """Answers of two generators to each of 700 questions: few of the test split are bad, most of the train split's."""
    rng = np.random.default_rng(1)
    source = np.arange(1400) // 2
    test, gpt = source < 300, np.arange(1400) % 2 == 0
    loss = (rng.random(1400) < np.where(test, 0.1, 0.7)).astype(np.float64)
    about = {
        "id": [f"{i}" for i in range(1400)], "group": ["QA"] * 1400, "split": np.where(test, "test", "train"),
        "source": source.astype(str), "generator": np.where(gpt, "gpt-4-0613", "llama-2-7b-chat"), "loss": loss,
    }  # fmt: skip
    part = np.where(test, "test", np.where(source % 10 < 3, "development", "calibration"))
    score = {"id": about["id"], "part": part, "probe": np.zeros(1400), "detector": rng.random(1400) * (1 - loss / 9)}
    pl.DataFrame(about).write_parquet(tmp_path / "ragtruth.parquet")
    pl.DataFrame(score).write_parquet(tmp_path / "ragtruth-fitted.parquet")
    return tmp_path


def test_every_run_on_real_answers_is_kept(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The train split is never certified; what the test split certifies has a higher risk where it is deployed."""
    monkeypatch.setattr(monitor_stories, "SEEDS", 12)
    frame = monitor_stories.stories(tables)
    assert frame.schema == monitor_stories.SCHEMA
    assert frame.height == frame.select(PAGES[LAST].keys).n_unique() == 12 * len(monitor_stories.STORIES)
    bad, good = frame.filter(pl.col("certified_on") == "train"), frame.filter(pl.col("certified_on") == "test")
    assert bad["threshold"].null_count() == bad["risk"].null_count() == bad["sources"].null_count() == bad.height
    sure = good.drop_nulls("threshold")
    assert 10 < sure.height < good.height
    assert sure["risk"].max() < 0.2 < 0.5 < sure["risk_deployed"].min()  # type: ignore[operator]
    assert set(sure["sources"]) <= {50, 100, 150}
    assert frame["unsupported_test"].mean() < 0.2 < 0.6 < frame["unsupported_train"].mean()  # type: ignore[operator]
