"""The air-gapped mode: the same protocol by files, and every bad file refused with nothing changed.

Mutants killed: unsigned or foreign releases taken in, a release folded twice, a request answered for another server,
a registration the site never allowed, a site limit ignored, a round folded in order of arrival.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fedsrc.common.signing import Key, public_hex
from fedsrc.errors import FedsrcError
from fedsrc.federation.airgap import answer_file, collect, start
from fedsrc.federation.local import LocalCarrier, certify_table
from fedsrc.protocol.certificate import Certificate
from fedsrc.protocol.messages import Release, SignedRequest, read_request
from fedsrc.protocol.names import CERTIFICATE
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.transcript import Absent, Announced, Arrived, Transcript, read_transcript
from fedsrc.records.units import Records
from fedsrc.server.issue import issue
from fedsrc.server.loop import begin, record, run
from fedsrc.server.state import Replay
from fedsrc.server.verify import verify
from fedsrc.site.admission import check_ready
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow, cost, describe_registration, status_words
from fedsrc.site.site import open_sites
from tests.support.helpers import changed, registration, table

NAMES = ("a", "b", "c", "d", "e")
SERVER = Key.generate()
KEYS = {name: Key.generate() for name in NAMES}
TABLES = {name: table(500, seed=i + 20, ids=True) for i, name in enumerate(NAMES)}


def registered(**choices: Any) -> Registration:
    base = registration(table(300, sites=NAMES), batch=60, epsilon=8.0, grid=True, thresholds=10, **choices)
    fields = base.model_dump()
    fields["development"] = None
    fields["server_key"] = public_hex(SERVER)
    fields["sites"] = [{"name": n, "key": public_hex(KEYS[n]), "capacity": 500} for n in NAMES]
    return Registration.model_validate(fields)


class World:
    """A server's folder and five sites' folders."""

    def __init__(self, folder: Path, reg: Registration | None = None) -> None:
        self.folder, self.reg = folder, reg or registered()
        self.run = folder / "run"
        for name in NAMES:
            with closing(self.ledger(name)) as ledger:
                allow(ledger, name, self.reg, max_epsilon=10.0)

    def ledger(self, name: str) -> Ledger:
        return Ledger(self.folder / f"{name}.ledger")

    def answer(self, request: Path, name: str, key: Key | None = None, records: Records | None = None) -> Path:
        with closing(self.ledger(name)) as ledger:
            data = answer_file(request, lambda: records or TABLES[name], ledger, key or KEYS[name])
        target = self.folder / request.name.replace("request", "release")
        target.write_bytes(data)
        return target

    def answers(self, waiting: list[Path]) -> list[Path]:
        return [self.answer(path, read_request(path).request.site) for path in waiting]

    def state(self) -> dict[str, bytes]:
        return {str(p): p.read_bytes() for p in sorted(self.run.rglob("*")) if p.is_file()}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_five_sites_by_files_give_the_local_certificate(world: World) -> None:
    done = start(world.reg, world.run, SERVER)
    rounds = 0
    while done.certificate is None:
        files = world.answers(done.waiting)
        rounds += 1
        done = collect(world.run, reversed(files), SERVER)  # the order of arrival does not matter
    assert done.certificate.status == "CERTIFIED"
    assert done.certificate.rounds == rounds
    assert verify(world.run, trusted=(public_hex(SERVER),)).certificate.records == 300 * rounds
    local = local_run(world)
    assert local == Certificate.read(world.run / CERTIFICATE)
    assert (world.folder / "local" / "transcript.jsonl").read_bytes() == (world.run / "transcript.jsonl").read_bytes()


def local_run(world: World) -> Any:
    """The local mode on the same ledgers: asked the same requests, they give the same releases."""

    ledgers = {name: world.ledger(name) for name in NAMES}
    sites = [open_sites(world.reg, TABLES[n].at(n), ledgers[n], keys=KEYS)[0] for n in NAMES]
    with closing(Transcript(world.folder / "local" / "transcript.jsonl")) as transcript:
        replay = Replay(world.reg)
        begin(replay, transcript)
        record(replay, transcript, *(Announced(site=name, units=500) for name in NAMES))
        run(replay, transcript, LocalCarrier(sites, ledgers[NAMES[0]]))
        body = issue(world.reg, replay, transcript.chain).signed(SERVER)
    for ledger in ledgers.values():
        ledger.close()
    return body


def test_repeating_any_step_changes_nothing(world: World) -> None:
    first = start(world.reg, world.run, SERVER)
    before = world.state()
    assert start(world.reg, world.run, SERVER).waiting == first.waiting
    assert world.state() == before
    files = world.answers(first.waiting)
    bytes_before = [path.read_bytes() for path in files]
    assert [path.read_bytes() for path in world.answers(first.waiting)] == bytes_before
    partial = collect(world.run, files[:2], SERVER)
    assert len(partial.waiting) == 3
    assert len(collect(world.run, files[:2], SERVER).waiting) == 3
    collect(world.run, files, SERVER)
    after = world.state()
    again = collect(world.run, files, SERVER)
    assert set(again.too_late.values()) == {"arrived"}
    assert not again.taken_in
    assert world.state() == after
    arrived = [e.release.request for e in read_transcript(world.run / "transcript.jsonl")[0] if isinstance(e, Arrived)]
    assert len(arrived) == len(set(arrived)) == 5


def test_a_round_can_be_closed_without_the_missing(world: World) -> None:
    first = start(world.reg, world.run, SERVER)
    files = world.answers(first.waiting)
    news = collect(world.run, files[:3], SERVER, without_missing=True).news
    whose = [read_request(path).request.site for path in first.waiting[3:]]
    assert news[:2] == [f"site {name!r}: no release arrived before the round was closed" for name in whose]
    entries = read_transcript(world.run / "transcript.jsonl")[0]
    assert sum(isinstance(e, Absent) for e in entries) == 2
    late = collect(world.run, files[3:], SERVER)
    assert set(late.too_late.values()) == {"absent"}


def test_an_implausible_release_is_recorded_and_the_run_goes_on(world: World) -> None:
    first = start(world.reg, world.run, SERVER)
    files = world.answers(first.waiting)
    release = Release.model_validate_json(files[1].read_bytes())
    wild = release.model_copy(update={"first": tuple(v + 10**6 for v in release.first), "signature": None})
    files[1].write_bytes(wild.signed(KEYS["b"]).to_bytes())
    news = collect(world.run, files, SERVER).news
    assert news[0].startswith("site 'b': its release was refused: ")
    refused = [e for e in read_transcript(world.run / "transcript.jsonl")[0] if isinstance(e, Absent)]
    assert [(e.refused, e.release is not None) for e in refused] == [(True, True)]


def edited(change: Callable[[dict[str, Any]], Any]) -> Callable[[bytes], bytes]:
    def apply(data: bytes) -> bytes:
        fields = json.loads(data)
        change(fields)
        return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()

    return apply


BAD_RELEASES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "not json": lambda _: b"\x00\xff",
    "deeply nested": lambda _: b"[" * 200_000,
    "nan": lambda d: d.replace(b'"slots":60', b'"slots":NaN'),
    "not canonical": lambda d: d + b"\n",
    "another request": edited(lambda f: f.update(request="0" * 64)),
    "another site": edited(lambda f: f.update(site="b")),
    "another value": edited(lambda f: f["first"].__setitem__(0, 0)),
    "unsigned": edited(lambda f: f.update(signature=None)),
    "another signature": edited(lambda f: f.update(signature="0" * 128)),
    "unknown field": edited(lambda f: f.update(extra=1)),
    "numbers as text": edited(lambda f: f["first"].__setitem__(0, "0")),
    "a huge number": edited(lambda f: f["first"].__setitem__(0, 10**400)),
}


@pytest.mark.parametrize("name", BAD_RELEASES)
def test_bad_releases_change_nothing(world: World, name: str) -> None:
    first = start(world.reg, world.run, SERVER)
    files = world.answers(first.waiting)
    before = world.state()
    files[0].write_bytes(BAD_RELEASES[name](files[0].read_bytes()))
    with pytest.raises(FedsrcError, match="refused: "):
        collect(world.run, files, SERVER)
    assert world.state() == before


def test_releases_of_other_runs_and_giants_are_refused(world: World, tmp_path: Path) -> None:
    first = start(world.reg, world.run, SERVER)
    other = World(tmp_path / "other", registered(target_risk=0.3))
    foreign = other.answers(start(other.reg, other.run, SERVER).waiting)[0]
    giant = tmp_path / "giant.json"
    with giant.open("wb") as file:
        file.truncate(50_000_000)
    before = world.state()
    for path, message in [(foreign, "answers no open request"), (giant, "larger than"), (tmp_path / "none", "No such")]:
        with pytest.raises(FedsrcError, match=message):
            collect(world.run, [path], SERVER)
    assert world.state() == before
    assert len(first.waiting) == 5


BAD_REQUESTS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "not a request": (lambda _: b"{}", "is not a request"),
    "unsigned": (edited(lambda f: f.update(signature=None)), "not signed by the registered server"),
    "more slots": (edited(lambda f: f["request"].update(slots=61)), "not signed by the registered server"),
    "less noise": (edited(lambda f: f["request"].update(scale=1.5)), "not signed by the registered server"),
    "another registration": (edited(lambda f: f["request"].update(registration="0" * 64)), "has not allowed"),
    "no such site": (edited(lambda f: f["request"].update(site="z")), "has not allowed"),
    "spaces": (lambda d: d + b" ", "as fedsrc writes it"),
}


@pytest.mark.parametrize("name", BAD_REQUESTS)
def test_bad_requests_spend_nothing(world: World, name: str) -> None:
    request = start(world.reg, world.run, SERVER).waiting[0]
    change, message = BAD_REQUESTS[name]
    request.write_bytes(change(request.read_bytes()))
    with pytest.raises(FedsrcError, match=message):
        world.answer(request, "a")
    with closing(world.ledger("a")) as ledger:
        assert ledger.given("a", world.reg.digest) == 0


def test_even_the_server_cannot_ask_for_less_noise_or_too_much(world: World) -> None:
    request = read_request(start(world.reg, world.run, SERVER).waiting[0]).request
    cases: list[tuple[dict[str, Any], str]] = [({"scale": 1.0}, "refuses noise scale"), ({"slots": 501}, "unspent")]
    for update, message in cases:
        path = world.folder / "forged.request.json"
        path.write_bytes(SignedRequest.by(request.model_copy(update=update), SERVER).to_bytes())
        with pytest.raises(FedsrcError, match=message):
            world.answer(path, "a")
    with pytest.raises(FedsrcError, match="needs the private key"):
        world.answer(start(world.reg, world.run, SERVER).waiting[0], "a", key=Key.generate())
    with closing(world.ledger("a")) as ledger:
        assert ledger.given("a", world.reg.digest) == 0


def test_tables_of_other_sites_are_refused(world: World) -> None:
    request = start(world.reg, world.run, SERVER).waiting[0]
    with pytest.raises(FedsrcError, match="rows of site 'b'"):
        world.answer(request, "a", records=table(100, sites=("a", "b")))


def test_renaming_the_site_gets_nothing_twice(world: World) -> None:
    """A hostile server registers the same site under another name, with the same key: the ledger knows its table."""
    request = start(world.reg, world.run, SERVER).waiting[0]
    world.answer(request, "a")
    fields = world.reg.model_dump()
    fields["sites"] = [{**fields["sites"][0], "name": "a2"}, *fields["sites"][1:]]
    renamed = Registration.model_validate(fields)
    with closing(world.ledger("a")) as ledger:
        allow(ledger, "a2", renamed)
    again = start(renamed, world.folder / "run2", SERVER).waiting[0]
    with closing(world.ledger("a")) as ledger, pytest.raises(FedsrcError, match="taken in before, for site 'a'"):
        answer_file(again, lambda: TABLES["a"], ledger, KEYS["a"])


def test_an_answered_request_needs_no_table(world: World) -> None:
    request = start(world.reg, world.run, SERVER).waiting[0]
    data = world.answer(request, "a").read_bytes()

    def gone() -> Records:
        raise AssertionError("the table is not needed")

    with closing(world.ledger("a")) as ledger:
        assert answer_file(request, gone, ledger, KEYS["a"]) == data


def test_releases_from_the_future_are_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedsrc.site.site.utc_now", lambda: "2999-01-01T00:00:00Z")
    files = world.answers(start(world.reg, world.run, SERVER).waiting)
    with pytest.raises(FedsrcError, match="dated in the future"):
        collect(world.run, files, SERVER)


def test_withdrawn_permissions(world: World) -> None:
    request = start(world.reg, world.run, SERVER).waiting[0]
    with closing(world.ledger("a")) as ledger:
        ledger.forbid("a", world.reg.digest)
    with pytest.raises(FedsrcError, match="has not allowed"):
        world.answer(request, "a")


def test_what_a_site_reads_before_it_agrees(world: World) -> None:
    """Nothing in a registration can forge a line on the screen on which a site consents."""
    text = "\n".join(describe_registration(world.reg, "a"))
    for part in (
        "epsilon 8 at delta 1e-06",
        "one that scores below every threshold",
        "below every threshold: epsilon 5.375",
        "at most 500",
        public_hex(SERVER),
    ):
        assert part in text
    for bad in ("x)\n  epsilon 0.01", "\u001b[8m", "\u202eabc", "a\u2028b", "\x85"):
        for section in ({"claim": {"population": bad}}, {"claim": {"loss": bad}}, {"claim": {"score": bad}}):
            with pytest.raises(ValueError, match="printable"):
                changed(world.reg, **section)
        with pytest.raises(ValueError, match="printable"):
            Registration.model_validate({**world.reg.model_dump(), "sites": [{"name": bad}]})


def test_a_site_keeps_to_its_own_limit(world: World) -> None:
    with closing(world.ledger("a")) as ledger:
        assert ledger.max_epsilon() == 10.0
        dear = changed(world.reg, privacy={"epsilon": 12.0})
        with pytest.raises(FedsrcError, match="allows epsilon 10 at most"):
            allow(ledger, "a", dear)
        lax = changed(world.reg, privacy={"epsilon": 4.0, "delta": 0.4})  # a large delta hides little noise
        assert cost(lax) > 10
        with pytest.raises(FedsrcError, match="allows epsilon 10 at most"):
            allow(ledger, "a", lax)
        with pytest.raises(FedsrcError, match="has not allowed"):
            check_ready(dear, "a", ledger, KEYS["a"])
        ledger.limit(5.0)
        with pytest.raises(FedsrcError, match="allows epsilon 5 at most"):
            check_ready(world.reg, "a", ledger, KEYS["a"])


def test_site_status_in_plain_words(world: World) -> None:
    done = start(world.reg, world.run, SERVER)
    world.answers(done.waiting)
    with closing(world.ledger("a")) as ledger:
        text = "\n".join(status_words(ledger, "a"))
    for part in ("Site a", "allows epsilon 10 at most", "500 units (records), shuffled",
                 "60 spent in 1 releases (at most epsilon 8", "440 left", "60 records spent"):  # fmt: skip
        assert part in text


def test_only_complete_registrations_start_a_run(tmp_path: Path) -> None:
    bare = registration(table(300, sites=NAMES))
    with pytest.raises(FedsrcError, match="no registered key or capacity"):
        start(bare, tmp_path / "run", SERVER)
    with pytest.raises(FedsrcError, match="run by the server with key"):
        start(registered(), tmp_path / "run", Key.generate())
    assert not (tmp_path / "run").exists()


def test_the_local_mode_needs_the_registered_keys(tmp_path: Path) -> None:
    reg = registered()
    one = TABLES["a"].at("a")
    with pytest.raises(FedsrcError, match="needs the private key"):
        certify_table(reg, one, tmp_path / "run", tmp_path / "l", SERVER)


def test_replay_checks_the_sites_signatures(world: World) -> None:
    """A server that rewrites its transcript cannot invent releases: it has no site's key."""
    done = start(world.reg, world.run, SERVER)
    while done.certificate is None:
        done = collect(world.run, world.answers(done.waiting), SERVER)
    entries = read_transcript(world.run / "transcript.jsonl")[0]
    place = next(i for i, e in enumerate(entries) if isinstance(e, Arrived))
    honest = entries[place]
    assert isinstance(honest, Arrived)
    invented = honest.release.model_copy(update={"second": (0,) * len(honest.release.second)})
    for release in (invented, invented.signed(SERVER), honest.release.model_copy(update={"signature": None})):
        with pytest.raises(FedsrcError, match="not signed by site 'a'"):
            Replay(world.reg, [*entries[:place], Arrived(release=release)])
    assert Replay(world.reg, entries).status == "CERTIFIED"
