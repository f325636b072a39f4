"""200 live runs of cohorts without Flower in which everything is killed at random moments, a server sends members
different requests, or a member masks otherwise than it was asked.

Every run ends in a certificate that verifies. A request to a cohort ends in one sum or one void, never both; no unit is
spent twice, and no member answers two requests for a round; whoever was asked otherwise voids the round; all slots of
sums are folded, and all of voids charged.

Mutants killed, each tried by hand: a member that answers a second request for its round, or with fresh noise when it is
asked again; a sum whose masked slots are not looked at; a void that charges none, or the first member's slots alone; a
void whose request stays open; a server that reads a cohort's answers although one is missing.

Chance of a false alarm: at most 200 * 1e-10, that of the plausibility limit of an honest sum; faults, lies and their
moments come from seeds, which name the folder of a run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.cohort_faults import HONEST, KINDS, LAYOUTS, MISMASKED, TWO_FACED, drawn, run_in_cohorts
from tests.support.live_engine import MISCHIEF
from tests.support.live_fate import HOW

pytestmark = pytest.mark.filterwarnings("ignore:.*torn by a crash:UserWarning")
RUNS, BLOCK = 200, 25


def play(folder: Path, seeds: Sequence[int]) -> None:
    """Runs from their seeds; the counts show that faults did strike, and that liars lied."""
    found = []
    for seed in seeds:
        (folder / str(seed)).mkdir()
        found.append(run_in_cohorts(folder / str(seed), seed))
        ended = found[-1].account
        assert (ended.faultless, found[-1].differing) == (True, 0), found[-1]
        assert ended.status in ("CERTIFIED", "ABSTAIN")
        assert found[-1].kind != HONEST or ended.refused == 0, found[-1]
    total = sum((each.struck for each in found), Counter[str]())
    assert all(total[kind] >= 8 for kind in HOW), total
    assert all(total[kind] >= 1 for kind in (*MISCHIEF, TWO_FACED, MISMASKED)), total
    assert {each.kind for each in found} == {*KINDS}
    assert {each.method for each in found} == {"betting", "sealed"}
    assert sum(each.account.opened for each in found) >= 3 * len(found)
    assert sum(each.account.void for each in found) >= len(found) // 2
    assert sum(each.account.refused for each in found if each.kind == MISMASKED) >= 1
    assert sum(each.repeated for each in found) >= len(found)


def test_killed_and_lied_to_at_random_moments(tmp_path: Path) -> None:
    """Two runs of every layout."""
    play(tmp_path, [seed for seed in range(40) if seed % 5 < 2])


@pytest.mark.thorough
@pytest.mark.parametrize("first", range(0, RUNS, BLOCK))
def test_200_runs_are_killed_and_lied_to(tmp_path: Path, first: int) -> None:
    play(tmp_path, range(first, first + BLOCK))


def test_the_runs_have_every_layout_with_every_liar() -> None:
    assert len({drawn(seed) for seed in range(RUNS)}) == len(LAYOUTS) * len({*KINDS})
