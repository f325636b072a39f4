"""Attacks on a gate: a halt that a restart, a second signature or a full disk ends; a storm of signals.

Mutants killed: a halt in memory alone, one that is not read at the start or at a reload, one that is read only if the
certificate can be read, a file that cannot be read taken for no halt, a halt that a weaker one replaces, one that the
same run under another key ends, a handler that halts by itself and meets itself.

Chance of a false alarm: none; whatever takes time is waited for.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fedsrc.common import durable
from fedsrc.common.canonical import digest_bytes
from fedsrc.common.signing import Key, public_hex
from fedsrc.errors import FedsrcError
from fedsrc.gate.gate import ACCEPTED, HALTED, Gate
from fedsrc.gate.halt import NOT_LATER
from fedsrc.protocol.names import CERTIFICATE
from tests.support.gate_certificates import TRUSTED, Terminal, body, certificate, original, renewed
from tests.support.gate_server import Client

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
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "a link to nothing": lambda path: (path.unlink(), path.symlink_to("nowhere")),
    "a device": lambda path: (path.unlink(), path.symlink_to("/dev/zero")),
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


@pytest.mark.thorough
def test_a_longer_storm_of_signals(file: Path, note: Path) -> None:
    withstands(file, note, 500_000)
