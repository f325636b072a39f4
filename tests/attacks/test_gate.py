"""Attacks on a gate: a halt that a restart, a second signature or a full disk ends; a storm of signals; odd requests.

Mutants killed: a halt in memory alone, one that is not read at the start or at a reload, one that is read only if the
certificate can be read, a file that cannot be read taken for no halt, a halt that a weaker one replaces, one that the
same run under another key ends, a handler that halts by itself and meets itself; a bound on headers that holds for
incomplete ones alone or counts what is left after parsing, a Host that is not looked at, looked at by its beginning or
by its letters' case, a name given twice of which one is taken.

Chance of a false alarm: none; whatever takes time is waited for.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from fedsrc.common import durable
from fedsrc.common.canonical import digest_bytes
from fedsrc.common.signing import Key, public_hex
from fedsrc.errors import FedsrcError
from fedsrc.gate.decision import ACCEPTED, HALTED
from fedsrc.gate.gate import Gate
from fedsrc.gate.halt import NOT_LATER
from fedsrc.gate.service.hosts import host_names
from fedsrc.gate.service.throttle import NOT_THIS_HOST, Limits
from fedsrc.protocol.names import CERTIFICATE
from tests.support.gate_certificates import TRUSTED, Terminal, body, certificate, original, renewed
from tests.support.gate_server import Client, serving

SECOND = Key.generate()
BOTH = (*TRUSTED, public_hex(SECOND))
OTHER = "ab" * 32  # the digest of another transcript


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / CERTIFICATE
    path.write_text(original())
    return path


@pytest.fixture
def note(file: Path) -> Path:
    return file.with_name(f"{CERTIFICATE}.halt")


def gate_of(path: Path, **how: Any) -> Gate:
    return Gate(path, **{"trusted": BOTH, **how})


# ---------------------------------------------------------------- a halt outlives the process


def test_a_restart_does_not_end_a_halt(file: Path, note: Path) -> None:
    """The folder and the file in it are one certificate, so they have one halt."""
    gate_of(file.parent).halt()
    assert json.loads(note.read_text()) == {
        "format": 1, "certificate": digest_bytes(file.read_bytes()), "calibrated": body()["calibrated"],
        "transcript": body()["transcript"],
    }  # fmt: skip
    assert stat.S_IMODE(note.stat().st_mode) == 0o600
    for place in (file.parent, file):
        gate = gate_of(place)
        assert gate.decide(1.0)[:2] == (False, HALTED)
        assert (gate.status().accepting, gate.status().halt_problem) == (False, None)
    assert [path.name for path in sorted(file.parent.iterdir())] == [CERTIFICATE, note.name]


def test_another_gate_on_the_certificate_heeds_the_halt(file: Path, note: Path) -> None:
    """At its next reload, and also if the certificate itself is damaged or gone by then."""
    for damage in (original(), "", None):
        note.unlink(missing_ok=True)
        file.write_text(original())
        one, other = gate_of(file), gate_of(file.parent)
        one.halt()
        assert other.accept(1.0)
        if damage is None:
            file.unlink()
        else:
            file.write_text(damage)
        with contextlib.suppress(FedsrcError):
            other.reload()
        assert other.decide(1.0)[:2] == (False, HALTED)


SAME_EVIDENCE: dict[str, Callable[[], str]] = {
    "signed by a second key": lambda: certificate(key=SECOND),
    "signed by a second key, as if later": lambda: renewed(60, key=SECOND),
    "a transcript that grew without another release": lambda: certificate(transcript=OTHER),
    "an older run": lambda: renewed(-60, transcript=OTHER),
}


@pytest.mark.parametrize("name", SAME_EVIDENCE)
def test_what_rests_on_no_later_calibration_ends_no_halt(file: Path, name: str) -> None:
    gate = gate_of(file)
    gate.halt()
    file.write_text(SAME_EVIDENCE[name]())
    with pytest.raises(FedsrcError, match=f"{NOT_LATER}|older than the one in force"):
        gate.reload()
    assert gate.decide(1.0).reason == gate_of(file).decide(1.0).reason == HALTED
    assert gate.status().problem is not None


def test_later_calibration_ends_a_halt_and_the_halted_one_does_not_come_back(file: Path, note: Path) -> None:
    gate = gate_of(file)
    gate.halt()
    file.write_text(renewed(1, transcript=OTHER))
    assert gate_of(file).accept(1.0)
    assert gate.reload()
    assert gate.accept(1.0)
    file.write_text(original())
    assert gate_of(file).decide(1.0).reason == HALTED
    note.unlink()
    file.write_text(renewed(1, transcript=OTHER))
    gate.reload()
    assert not note.exists(), "what has ended is not written again"


def test_a_weaker_halt_does_not_replace_a_stronger_one(file: Path) -> None:
    """A gate that has not seen the renewal yet is halted after one that has."""
    behind = gate_of(file)
    file.write_text(renewed(60, transcript=OTHER))
    ahead = gate_of(file)
    ahead.halt()
    behind.halt()
    assert gate_of(file).decide(1.0).reason == HALTED


# ---------------------------------------------------------------- a halt that cannot be written or read


def test_a_halt_that_cannot_be_written_halts_in_memory_says_so_and_is_written_later(
    file: Path, note: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    gate = gate_of(file)
    with monkeypatch.context() as patch:
        for name in ("write", "sync", "move"):
            patch.setattr(durable, name, refuse)
            gate.halt()
        for _ in range(3):
            gate.reload()
        assert (gate.accept(1.0), note.exists()) == (False, False)
        assert gate.status().halt_problem == "cannot be written: Read-only file system"
    assert [each.getMessage()[:22] for each in caplog.records if each.levelname == "ERROR"] == [
        "HALTED IN MEMORY ALONE"
    ]
    gate.reload()
    assert note.exists()
    assert gate.status().halt_problem is None
    assert gate_of(file).decide(1.0).reason == HALTED


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes to any folder")
def test_a_folder_that_is_read_only(file: Path) -> None:
    file.parent.chmod(0o555)
    try:
        gate = gate_of(file)
        gate.halt()
        assert gate.decide(1.0).reason == HALTED
        assert gate.status().halt_problem == "cannot be written: Permission denied"
    finally:
        file.parent.chmod(0o755)


def test_a_halt_may_be_kept_elsewhere(file: Path, note: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "state" / "gate.halt"
    gate_of(file, halt_file=elsewhere).halt()
    assert (elsewhere.exists(), note.exists()) == (True, False)
    assert gate_of(file, halt_file=str(elsewhere)).decide(1.0).reason == HALTED


DIE = """
import os, sys
from fedsrc import Gate
from fedsrc.common import durable
certificate, key, step, when = sys.argv[1:]
real = getattr(durable, step)
def dies(*args):
    if when == "after":
        real(*args)
    if when == "half":
        real(args[0], args[1][:40])
    os._exit(9)
setattr(durable, step, dies)
Gate(certificate, trusted=[key]).halt()
"""
DEATHS = [(step, when) for step in ("write", "sync", "move") for when in ("before", "half", "after")]


@pytest.mark.parametrize(("step", "when"), [each for each in DEATHS if each[0] == "write" or each[1] != "half"])
def test_a_kill_while_a_halt_is_written_leaves_all_of_it_or_nothing(
    file: Path, note: Path, step: str, when: str
) -> None:
    """The process dies at each step towards the disk; what is there then can be read, and is the halt or none."""
    command = [sys.executable, "-c", DIE, str(file), TRUSTED[0], step, when]
    assert subprocess.run(command, check=False).returncode == 9
    gate = gate_of(file)
    assert gate.status().halt_problem is None
    assert note.exists() == (gate.decide(1.0).reason == HALTED) == (step == "move" and when == "after")


def instead(make: Callable[[Path], None]) -> Callable[[Path], None]:
    """Something else in a file's place."""

    def replace(path: Path) -> None:
        path.unlink()
        make(path)

    return replace


UNREADABLE: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "half": lambda path: path.write_bytes(path.read_bytes()[:50]),
    "more": lambda path: path.write_bytes(path.read_bytes() + b" "),
    "an unknown field": lambda path: path.write_text(path.read_text().replace('{"', '{"a":1,"', 1)),
    "another format": lambda path: path.write_text(path.read_text().replace('"format":1', '"format":2')),
    "no time": lambda path: path.write_text(path.read_text().replace(body()["calibrated"], "soon")),
    "not UTF-8": lambda path: path.write_bytes(b"\xff"),
    "very deep": lambda path: path.write_bytes(b"[" * 9_000),
    "huge": lambda path: path.write_bytes(b" " * 20_000),
    "a folder": instead(Path.mkdir),
    "a pipe": instead(os.mkfifo),
    "a link to nothing": instead(lambda path: path.symlink_to("nowhere")),
    "a device": instead(lambda path: path.symlink_to("/dev/zero")),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_halt_that_cannot_be_read_is_a_halt(
    file: Path, note: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """At the start and at a reload, whatever certificate lies there, until the file can be read or is removed."""
    running = gate_of(file)
    gate_of(file).halt()
    UNREADABLE[name](note)
    file.write_text(renewed(60, transcript=OTHER))
    started = gate_of(file)
    running.reload()
    for gate in (started, running):
        gate.reload()
        assert gate.decide(1.0)[:2] == (False, HALTED)
        assert gate.status().halt_problem is not None
    assert sum("cannot be read" in each.getMessage() for each in caplog.records) == 2
    started.halt()
    assert gate_of(file).status().halt_problem is not None, "nobody knows what it said, so it is not written over"
    note.rmdir() if note.is_dir() else note.unlink()
    running.reload()
    assert running.accept(1.0)
    assert running.status().halt_problem is None
    started.reload()
    assert started.decide(1.0).reason == HALTED
    assert note.is_file()


def test_the_command_heeds_a_halt(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fedsrc, elsewhere = Terminal(monkeypatch, capsys), tmp_path / "elsewhere"
    gate_of(file, halt_file=elsewhere).halt()
    base = ("gate", "check", str(file), "--trust", TRUSTED[0], "--score", "1")
    assert fedsrc(*base)[0] == 0
    done = fedsrc(*base, "--halt-file", str(elsewhere))
    assert (done.status, done.out.partition(" (")[0]) == (1, f"abstained: {HALTED}")


# ---------------------------------------------------------------- a storm of signals


@contextlib.contextmanager
def process(file: Path) -> Iterator[tuple[subprocess.Popen[str], Client]]:
    """The command as it is run in production, what it says on the way in front, and a client of it."""
    command = [sys.executable, "-m", "fedsrc.cli", "gate", "serve", str(file), "--trust", TRUSTED[0], "--port", "0"]
    started = subprocess.Popen([*command, "--reload-seconds", "0.05"], stderr=subprocess.PIPE, text=True)
    try:
        assert started.stderr is not None
        line = next(line for line in started.stderr if line.startswith("Gate at http://127.0.0.1:"))
        with contextlib.closing(Client(int(line.split(":")[2]))) as client:
            yield started, client
    finally:
        started.kill()
        started.communicate()


def storm(running: subprocess.Popen[str], signals: int) -> None:
    for _ in range(signals):
        os.kill(running.pid, signal.SIGUSR1)


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


def wait_for(reason: str, client: Client) -> None:
    wait_until(lambda: bool(client.decide(1.0).json["reason"] == reason))


def withstands(file: Path, note: Path, signals: int) -> None:
    """Halted by the storm, alive after it, halted after a kill, accepting after a renewal, and ended in order."""
    with process(file) as (running, client):
        assert client.decide(1.0).json["reason"] == ACCEPTED
        storm(running, signals)
        wait_for(HALTED, client)
        storm(running, signals)
        assert client.decide(1.0).json["reason"] == HALTED
        assert client.ask("GET", "/healthz").json["halt_problem"] is None
        wait_until(note.is_file)
        assert running.poll() is None
    with process(file) as (running, client):
        assert client.decide(1.0).json["reason"] == HALTED
        file.write_text(renewed(60, transcript=OTHER))
        wait_for(ACCEPTED, client)
        storm(running, signals)
        running.send_signal(signal.SIGTERM)
        assert running.stderr is not None
        words = running.stderr.read()
        assert running.wait(60) == 0
        assert (words.count("halted: "), words.endswith("Stopped.\n")) == (1, True)
    assert gate_of(file).decide(1.0).reason == HALTED


def test_a_storm_of_signals_halts_the_service_and_does_not_kill_it(file: Path, note: Path) -> None:
    withstands(file, note, 2_000)


ECHO = """
import logging, os, signal, sys, threading, time
from fedsrc import Gate
from fedsrc.common import durable
from fedsrc.gate.service.throttle import Limits
from fedsrc.gate.service.serving import bind, serve

def storm(*_):
    for _ in range(300):
        os.kill(os.getpid(), signal.SIGUSR1)

class Echo(logging.Handler):
    emit = storm

def end_when_halted():
    while True:
        time.sleep(0.01)
        if not gate.status().accepting:
            os.kill(os.getpid(), signal.SIGTERM)

def ready():
    threading.Thread(target=end_when_halted, daemon=True).start()
    os.kill(os.getpid(), signal.SIGUSR1)

logging.getLogger("fedsrc.gate").addHandler(Echo())
durable.sync = storm
gate = Gate(sys.argv[1], trusted=[sys.argv[2]])
with bind("127.0.0.1", 0) as listener:
    serve(gate, listener, Limits(), ready)
"""


def test_signals_that_come_while_one_is_acted_on(file: Path, note: Path) -> None:
    """The halt's words and its way to the disk bring 300 more each: a handler that halts by itself meets itself."""
    done = subprocess.run(
        [sys.executable, "-c", ECHO, str(file), TRUSTED[0]], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert note.is_file()


@pytest.mark.thorough
def test_a_longer_storm_of_signals(file: Path, note: Path) -> None:
    withstands(file, note, 500_000)


# ---------------------------------------------------------------- odd requests


def answer(port: int, *pieces: bytes) -> tuple[int, str]:
    """The status of a raw request, sent in pieces, and what was wrong with it."""
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        for piece in pieces:
            connection.sendall(piece)
        reply = HTTPResponse(connection)
        reply.begin()
        assert reply.headers["x-content-type-options"] == "nosniff"
        return reply.status, json.loads(reply.read()).get("error", "")


def header(length: int, fill: bytes) -> bytes:
    """A request whose header has so many bytes, its line and its end included."""
    start, end = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: y", b"z\r\n\r\n"
    copies, rest = divmod(length - len(start) - len(end), len(fill))
    return start + fill * copies + b"z" * rest + end


@pytest.mark.parametrize("fill", [b"b", b" ", b"\r\nx: y"])
def test_a_header_has_16_kib_however_it_comes(file: Path, fill: bytes) -> None:
    """In one piece, in two, after another request; as a value, as white space that parsing drops, as many lines."""
    fits, large = header(16_384, fill), header(16_385, fill)
    with serving(gate_of(file)) as port:
        assert answer(port, fits) == (200, "")
        assert answer(port, fits[:9_000], fits[9_000:]) == (200, "")
        for pieces in ((large,), (large[:9_000], large[9_000:]), (header(20_000, fill),)):
            assert answer(port, *pieces) == (431, "the header is too large")
        with socket.create_connection(("127.0.0.1", port), 60) as connection:
            connection.sendall(fits + large)
            found = b"".join(iter(lambda: connection.recv(65_536), b""))
        assert re.findall(rb"HTTP/1.1 (\d+) ", found) == [b"200", b"431"]


OURS = [
    "localhost",
    "LOCALHOST:8321",
    "127.0.0.1",
    "127.0.0.1:1",
    "[::1]:8321",
    "[0:0::1]",
    "gate.example",
    "Gate.Example:80",
]
THEIRS = [
    "evil.example", "localhost.evil.example", "evil.example:8321", "evil-localhost", "localhost@evil.example", "",
    "127.0.0.1.evil.example", "127.0.0.2", "0.0.0.0", "[::2]", "::1", "localhost:x", "localhost:1:2", "localhost ;",
    "*", ":80", "gate.example.", "gate.example, localhost", "\xfcber", "a" * 1_000,
]  # fmt: skip


def test_only_the_hosts_of_the_service_are_answered(file: Path) -> None:
    """Or a page elsewhere points its own name at this machine, and reads what the service says."""
    hosts = host_names("127.0.0.1", ["gate.example"])
    with serving(gate_of(file), Limits(rate=1e9, hosts=hosts)) as port:
        for path in ("/v1/certificate", "/healthz", "/metrics", "/openapi.json", "/nowhere"):
            found = answer(port, f"GET {path} HTTP/1.1\r\nhost: evil.example\r\n\r\n".encode())
            assert found == (421, NOT_THIS_HOST)
        for hosts_named, status in ((OURS, 200), (THEIRS, 421)):
            for name in hosts_named:
                asked = f"GET /v1/certificate HTTP/1.1\r\nhost: {name}\r\n\r\n".encode("latin-1")
                assert (name, answer(port, asked)[0]) == (name, status)
        assert answer(port, b"GET /healthz HTTP/1.0\r\n\r\n")[0] == 421
        for line in (b"", b"host: localhost\r\nhost: evil.example\r\n"):
            assert answer(port, b"GET /healthz HTTP/1.1\r\n" + line + b"\r\n")[0] == 400


def test_the_address_that_a_request_came_to_is_one_of_its_names(file: Path) -> None:
    """A probe asks by address, also where the service listens on all; no page elsewhere has that as its name."""
    with serving(gate_of(file), Limits(rate=1e9, hosts=host_names("0.0.0.0")), host="0.0.0.0") as port:
        asked = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.2\r\n\r\n"
        assert answer(port, asked)[0] == 421
        with socket.create_connection(("127.0.0.2", port), 60) as connection:
            connection.sendall(asked)
            assert connection.recv(100_000).startswith(b"HTTP/1.1 200 ")


def test_hosts_are_named_without_a_port() -> None:
    assert host_names("::", ["[FE80::1]", "10.0.0.7", "Gate"]) >= {"localhost", "::", "fe80::1", "10.0.0.7", "gate"}
    for wrong in ("", "*", "gate:8321:x/", "http://gate", "gate example", "g\u00e4te", "10.0.0.7:80", "gate:80"):
        with pytest.raises(FedsrcError, match="is no host name"):
            host_names("127.0.0.1", [wrong])


TWICE = {
    "the same": b'{"score": 0.9, "score": 0.9}',
    "the last accepted": b'{"score": 0.1, "score": 1}',
    "the first accepted": b'{"score": 1, "score": 0.1}',
    "one in disguise": b'{"score": 0.1, "\\u0073core": 1}',
    "not ours": b'{"score": 1, "x": 1, "x": 2}',
    "within": b'{"score": {"a": 1, "a": 2}}',
    "in a list": b'[{"a": 1, "a": 2}]',
}


@pytest.mark.parametrize("name", TWICE)
def test_a_name_given_twice_is_refused(file: Path, name: str) -> None:
    with serving(gate_of(file)) as port, contextlib.closing(Client(port)) as client:
        for path in ("/v1/decide", "/v1/decide/batch"):
            reply = client.ask("POST", path, TWICE[name])
            assert (reply.status, reply.json) == (422, {"error": "body: a name is given twice"})
        reply = client.ask("POST", "/v1/decide/batch", b'{"scores": [1], "scores": [0]}')
        assert (reply.status, reply.json) == (422, {"error": "body: a name is given twice"})
        assert client.decide(1.0).json["accepted"]
