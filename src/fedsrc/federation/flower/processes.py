"""Child processes with telemetry off, none of which outlives fedsrc.

Each child runs in a session of its own and gets a signal when its parent dies. What it starts itself (Flower starts an
executor, which starts the apps) is found through /proc by that session, orphans too, and is ended with it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fedsrc.errors import FedsrcError, MissingExtraError

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
}
KEPT = ("HOME", "LANG", "LC_ALL", "TMPDIR", "TZ", "SSL_CERT_DIR")  # of our own environment; nothing of FEDSRC_*
BIN = Path(sys.executable).parent
LONGEST_LINE, LOG_BYTES = 1 << 16, 20_000_000  # of a child's output
SIGNAL_AT_PARENTS_DEATH = 1  # prctl's number for it
LOOPBACK = ("127.0.0.1", "localhost", "::1")
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Tls:
    """Certificate files; without any, connections are not encrypted."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


def environment(home: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return a minimal environment: no telemetry, no update checks, no installing at run time."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    return {**kept, "PATH": _path(), "FLWR_HOME": str(home.resolve()), **QUIET, **(more or {})}


def _path() -> str:
    return os.pathsep.join([str(BIN), os.environ.get("PATH", os.defpath)])


def program(name: str) -> str:
    """Return the path of one of Flower's commands."""
    found = shutil.which(name, path=_path())
    if found is None:
        raise MissingExtraError(f"Flower's command {name!r}", "flower")
    return found


def check_encrypted(host: str, tls: Tls, insecure: bool) -> None:
    """Refuse an unencrypted connection to another machine, unless the user insists."""
    if tls.ca is None and host not in LOOPBACK and not insecure:
        raise FedsrcError(
            f"{host} is another machine, and the connection would not be encrypted",
            hint="give certificates with `ca=`, or insist with `insecure=`",
        )


class Child(AbstractContextManager["Child"]):
    """A running child process. Its lines of output go to a log file and to `tell`."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], log: Path, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        self.command, self.log = list(command), log
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch(mode=0o600)
        self._process = subprocess.Popen(  # noqa: S603
            self.command, env=dict(env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True, preexec_fn=_end_with_parent,  # noqa: PLW1509
        )  # fmt: skip
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=_copy, args=(self._process.stdout, log, tell), daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def status(self) -> int | None:
        """Its exit status, or None while it runs."""
        return self._process.poll()

    def stop(self, seconds: float = 8.0) -> None:
        """End it and everything that it started."""
        family = descendants(self.pid)
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        end([*family, *descendants(self.pid)], seconds)
        self._reader.join(1.0)

    def __exit__(self, *_: object) -> None:
        self.stop()


@dataclass(frozen=True)
class Process:
    """A process by pid and start time, so that a reused pid is not mistaken for it."""

    pid: int
    started: str


def descendants(pid: int) -> list[Process]:
    """Return the processes that one has started, and theirs; of a `Child` also orphans."""
    children: dict[int, list[Process]] = {}
    found = list[Process]()
    for number, fields in _listed():
        process = Process(number, fields[19])
        children.setdefault(int(fields[1]), []).append(process)
        if int(fields[3]) == pid != number:
            found.append(process)
    found += [each for each in children.get(pid, []) if each not in found]
    for each in found:  # grows while it is read
        found += [other for other in children.get(each.pid, []) if other not in found]
    return found


def left_behind(home: Path) -> list[Process]:
    """Return Flower's processes with this home, whoever started them."""
    mark = f"FLWR_HOME={home.resolve()}".encode()
    found = []
    for number, fields in _listed():
        with suppress(OSError):
            if number != os.getpid() and mark in Path(f"/proc/{number}/environ").read_bytes().split(b"\0"):
                found.append(Process(number, fields[19]))
    return found


def wait_for_port(host: str, port: int, child: Child, seconds: float = 60.0) -> None:
    """Wait until a child listens."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and child.status is None:
        with suppress(OSError), socket.create_connection((host, port), 1.0):
            return
        time.sleep(0.2)
    state = "does not listen" if child.status is None else f"ended with status {child.status}"
    raise FedsrcError(
        f"{Path(child.command[0]).name} {state} at {host}:{port}", where=str(child.log), hint="the log says why"
    )


def check_free(host: str, port: int, seconds: float = 20.0) -> None:
    """Refuse a port that is in use, after waiting a while for it to be released."""
    end = time.monotonic() + seconds
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    while True:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                return probe.bind((host, port))
            except OSError as error:
                if time.monotonic() >= end or error.errno != errno.EADDRINUSE:
                    what = f"cannot listen at {host}:{port}: {error.strerror or error}"
                    hint = "is another `fedsrc server` running? choose another `port=`"
                    raise FedsrcError(what, hint=hint) from error
        time.sleep(0.5)


def free_port() -> int:
    """Return a port of this machine that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _end_with_parent() -> None:
    _libc.prctl(SIGNAL_AT_PARENTS_DEATH, signal.SIGTERM)


def _copy(stream: IO[bytes], log: Path, tell: Callable[[str], None]) -> None:
    """Copy lines to a log, which is truncated when it is full; drop what cannot be written."""
    with stream:
        while line := stream.readline(LONGEST_LINE):
            with suppress(OSError):
                full = log.stat().st_size > LOG_BYTES
                with log.open("wb" if full else "ab", buffering=0) as file:
                    file.write(line)
            tell(line.decode(errors="replace").rstrip())


def _listed() -> Iterator[tuple[int, list[str]]]:
    """Yield all running processes with their `_stat`."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and (fields := _stat(int(folder.name))):
            yield int(folder.name), fields


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat after the name: state, parent, ...; None if it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(") ")[2].split()
    except OSError:
        return None
    return None if not fields or fields[0] in "ZX" else fields


def _running(process: Process) -> bool:
    fields = _stat(process.pid)
    return fields is not None and fields[19] == process.started


def end(family: Sequence[Process], seconds: float) -> None:
    """Wait for processes to end by themselves, then kill those that have not."""
    latest = time.monotonic() + seconds
    while any(map(_running, family)) and time.monotonic() < latest:
        time.sleep(0.1)
    for process in filter(_running, family):
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
