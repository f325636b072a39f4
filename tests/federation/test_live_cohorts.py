"""Cohorts live: members that are missing, refuse, wait, are late, answer twice or with another's bytes.

Mutants killed, each tried by hand: a void that charges the missing member's slots alone; a void after which a late
answer is added up; a server that waits for the others of a round that is void; waiting for labels taken for an absence;
a sum whose masked slots are not looked at; a member that answers a second request for its round, or an earlier one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from fedsrc.errors import FedsrcError
from fedsrc.federation.flower.app.fedsrc_relay.wire import GIVEN, HELLO, REFUSED, RELEASE, Frame
from fedsrc.federation.live.guard import Guard
from fedsrc.federation.live.transport import Letter, Reply
from fedsrc.protocol.messages import Refusal, SignedRequest, parse_release
from fedsrc.protocol.names import TRANSCRIPT
from fedsrc.protocol.transcript import Absent, Asked, Entry, Summed, read_transcript
from fedsrc.server.recruiter import make_requests
from fedsrc.server.state import Replay
from fedsrc.server.verify import verify
from tests.support.cohort_faults import (
    ROUNDS,
    cohorts_of,
    guards,
    live,
    same_by_files,
)  # fmt: skip
from tests.support.cohorts import SERVER, ledger_of, own_table
from tests.support.live_scenarios import Mischief, OwnClock, OwnPost

REG, MEMBERS = cohorts_of((2, 3), False, 1)  # x0, x1 at nodes 1 and 2; y0, y1, y2 at 3 to 5
E = TypeVar("E", bound=Entry)


def entries(folder: Path, kind: type[E]) -> list[E]:
    return [entry for entry in read_transcript(folder / "run" / TRANSCRIPT)[0] if isinstance(entry, kind)]


def outcomes(folder: Path) -> list[tuple[str, int, str]]:
    """How every request to a cohort ended: whom, in which round, and why it is void, if it is."""
    asked = {each.request.digest: each.request for each in entries(folder, Asked)}
    ends: list[Summed | Absent] = [*entries(folder, Summed), *entries(folder, Absent)]
    found = [(asked[each.request], each.reason if isinstance(each, Absent) else "") for each in ends]
    return sorted((request.site, request.round, why) for request, why in found)


def all_summed(*but: tuple[str, int, str]) -> list[tuple[str, int, str]]:
    """Every cohort's sum in every round, but for these."""
    voids = {(cohort, round): why for cohort, round, why in but}
    each = [(cohort, round) for cohort in ("cohort x", "cohort y") for round in range(1, ROUNDS + 1)]
    return [(*one, voids.get(one, "")) for one in each]


@pytest.mark.parametrize("sealed", [False, True])
def test_live_and_by_files_a_run_is_the_same(tmp_path: Path, sealed: bool) -> None:
    """And a member's log says how many units it gave itself, and not its cohort."""
    reg, members = cohorts_of((2, 3), sealed, 1)
    told = list[str]()
    body = live(tmp_path, reg, members, told=told)
    assert (body.status, body.releases, body.absent, body.records) == ("CERTIFIED", 2 * ROUNDS, 0, 5 * ROUNDS * 30)
    assert same_by_files(tmp_path, reg, members, tmp_path / "run")
    assert sum(line.endswith("released 30 units") for line in told) == 5 * ROUNDS


def for_member(node: int, what: Callable[[Reply], Sequence[Reply]], *, times: int = 99) -> Mischief:
    """What becomes of the answers of one node in the second round: of so many of them."""
    seen = list[Letter]()

    def mischief(letter: Letter, reply: Reply) -> Sequence[Reply]:
        if (letter.kind, letter.node, letter.group) != ("release", node, "2") or len(seen) == times:
            return [reply]
        seen.append(letter)
        return what(reply)

    return mischief


def test_a_missing_member_voids_its_cohorts_round_and_all_its_slots_are_charged(tmp_path: Path) -> None:
    """It spent its units, and so did the others; in the next round the cohort is there again."""
    post = OwnPost(OwnClock())
    post.mischief = for_member(5, lambda _: [])
    body = live(tmp_path, REG, MEMBERS, post)
    lost = "no answer of site 'y2' before the round was closed"
    assert outcomes(tmp_path) == all_summed(("cohort y", 2, lost))
    assert (body.absent, body.refused, body.records) == (1, 0, 5 * ROUNDS * 30 - 90)
    found = verify(tmp_path / "run").replay.tally
    assert (list(found.missing), found.arrived) == ([0, 0, 30, 30, 30], body.records)
    with closing(ledger_of(tmp_path, MEMBERS[4], REG)) as ledger:
        assert ledger.given("y2", REG.digest) == 30 * ROUNDS
    assert live(tmp_path, REG, MEMBERS) == body


def test_a_void_is_final_and_what_comes_later_is_not_read(tmp_path: Path) -> None:
    """The late answer is the member's own, and opens the sum; it comes when the void is written down, and nobody
    parses it. A transcript that adds it up after all breaks the protocol."""
    post, told = OwnPost(OwnClock()), list[str]()
    late = list[Letter]()

    def slow(letter: Letter) -> float:
        first = letter.kind == "release" and letter.node == 5 and not late
        late.extend([letter] if first else [])
        return 25.0 if first else 5.0 * (letter.kind == "release")

    post.delay = slow
    live(tmp_path, REG, MEMBERS, post, told=told)
    assert outcomes(tmp_path)[4] == ("cohort y", 1, "no answer of site 'y2' before the round was closed")
    assert "site 'y2': a late reply to request 2 is left out" in told
    found = read_transcript(tmp_path / "run" / TRANSCRIPT)[0]
    void = next(i for i, entry in enumerate(found) if isinstance(entry, Absent))
    sums = [entry for entry in found if isinstance(entry, Summed)]
    forged = sums[1].model_copy(update={"request": found[void].request})  # type: ignore[union-attr]
    with pytest.raises(FedsrcError, match="a sum without an open request"):
        Replay(REG, [*found[: void + 1], forged])


def test_a_member_that_refuses_ends_its_cohorts_round_at_once(tmp_path: Path) -> None:
    """The others are not waited for: their answers could not be read."""
    post = OwnPost(OwnClock())
    post.delay = lambda letter: 15.0 if letter.kind == "release" and letter.node == 4 else 0.0

    no = Frame(REFUSED, Refusal.NOT_ALLOWED.encode())

    def refuse(sites: dict[str, Guard], post: OwnPost) -> None:
        real = sites["y0"].answer
        post.join(3, lambda question: real(question) if question.kind == HELLO else no)

    live(tmp_path, REG, MEMBERS, post, change=refuse)
    why = "site 'y0' refused: the site does not allow this registration"
    assert outcomes(tmp_path) == all_summed(*(("cohort y", round, why) for round in range(1, ROUNDS + 1)))
    assert post.clock.monotonic() < 15


def test_a_member_that_waits_for_labels_is_not_missing(tmp_path: Path) -> None:
    """Its cohort waits with it, for longer than a round lasts otherwise."""
    post, asked = OwnPost(OwnClock()), Counter[str]()

    def wait(sites: dict[str, Guard], post: OwnPost) -> None:
        real = sites["y1"].answer

        def later(question: Frame) -> Frame:
            asked[question.kind.decode()] += 1
            if question.kind == RELEASE and asked["R"] <= 10:
                return Frame(REFUSED, Refusal.NOT_YET.encode())
            return real(question)

        post.join(4, later)

    live(tmp_path, REG, MEMBERS, post, change=wait)
    assert outcomes(tmp_path) == all_summed()
    assert post.clock.monotonic() > 100


@pytest.mark.parametrize("case", ["twice", "damaged second", "error first", "node gone"])
def test_what_can_be_mended_is_added_up_once(tmp_path: Path, case: str) -> None:
    post = OwnPost(OwnClock())

    def again(reply: Reply) -> Sequence[Reply]:
        if case == "node gone":
            key, behave = post.places.pop(4)
            post.clock.at(post.clock.monotonic() + 5, partial(post.join, 77, behave, key))
            return []
        other = Reply(reply.to, b"{}") if case == "damaged second" else reply
        return [Reply(reply.to, problem="Flower: Node Unavailable")] if case == "error first" else [reply, other]

    post.mischief = for_member(4, again, times=1)
    body = live(tmp_path, REG, MEMBERS, post)
    assert outcomes(tmp_path) == all_summed()
    assert body.absent == body.refused == 0


@pytest.mark.parametrize(
    ("case", "why"),
    [
        ("another's", "it is not one release of every member"),
        ("earlier", "site 'y1': it answers another request"),
        ("garbage", "site 'y1': it is not a release"),
        ("changed", "site 'y1': it is not signed by site 'y1'"),
        ("mismasked", "its masks do not cancel: its members were not asked alike, or one of them masked otherwise"),
    ],
)
def test_wrong_bytes_void_the_round_and_are_written_down(tmp_path: Path, case: str, why: str) -> None:
    post, came = OwnPost(OwnClock()), dict[int, list[bytes]]()

    def mischief(letter: Letter, reply: Reply) -> Sequence[Reply]:
        if letter.kind != "release" or reply.data is None:
            return [reply]
        given = came.setdefault(letter.node, [])
        given.append(reply.data)
        if letter.node != 4 or len(given) != 2:
            return [reply]
        release = parse_release(reply.data)
        lie = release.model_copy(update={"check": 5})
        wrong = {
            "another's": came[3][-1], "earlier": given[0], "garbage": b"{}", "changed": lie.to_bytes(),
            "mismasked": lie.signed(MEMBERS[3].key).to_bytes(),
        }  # fmt: skip
        return [Reply(reply.to, wrong[case])]

    post.mischief = mischief
    body = live(tmp_path, REG, MEMBERS, post)
    assert outcomes(tmp_path) == all_summed(("cohort y", 2, why))
    assert (body.absent, body.refused) == (0, 1)
    assert verify(tmp_path / "run").certificate == body


def test_nothing_is_asked_while_no_cohort_is_whole(tmp_path: Path) -> None:
    """A round that must be void would spend units for nothing; with one whole cohort the run begins, and of the other
    one nobody spends any."""

    def leave(_: dict[str, Guard], post: OwnPost) -> None:
        for node in away:
            post.leave(node)

    away = [1, 5]
    with pytest.raises(FedsrcError, match="no cohort with all its members came within 30 seconds"):
        live(tmp_path, REG, MEMBERS, change=leave)
    assert entries(tmp_path, Asked) == []
    away = [5]
    live(tmp_path, REG, MEMBERS, change=leave)
    why = "site 'y2' is not connected: no node speaks for the site"
    assert outcomes(tmp_path) == all_summed(*(("cohort y", round, why) for round in range(1, ROUNDS + 1)))
    with closing(ledger_of(tmp_path, MEMBERS[3], REG)) as ledger:  # y1 was there, and was not asked
        assert ledger.given("y1", REG.digest) == 0


def test_a_member_answers_one_request_a_round_whatever_a_server_signs(tmp_path: Path) -> None:
    """The first is answered, and always by the same bytes; others for that round or an earlier one spend nothing. Every
    answer has the same size, whatever its masks."""
    told = list[str]()

    def letter(round: int, slots: Sequence[int]) -> Frame:
        request = make_requests(REG, slots, number=2 * round, round=round)[1]
        return Frame(RELEASE, SignedRequest.by(request, SERVER).to_bytes())

    with guards(tmp_path, REG, MEMBERS, told) as sites, closing(ledger_of(tmp_path, MEMBERS[3], REG)) as ledger:
        member = sites["y1"]
        first = member.letter(letter(2, [30] * 5))
        assert first.kind == GIVEN
        for other in (letter(2, [30, 30, 29, 31, 30]), letter(2, [30, 30, 30, 30, 0]), letter(1, [30] * 5)):
            assert member.letter(other).data.strip() == Refusal.CANNOT.encode()
        assert member.letter(letter(2, [30] * 5)) == first
        nothing = member.letter(letter(3, [30, 30, 30, 0, 30]))
        assert (nothing.kind, len(nothing.data)) == (GIVEN, len(first.data))
        assert ledger.given("y1", REG.digest) == 30
    assert told[-1].endswith("released 0 units")
    with closing(ledger_of(tmp_path, MEMBERS[2], REG)) as ledger:
        without = Guard(REG, "y0", ledger, partial(own_table, "y0"), MEMBERS[2].key)
        with pytest.raises(FedsrcError, match="site 'y0' needs the private key of its registered mask key"):
            without.open()
