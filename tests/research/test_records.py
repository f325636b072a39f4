"""Pages of results are what the records of every trial say: made again from them, they come out byte for byte.

Mutants killed: a page edited by hand or made from other records; a trial left out or kept twice (times aside: there as
many are kept as fitted in); an abstention counted as no records; a mean for a median or the other way round; table (b)
of RAGTruth decided at the first certificate; a ring in the last round not counted, a delay from deployment on, runs cut
off later; another percentile; the worst turn for the best; each time of a request counted once, however many took it.

Of the membership audit: evidence rounded to the nearest, towards zero, or to whole numbers; members and others swapped;
each kind of release counted once; a row with fewer releases than said, or with another claim or noise; a refuted claim
not told, or only where all are; too little noise noticed in some rows only, or by rho alone where epsilon must be.
"""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from research import membership, membership_page
from research.kept import PAGES
from research.membership import ATTACKS, Audit, Bounds, Guesses

SAMPLE = membership_page.Setting("default", 1.0, 1e-6, 0.02, "as registered", 0.2)


@pytest.mark.parametrize("name", PAGES)
def test_the_page_follows_from_the_records(name: str) -> None:
    kept = PAGES[name]
    frame = pl.read_parquet(kept.records)
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
