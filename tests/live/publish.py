"""Live runs in which every process is killed at random moments: real ones over Flower, and 200 in one process.

Writes docs/results/live-faults.md. Run where Flower is installed, from the repository:
python -m tests.live.publish [FOLDER]. Real runs that FOLDER already holds are not played again.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from research.pages import markdown, publish
from tests.live.faults import PROCESSES, ROUNDS, SITES, Kill, RealOutcome, play_with_kills
from tests.support.live_account import Account
from tests.support.live_engine import MISCHIEF
from tests.support.live_fate import HOW
from tests.support.live_faults import Outcome, run_with_faults, same_as_undisturbed

REAL, IN_PROCESS = 6, 200
REPLIES = {
    "delayed": "reply delayed", "doubled": "reply came twice", "misread": "a damaged second copy of a reply",
    "reordered": "replies in another order", "error": "error instead of a reply",
}  # fmt: skip


def real_run(folder: Path, seed: int) -> RealOutcome:
    """A real run, or what an earlier call wrote down of it."""
    kept = folder / f"real-{seed}.json"
    if not kept.exists():
        place = folder / f"real-{seed}"
        shutil.rmtree(place, ignore_errors=True)  # a run that was broken off
        place.mkdir(parents=True)
        outcome = play_with_kills(place, seed)
        kept.write_text(json.dumps(asdict(outcome), indent=2))
    found = json.loads(kept.read_text())
    kills, account = [Kill(**kill) for kill in found.pop("kills")], Account(**found.pop("account"))
    return RealOutcome(kills=kills, account=account, **found)


def in_process(seed: int) -> tuple[Outcome, bool]:
    """A run without Flower, and whether it was compared with an undisturbed one and found the same."""
    with tempfile.TemporaryDirectory() as name:
        outcome = run_with_faults(Path(name), seed)
        if outcome.account.undisturbed and not same_as_undisturbed(Path(name), seed):
            raise AssertionError(f"seed {seed}: another transcript than an undisturbed run's")
        return outcome, outcome.account.undisturbed


def words(kill: Kill) -> str:
    whose = f" ({kill.target})" if kill.target else ""
    return f"{kill.kind}{whose} in round {kill.rounds + 1}: {kill.recovery:.0f} s"


def real_table(outcomes: Sequence[RealOutcome]) -> str:
    header = ("run", "killed, and seconds until the next round was closed", "ended", "minutes", "absent", "units spent",
              "units twice", "folded twice")  # fmt: skip
    rows = [
        (
            str(each.seed), "; ".join(map(words, each.kills)), each.account.status, f"{each.seconds / 60:.1f}",
            f"{each.account.absent} of {each.account.absent + each.account.folded}", f"{each.account.units:,}",
            str(each.account.units_twice), str(each.account.folded_twice),
        )
        for each in outcomes
    ]  # fmt: skip
    return markdown(header, rows)


def sums(accounts: Sequence[Account]) -> str:
    """The counts over many runs."""
    names = {
        "releases": "releases made by sites", "folded": "folded", "lost": "made, and recorded absent",
        "units": "units spent", "units_twice": "units spent twice", "folded_twice": "releases folded twice",
        "altered": "folded otherwise than the site's ledger has them",
        "strays": "made for a request that the transcript does not hold", "unaccounted": "units unaccounted for",
    }  # fmt: skip
    return markdown(("what", "count"), [(text, f"{sum(getattr(a, name) for a in accounts):,}") for name, text in
                                        names.items()])  # fmt: skip


def struck_table(outcomes: Sequence[Outcome]) -> str:
    total = sum((each.struck for each in outcomes), Counter[str]())
    rows = [(f"{kind} killed", f"{total[kind]:,}") for kind in HOW] + [
        (REPLIES[kind], f"{total[kind]:,}") for kind in MISCHIEF
    ]
    rows += [("new Flower runs that continued a transcript", f"{total['new Flower run']:,}")]
    rows += [("`fedsrc server` gave up and was started again", f"{total['resumable']:,}")]
    return markdown(("what struck", "times"), rows)


def median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def recovery_table(outcomes: Sequence[RealOutcome]) -> str:
    rows = []
    for kind in PROCESSES:
        seconds = [kill.recovery for each in outcomes for kill in each.kills if kill.kind == kind]
        rows.append((kind, str(len(seconds)), f"{median(seconds):.0f}", f"{max(seconds):.0f}"))
    return markdown(("killed", "times", "median seconds", "longest"), rows)


def intro(accounts: Sequence[Account], real: Sequence[RealOutcome], plain: Sequence[Outcome]) -> str:
    ended, kills = Counter(each.status for each in accounts), sum(len(each.kills) for each in real)
    return f"""# Live runs in which everything is killed

In {len(real)} real runs over Flower ({kills} kills) and {len(plain)} runs of the same code without Flower, every
process was killed at random moments. All {len(accounts)} runs ended in a certificate or an abstention that verifies
({ended["CERTIFIED"]} certified, {ended["ABSTAIN"]} abstained). {sum(a.units_twice for a in accounts)} units were spent
twice, and {sum(a.folded_twice for a in accounts)} releases folded twice. Made, where Flower is installed, by

    python -m tests.live.publish FOLDER"""


def about_real(real: Sequence[RealOutcome]) -> str:
    again, same = sum(each.starts > 1 for each in real), sum(each.account.undisturbed for each in real)
    return f"""## Real runs

{len(SITES)} sites with their SuperNodes, {ROUNDS} rounds, TLS and node keys, all on one machine. In each run the server
app, the SuperLink, a SuperNode (alone or with its executor) and a site's process were killed by SIGKILL, in an order
and at moments drawn from the run's number. `fedsrc server` and `fedsrc site` start again what belongs to them; a killed
`fedsrc site` was started again as its operator would, within 3 seconds. In {again} of the runs `fedsrc server` itself
ended with an error, which it does when its SuperLink dies before it listens; the same command then continues the run.

In {same} of the runs nobody was late or absent: there the files mode, asked the same on the same ledgers, wrote the
same transcript and certificate, byte for byte."""


RECOVERY = """How long it took until the next round was closed, on a machine that was busy with other things as well:"""
HEARTBEAT = """A SuperNode whose key is known to Flower is let in again when its heartbeat has been missed, about a
minute after its death. Then its site gives the same bytes for the same request. If the server's patience ends before
that, the request is recorded absent; what the site has released for it stays spent."""


def about_plain(count: int) -> str:
    return f"""## {count} runs in one process

Real guards, ledgers on disk, transcripts and signatures; letters go through a stand-in for Flower that keeps its own
time. Processes die at any poll, any call and any durable operation: before it, in the middle of it, or after it. The
machine dies with or without what had not reached the disk."""


def compared_words(same: int) -> str:
    return f"""In {same} of these runs nobody was late or absent: there the files mode, asked the same on the same
ledgers, wrote the same transcript and certificate, byte for byte. Faults repeat from seeds;
`make test` plays them all."""


def main(folder: Path) -> None:
    warnings.simplefilter("ignore")
    real = [real_run(folder, seed) for seed in range(REAL)]
    pairs = [in_process(seed) for seed in range(IN_PROCESS)]
    plain, same = [outcome for outcome, _ in pairs], sum(each for _, each in pairs)
    accounts = [*(each.account for each in real), *(each.account for each in plain)]
    if not all(account.faultless for account in accounts) or any(each.differing for each in plain):
        raise SystemExit("a unit or a release went wrong: nothing is published")
    publish(
        "live-faults.md",
        [
            intro(accounts, real, plain),
            about_real(real),
            real_table(real),
            RECOVERY,
            recovery_table(real),
            HEARTBEAT,
            about_plain(len(plain)),
            struck_table(plain),
            sums([each.account for each in plain]),
            compared_words(same),
        ],
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()))
