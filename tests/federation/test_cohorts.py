"""Cohorts: sites whose releases can only be read together, by files and in one process.

Mutants killed: partial, doubled, foreign and disordered sets taken; a member's release of another request; a sum that
is not its members'; a sum whose masks do not cancel, in the run and in the transcript; one refused that opens; a masked
release that arrives by itself; a void that is opened after all; a void charged for one member's slots, or with the
noise of one release, or not at all. Chance of a false alarm: that of refusing honest sums, 1e-4 by registration in a
whole run, is none here: noise passes its margins with probability 1e-6 at most in each test.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from fedsrc.errors import FedsrcError
from fedsrc.federation.airgap import Collected, answer_file, collect, start
from fedsrc.planning.sealing import Seal, seal
from fedsrc.protocol.messages import Release, Request, parse_release
from fedsrc.protocol.names import TRANSCRIPT
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.transcript import (
    Absent,
    Announced,
    Arrived,
    Asked,
    Chain,
    Closed,
    Entry,
    Opened,
    Summed,
    read_transcript,
)
from fedsrc.records.stream import Table
from fedsrc.server import sealed
from fedsrc.server.opening import open_sum
from fedsrc.server.state import Replay
from fedsrc.server.tally import empty, lose, plausible_margins
from fedsrc.server.verify import verify
from fedsrc.site.ledger import Ledger
from fedsrc.site.rounds import NotYetError
from fedsrc.site.streamed import open_site
from tests.support.cohorts import (
    SERVER,
    Member,
    cohort_registration,
    ledger_of,
    member,
    own_table,
    released,
    request_to,
    unmasked,
)

FIVE = [member(name) for name in "abcde"]


def answer(folder: Path, reg: Registration, who: Member, request: Path) -> Path:
    """A member's release file for a request file."""
    place = folder / f"{request.name}.{who.name}"
    with closing(ledger_of(folder, who, reg)) as ledger:
        place.write_bytes(answer_file(request, lambda: own_table(who.name), ledger, who.key, mask=who.mask))
    return place


def play(folder: Path, reg: Registration, missing: Sequence[tuple[int, str]] = ()) -> Collected:
    """A whole run by files; some members miss some rounds."""
    done, round = start(reg, folder / "run", SERVER), 0
    while done.certificate is None:
        round += 1
        files = [
            answer(folder, reg, who, request)
            for request in done.waiting
            for who in FIVE
            if who.name in asked(reg, request) and (round, who.name) not in missing
        ]
        done = collect(folder / "run", files, SERVER, without_missing=True)
    return done


def asked(reg: Registration, path: Path) -> tuple[str, ...]:
    return reg.answering(Request.model_validate(json.loads(path.read_bytes())["request"]))


def test_a_cohort_by_files_comes_to_a_certificate_that_verifies(tmp_path: Path) -> None:
    done = play(tmp_path, cohort_registration(FIVE))
    assert done.certificate is not None
    assert done.certificate.releases == done.certificate.rounds
    assert verify(tmp_path / "run").certificate == done.certificate


def test_two_cohorts_of_which_one_misses_a_member_once(tmp_path: Path) -> None:
    """Its round is void, the other cohort's is not; both go on, and all of it verifies."""
    reg = cohort_registration(FIVE, {"one": "ab", "two": "cde"}, policy="final")
    done = play(tmp_path, reg, missing=[(1, "d")])
    assert done.certificate is not None
    entries, _ = read_transcript(tmp_path / "run" / TRANSCRIPT)
    assert [type(each).__name__ for each in entries[1:6]] == ["Asked", "Asked", "Summed", "Absent", "Closed"]
    void = entries[4]
    assert isinstance(void, Absent)
    assert void.reason.startswith("site 'd': no release arrived")
    assert verify(tmp_path / "run").certificate == done.certificate
    replay = Replay(reg, entries)
    assert replay.tally.missing == (0, 0, 60, 60, 60)
    assert [each.noise for each in replay.tally.lost] == [reg.noise_of("two")]
    assert replay.tally.noises == pytest.approx(3 * (reg.noise_of("one") + reg.noise_of("two")))


def test_a_void_is_final(tmp_path: Path) -> None:
    """What comes too late for it is no answer to anything any more."""
    reg = cohort_registration(FIVE)
    request = next(iter(start(reg, tmp_path / "run", SERVER).waiting))
    files = [answer(tmp_path, reg, who, request) for who in FIVE]
    collect(tmp_path / "run", files[:4], SERVER, without_missing=True)
    late = collect(tmp_path / "run", files, SERVER)
    assert (late.taken_in, late.too_late) == ([], dict.fromkeys(files, "absent"))
    entries, _ = read_transcript(tmp_path / "run" / TRANSCRIPT)
    assert [type(each).__name__ for each in entries[:4]] == ["Opened", "Asked", "Absent", "Closed"]


def test_members_may_be_waited_for(tmp_path: Path) -> None:
    """By files a round may take weeks: what has come is kept, in whatever order, and nothing is void."""
    reg = cohort_registration(FIVE, policy="final")
    request = next(iter(start(reg, tmp_path / "run", SERVER).waiting))
    for who in reversed(FIVE):
        done = collect(tmp_path / "run", [answer(tmp_path, reg, who, request)], SERVER)
    entries, _ = read_transcript(tmp_path / "run" / TRANSCRIPT)
    assert isinstance(entries[2], Summed)
    assert next(iter(done.waiting)) != request


# ---------------------------------------------------------------- what a transcript may not say


def test_the_first_release_of_a_member_stands(tmp_path: Path) -> None:
    """A second one could follow what the others sent; the same bytes again are no second one."""
    reg = cohort_registration(FIVE)
    (request,) = start(reg, tmp_path / "run", SERVER).waiting
    first = answer(tmp_path, reg, FIVE[0], request)
    other = tmp_path / "other"
    release = parse_release(first.read_bytes())
    other.write_bytes(release.model_copy(update={"time": "2026-01-02T03:04:05Z"}).signed(FIVE[0].key).to_bytes())
    for files in ([first, other], [other, first]):
        with pytest.raises(FedsrcError, match="site 'a' has given another release for it, which stands"):
            collect(tmp_path / "run", files, SERVER)
    collect(tmp_path / "run", [first, first], SERVER)
    with pytest.raises(FedsrcError, match="which stands"):
        collect(tmp_path / "run", [other], SERVER)
    collect(tmp_path / "run", [first], SERVER)


FOUR = FIVE[:4]
REG = cohort_registration(FOUR, policy="final")
Rounds = list[tuple[Request, tuple[Release, ...]]]


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory) -> Rounds:
    """Two rounds of real requests and releases."""
    folder, found, replay = tmp_path_factory.mktemp("rounds"), [], opened()
    for round in (1, 2):
        (request,) = replay.plan()
        found.append((request, tuple(released(folder, REG, request, FOUR))))
        for entry in (Asked(request=request), summed(*found[-1]), Closed(round=round)):
            replay.step(entry)
    return found


def opened() -> Replay:
    return Replay(REG, [Opened(registration=REG.digest)])


def summed(request: Request, given: Sequence[Release], **changes: Any) -> Summed:
    first, second, _ = open_sum(given)
    made = Summed(request=request.digest, members=tuple(given), first=first, second=second)
    return made.model_copy(update=changes)


def signed(release: Release, who: Member, **changes: Any) -> Release:
    """A member's release as it signs it after changing something."""
    return release.model_copy(update=changes).signed(who.key)


def by_a(rounds: Rounds, **changes: Any) -> Summed:
    """The first round's sum, of which member a has sent something else."""
    request, members = rounds[0]
    return summed(request, members, members=(signed(members[0], FOUR[0], **changes), *members[1:]))


def lowered(number: int) -> int:
    """A masked integer that is lower by more than noise and slots explain."""
    return (number - 10**6 + (1 << 63)) % (1 << 64) - (1 << 63)


LIES: dict[str, tuple[str, Callable[[Rounds], Entry]]] = {
    "partial": ("not one release of every member", lambda r: summed(r[0][0], r[0][1][:3])),
    "doubled": ("not one release of every member", lambda r: summed(r[0][0], (*r[0][1][:3], r[0][1][2]))),
    "one more": ("not one release of every member", lambda r: summed(r[0][0], (*r[0][1], r[0][1][2]))),
    "disordered": ("not one release of every member", lambda r: summed(r[0][0], r[0][1][::-1])),
    "foreign": (
        "not one release of every member",
        lambda r: summed(r[0][0], (*r[0][1][:3], signed(r[0][1][3], FIVE[4], site="e"))),
    ),
    "forged": (
        "not signed by site 'd'",
        lambda r: summed(r[0][0], (*r[0][1][:3], signed(r[0][1][3], FIVE[4]))),
    ),
    "another round's": ("it answers another request", lambda r: summed(r[0][0], (*r[0][1][:3], r[1][1][3]))),
    "another round's, renamed": (
        "masks do not cancel",
        lambda r: summed(
            r[0][0],
            (*r[0][1][:3], signed(r[1][1][3], FOUR[3], request=r[0][0].digest, place=1, before="0" * 64)),
        ),
    ),
    "not the sum": (
        "not that of its members' releases",
        lambda r: summed(*r[0], first=tuple(each + 1 for each in open_sum(r[0][1]).first)),
    ),
    "uncancelled": ("masks do not cancel", lambda r: by_a(r, check=(r[0][1][0].check or 0) ^ 1)),
    "other slots": ("its site, slots or noise scale differ", lambda r: by_a(r, slots=59)),
    "whole noise": ("its site, slots or noise scale differ", lambda r: by_a(r, scale=REG.mechanism.scale)),
    "no check": ("masks belong to a cohort's releases", lambda r: by_a(r, check=None)),
    "too long": ("its length differs", lambda r: by_a(r, second=(*r[0][1][0].second, 0))),
    "beyond 64 bits": ("absurdly large", lambda r: by_a(r, first=(1 << 63, *r[0][1][0].first[1:]))),
    "invented": (
        "more negative than the noise explains",
        lambda r: by_a(r, first=(lowered(r[0][1][0].first[0]), *r[0][1][0].first[1:])),
    ),
    "alone": ("stands alone, outside its cohort", lambda r: Arrived(release=r[0][1][0])),
    "refused, though it opens": (
        "a sum was refused that should have been accepted",
        lambda r: Absent(request=r[0][0].digest, refused=True, reason="its masks do not cancel", members=r[0][1]),
    ),
    "missing, though it opens": (
        "a sum was refused that should have been accepted",
        lambda r: Absent(request=r[0][0].digest, refused=False, reason="nobody came", members=r[0][1]),
    ),
    "missing, though it came and is refused": (
        "a sum was refused that should have been accepted",
        lambda r: Absent(
            request=r[0][0].digest, refused=False, reason="no", members=by_a(r, check=0).members
        ),
    ),
    "a member refused that is right": (
        "a release was refused that should have been accepted",
        lambda r: Absent(request=r[0][0].digest, refused=True, reason="site 'a': no", release=r[0][1][0]),
    ),
    "the other round": ("a sum without an open request", lambda r: summed(*r[1])),
}  # fmt: skip


@pytest.mark.parametrize("lie", list(LIES))
def test_a_transcript_that_lies_about_a_cohort_is_refused(lie: str, rounds: Rounds) -> None:
    words, entry = LIES[lie]
    replay = opened()
    replay.step(Asked(request=rounds[0][0]))
    with pytest.raises(FedsrcError, match=words):
        replay.step(entry(rounds))


@pytest.mark.parametrize("lie", ["uncancelled", "invented", "another round's, renamed", "forged"])
def test_the_run_refuses_such_a_sum_and_says_so(lie: str, rounds: Rounds) -> None:
    """What the transcript may not call a sum, it calls refused, with the releases that show it."""
    words, entry = LIES[lie]
    made, replay = entry(rounds), opened()
    assert isinstance(made, Summed)
    replay.step(Asked(request=rounds[0][0]))
    assert words in (replay.check_sum(rounds[0][0], made.members) or "")
    replay.step(Absent(request=made.request, refused=True, reason=words, members=made.members))
    assert (replay.refused, replay.tally.missing) == (1, (60,) * 4)


def test_a_release_outside_cohorts_is_no_refused_sum(tmp_path: Path) -> None:
    """A good release is not called refused by showing it as the only member of a sum."""
    reg = cohort_registration(FOUR[:1], mask_keys=(), aggregation="own", site_keys={"a": FOUR[0].word.key})
    replay = Replay(reg, [Opened(registration=reg.digest), Announced(site="a", units=200)])
    (request,) = replay.plan()
    with closing(ledger_of(tmp_path, FOUR[0], reg)) as ledger:
        site = open_site(reg, "a", own_table("a"), ledger, FOUR[0].key, fresh=True)
        release = parse_release(site.answer(request))
    replay.step(Asked(request=request))
    with pytest.raises(FedsrcError, match="a sum was refused that should have been accepted"):
        replay.step(Absent(request=request.digest, refused=True, reason="no", members=(release,)))
    for number in (1 << 61, -(1 << 61)):  # 64 bits are for masked numbers alone
        large = signed(release, FOUR[0], first=(number, *release.first[1:]))
        assert replay.check(large) == "its numbers are absurdly large"
    replay.step(Arrived(release=release))


def test_a_void_is_followed_by_no_sum(rounds: Rounds) -> None:
    request, members = rounds[0]
    replay = opened()
    replay.step(Asked(request=request))
    replay.step(Absent(request=request.digest, refused=False, reason="site 'a': nobody came"))
    with pytest.raises(FedsrcError, match="a sum without an open request"):
        replay.step(summed(request, members))
    replay.step(Closed(round=1))
    with pytest.raises(FedsrcError, match="a sum without an open request"):
        replay.step(summed(request, members))


def test_after_a_void_the_members_go_on(rounds: Rounds) -> None:
    """Their next releases come second in their chains, and fit."""
    replay, (first, second) = opened(), rounds
    for entry in (
        Asked(request=first[0]),
        Absent(request=first[0].digest, refused=False, reason="site 'a': nobody came"),
        Closed(round=1),
        Asked(request=second[0]),
        summed(*second),
        Closed(round=2),
    ):
        replay.step(entry)
    assert replay.tally.slots == replay.tally.missing == (60,) * 4
    assert replay.tally.noises == 2 * REG.noise_of("all")


def test_verify_refuses_an_edited_run(tmp_path: Path) -> None:
    """A run whose sum was changed in the file, with every hash made again."""
    play(tmp_path, cohort_registration(FIVE))
    path = tmp_path / "run" / TRANSCRIPT
    entries, _ = read_transcript(path)
    place = next(i for i, each in enumerate(entries) if isinstance(each, Summed))
    made = entries[place]
    assert isinstance(made, Summed)
    entries[place] = made.model_copy(update={"second": tuple(each - 10 for each in made.second)})
    chain, lines = Chain(), list[bytes]()
    for entry in entries:
        data, chain = chain.line(entry)
        lines.append(data)
    path.write_bytes(b"".join(lines))
    with pytest.raises(FedsrcError, match="not that of its members' releases"):
        verify(tmp_path / "run")


# ---------------------------------------------------------------- what a void costs


def test_a_void_is_charged_all_its_slots_at_its_own_noise() -> None:
    """Theory: (iv), Dropout: the worst that an honest sum may be, with the margins of the cohort's noise."""
    noise = REG.noise_of("all")
    assert noise == pytest.approx(4 / 3)
    parts = [(i, 60) for i in range(4)]
    lost = lose(REG, empty(REG), parts, 1, noise)
    one, own = plausible_margins(REG, 1), plausible_margins(REG, 1, noise)
    assert np.allclose(own.high - 1e-9, np.sqrt(noise) * (one.high - 1e-9), rtol=1e-12)
    assert np.allclose(lost.charge.unsupported, 240 + own.high + own.low_supported)
    assert np.allclose(lost.charge.supported, -own.low_supported)
    assert (lost.missing, lost.noises, lost.total) == ((60,) * 4, noise, 240)
    replay = opened()
    (request,) = replay.plan()
    replay.step(Asked(request=request))
    replay.step(Absent(request=request.digest, refused=False, reason="nobody came"))
    assert np.array_equal(replay.tally.charge.unsupported, lost.charge.unsupported)
    assert replay.tally.lost == lost.lost


def test_a_void_of_a_sealed_run_is_charged_alike() -> None:
    """Theory: (xiii) Refusal: every slot at its least, and the margin of the cohort's noise."""
    plan = Seal((0.4, 0.6), (0.5, 0.5), ((0.2, 1.0, (0.5, 0.5)),), ((1, 0.5), (2, 0.5)), "within")
    reg = seal(cohort_registration(FOUR, rounds=2), plan)
    noise, tests = reg.noise_of("all"), sealed.rows(reg)
    lost = lose(reg, empty(reg), [(i, 60) for i in range(4)], 1, noise)
    seen = sealed.see(reg, lost, 0.0, 0.5)
    margin = sealed.margins(reg, 1, 240, noise)
    expected = 240 * tests.least - margin.L - tests.theta * 240 * seen.eta - tests.shift * noise
    assert np.allclose(seen.L, expected, atol=1e-6)
    assert (seen.last, seen.N) == (noise, 240)
    one = sealed.margins(reg, 1, 240)
    error = 1e-9 + 240 * float(tests.rounding.max())
    assert np.allclose(margin.L - error, np.sqrt(noise) * (one.L - error), rtol=1e-9)


def test_voids_that_are_declared_independent_are_not_charged(tmp_path: Path) -> None:
    """Neither their slots nor their noise enter anything; it has to be declared in so many words."""
    assert REG.schedule.dropout == "adversarial"
    reg = cohort_registration(FIVE, dropout="independent", policy="final")
    done = play(tmp_path, reg, missing=[(1, "a")])
    assert done.certificate == verify(tmp_path / "run").certificate
    tally = done.replay.tally
    assert (tally.missing, tally.lost, done.replay.absent) == ((0,) * 5, (), 1)
    assert tally.noises == 2 * reg.noise_of("all")


# ---------------------------------------------------------------- labels on demand


def test_labels_on_demand_with_and_without_units(tmp_path: Path) -> None:
    """A member without units has nothing to label and answers at once; the others wait for their labels. All open."""
    fields = cohort_registration(FOUR).model_dump()
    fields |= {"labelling": {"kind": "on demand"}}
    reg = Registration.of(fields)
    request, found = request_to(reg, [0, 5, 0, 7]), list[Release]()
    for who in FOUR:
        path = tmp_path / f"{who.name}.csv"
        made = own_table(who.name)
        pl.DataFrame({"id": [f"{who.name}{i}" for i in range(200)], "score": made.score}).write_csv(path)
        with closing(ledger_of(tmp_path, who, reg)) as ledger:
            found.append(_on_demand(reg, request, who, Table(path), ledger))
    assert [each.slots for each in found] == [0, 5, 0, 7]
    assert all(each.labels is not None for each in found)
    assert open_sum(found).check == 12
    replay = Replay(reg, [Opened(registration=reg.digest)])
    assert replay.plan()[0].parts == (60,) * 4
    assert len({each.labels for each in found}) == 4  # keyed: two empty ones differ
    assert unmasked(reg, request, found[0], FOUR[0])[-1] == 0


def _on_demand(reg: Registration, request: Request, who: Member, table: Table, ledger: Ledger) -> Release:
    site = open_site(reg, who.name, table, ledger, who.key, mask=who.mask, fresh=True)
    if reg.parts(request).get(who.name):
        with pytest.raises(NotYetError):
            site.answer(request)
        ledger.close_round(request)
    assert ledger.spent(site.intake) == reg.parts(request).get(who.name, 0)
    return parse_release(site.answer(request))
