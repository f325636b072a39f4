"""200 live runs without Flower in which server app, SuperLink, SuperNodes, sites and the whole machine are killed.

Every run ends in a certificate that verifies; no unit is spent twice, no release folded twice or changed on the way;
every unit spent is in a release that was folded or recorded absent; and where nobody was absent or late, transcript and
certificate are those of an undisturbed run on the same ledgers, played by the files mode.

Mutants killed, each tried by hand: a site that draws fresh noise when it is asked again; a site that answers before its
ledger is written; a carrier that takes a second copy of a reply; a reply taken for whatever request is open; a run loop
that asks anew after a kill instead of finishing the open round; a transcript that is not on disk before a request is
sent; lines of a killed process that are acted on before they are on disk; a torn line that is kept.

Chance of a false alarm: at most 200 * 1e-10, that of the plausibility limit of an honest release; faults and their
moments come from seeds.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.support.live_engine import MISCHIEF
from tests.support.live_fate import HOW, PROCESSES, schedule, struck
from tests.support.live_faults import ROUNDS, Outcome, run_with_faults, same_as_undisturbed

pytestmark = [pytest.mark.thorough, pytest.mark.filterwarnings("ignore:.*torn by a crash:UserWarning")]
RUNS, BLOCK = 200, 10


def check(folder: Path, seed: int) -> Outcome:
    """One run, held against everything that must be so."""
    outcome = run_with_faults(folder, seed)
    found = outcome.account
    assert found.status in ("CERTIFIED", "ABSTAIN")
    assert ROUNDS - 1 - found.absent <= found.rounds <= ROUNDS  # a site that was absent or late brings the end nearer
    assert found.rounds == ROUNDS or not found.undisturbed
    assert found.faultless, found
    assert outcome.differing == 0
    if found.undisturbed:
        assert same_as_undisturbed(folder, seed)
    return outcome


@pytest.mark.parametrize("first", range(0, RUNS, BLOCK))
def test_killed_at_random_moments_every_run_ends_well(tmp_path: Path, first: int) -> None:
    """The counts at the end show that faults did strike."""
    outcomes, whole = [], 0
    for seed in range(first, first + BLOCK):
        folder = tmp_path / str(seed)
        folder.mkdir()
        outcomes.append(check(folder, seed))
        kills = {line["kind"] for line in struck(folder) if line["planned"]}
        assert len(kills) >= 3, seed
        whole += kills >= {*PROCESSES}
    total = sum((each.struck for each in outcomes), Counter[str]())
    assert all(total[kind] >= 8 for kind in HOW), total
    assert all(total[kind] >= 1 for kind in MISCHIEF), total
    assert whole >= BLOCK - 3  # runs in which every kind of process was killed
    assert sum(each.repeated for each in outcomes) >= 10  # releases that a site was asked for again
    assert any(each.account.undisturbed for each in outcomes)


def test_every_run_has_every_fault_in_its_schedule() -> None:
    plans = [schedule(seed) for seed in range(RUNS)]
    assert all({fault.kind for fault in plan} >= {*PROCESSES} for plan in plans)
    counts = Counter((fault.kind, fault.how) for plan in plans for fault in plan)
    assert all(counts[kind, how] >= 40 for kind in HOW for how in HOW[kind]), counts
