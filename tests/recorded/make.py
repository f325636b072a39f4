"""Make recorded runs by the real code, with real noise.

    python -m tests.recorded.make NAME...

Recordings are frozen: made again, a run has other noise and other bytes, and an implementation that is to read what was
written yesterday is tested on what was written yesterday. So a recording that is there is not replaced, unless
--replace is said; and that is for a recording that was wrong from the start. runs.sha256 has their digests. Signing
keys follow from names (tests/support/recordings.py) and releases are dated from 2026-01-02 on, a minute after each
other; all else is as in any run.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from fedsrc.common.clock import TIME
from fedsrc.errors import FedsrcError
from fedsrc.planning.sealing import Seal, seal
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.scale import Scale
from fedsrc.server.verify import verify
from tests.recorded.labelled import LabelledByFiles, LabelledLive, OnDemand, Timed
from tests.recorded.one_table import (
    NONE,
    Build,
    Certified,
    Registered,
    again,
    demo,
    renewed,
    revoked,
    stopped,
    superseded,
)
from tests.recorded.parties import ByFiles, Live, implausible, masked_otherwise
from tests.recorded.watched import Watched
from tests.support.recordings import DIGESTS, RUNS, digests, public, read_files, write_files

FIRST = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SOUTH = ("north", "south")
HALVES, DRIFT = dict.fromkeys(SOUTH, 0.5), {"south": 0.01}
PAPER = {"preset": "paper", "policy": "first"}
FINAL = {"policy": "final", "rounds": 3}
THREE = {"unit": "source", "max_answers": 3}
SOURCES: dict[str, Any] = {"units": 900, "table": {"answers": 3}, "options": THREE}
COHORTS = {"aggregation": "cohorts", "cohorts": {"one": "ab", "two": "cde"}}
TWO_LOOKS = ((2, 0.4), (5, 0.6))
LISTED: dict[str, Any] = {"groups": ("day", "night"), "group_column": "group"}
DOWN = {"score_scale": "100:0"}
THIRD = {**FINAL, "label_twice": 1.0, "disagreement": "third"}
GROUNDING = (("grounding", Scale.of("100:0")),)
PRIVATE, EXACT = Certified(0.2, 4.0), Certified(0.2, NONE)
WARDS = Certified(0.25, 8.0, 2000, options=LISTED)
Targets = tuple[tuple[float, float, tuple[float, ...]], ...]
Looks = tuple[tuple[int, float], ...]
Change = Callable[[Registration], Registration]


class Recording(NamedTuple):
    """What a run shows that no other does, or commonly, and how it is made."""

    covers: str
    build: Build


def declared(weights: tuple[float, ...], targets: Targets, looks: Looks, line: str = "exact") -> Change:
    """Seal a registration on its own thresholds, which are declared then."""

    def change(made: Registration) -> Registration:
        return seal(made, Seal(made.thresholds.values, weights, targets, looks, line))

    return change


def declared_of_each(targets: Targets, looks: Looks) -> Change:
    """Seal a panel on the thresholds of its grid, the same in every group, with weights that are all equal."""

    def change(made: Registration) -> Registration:
        cut = made.thresholds.values, (1 / len(made.thresholds.values),) * len(made.thresholds.values)
        return seal(made, Seal(*cut, targets, looks, others=(cut,) * (len(made.cuts) - 1)))

    return change


def growing(made: Registration) -> Registration:
    """The registration with every round larger than the one before, and thresholds that somebody declares."""
    fields = made.model_dump()
    fields["schedule"]["growth"], fields["thresholds"]["origin"] = 1.5, "declared"
    return Registration.model_validate(fields)


MADE: dict[str, Recording] = {
    # what most people do first
    "certify-private": Recording(
        "`fedsrc certify` with epsilon: sealed, contrasts, noised thresholds, one site", Certified(0.2, 4.0)
    ),
    "certify-exact": Recording(
        "`fedsrc certify` without privacy: betting, complementary histograms, policy enough", Certified(0.2, NONE)
    ),
    "certify-holder": Recording(
        "several sites in one table, weights declared: one holder, sealed",
        Certified(0.2, 4.0, table={"sites": ("north", "south")}, options={"weights": HALVES}),
    ),
    "certify-open": Recording(
        "with epsilon and looks at any time: betting, a planned prior for bets",
        Certified(0.2, 8.0, options={"certificate": "open"}),
    ),
    "demo": Recording("what `fedsrc demo` writes", demo),
    "plain": Recording(
        "nothing planned: exact quantiles of records that may be published, unshuffled, several looks, policy enough",
        Certified(
            0.2,
            8.0,
            in_order=True,
            options={"certificate": "plain", "public_development": True, "thresholds": 5, "batch": 100},
        ),
    ),
    # how a run ends
    "abstain": Recording("nothing is certified: rounds used", Registered(0.02, 2.0, options={"rounds": 3})),
    "units-used": Recording("nothing is certified: no unit is left", Registered(0.02, 2.0, 500)),
    "open": Recording(
        "stopped after two rounds: no certificate, which does not verify",
        ByFiles(0.02, 8.0, rounds=2, options={"weights": HALVES}),
    ),
    "open-signed": Recording("stopped between rounds, and signed as it stands: status OPEN", stopped),
    "nothing-came": Recording(
        "no release ever arrives: an abstention without evidence or date",
        ByFiles(0.25, 8.0, missing={(n, site) for n in (1, 2) for site in SOUTH}, options={"rounds": 2}),
    ),
    "tries": Recording("the third registration on units of one table", again),
    "renewed": Recording("the claim of an earlier certificate on fresh units", renewed),
    "revoked": Recording("a notice lies beside the certificate", revoked),
    "superseded": Recording("a notice that names the certificate which takes its place", superseded),
    "expired": Recording("valid for a day", Registered(0.25, 8.0, options={"validity_days": 1})),
    # sites apart
    "files": Recording(
        "by files: two sites with keys, weights and capacities, each with its own noise; certified",
        ByFiles(0.25, 8.0, options={"weights": HALVES, "policy": "final"}),
    ),
    "files-charged": Recording(
        "dropout charged: capacities registered, one release absent; names beyond ASCII; policy final",
        ByFiles(
            0.3,
            8.0,
            sites=("nörd", "süd", "日本"),
            missing={(2, "süd")},
            options={"dropout": "adversarial", "policy": "final", "claim": {"loss": "nicht gestützt"}},
        ),
    ),
    "files-refused": Recording(
        "a release that is implausible is refused, and kept; dropout is independent",
        ByFiles(0.25, 8.0, cheat=implausible, options={"policy": "final"}),
    ),
    "files-refused-charged": Recording(
        "the same where dropout is charged",
        ByFiles(0.3, 8.0, cheat=implausible, options={"policy": "final", "dropout": "adversarial", "drift": DRIFT}),
    ),
    "files-sealed": Recording(
        "sealed by files: two looks, one release absent and charged, targets 0.25 and 0.1, drift",
        ByFiles(
            0.25,
            8.0,
            missing={(2, "south")},
            options={"dropout": "adversarial", "weights": HALVES, "drift": DRIFT},
            change=declared((0.25,) * 4, ((0.25, 0.8, (0.6,) * 4), (0.1, 0.2, (0.5,) * 4)), ((2, 0.5), (4, 0.5))),
        ),
    ),
    "live": Recording(
        "live: sites say under their own signature what they have; no capacity is registered",
        Live(0.25, 8.0, capacities=False, options={"weights": HALVES, "policy": "final"}),
    ),
    "live-never-came": Recording(
        "live: one site of three never comes; the nodes of the others have keys",
        Live(0.25, 8.0, sites=("north", "south", "west"), away={"west"}, nodes=True, capacities=False),
    ),
    "sealed-never-came": Recording(
        "sealed and live: one site of three never comes, and may not come later",
        Live(
            0.25,
            8.0,
            sites=("north", "south", "west"),
            away={"west"},
            capacities=False,
            change=declared((0.25,) * 4, ((0.25, 1.0, (0.6,) * 4),), ((2, 0.5), (4, 0.5))),
        ),
    ),
    "recruit": Recording(
        "one site is asked at a time",
        ByFiles(0.25, 8.0, options={"policy": "recruit", "weights": {"north": 0.7, "south": 0.3}, "rounds": 8}),
    ),
    "holder-keys": Recording(
        "a holder with a key signs releases and what it has of each site, and names no capacity",
        Registered(
            0.25,
            8.0,
            sites=("north", "south"),
            options={
                "aggregation": "holder",
                "site_keys": {"holder": public("holder")},
                "policy": "final",
                "server_key": public("server"),
                "rounds": 3,
            },
        ),
    ),
    "local-keys": Recording(
        "sites of one table that sign, each for itself",
        Registered(
            0.25,
            8.0,
            sites=("north", "south"),
            table={"sites": ("north", "south")},
            options={
                "site_keys": {site: public(site) for site in ("north", "south")},
                "aggregation": "own",
                "weights": HALVES,
            },
        ),
    ),
    "cohorts": Recording(
        "two cohorts, whose sums alone can be read; a member misses a round, which is void and charged",
        ByFiles(0.3, 8.0, sites=tuple("abcde"), missing={(2, "d")}, options={**COHORTS, "policy": "final"}),
    ),
    "cohorts-refused": Recording(
        "a cohort whose masks do not cancel once",
        ByFiles(0.3, 8.0, sites=tuple("abc"), cheat=masked_otherwise, options={"aggregation": "cohorts", "rounds": 2}),
    ),
    "cohorts-sealed": Recording(
        "sealed, line within",
        ByFiles(
            0.25,
            8.0,
            sites=tuple("abc"),
            options={"aggregation": "cohorts", "weights": dict.fromkeys("abc", 1 / 3)},
            change=declared((0.25,) * 4, ((0.25, 1.0, (0.6,) * 4),), ((4, 1.0),), "within"),
        ),
    ),
    # how it judges
    "sealed-within": Recording(
        "sealed, line within, two looks",
        Registered(0.25, 8.0, change=declared((0.1, 0.2, 0.3, 0.4), ((0.25, 1.0, (0.6,) * 4),), TWO_LOOKS, "within")),
    ),
    "sealed-hybrid": Recording(
        "sealed, line hybrid, recruiting",
        ByFiles(
            0.25,
            8.0,
            options={"policy": "recruit", "rounds": 6},
            change=declared((0.25,) * 4, ((0.25, 1.0, (0.6,) * 4),), ((3, 0.5), (6, 0.5)), "hybrid"),
        ),
    ),
    "sealed-unlabelled": Recording(
        "sealed without bets: unlabelled records show what is accepted", Certified(0.2, 4.0, unlabelled=3000)
    ),
    "sealed-counts": Recording(
        "sealed without bets and without privacy: exact counts", Certified(0.2, NONE, options={"certificate": "sealed"})
    ),
    "sealed-sources": Recording(
        "sealed, sources of three answers: accepted masses are released", Certified(0.25, 8.0, **SOURCES)
    ),
    "paper-contrast": Recording(
        "the paper's contrast: paired, plain bins, zero-out, its conversion",
        Registered(0.35, 8.0, units=2000, options={**PAPER, "method": "contrast"}),
    ),
    "paper-variance": Recording(
        "the paper's variance-adaptive certificate",
        Registered(0.35, 8.0, 2000, options={**PAPER, "method": "variance-adaptive"}),
    ),
    "paper-ratio": Recording(
        "the paper's ratio certificate", Registered(0.35, 8.0, 2000, options={**PAPER, "method": "ratio"})
    ),
    "paper-sites": Recording(
        "the paper's contrast of two sites without weights, one release absent",
        ByFiles(0.4, 8.0, units=900, missing={(2, "south")}, options={**PAPER, "batch": 200, "policy": "final"}),
    ),
    "growth": Recording(
        "every round half as large again; declared thresholds; policy final",
        Registered(0.25, 8.0, options={"policy": "final", "batch": 60, "rounds": 5}, change=growing),
    ),
    "zero-out": Recording("adjacency zero-out", Registered(0.25, 4.0, options={"adjacency": "zero-out"})),
    "hundred-rounds": Recording(
        "three sites with keys, 100 rounds, 20 thresholds: for timing",
        ByFiles(
            0.2,
            8.0,
            sites=("north", "south", "west"),
            units=1000,
            options={"thresholds": 20, "batch": 10, "rounds": 100, "policy": "final"},
        ),
    ),
    # what a release holds
    "moments": Recording(
        "second moments, sources of three answers",
        Registered(0.3, 8.0, 900, table={"answers": 3}, options={**THREE, **FINAL, "encoding": "moments"}),
    ),
    "answer-weight": Recording(
        "sources count by their answers",
        Registered(0.3, 8.0, 900, table={"answers": 3}, options={**THREE, **FINAL, "answer_weight": "answer"}),
    ),
    "levels": Recording(
        "graded losses, a histogram for each level",
        Registered(0.25, 8.0, table={"levels": 4}, options={**FINAL, "encoding": "levels", "loss_grid": 4}),
    ),
    "graded": Recording(
        "graded losses in histograms, exact", Registered(0.25, NONE, table={"levels": 4}, options={"loss_grid": 4})
    ),
    "records-of-sources": Recording(
        "records that share sources are declared independent",
        Certified(0.25, NONE, 600, table={"answers": 2}, options={"unit": "record"}),
    ),
    "scale": Recording(
        "a score from 100, the worst, to 0", Certified(0.2, 4.0, options={"score_column": "grounding", **DOWN})
    ),
    "judge": Recording(
        "planned on a judge's verdicts", Certified(0.2, 4.0, options={"judge_column": "loss", "certificate": "open"})
    ),
    "missed": Recording("labels may miss a share", Registered(0.25, 8.0, options={"missed": 0.1})),
    # people label on demand
    "on-demand": Recording(
        "labels on demand: some by two people, the worse counts; labels may miss a share",
        OnDemand(0.3, 8.0, options={**FINAL, "label_twice": 0.3, "missed": 0.05}),
    ),
    "on-demand-third": Recording("a third person decides; without privacy", OnDemand(0.3, NONE, options=THIRD)),
    "on-demand-timed": Recording(
        "answered at a registered time, with the labels that are there",
        Timed(0.35, 8.0, options={**FINAL, "label_hours": 24.0}),
    ),
    "on-demand-planned": Recording(
        "thresholds from a noised release of scores without labels", OnDemand(0.3, 8.0, grid=False)
    ),
    # several claims
    "groups": Recording("a claim for each group, planned: sealed", Certified(0.25, 8.0, 2000, options=LISTED)),
    "groups-open": Recording(
        "a claim for each group, betting, thresholds of their own from a noised release",
        Certified(0.25, 8.0, 2000, options={**LISTED, "certificate": "open"}),
    ),
    "groups-floor": Recording(
        "acceptance within a group; a group abstains", Registered(0.2, 8.0, options={**LISTED, "group_floor": "group"})
    ),
    "groups-all": Recording(
        "one threshold for all groups; neighbours of the same group",
        Registered(0.35, 8.0, 2000, options={**LISTED, "group_claim": "all", "adjacency": "same-group"}),
    ),
    "groups-whole": Recording(
        "sources count whole in every group that they are in, exact",
        Registered(
            0.35,
            NONE,
            900,
            table={"answers": 3, "mixed": True},
            options={**THREE, **FINAL, **LISTED, "group_span": "whole", "group_floor": "group"},
        ),
    ),
    "groups-open-signed": Recording("groups, signed while the run is open", partial(stopped, options=LISTED)),
    "scores": Recording(
        "the better of two scores", Certified(0.2, 8.0, 2000, options={"also_scores": ["grounding=100:0"]})
    ),
    "scores-abstain": Recording(
        "two scores, one with checkpoints, none of them certified",
        Registered(0.02, 8.0, options={"also_scores": ["grounding=100:0"], "checkpoints": {"grounding": (20, 40)}}),
    ),
    "checkpoints": Recording(
        "one score with checkpoints", Registered(0.25, 8.0, options={"checkpoints": {"score": (30, 60, 120)}})
    ),
    # the same where sites sign
    "planned-keys": Recording(
        "planned on a part of its own, beside unlabelled records, at a site with a key",
        Certified(0.2, 4.0, unlabelled=3000, options={"site_keys": {"local": public("local")}}),
    ),
    "moments-files": Recording(
        "second moments of sources of three answers, by files: two sites with keys",
        ByFiles(0.3, 8.0, table={"answers": 3}, options={**THREE, **FINAL, "encoding": "moments"}),
    ),
    "levels-files": Recording(
        "graded losses, a histogram for each level, by files: two sites with keys",
        ByFiles(0.3, 8.0, table={"levels": 4}, options={**FINAL, "encoding": "levels", "loss_grid": 4}),
    ),
    "groups-files": Recording(
        "a claim for each group, sealed, by files: three sites with keys, one release absent and charged",
        ByFiles(
            0.4,
            8.0,
            sites=("north", "south", "west"),
            units=600,
            missing={(2, "west")},
            options={**LISTED, "dropout": "adversarial", "batch": 120, "rounds": 5},
            change=declared_of_each(((0.4, 1.0, (0.4,) * 8),), ((3, 0.4), (5, 0.6))),
        ),
    ),
    "groups-live": Recording(
        "one threshold for all groups, live: sites say under their own signature what they have",
        Live(0.35, 8.0, capacities=False, options={**LISTED, **FINAL, "group_claim": "all", "weights": HALVES}),
    ),
    "groups-cohort": Recording(
        "a claim for each group in a cohort of three, whose sums alone can be read",
        ByFiles(0.35, 8.0, sites=tuple("abc"), options={**LISTED, **FINAL, "aggregation": "cohorts"}),
    ),
    "scores-files": Recording(
        "the better of two scores, one with checkpoints, by files: two sites with keys",
        ByFiles(0.3, 8.0, options={**FINAL, "also_scores": GROUNDING, "checkpoints": {"grounding": (20, 40)}}),
    ),
    "checkpoints-live": Recording(
        "one score with checkpoints, live: two sites with keys",
        Live(0.25, 8.0, capacities=False, options={**FINAL, "checkpoints": {"score": (30, 60, 120)}}),
    ),
    "on-demand-files": Recording(
        "labels on demand by files: two sites with keys, people of each site label, some answers twice",
        LabelledByFiles(0.3, 8.0, options={**FINAL, "labels": "on demand", "label_twice": 0.3, "missed": 0.05}),
    ),
    "on-demand-live": Recording(
        "labels on demand, live: two sites with keys, a third person decides",
        LabelledLive(0.35, 8.0, capacities=False, options={**THIRD, "labels": "on demand", "weights": HALVES}),
    ),
    "groups-on-demand": Recording(
        "a claim for each group, labels on demand by files: two sites with keys",
        LabelledByFiles(0.35, 8.0, options={**LISTED, **FINAL, "labels": "on demand"}),
    ),
    # monitors
    "monitor-unopened": Recording("a monitor before the first fresh record", Watched(EXACT, ())),
    "monitor-quiet": Recording("a monitor after two weeks like the table", Watched(PRIVATE, (0.35, 0.35))),
    "monitor-alarm": Recording("a monitor that rings in the second week", Watched(PRIVATE, (0.35, 0.95))),
    "monitor-run-length": Recording(
        "a run length is guaranteed, fresh records are of what was accepted, two sites",
        Watched(
            Certified(0.2, NONE, table={"sites": ("north", "south")}, options={"weights": HALVES}),
            (0.3,),
            {"run_length": 100_000, "sample": "accepted", "risk": 0.3, "batch": 100},
        ),
    ),
    "monitor-sites": Recording(
        "two sites with keys and weights, so much noise that a round shows nothing",
        Watched(
            Certified(0.2, NONE, table={"sites": SOUTH}, options={"weights": HALVES}),
            (0.35, 0.35),
            {
                "epsilon": 0.1,
                "batch": 10,
                "site_keys": {site: public(site) for site in SOUTH},
                "server_key": public("server"),
            },
            units=60,
        ),
    ),
    "monitor-groups": Recording("every group is watched", Watched(WARDS, (0.35,), {"batch": 200})),
    "monitor-groups-alarm": Recording("groups that ring", Watched(WARDS, (0.35, 0.95), {"batch": 200})),
    "monitor-groups-unopened": Recording("groups before the first fresh record", Watched(WARDS, ())),
}


@contextmanager
def dated() -> Iterator[None]:
    """Date releases a minute after each other."""
    numbers = count()
    with patch("fedsrc.site.site.utc_now", lambda: (FIRST + timedelta(seconds=61 * next(numbers))).strftime(TIME)):
        yield


def make(name: str, place: Path) -> None:
    """Play a run in a folder of its own, check it, and put its files in their place."""
    with tempfile.TemporaryDirectory() as work, dated():
        run = MADE[name].build(Path(work))
        try:
            found = verify(run)
            print(f"{name}: {found.signed.status}, {found.signed.records} records, {found.signed.rounds} rounds")
        except FedsrcError as error:
            print(f"{name}: {error.what}")
        files = read_files(run)
    write_files(place, files)
    print(f"  {sum(map(len, files.values())):,} bytes")


def wanted(words: Sequence[str] | None, made: Collection[str], root: Path) -> list[str]:
    """The names that a command gives, or all that lack; refused where one is recorded already."""
    parser = argparse.ArgumentParser(description="Make recordings.")
    parser.add_argument("names", nargs="+", metavar="NAME", choices=[*made, "all"], help="a name, or `all` that lack")
    parser.add_argument("--replace", action="store_true", help="make a recording anew that is there already")
    given = parser.parse_args(words)
    names = [name for name in made if not (root / name).exists()] if given.names == ["all"] else given.names
    there = [name for name in names if (root / name).exists()]
    if there and not given.replace:
        parser.error(f"recorded already, and frozen: {', '.join(there)}")
    return list(names)


def main(words: Sequence[str] | None = None) -> None:
    for name in wanted(words, MADE, RUNS):
        make(name, RUNS / name)
    DIGESTS.write_text("\n".join([*digests(), ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
