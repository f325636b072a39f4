"""Pages of results are what the records of every trial say: made again from them, they come out byte for byte.

Mutants killed: a page edited by hand or made from other records; a trial left out or kept twice (times aside: there as
many are kept as fitted in); an abstention counted as no records; a mean for a median or the other way round; table (b)
of RAGTruth decided at the first certificate; a ring in the last round not counted, a delay from deployment on, runs cut
off later; another percentile; the worst turn for the best; each time of a request counted once, however many took it.

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

from research import membership, membership_page, monitor_stories
from research.kept import MONITOR_LAST, PAGES
from research.membership import ATTACKS, Audit, Bounds, Guesses
from research.pages import RESULTS

SAMPLE = membership_page.Setting("default", 1.0, 1e-6, 0.02, "as registered", 0.2)


@pytest.mark.parametrize("name", PAGES)
def test_the_page_follows_from_the_records(name: str) -> None:
    kept = PAGES[name]
    frame = kept.frame()
    assert frame.height == frame.select(kept.keys).n_unique()
    assert kept.trials in (None, frame.height)  # as many as fitted into the time where times are measured
    assert kept.published(name) == kept.text()


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
    first, last = PAGES["monitor.md"].published("monitor.md"), MONITOR_LAST.published("monitor.md, last table")
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
    assert parts[1].startswith("42.0% of the answers of the train split are unsupported, 18.0% of the test split.")
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
    assert frame.height == frame.select(MONITOR_LAST.keys).n_unique() == 12 * len(monitor_stories.STORIES)
    bad, good = frame.filter(pl.col("certified_on") == "train"), frame.filter(pl.col("certified_on") == "test")
    assert bad["threshold"].null_count() == bad["risk"].null_count() == bad["sources"].null_count() == bad.height
    sure = good.drop_nulls("threshold")
    assert 10 < sure.height < good.height
    assert sure["risk"].max() < 0.2 < 0.5 < sure["risk_deployed"].min()  # type: ignore[operator]
    assert set(sure["sources"]) <= {50, 100, 150}
    assert frame["unsupported_test"].mean() < 0.2 < 0.6 < frame["unsupported_train"].mean()  # type: ignore[operator]
