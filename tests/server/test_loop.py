"""The run loop and its replay: policies, continuing after a stop, refused and absent releases, protocol violations.

Mutants killed: units asked beyond what is left, a round closed early, a refused release folded, a transcript that
breaks the registered rule accepted, history of a run lost on restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from fedsrc.common.signing import Key
from fedsrc.errors import FedsrcError
from fedsrc.federation.local import LocalCarrier, certify_table
from fedsrc.planning.register import Choices, development_part, register
from fedsrc.protocol.messages import Answer, Release, Request, parse_release
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.transcript import (
    Absent,
    Announced,
    Arrived,
    Asked,
    Closed,
    Ended,
    Entry,
    Opened,
    Transcript,
    read_transcript,
)
from fedsrc.records.development import development_rows
from fedsrc.records.units import Records
from fedsrc.server.bounds import sample
from fedsrc.server.issue import issue
from fedsrc.server.loop import begin, record, run
from fedsrc.server.recruiter import make_requests, next_slots
from fedsrc.server.state import Replay
from fedsrc.server.tally import empty
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow
from fedsrc.site.site import note_development, open_sites
from tests.support.helpers import registration, table

SITES = ("a", "b", "c")
RECORDS = table(3000, sites=SITES)
KEY = Key.generate()
Mangle = Callable[[Request, bytes], Answer]


class Stage:
    """A run folder with sites, ledger and transcript, and a carrier that can be tampered with."""

    def __init__(self, folder: Path, reg: Registration, records: Records = RECORDS) -> None:
        self.reg = reg
        self.ledger = Ledger(folder / "ledger")
        self.sites = open_sites(reg, records, self.ledger)
        for site in self.sites:
            allow(self.ledger, site.name, reg)
        self.transcript = Transcript(folder / "transcript.jsonl")
        self.replay = Replay(reg, self.transcript.entries)

    def start(self) -> None:
        begin(self.replay, self.transcript)
        for site in self.sites:
            if site.name not in self.replay.announced:
                record(self.replay, self.transcript, Announced(site=site.name, units=site.room()))

    def play(self, mangle: Mangle = lambda _, data: data) -> Replay:
        carry = LocalCarrier(self.sites, self.ledger)

        def carrier(requests: Sequence[Request], /) -> list[Answer]:
            answers = carry(requests)
            return [mangle(r, a) if isinstance(a, bytes) else a for r, a in zip(requests, answers, strict=True)]

        self.start()
        run(self.replay, self.transcript, carrier)
        return self.replay

    def close(self) -> None:
        self.transcript.close()
        self.ledger.close()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Callable[..., Stage]]:
    opened: list[Stage] = []

    def make(reg: Registration, name: str = "run", records: Records = RECORDS) -> Stage:
        (tmp_path / name).mkdir(exist_ok=True)
        opened.append(Stage(tmp_path / name, reg, records))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def test_first_stops_at_the_first_certificate(stage: Callable[..., Stage]) -> None:
    replay = stage(registration(RECORDS, batch=20, target_risk=0.08, epsilon=float("inf"))).play()
    assert replay.status == "CERTIFIED"
    assert replay.ended == "certified"
    assert 1 < replay.rounds < 30
    assert [each.round for each in replay.trace] == list(range(1, replay.rounds + 1))
    assert replay.trace[-1].risk_upper <= 0.08 < replay.trace[0].risk_upper


def test_final_uses_every_unit(stage: Callable[..., Stage]) -> None:
    replay = stage(registration(RECORDS, batch=300, policy="final")).play()
    assert replay.ended == "units used"
    assert replay.tally.arrived == 3000 - 634  # about a fifth, the development part, is left out
    assert replay.status == "CERTIFIED"


def test_final_stops_at_the_last_round(stage: Callable[..., Stage]) -> None:
    replay = stage(registration(RECORDS, batch=50, policy="final", rounds=3)).play()
    assert (replay.ended, replay.rounds, replay.tally.arrived) == ("rounds used", 3, 450)


def test_abstention_is_a_result(stage: Callable[..., Stage]) -> None:
    replay = stage(registration(RECORDS, target_risk=0.01, rounds=2)).play()
    assert (replay.status, replay.ended) == ("ABSTAIN", "rounds used")


def test_recruiting_tops_up_the_largest_deficit(stage: Callable[..., Stage]) -> None:
    weights = {"a": 0.6, "b": 0.3, "c": 0.1}
    reg = registration(RECORDS, policy="recruit", batch=20, rounds=10, weights=weights, target_risk=0.01)
    made = stage(reg)
    replay = made.play()
    asked = [entry.request.site for entry in made.transcript.entries if isinstance(entry, Asked)]
    for i, site in enumerate(asked):
        deficit = {name: weight * i - asked[:i].count(name) for name, weight in weights.items()}
        assert deficit[site] == pytest.approx(max(deficit.values()))
    assert asked[:2] == ["a", "b"]
    assert replay.tally.slots == (120, 60, 20)


def test_declared_weights_are_kept_in_every_round() -> None:
    reg = registration(RECORDS, batch=100, weights={"a": 0.5, "b": 0.3, "c": 0.2})
    assert next_slots(reg, empty(reg), [10**6] * 3) == [150, 90, 60]
    assert next_slots(reg, empty(reg), [100, 10**6, 0]) == [100, 60, 0]  # in proportion to the site that runs out
    plain = registration(RECORDS, batch=100)
    assert next_slots(plain, empty(plain), [10**6, 30, 0]) == [100, 30, 0]
    assert next_slots(plain, empty(plain), [150, 149, 100]) == [100, 149, 100]  # no tiny last release


def test_requests_are_numbered_and_bound() -> None:
    reg = registration(RECORDS)
    requests = make_requests(reg, [5, 0, 7], number=9, round=4)
    assert [(r.number, r.round, r.site, r.slots) for r in requests] == [(10, 4, "a", 5), (11, 4, "c", 7)]
    assert {r.registration for r in requests} == {reg.digest}


class Stopped(BaseException):
    """The process dies."""


@pytest.mark.parametrize("die_at", range(1, 12))
def test_a_stopped_run_continues_where_it_was(stage: Callable[..., Stage], die_at: int) -> None:
    """Die before the n-th append; the restarted run asks the same things and no unit is released twice."""
    reg = registration(RECORDS, batch=20, target_risk=0.08, epsilon=40.0)
    first = stage(reg)
    calls, append = 0, first.transcript.append

    def dying(*entries: Entry) -> None:
        nonlocal calls
        calls += 1
        if calls == die_at:
            raise Stopped
        append(*entries)

    first.transcript.append = dying  # type: ignore[method-assign]
    try:
        first.play()
    except Stopped:
        first.close()
        again = stage(reg)
        replay = again.play()
    else:
        again, replay = first, first.replay
    assert replay.status == "CERTIFIED"
    spent = sum(site.ledger.spent(site.intake) for site in again.sites)
    assert spent == replay.tally.arrived
    releases = [e.release.request for e in again.transcript.entries if isinstance(e, Arrived)]
    assert len(set(releases)) == len(releases)


def test_refused_and_absent_releases_are_recorded_and_the_run_goes_on(stage: Callable[..., Stage]) -> None:
    def mangle(request: Request, data: bytes) -> Answer:
        if request.site == "a" and request.round == 1:
            return "site a is asleep"
        if request.site == "b" and request.round == 1:
            return data.replace(b'"slots":100', b'"slots":101')
        if request.site == "c" and request.round == 1:
            return b"{}"
        return data

    made = stage(registration(RECORDS, batch=100))
    replay = made.play(mangle)
    absent = [e for e in made.transcript.entries if isinstance(e, Absent)]
    assert [e.refused for e in absent] == [False, True, True]
    assert "slots" in absent[1].reason
    assert absent[2].reason == "it is not a release"
    assert (replay.absent, replay.refused) == (1, 2)
    assert replay.status == "CERTIFIED"
    assert replay.tally.arrived == sum(e.release.slots for e in made.transcript.entries if isinstance(e, Arrived))


def test_an_implausible_release_is_refused(stage: Callable[..., Stage]) -> None:
    def mangle(request: Request, data: bytes) -> Answer:
        if request.site != "b":
            return data
        release = Release.model_validate_json(data)
        boosted = tuple(value + 10**7 for value in release.first)
        return release.model_copy(update={"first": boosted}).to_bytes()

    made = stage(registration(RECORDS, batch=100))
    replay = made.play(mangle)
    refused = [e for e in made.transcript.entries if isinstance(e, Absent)]
    assert {e.reason for e in refused} == {"it holds more mass than its slots"}
    assert all(e.release is not None for e in refused)  # kept, so that the refusal can be checked
    honest = next(e.release for e in made.transcript.entries if isinstance(e, Arrived))
    place = next(i for i, e in enumerate(made.transcript.entries) if isinstance(e, Arrived))
    lie = Absent(request=honest.request, refused=True, reason="I did not like it", release=honest)
    with pytest.raises(FedsrcError, match="should have been accepted"):
        Replay(made.reg, [*made.transcript.entries[:place], lie])
    assert replay.tally.slots[1] == 0


def test_withheld_releases_are_charged_when_dropout_is_adversarial(stage: Callable[..., Stage]) -> None:
    reg = registration(RECORDS, batch=100, rounds=4, policy="final", dropout="adversarial")
    full = stage(reg, "full").play()
    lost = stage(reg, "lost").play(lambda r, data: "withheld" if r.site == "c" else data)
    assert full.look is not None
    assert lost.look is not None
    assert lost.tally.missing == (0, 0, 400)
    assert lost.tally.total == full.tally.total
    assert lost.look.risk_upper.min() > full.look.risk_upper.min()


def finished(stage: Callable[..., Stage]) -> tuple[Registration, list[Entry]]:
    made = stage(registration(RECORDS, batch=20, target_risk=0.08, epsilon=float("inf")))
    made.play()
    return made.reg, list(made.transcript.entries)


def test_broken_transcripts_are_not_replayed(stage: Callable[..., Stage]) -> None:
    """Well-chained lies: each breaks the protocol in one way and is refused."""
    reg, entries = finished(stage)
    asked = next(i for i, e in enumerate(entries) if isinstance(e, Asked))
    arrived = next(i for i, e in enumerate(entries) if isinstance(e, Arrived))
    closed = next(i for i, e in enumerate(entries) if isinstance(e, Closed))
    request = entries[asked]
    assert isinstance(request, Asked)
    fewer = Asked(request=request.request.model_copy(update={"slots": 10}))
    release = entries[arrived]
    assert isinstance(release, Arrived)
    swapped = Arrived(release=release.release.model_copy(update={"scale": 1.0}))
    later = Closed(round=2)
    lies: dict[str, list[Entry]] = {
        "another registration": [Opened(registration="f" * 64), *entries[1:]],
        "opened once": entries[1:],
        "opened twice": [entries[0], *entries],
        "fewer slots than the rule": [*entries[:asked], fewer, *entries[asked + 1 :]],
        "only fewer slots": [*entries[:asked], fewer],
        "another scale": [*entries[:arrived], swapped, *entries[arrived + 1 :]],
        "a release twice": [*entries[: arrived + 1], entries[arrived]],
        "a release without request": [*entries[:asked], entries[arrived]],
        "closed too early": [*entries[:arrived], entries[closed]],
        "a round left out": [*entries[:closed], later],
        "an end before its time": [*entries[: closed + 1], Ended(reason="rounds used")],
        "a false certificate": [*entries[: closed + 1], Ended(reason="certified")],
        "an entry after the end": [*entries, entries[1]],
        "announced twice": [*entries[:2], entries[1]],
        "an unknown site": [entries[0], Announced(site="nowhere", units=5)],
        "units announced inside a round": [*entries[: asked + 1], entries[1]],
        "an absence of nothing": [*entries[:asked], Absent(request="0" * 64, refused=False, reason="")],
    }
    for lie in lies.values():
        with pytest.raises(FedsrcError, match="breaks the protocol"):
            Replay(reg, lie)
    assert Replay(reg, entries).status == "CERTIFIED"


def test_replaying_gives_the_same_certificate(stage: Callable[..., Stage]) -> None:
    made = stage(registration(RECORDS, batch=100))
    live = made.play()
    again = Replay(made.reg, made.transcript.entries)
    assert issue(made.reg, live, made.transcript.chain) == issue(made.reg, again, made.transcript.chain)


def test_a_site_refuses_what_it_has_not_allowed(stage: Callable[..., Stage]) -> None:
    made = stage(registration(RECORDS))
    site = made.sites[0]
    good = make_requests(made.reg, [5, 0, 0], number=0, round=1)[0]
    for field, value, message in [
        ("registration", "0" * 64, "another registration"),
        ("site", "b", "addressed to 'b'"),
        ("scale", 0.0, "refuses noise scale 0"),
        ("slots", 10**6, "unspent units"),
    ]:
        with pytest.raises(FedsrcError, match=message):
            site.answer(good.model_copy(update={field: value}))
    assert made.ledger.spent(site.intake) == 0
    assert parse_release(site.answer(good)).slots == 5
    assert site.answer(good) == site.answer(good)


def test_releases_must_be_canonical(stage: Callable[..., Stage]) -> None:
    made = stage(registration(RECORDS))
    data = made.sites[0].answer(make_requests(made.reg, [5, 0, 0], number=0, round=1)[0])
    with pytest.raises(FedsrcError, match="canonical"):
        parse_release(data + b" ")


def test_local_runs_repeat_and_refuse_spent_tables(tmp_path: Path) -> None:
    reg = registration(RECORDS, batch=400, policy="final")
    body = certify_table(reg, RECORDS, tmp_path / "run", tmp_path / "ledger", KEY)
    before = read_transcript(tmp_path / "run" / "transcript.jsonl")
    assert certify_table(reg, RECORDS, tmp_path / "run", tmp_path / "ledger", KEY) == body
    assert read_transcript(tmp_path / "run" / "transcript.jsonl") == before
    other = registration(RECORDS, target_risk=0.1)
    with pytest.raises(FedsrcError, match="released before"):
        certify_table(other, RECORDS, tmp_path / "run-2", tmp_path / "ledger", KEY)
    assert not (tmp_path / "run-2").exists()
    with pytest.raises(FedsrcError, match="another registration"):
        certify_table(other, RECORDS, tmp_path / "run", tmp_path / "ledger", KEY)


def test_the_development_table_does_not_calibrate(tmp_path: Path) -> None:
    reg = register(Choices(0.2, 4.0, public_development=True), RECORDS, development_part(RECORDS, "record", 1.0))
    with closing(Ledger(tmp_path / "l")) as ledger:
        note_development(RECORDS, ledger)
    with (
        closing(Ledger(tmp_path / "l")) as ledger,
        pytest.raises(FedsrcError, match="chose thresholds"),
    ):
        open_sites(reg, RECORDS, ledger)


def test_development_units_are_never_released(tmp_path: Path) -> None:
    """Perfectly separable: development units score low, so a single released one would show in bin 0."""
    reg = registration(RECORDS, epsilon=float("inf"), policy="final", batch=10_000)
    assert reg.development is not None
    rows = development_rows(RECORDS, reg.development, "record")
    assert rows.sum() == 634
    marked = replace(RECORDS, score=np.where(rows, 0.0, 1.0))
    body = certify_table(reg, marked, tmp_path / "run", tmp_path / "ledger", KEY)
    assert body.records == 2366
    replay = Replay(reg, read_transcript(tmp_path / "run" / "transcript.jsonl")[0])
    assert sample(reg, replay.tally).masses.accepted.tolist() == pytest.approx([2366.0] * 20)


def test_validity_counts_from_the_earliest_release(
    stage: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One clock that is fast extends nothing."""
    times = iter(f"2026-0{1 + i // 3}-0{1 + i % 9}T00:00:00Z" for i in range(9))
    monkeypatch.setattr("fedsrc.site.site.utc_now", lambda: next(times))
    made = stage(registration(RECORDS, batch=50, policy="final", rounds=3))
    replay = made.play()
    body = issue(made.reg, replay, made.transcript.chain)
    assert body.calibrated == "2026-03-09T00:00:00Z"
    assert (body.expires_on, body.expires) == ("2027-01-01T00:00:00+00:00", datetime(2027, 1, 1, tzinfo=UTC))


def test_only_a_fixed_mixture_speaks_of_every_target(stage: Callable[..., Stage]) -> None:
    """Without declared weights the mixture as calibrated may change between looks: the target alone is claimed."""
    weights = {"a": 0.4, "b": 0.4, "c": 0.2}
    one = table(800)
    for name, reg, records, holds in (
        ("none", registration(RECORDS, batch=200, policy="final"), RECORDS, False),
        ("declared", registration(RECORDS, batch=200, policy="final", weights=weights), RECORDS, True),
        ("one", registration(one, batch=200, policy="final"), one, True),
    ):
        made = stage(reg, name, records)
        replay = made.play()
        body = issue(reg, replay, made.transcript.chain)
        assert (body.every_target, bool(body.also_certified)) == (holds, holds)
        assert replay.look is not None
        if not holds:
            assert set(replay.look.risk_upper.tolist()) <= {0.2, 1.0}


def test_tables_that_break_independence_are_refused_under_a_registration(tmp_path: Path) -> None:
    repeated = replace(RECORDS, source=np.arange(3000) // 2, source_names=tuple(map(str, range(1500))))
    with closing(Ledger(tmp_path / "l")) as ledger, pytest.raises(FedsrcError, match="not independent"):
        open_sites(registration(RECORDS), repeated, ledger)
    with closing(Ledger(tmp_path / "n")) as ledger:
        assert (
            len(open_sites(registration(RECORDS, independent=True), repeated, ledger)) == 3
        )  # declared, and on the card
    by_source = registration(repeated, unit="source")
    with closing(Ledger(tmp_path / "m")) as ledger, pytest.raises(FedsrcError, match="more than one site"):
        open_sites(by_source, repeated, ledger)


def test_capacity_is_a_limit(tmp_path: Path) -> None:
    reg = registration(RECORDS, capacities={"a": 7, "b": 5000})
    with closing(Ledger(tmp_path / "l")) as ledger:
        sites = open_sites(reg, RECORDS, ledger)
        assert sites[0].room() == 7
        allow(ledger, "a", reg)
        first, second = (make_requests(reg, [5, 0, 0], number=n, round=1)[0] for n in (0, 1))
        sites[0].answer(first)
        assert sites[0].room() == 7
        with pytest.raises(FedsrcError, match="2 unspent units"):
            sites[0].answer(second)
    with pytest.raises(FedsrcError, match="registered capacity"):
        Replay(reg, [Opened(registration=reg.digest), Announced(site="a", units=8)])


def test_unknown_sites_in_the_table_are_refused(tmp_path: Path) -> None:
    reg = registration(table(300, sites=("x", "y")))
    with closing(Ledger(tmp_path / "l")) as ledger, pytest.raises(FedsrcError, match="not in the registration"):
        open_sites(reg, RECORDS, ledger)
