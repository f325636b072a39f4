"""Labels on demand under attack: a table that speaks after people did, sites that label longer than a server waits.

Mutants killed: a table's label that lowers what people said, or leaves a round waiting for words that nobody is asked
for; a round that is given up before it is released and leaves no trace; a live round that is charged while its site
says "not yet"; a live site that does not see labels put into its table; a card that declares what labelling
contradicts.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path

import polars as pl
import pytest

from fedsrc.common.places import labels_beside, ledger_beside
from fedsrc.errors import FedsrcError
from fedsrc.protocol.messages import START, parse_release
from fedsrc.protocol.names import TRANSCRIPT
from fedsrc.protocol.transcript import Absent, Arrived, Closed, Ended, Entry, read_transcript
from fedsrc.records.stream import Table
from fedsrc.server.recruiter import make_requests
from fedsrc.server.state import Replay, SiteChain
from fedsrc.server.verify import verify
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow
from fedsrc.site.rounds import NotYetError, open_rounds
from fedsrc.site.site import open_sites
from research.attacks.struck import NAMES
from tests.federation.test_on_demand import (
    by_files,
    certify,
    give,
    label,
    of,
    on_demand,
    read,
    releases,
    sealed,
    waiting,
    write_log,
)
from tests.support.helpers import registration, table
from tests.support.live_scenarios import OwnClock, OwnPost, live


@pytest.mark.parametrize(("first", "table_says", "supported"), [(1.0, 0.0, False), (0.0, 1.0, False), (0.0, 0.0, True)])
def test_a_table_that_speaks_after_people_did_ends_the_wait_and_lowers_nothing(
    tmp_path: Path, first: float, table_says: float, supported: bool
) -> None:
    """One of two people has labelled; then the table has labels of its own. Without noise."""
    base = registration(epsilon=float("inf"), batch=60, rounds=1, policy="final", thresholds=3, grid=True)
    path, reg = tmp_path / "log.csv", on_demand(base, twice=1.0, disagreement="third")
    write_log(path, 120)
    with pytest.raises(NotYetError):
        certify(path, reg)
    label(path, lambda _: first)
    pl.read_csv(path).with_columns(loss=table_says).write_csv(path)
    assert not waiting(path).needed
    certify(path, reg)
    (release,) = releases(tmp_path / "run")
    assert any(release.first) == supported


def test_live_a_site_that_labels_is_not_charged_and_one_that_is_silent_is(tmp_path: Path) -> None:
    """With dropout charged, "not yet" keeps a round open for as long as it is said."""
    reg, clock = by_files(tmp_path, dropout="adversarial"), OwnClock()
    post = world(tmp_path, clock)
    for time in (100.0, 400.0):
        for i, name in enumerate(NAMES):
            log, truth = tmp_path / name / "log.csv", of(table(300, seed=i + 5).loss)
            clock.at(time + 10 * i, partial(label, log, truth))
    body = live(tmp_path, post=post, reg=reg, find=lambda i: Table(tmp_path / NAMES[i] / "log.csv"))
    assert (body.status, body.absent) == ("CERTIFIED", 0)
    silent = OwnPost(clock)
    silent.mischief = lambda letter, reply: [] if letter.kind == "release" else [reply]
    again = live(tmp_path, "silent", post=silent, reg=reg, find=lambda i: Table(tmp_path / NAMES[i] / "log.csv"))
    assert (again.status, again.absent) == ("ABSTAIN", 2 * len(NAMES))


def test_live_a_site_sees_labels_that_are_put_into_its_table(tmp_path: Path) -> None:
    reg, clock = by_files(tmp_path), OwnClock()
    post = world(tmp_path, clock)
    for i, name in enumerate(NAMES):
        log, truth = tmp_path / name / "log.csv", table(300, seed=i + 5).loss
        told = pl.read_csv(log).with_columns(loss=pl.Series(truth))
        clock.at(100.0, partial(told.write_csv, log))
    body = live(tmp_path, post=post, reg=reg, find=lambda i: Table(tmp_path / NAMES[i] / "log.csv"))
    assert body.status == "CERTIFIED"


def world(folder: Path, clock: OwnClock) -> OwnPost:
    """A post between a server and sites whose ledgers lie beside their tables."""
    for name in NAMES:
        (folder / f"{name}.ledger").symlink_to(folder / name / "log.csv.ledger")
    return OwnPost(clock)


def test_a_card_does_not_declare_that_labelling_takes_no_time(tmp_path: Path) -> None:
    """When a release arrives depends on people, and where no release may be missing that does not matter."""
    path, reg = tmp_path / "log.csv", sealed(choices={"looks": ((1, 1.0),)})
    write_log(path, 200)
    with pytest.raises(NotYetError):
        certify(path, reg)
    with closing(Ledger(ledger_beside(path))) as ledger:
        ledger.close_round(waiting(path).request)
    certify(path, reg)
    said = " ".join(each.what for each in verify(tmp_path / "run").certificate.assumptions)
    assert "a round's units were fixed and spent" in said
    assert "whether and when a release arrives" not in said


def test_a_round_that_was_given_up_has_its_place_in_the_chain(tmp_path: Path) -> None:
    """A run begun again that asks in other words, without a site that came before it, gets other units: their release
    says that a round came first, and no transcript without that round takes it. One that is answered late keeps its
    own place."""
    path, reg = tmp_path / "log.csv", sealed(choices={"batch": 60})
    truth = of(write_log(path, 300))
    made = []
    with closing(Ledger(ledger_beside(path))) as ledger:
        allow(ledger, "local", reg)
        (site,) = open_sites(reg, read(path), ledger, labels=labels_beside(path))
        asked = [make_requests(reg, [60], number=number, round=1)[0] for number in range(3)]
        for request in asked:
            with pytest.raises(NotYetError):
                site.answer(request)
        for now in open_rounds(ledger, read(path)):
            give(path, now, truth)
        for request in (asked[1], asked[0], asked[2]):
            made.append(parse_release(site.answer(request)))
    second, first, third = made
    assert (first.place, second.place, third.place) == (1, 2, 3)
    assert (first.before, second.before, third.before) == (START, START, second.digest)
    alone, charged = SiteChain(), SiteChain()
    assert "release 2 of its site, and 0 came before it" in str(alone.broken_by(second))
    charged.miss()
    assert charged.broken_by(second) is None
    charged.add(second)
    assert charged.broken_by(third) is None


def test_no_transcript_goes_on_or_ends_without_a_round_whose_labels_may_have_been_seen(tmp_path: Path) -> None:
    """Written by hand, as a server with its key could: an absence, a refusal, an end in the open round, a release
    without the digest of its labels."""
    path, reg = tmp_path / "log.csv", sealed(choices={"batch": 60})
    truth = of(write_log(path, 300))
    with pytest.raises(NotYetError):
        certify(path, reg)
    entries = read_transcript(tmp_path / "run" / TRANSCRIPT)[0]
    asked = waiting(path).request
    label(path, truth)
    with pytest.raises(NotYetError, match="round 2"):
        certify(path, reg)
    bare = releases(tmp_path / "run")[0].model_copy(update={"labels": None})
    forged: list[Entry] = [
        Absent(request=asked.digest, refused=False, reason="gone"),
        Absent(request=asked.digest, refused=True, reason="bad", release=bare),
        Closed(round=1),
        *(Ended(reason=reason) for reason in ("certified", "units used", "rounds used")),
        Arrived(release=bare),
    ]
    for entry in forged:
        with pytest.raises(FedsrcError, match="breaks the protocol"):
            Replay(reg, [*entries, entry])
