"""The live mode without Flower: a site's door and guard, the carrier, and runs that are killed.

Mutants killed: a request answered unsigned, for another site or with less noise; a refusal that says how many units
are left; a length believed; a slow connection that blocks others; a reply matched by its sender; a late or repeated
reply folded; a doubled or unknown node asked; a release spent twice after a kill; a site that joins late left out.
"""

from __future__ import annotations

import ast
import multiprocessing
import os
import random
import signal
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from fedsrc.common.canonical import digest_bytes
from fedsrc.common.places import mask_beside
from fedsrc.common.signing import Key, load, public_hex
from fedsrc.errors import DamagedError, FedsrcError
from fedsrc.federation.flower import app
from fedsrc.federation.flower.app.fedsrc_relay import wire
from fedsrc.federation.flower.app.fedsrc_relay.wire import GIVEN, HELLO, REFUSED, RELEASE, Frame, WireError
from fedsrc.federation.flower.grid import FlowerPost, Settings, reply_of, serve
from fedsrc.federation.flower.plans import name_of_private, name_of_public
from fedsrc.federation.flower.processes import Child, Tls, check_encrypted, descendants, environment, left_behind
from fedsrc.federation.flower.trial_keys import make_trial
from fedsrc.federation.live.carrier import LiveCarrier
from fedsrc.federation.live.guard import Guard
from fedsrc.federation.live.log import one_line
from fedsrc.federation.live.play import finished, hold_transcript, live_session
from fedsrc.federation.live.site_socket import Door
from fedsrc.federation.live.transport import Letter, Patience, Reply
from fedsrc.protocol.handshake import Challenge, Hello, parse_hello
from fedsrc.protocol.mask_key import MaskKey
from fedsrc.protocol.messages import Refusal, Release, Request, SignedRequest, parse_release
from fedsrc.protocol.names import CERTIFICATE, TRANSCRIPT
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.transcript import Absent, Announced, Arrived, Opened, Transcript, read_transcript
from fedsrc.server.state import Replay
from fedsrc.server.verify import verify
from research.attacks.struck import CRASHED, NAMES, key
from research.attacks.struck import REFUSED as NO_SPACE
from tests.federation.test_crash import spends
from tests.support.crash_scenarios import Fault, by_files, files_registration
from tests.support.live_scenarios import PATIENCE, SERVER, OwnClock, OwnPost, child, guards, live, spent

pytestmark = pytest.mark.filterwarnings("ignore:.*torn by a crash:UserWarning")
CONTEXT = multiprocessing.get_context("forkserver")
REG = files_registration()


# The door: bytes from anybody.


@contextmanager
def door(
    answer: Callable[[Frame], Frame] = lambda question: Frame(GIVEN, question.data[::-1]), **how: Any
) -> Iterator[tuple[Path, list[str]]]:
    """A door that is open, and what it tells."""
    told: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        opened = Door(Path(folder, "s"), answer, tell=told.append, **how)
        thread = threading.Thread(target=opened.serve)
        thread.start()
        try:
            yield opened.path, told
        finally:
            opened.close()
            thread.join()
            assert not opened.path.exists()


def knock(path: Path) -> socket.socket:
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link.settimeout(30.0)
    link.connect(str(path))
    return link


def test_a_question_and_its_answer() -> None:
    with door() as (path, told):
        assert path.stat().st_mode & 0o777 == 0o660
        for data in (b"", b"abc", b"x" * wire.MAX_QUESTION):
            assert wire.ask(str(path), Frame(RELEASE, data), 30.0) == Frame(GIVEN, data[::-1])
        assert told == []


HOSTILE = {
    "nothing": b"",
    "half a head": b"FSR1R",
    "another protocol": b"GET / HTTP/1.1\r\n\r\n",
    "an answer": wire.HEAD.pack(wire.MAGIC, GIVEN, 1) + b"x",
    "too much": wire.HEAD.pack(wire.MAGIC, RELEASE, wire.MAX_QUESTION + 1),
    "four gigabytes": wire.HEAD.pack(wire.MAGIC, RELEASE, 0xFFFFFFFF),
    "less than announced": wire.HEAD.pack(wire.MAGIC, RELEASE, 10) + b"short",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_get_no_answer(name: str) -> None:
    asked: list[Frame] = []

    def answer(question: Frame) -> Frame:
        asked.append(question)
        return Frame(GIVEN, b"")

    with door(answer) as (path, told):
        with knock(path) as link:
            link.sendall(HOSTILE[name])
            link.shutdown(socket.SHUT_WR)
            with suppress(ConnectionResetError):  # closed with bytes of ours unread
                assert link.recv(1) == b""
        assert asked == []
        assert wire.ask(str(path), Frame(HELLO, b"good"), 30.0).kind == GIVEN
        while not told:  # it is told after the connection has been closed
            time.sleep(0.01)
        assert len(told) == 1
        assert told[0].startswith("refused: a connection")


def test_a_slow_connection_is_dropped_and_holds_up_nobody() -> None:
    with door(seconds=3.0) as (path, told):
        with knock(path) as slow:
            slow.sendall(b"FS")
            for _ in range(3):
                assert wire.ask(str(path), Frame(HELLO, b"ab"), 30.0) == Frame(GIVEN, b"ba")
            assert slow.recv(1) == b""
        while not told:  # it is told after the connection has been closed
            time.sleep(0.01)
        assert len(told) == 1


def test_more_connections_than_allowed_are_turned_away() -> None:
    with door(connections=1) as (path, told):
        with knock(path):
            while not told:
                with pytest.raises(WireError):
                    wire.ask(str(path), Frame(HELLO, b""), 30.0)
        assert "busy" in told[0]


def test_who_does_not_wait_for_the_answer_hurts_nobody() -> None:
    with door(lambda _: Frame(GIVEN, b"x" * 5_000_000), seconds=5.0) as (path, _):
        for _ in range(3):
            with knock(path) as link:
                link.sendall(wire.HEAD.pack(wire.MAGIC, RELEASE, 1) + b"x")
        assert len(wire.ask(str(path), Frame(HELLO, b""), 30.0).data) == 5_000_000


@pytest.mark.parametrize("data", [b"", b"no", HOSTILE["too much"], wire.HEAD.pack(wire.MAGIC, GIVEN, 0xFFFFFFFF)])
def test_a_relay_believes_no_site_process_either(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        path = f"{folder}/s"
        with pytest.raises(WireError, match="no site process listens"):
            wire.ask(path, Frame(HELLO, b""), 1.0)
        listener.bind(path)
        listener.listen()

        def answer() -> None:
            with listener.accept()[0] as link:
                link.recv(100)
                link.sendall(data)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(WireError):
            wire.ask(path, Frame(HELLO, b""), 30.0)
        thread.join()


def test_only_a_dead_socket_is_replaced() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "s")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
            dead.bind(str(path))
        with pytest.raises(FedsrcError, match="too long"):
            Door(Path(folder, "s" * 200), lambda each: each)
        first = Door(path, lambda each: each)
        with pytest.raises(FedsrcError, match="listens here already"):
            Door(path, lambda each: each)
        first.close()
        path.write_text("a file")
        with pytest.raises(FedsrcError, match="not a socket"):
            Door(path, lambda each: each)
        assert path.read_text() == "a file"


# The guard: what a site answers.


def request(**changes: Any) -> Request:
    plan = Replay(REG)
    plan.step(Opened(registration=REG.digest))
    for name in NAMES:
        plan.step(Announced(site=name, units=150))
    return plan.plan()[0].model_copy(update=changes)


def order(signer: Key = SERVER, **changes: Any) -> bytes:
    return SignedRequest.by(request(**changes), signer).to_bytes()


def test_a_site_says_who_it_is_and_releases_once(tmp_path: Path) -> None:
    told: list[str] = []
    with guards(tmp_path, told=told) as sites:
        assert sites["a"].open() == 150
        challenge = Challenge.by(SERVER, REG.digest, 7)
        said = sites["a"].answer(Frame(HELLO, challenge.to_bytes()))
        hello = parse_hello(said.data)
        assert (hello.site, hello.units, hello.challenge) == ("a", 150, challenge.digest)
        assert hello.signed_by(REG.site("a").key or "")
        first = sites["a"].answer(Frame(RELEASE, order()))
        release = parse_release(first.data)
        assert first.kind == GIVEN
        assert release.signed_by(REG.site("a").key or "")
        assert sites["a"].answer(Frame(RELEASE, order())) == first
    with guards(tmp_path) as sites:  # a new process on the same ledger
        assert sites["a"].answer(Frame(RELEASE, order())) == first
    assert spent(tmp_path, "a") == 60
    assert [line.split(":")[0] for line in told] == ["hello through node 7", *["request 1 of round 1"] * 2]


BAD_QUESTIONS: dict[str, tuple[Callable[[], Frame], str]] = {
    "not a request": (lambda: Frame(RELEASE, b"{}"), Refusal.UNREADABLE),
    "deeply nested": (lambda: Frame(RELEASE, b"[" * 60_000), Refusal.UNREADABLE),
    "not canonical": (lambda: Frame(RELEASE, order() + b" "), Refusal.UNREADABLE),
    "unsigned": (lambda: Frame(RELEASE, SignedRequest(request=request()).to_bytes()), Refusal.NOT_SIGNED),
    "another server": (lambda: Frame(RELEASE, order(Key.generate())), Refusal.NOT_SIGNED),
    "another registration": (lambda: Frame(RELEASE, order(registration="0" * 64)), Refusal.NOT_OURS),
    "another site": (lambda: Frame(RELEASE, order(site="b")), Refusal.NOT_OURS),
    "less noise": (lambda: Frame(RELEASE, order(scale=1.0)), Refusal.NOT_AS_REGISTERED),
    "too many units": (lambda: Frame(RELEASE, order(slots=151)), Refusal.CANNOT),
    "a challenge as a request": (
        lambda: Frame(RELEASE, Challenge.by(SERVER, REG.digest, 1).to_bytes()),
        Refusal.UNREADABLE,
    ),
    "a request as a challenge": (lambda: Frame(HELLO, order()), Refusal.UNREADABLE),
    "an unsigned challenge": (
        lambda: Frame(HELLO, Challenge(registration=REG.digest, node="1", nonce="0" * 64).to_bytes()),
        Refusal.NOT_SIGNED,
    ),
    "another server's challenge": (
        lambda: Frame(HELLO, Challenge.by(Key.generate(), REG.digest, 1).to_bytes()),
        Refusal.NOT_SIGNED,
    ),
    "another registration's challenge": (
        lambda: Frame(HELLO, Challenge.by(SERVER, "0" * 64, 1).to_bytes()),
        Refusal.NOT_OURS,
    ),
}


@pytest.mark.parametrize("name", BAD_QUESTIONS)
def test_bad_questions_spend_nothing_and_are_in_the_log(tmp_path: Path, name: str) -> None:
    told: list[str] = []
    make, words = BAD_QUESTIONS[name]
    with guards(tmp_path, told=told) as sites:
        assert sites["a"].answer(make()) == Frame(REFUSED, words.encode())  # fixed words: nothing of the site in them
        assert spent(tmp_path, "a") == 0
        assert len(told) == 1
        assert told[0].startswith(f"refused: {words}: ")
        assert sites["a"].answer(Frame(RELEASE, order())).kind == GIVEN  # and it goes on


def test_a_site_whose_mind_changed_or_whose_key_is_wrong_refuses(tmp_path: Path) -> None:
    with guards(tmp_path) as sites:
        wrong = Guard(REG, "a", sites["a"]._ledger, sites["a"]._find, Key.generate())
        assert wrong.answer(Frame(RELEASE, order())).data == Refusal.CANNOT.encode()
        with pytest.raises(FedsrcError, match="needs the private key"):
            wrong.open()
        sites["a"]._ledger.forbid("a", REG.digest)
        assert sites["a"].answer(Frame(RELEASE, order())).data == Refusal.NOT_ALLOWED.encode()
        with pytest.raises(FedsrcError, match="has not allowed"):
            sites["a"].open()
    assert spent(tmp_path, "a") == 0


def test_a_fault_does_not_end_the_guard(tmp_path: Path) -> None:
    told: list[str] = []

    def broken() -> Any:
        raise ZeroDivisionError

    with guards(tmp_path) as sites:
        guard = Guard(REG, "a", sites["a"]._ledger, broken, key(0), tell=told.append)
        assert guard.answer(Frame(RELEASE, order())) == Frame(REFUSED, Refusal.CANNOT.encode())
    assert "ZeroDivisionError" in told[0]
    assert "\n" not in one_line(told[0] + "\x1b[2J\r")
    assert "\x1b" not in one_line(told[0] + "\x1b[2J\r")


def test_only_keyed_registrations_are_served(tmp_path: Path) -> None:
    fields = REG.model_dump()
    bare = Registration.model_validate({**fields, "server_key": None})
    nameless = Registration.model_validate({**fields, "sites": [{**site, "key": None} for site in fields["sites"]]})
    with guards(tmp_path) as sites:
        for reg, words in ((bare, "no server key"), (nameless, "no registered key")):
            with pytest.raises(FedsrcError, match=words):
                Guard(reg, "a", sites["a"]._ledger, sites["a"]._find, key(0)).open()
            with pytest.raises(FedsrcError, match=words):
                live_session(reg, tmp_path / "run", SERVER)


def test_what_runs_in_flower_at_a_site_is_a_relay() -> None:
    """Standard library, Flower and its own wire: nothing that could open records or a ledger."""
    folder = Path(app.__file__).parent / "fedsrc_relay"
    for name in ("__init__", "client_app", "wire"):
        for node in ast.walk(ast.parse((folder / f"{name}.py").read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or "."] if node.level == 0 else []
            assert {each.split(".")[0] for each in names} <= {
                "__future__", "flwr", "socket", "struct", "time", "typing"
            }  # fmt: skip
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("open", "eval", "exec", "__import__")


# Flower's messages, as plain objects of the same shape.


def message(to: str, content: Any = None, error: Any = None) -> Any:
    return SimpleNamespace(
        metadata=SimpleNamespace(reply_to_message_id=to, src_node_id=1),
        content=content, error=error, has_content=lambda: content is not None,
    )  # fmt: skip


def test_replies_of_nodes_may_hold_anything() -> None:
    good = {"fedsrc": {"kind": GIVEN, "data": b"bytes"}}
    assert reply_of("m", message("m", good)) == Reply("m", b"bytes")
    refusal = message("m", {"fedsrc": {"kind": REFUSED, "data": b"no"}})
    assert reply_of("m", refusal) == Reply("m", problem="no", refused=True)
    assert reply_of("m", message("m", {"fedsrc": {"kind": wire.UNREACHED, "data": b"off"}})) == Reply(
        "m", problem="off"
    )
    lost = reply_of("m", message("m", error=SimpleNamespace(code=5, reason="Node Unavailable")))
    assert (lost.data, lost.refused) == (None, False)
    strange: list[Any] = [{}, {"fedsrc": {}}, {"fedsrc": {"kind": "G", "data": b""}}, {"fedsrc": None}]
    for bad in (*strange, {"fedsrc": {"kind": GIVEN, "data": [1]}}):
        assert reply_of("m", message("m", bad)) == Reply("m", problem="a reply that is not a relay's")


def test_nodes_are_known_by_their_keys() -> None:
    grid = SimpleNamespace(get_nodes=lambda: [SimpleNamespace(node_id=4, public_key=b"PEM\n")])
    assert [(node.id, node.key) for node in FlowerPost(grid).nodes()] == [(4, digest_bytes(b"PEM"))]


def test_settings_go_through_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = Settings(tmp_path, Path("/key"), {"a": "0"}, Patience(1.0, 2.0, 3.0, 4.0, 5.0))
    settings.write()
    assert Settings.read(settings.path) == settings
    monkeypatch.delenv("FEDSRC_LIVE", raising=False)
    with pytest.raises(FedsrcError, match="FEDSRC_LIVE is not set"):
        serve(None)


def test_what_flower_is_started_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FEDSRC_SITE_KEY", "secret")
    env = environment(tmp_path)
    assert env["FLWR_TELEMETRY_ENABLED"] == "0"
    assert env["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    assert env["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"
    assert not any(name.startswith("FEDSRC") for name in env)
    check_encrypted("127.0.0.1", Tls(), insecure=False)
    check_encrypted("example.org", Tls(ca=tmp_path), insecure=False)
    with pytest.raises(FedsrcError, match="not be encrypted"):
        check_encrypted("example.org", Tls(), insecure=False)


def test_what_a_killed_process_leaves_behind_is_ended(tmp_path: Path) -> None:
    """Flower's executors and apps may outlive a SuperNode that is killed: they have lost their parent by then."""
    command = ["/bin/sh", "-c", "sleep 1000 & echo started; exec sleep 1000"]
    told: list[str] = []
    with Child(command, environment(tmp_path), tmp_path / "log", told.append) as one:
        while not told:
            time.sleep(0.01)
        os.kill(one.pid, signal.SIGKILL)
        while one.status is None:
            time.sleep(0.01)
        assert [each.pid for each in descendants(one.pid)] == [each.pid for each in left_behind(tmp_path)] != []
        assert left_behind(tmp_path / "elsewhere") == []
        one.stop(0.1)
        for _ in range(1000):
            if not (descendants(one.pid) or left_behind(tmp_path)):
                return
            time.sleep(0.01)
        pytest.fail("it is still there")


# The carrier: whole runs, with an engine that misbehaves.


def entries(folder: Path, kind: type[Any]) -> list[Any]:
    return [entry for entry in read_transcript(folder / "run" / TRANSCRIPT)[0] if isinstance(entry, kind)]


def own_post() -> OwnPost:
    return OwnPost(OwnClock())


def test_a_live_run_equals_the_files_mode(tmp_path: Path) -> None:
    body = live(tmp_path)
    verify(tmp_path / "run", trusted=(public_hex(SERVER),))
    assert body.releases == 6
    by_files(tmp_path, "files")
    for name in (TRANSCRIPT, CERTIFICATE):
        assert (tmp_path / "files" / name).read_bytes() == (tmp_path / "run" / name).read_bytes()
    assert finished(live_session(REG, tmp_path / "run", SERVER)) == body
    assert live(tmp_path, post=own_post()) == body  # again: nothing is asked


def test_a_transcript_that_is_held_is_waited_for_and_a_damaged_one_is_not(tmp_path: Path) -> None:
    """Mutants killed: waiting for whatever goes wrong, or for nothing."""
    clock, held = OwnClock(), Transcript(tmp_path / TRANSCRIPT)
    held.append(Opened(registration="0" * 64))
    clock.at(3.0, held.close)
    hold_transcript(tmp_path / TRANSCRIPT, clock).close()
    assert clock.time == 3.0
    (tmp_path / TRANSCRIPT).write_text("{}\n")
    with pytest.raises(DamagedError):
        hold_transcript(tmp_path / TRANSCRIPT, clock)
    assert clock.time == 3.0


def test_repeated_replies_are_folded_once(tmp_path: Path) -> None:
    post, told = own_post(), list[str]()
    post.mischief = lambda _, reply: [reply, reply, Reply("letter-999", reply.data)]
    live(tmp_path, post=post, told=told)
    arrived = [entry.release.request for entry in entries(tmp_path, Arrived)]
    assert len(arrived) == len(set(arrived)) == 6
    assert any("answers nothing" in line for line in told)


def test_late_replies_are_left_out(tmp_path: Path) -> None:
    post, told = own_post(), list[str]()
    slow = {("1", 2): 21.0, ("2", 1): 5.0}
    post.delay = lambda letter: slow.get((letter.group, letter.node), 0.0)
    live(tmp_path, post=post, told=told)
    missing = entries(tmp_path, Absent)
    assert [(entry.refused, entry.reason) for entry in missing] == [
        (False, "no answer of site 'b' before the round was closed")
    ]
    assert len(entries(tmp_path, Arrived)) == 5
    assert "site 'b': a late reply to request 2 is left out" in told
    verify(tmp_path / "run")


def test_errors_on_the_way_are_tried_again(tmp_path: Path) -> None:
    """An error reply names no sender; only the letter it answers tells whose it is."""
    post, failed = own_post(), set[int]()

    def once(letter: Letter, reply: Reply) -> Sequence[Reply]:
        if letter.kind == "release" and letter.node not in failed:
            failed.add(letter.node)
            return [Reply(reply.to, problem="Flower: Node Unavailable (code 5)")]
        return [reply]

    post.mischief = once
    live(tmp_path, post=post)
    assert len(entries(tmp_path, Arrived)) == 6
    assert all(spent(tmp_path, name) == 120 for name in NAMES)


def test_errors_that_stay_become_an_absence(tmp_path: Path) -> None:
    post = own_post()
    post.mischief = lambda letter, reply: (
        [Reply(reply.to, problem="no site process\nlistens")]
        if letter.kind == "release" and letter.node == 3
        else [reply]
    )
    live(tmp_path, post=post)
    reasons = [entry.reason for entry in entries(tmp_path, Absent)]
    assert reasons == ["site 'c' is not connected: no site process?listens"] * 2
    verify(tmp_path / "run")


def test_dropout_and_return_with_another_number(tmp_path: Path) -> None:
    """A node dies with a request in its hands; its site comes back as another node and gives the same bytes."""
    post, told = own_post(), list[str]()

    def die(letter: Letter, reply: Reply) -> Sequence[Reply]:
        if letter.kind == "release" and letter.node == 1:
            behave = post.places[1][1]
            post.leave(1)
            post.clock.at(post.clock.monotonic() + 3, lambda: post.join(11, behave))
            return []
        return [reply]

    post.mischief = die
    live(tmp_path, post=post, told=told)
    assert len(entries(tmp_path, Arrived)) == 6
    assert spent(tmp_path, "a") == 120
    assert "site 'a': node 1 is gone" in told


def test_a_site_that_never_comes_back(tmp_path: Path) -> None:
    post = own_post()

    def die(letter: Letter, reply: Reply) -> Sequence[Reply]:
        if letter.kind == "release" and letter.node == 1:
            post.leave(1)
            return []
        return [reply]

    post.mischief = die
    live(tmp_path, post=post)
    assert [entry.reason for entry in entries(tmp_path, Absent)] == [
        "site 'a' is not connected: its node is gone",
        "site 'a' is not connected: no node speaks for the site",
    ]
    verify(tmp_path / "run")


def test_named_sites_may_join_late(tmp_path: Path) -> None:
    post = own_post()

    post.delay = lambda letter: 15.0 if letter.kind == "release" else 40.0 if letter.node == 3 else 0.0
    live(tmp_path, post=post)
    found = read_transcript(tmp_path / "run" / TRANSCRIPT)[0]
    kinds = [entry.kind for entry in found]
    announced = [i for i, entry in enumerate(found) if isinstance(entry, Announced)]
    assert [found[i].site for i in announced] == ["a", "b", "c"]  # type: ignore[union-attr]
    assert announced[2] > kinds.index("closed")
    verify(tmp_path / "run")


def test_a_hello_that_is_lost_is_sent_again(tmp_path: Path) -> None:
    """Without an error, and without the node going away: its site joins once the letter is too old to be answered."""
    post, lost, told = own_post(), list[Letter](), list[str]()
    post.delay = lambda letter: 15.0 if letter.kind == "release" else 0.0

    def once(letter: Letter, reply: Reply) -> Sequence[Reply]:
        if letter.kind == "hello" and letter.node == 3 and not lost:
            lost.append(letter)
            return []
        return [reply]

    post.mischief = once
    live(tmp_path, post=post, told=told)
    assert [entry.site for entry in entries(tmp_path, Announced)] == ["a", "b", "c"]
    assert len([letter for letter in post.letters if letter.kind == "hello" and letter.node == 3]) == 2
    assert not any("doubles" in line for line in told)


def test_nobody_there_ends_nothing(tmp_path: Path) -> None:
    post = own_post()
    post.mischief = lambda _, reply: [Reply(reply.to, problem="no site process listens")]
    with pytest.raises(FedsrcError, match="no site came"):
        live(tmp_path, post=post)
    assert live(tmp_path).releases == 6  # the same folder, once they are there


def forged(make: Callable[[Challenge], Hello]) -> Callable[[Frame], Frame]:
    """A node that answers every challenge with a hello of its own making."""

    def behave(question: Frame) -> Frame:
        if question.kind != HELLO:
            return Frame(GIVEN, b"never asked")
        return Frame(GIVEN, make(Challenge.model_validate_json(question.data)).to_bytes())

    return behave


IMPOSTORS: dict[str, tuple[Callable[[Frame], Frame], str]] = {
    "unknown": (
        forged(lambda c: Hello(registration=REG.digest, challenge=c.digest, site="z", units=1).signed(Key.generate())),
        "site 'z' is not registered",
    ),
    "another's name": (
        forged(lambda c: Hello(registration=REG.digest, challenge=c.digest, site="a", units=1).signed(key(1))),
        "it is not signed by site 'a'",
    ),
    "unsigned": (
        forged(lambda c: Hello(registration=REG.digest, challenge=c.digest, site="a", units=1)),
        "it is not signed by site 'a'",
    ),
    "an old hello": (
        forged(lambda _: Hello(registration=REG.digest, challenge="0" * 64, site="a", units=1).signed(key(0))),
        "it answers another challenge",
    ),
    "another registration": (
        forged(lambda c: Hello(registration="0" * 64, challenge=c.digest, site="a", units=1).signed(key(0))),
        "it is of another registration",
    ),
    "too many units": (
        forged(lambda c: Hello(registration=REG.digest, challenge=c.digest, site="a", units=151).signed(key(0))),
        "site 'a' announces more than its registered capacity",
    ),
    "another node's key": (
        forged(
            lambda c: Hello(registration=REG.digest, challenge=c.digest, site="a", units=1, node_key="0" * 64).signed(
                key(0)
            )
        ),
        "site 'a' names another node key than the one that carries its word",
    ),
    "garbage": (lambda _: Frame(GIVEN, b"\xff" * 100_000), "it is not a hello"),
    "silence": (lambda _: Frame(wire.UNREACHED, b"off"), "off"),
}


@pytest.mark.parametrize("name", IMPOSTORS)
def test_impostors_are_refused_and_never_asked(tmp_path: Path, name: str) -> None:
    behave, words = IMPOSTORS[name]
    post, told = own_post(), list[str]()
    post.join(99, behave)
    body = live(tmp_path, post=post, told=told)
    assert body.releases == 6
    assert told.count(f"refused: node 99: {words}") == 1  # said once, however often it is greeted
    assert {letter.kind for letter in post.letters if letter.node == 99} == {"hello"}


def test_a_doubled_site_is_refused_while_the_first_is_there(tmp_path: Path) -> None:
    post, told = own_post(), list[str]()
    with guards(tmp_path) as sites:
        post.join(50, sites["a"].answer)  # it speaks first; node 1 doubles it
        live(tmp_path, post=post, told=told)
    assert "refused: node 1 doubles site 'a', which node 50 speaks for" in told
    assert {letter.kind for letter in post.letters if letter.node == 1} == {"hello"}
    assert spent(tmp_path, "a") == 120


BAD_RELEASES: dict[str, tuple[Callable[[Release], bytes], str]] = {
    "garbage": (lambda _: b"\x00", "it is not a release"),
    "nested": (lambda _: b"[" * 100_000, "it is not a release"),
    "not canonical": (lambda release: release.to_bytes() + b"\n", "it is not in canonical form"),
    "unsigned": (lambda r: r.model_copy(update={"signature": None}).to_bytes(), "it is not signed by site 'b'"),
    "another request": (
        lambda r: r.model_copy(update={"request": "0" * 64}).signed(key(1)).to_bytes(),
        "it answers another request",
    ),
    "another length": (
        lambda r: r.model_copy(update={"first": r.first[1:]}).signed(key(1)).to_bytes(),
        "its length differs from the registered one",
    ),
    "implausible": (
        lambda r: r.model_copy(update={"first": tuple(v + 10**7 for v in r.first)}).signed(key(1)).to_bytes(),
        "",
    ),
    "from the future": (
        lambda r: r.model_copy(update={"time": "2999-01-01T00:00:00Z"}).signed(key(1)).to_bytes(),
        "it is dated in the future: check the site's clock",
    ),
}


@pytest.mark.parametrize("name", BAD_RELEASES)
def test_a_malicious_site_is_recorded_and_the_run_goes_on(tmp_path: Path, name: str) -> None:
    change, words = BAD_RELEASES[name]
    post = own_post()

    def corrupt(letter: Letter, reply: Reply) -> Sequence[Reply]:
        if letter.kind == "release" and letter.node == 2 and reply.data is not None:
            return [Reply(reply.to, change(parse_release(reply.data)))]
        return [reply]

    post.mischief = corrupt
    body = live(tmp_path, post=post)
    missing = entries(tmp_path, Absent)
    assert len(missing) == 2
    assert all(words in entry.reason for entry in missing)
    assert body.releases == 4
    verify(tmp_path / "run")


def test_a_site_that_refuses_is_recorded_and_not_pressed(tmp_path: Path) -> None:
    post = own_post()
    post.mischief = lambda letter, reply: (
        [Reply(reply.to, problem=["it will not", Refusal.CANNOT][letter.group == "2"], refused=True)]
        if letter.kind == "release" and letter.node == 1
        else [reply]
    )
    live(tmp_path, post=post)
    assert [entry.reason for entry in entries(tmp_path, Absent)] == [
        "site 'a' refused: in words that are not a site's",
        f"site 'a' refused: {Refusal.CANNOT}",
    ]
    assert len([each for each in post.letters if each.kind == "release" and each.node == 1]) == 2


def test_server_site_and_flower_must_mean_the_same_node_key(tmp_path: Path) -> None:
    known = {"a": "1" * 64, "b": "2" * 64, "c": "3" * 64}
    post, told = own_post(), list[str]()
    with guards(tmp_path) as sites:
        for name in NAMES:
            sites[name]._node_key = known[name]
        sites["c"]._node_key = "9" * 64  # a key that its node has, but the server does not know it by
        post.join(1, sites["a"].answer, known["a"])
        post.join(2, sites["b"].answer, "8" * 64)  # another node carries b's word
        post.join(3, sites["c"].answer, "9" * 64)
        here = LiveCarrier(
            REG, SERVER, post, node_keys=known, clock=post.clock, patience=PATIENCE, tell=told.append
        ).gather(NAMES, 5.0)  # fmt: skip
    assert here == ["a"]
    assert "refused: node 2: site 'b' names another node key than the one that carries its word" in told
    assert "refused: node 3: site 'c' is not known to the server by this node key" in told


def test_a_trial_set(tmp_path: Path) -> None:
    public = make_trial(tmp_path / "t", ("north", "south"))
    assert set(public) == {"server", "north", "south"}
    for name in ("north", "south"):
        folder = tmp_path / "t" / name
        assert name_of_private(folder / "node.key") == name_of_public(folder / "node.pub")
        assert public_hex(load(folder / "site.key")) == public[name] == (folder / "site.pub").read_text().strip()
        private = [folder / "node.key", folder / "site.key", mask_beside(folder / "site.key")]
        assert {path.stat().st_mode & 0o777 for path in private} == {0o600}
        word = MaskKey.model_validate_json((folder / f"{name}.mask.json").read_bytes())
        assert word.genuine
        assert (word.site, word.key, word.mask) == (name, public[name], public_hex(load(private[2])))
    server = tmp_path / "t" / "server"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server / "tls.pem", server / "tls.key")
    assert (server / "tls.key").stat().st_mode & 0o777 == 0o600
    for sites in ((), ("a", "a"), ("server",), ("..",), ("a/b",), ("",)):
        with pytest.raises(FedsrcError):
            make_trial(tmp_path / "other", sites)
    with pytest.raises(FedsrcError, match="exists already"):
        make_trial(tmp_path / "t", ("north",))
    with pytest.raises(FedsrcError, match="private key"):
        name_of_private(tmp_path / "t" / "north" / "node.pub")


def test_the_trial_certificate_is_trusted_for_this_machine_alone(tmp_path: Path) -> None:
    make_trial(tmp_path / "t", ("a",))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "t" / "server" / "tls.pem", tmp_path / "t" / "server" / "tls.key")
    trusting = ssl.create_default_context(cafile=str(tmp_path / "t" / "ca.pem"))
    trusting.verify_flags |= ssl.VERIFY_X509_STRICT  # the default from Python 3.13 on
    for name, good in (("localhost", True), ("127.0.0.1", True), ("example.org", False)):
        assert handshake(context, trusting, name) == good


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> bool:
    """Whether a client believes a server, in memory."""
    one, two = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [server.wrap_bio(one, two, server_side=True), client.wrap_bio(two, one, server_hostname=name)]
    for _ in range(4):
        for end in ends:
            with suppress(ssl.SSLWantReadError):
                try:
                    end.do_handshake()
                except ssl.SSLError as error:
                    if isinstance(error, ssl.SSLCertVerificationError):
                        return False
                    raise
    return ends[1].version() is not None


# Killed and started again.


def strike(folder: Path, fault: Fault, at: int) -> int | None:
    folder.mkdir(parents=True, exist_ok=True)
    process = CONTEXT.Process(target=child, args=(str(folder), fault, at))
    process.start()
    process.join()
    return process.exitcode


def check(folder: Path) -> None:
    """The run is as good as an unbroken one on the same releases, and no unit was released twice."""
    verify(folder / "run")
    place: dict[str, int] = {}
    made = spends(folder)
    for intake, first, slots, _, _ in made:
        assert first == place.get(intake, 0)
        place[intake] = first + slots
    folded = {entry.release.request: entry.release.to_bytes() for entry in entries(folder, Arrived)}
    assert folded == {request: release for _, _, _, request, release in made}
    if entries(folder, Absent):
        return
    live(folder, "unbroken")
    for name in (TRANSCRIPT, CERTIFICATE):
        assert (folder / "unbroken" / name).read_bytes() == (folder / "run" / name).read_bytes()


@pytest.mark.thorough
@pytest.mark.parametrize("fault", [fault for fault in get_args(Fault) if fault != "none"])
def test_a_fault_at_random_durable_operations(tmp_path: Path, fault: Fault) -> None:
    assert strike(tmp_path / "count", "none", 0) == 0
    total = int((tmp_path / "count" / "operations").read_text())
    assert total > 30
    for at in random.Random(fault).sample(range(1, total + 1), 8):
        folder = tmp_path / str(at)
        ended = strike(folder, fault, at)
        assert ended in ((NO_SPACE, 0) if fault == "full" else (CRASHED,)), at  # a site without space only refuses
        live(folder)
        check(folder)


@pytest.mark.parametrize("seed", range(4))
def test_killed_at_random_moments(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(3):
        process = CONTEXT.Process(target=child, args=(str(tmp_path), "none", 0))
        process.start()
        process.join(rng.uniform(0.0, 0.3))
        process.kill()
        process.join()
    live(tmp_path)
    check(tmp_path)
