"""Whole runs by files, and a fault at one durable operation of a run: what fault loops and crash tests share."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

from fedsrc.common import durable
from fedsrc.common.signing import Key
from fedsrc.errors import FedsrcError
from fedsrc.federation.airgap import answer_file, collect, start
from fedsrc.protocol.messages import read_request
from fedsrc.protocol.registration import Registration
from fedsrc.records.units import Records
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow

NAMES = ("a", "b", "c")
CRASHED, REFUSED = 9, 7  # exit statuses: killed by the fault, or ended with an error
DURABLE = ("write", "sync", "move", "link", "commit")
ERRORS = {"full": (errno.ENOSPC, "database or disk is full"), "error": (errno.EIO, "disk I/O error")}


@lru_cache(maxsize=8)
def key(number: int) -> Key:
    """Return a fixed key, the same in every process; 9 is the server's."""
    return Key.from_private_bytes(bytes([number + 1]) * 32)


def play_by_files(reg: Registration, folder: Path, run: str, own: Callable[[int], Records]) -> None:
    """Request, release and collect until the certificate; `own` returns the table of a site by its number."""
    for name in NAMES:
        with closing(Ledger(folder / f"{name}.ledger")) as ledger:
            allow(ledger, name, reg, max_epsilon=10.0)
    done = start(reg, folder / run, key(9))
    while done.certificate is None:
        done = collect(folder / run, [answer_request(folder, path, own) for path in done.waiting], key(9))


def answer_request(folder: Path, path: Path, own: Callable[[int], Records]) -> Path:
    """Answer a request as its site; return the path of the release."""
    site = read_request(path).request.site
    number = NAMES.index(site)
    with closing(Ledger(folder / f"{site}.ledger")) as ledger:
        data = answer_file(path, lambda: own(number), ledger, key(number))
    target = folder / "stick" / path.name.replace("request", "release")
    durable.write_whole(target, data)
    return target


class Counter:
    """Counts durable operations and strikes at the chosen one: kills the process before it, after it or (torn) in the
    middle of a write, or fails it with an error of the disk."""

    def __init__(self, fault: str, at: int) -> None:
        self.fault, self.at, self.count = fault, at, 0

    def install(self) -> None:
        """Put itself before every durable operation of this process."""
        for name in DURABLE:
            setattr(durable, name, self.wrap(name, getattr(durable, name)))

    def wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        """Return the operation with the fault in it."""

        def operation(*args: Any) -> Any:
            self.count += 1
            return real(*args) if self.count != self.at or self.fault == "none" else self._strike(name, real, args)

        return operation

    def _strike(self, name: str, real: Callable[..., Any], args: tuple[Any, ...]) -> NoReturn:
        if self.fault in ERRORS:
            code, words = ERRORS[self.fault]
            raise sqlite3.OperationalError(words) if name == "commit" else OSError(code, os.strerror(code))
        if self.fault == "torn" and name == "write":
            file, data = args
            real(file, data[: len(data) // 2])
        if self.fault == "after":
            real(*args)
        os._exit(CRASHED)


def struck_run(play: Callable[[], object], folder: Path, fault: str, at: int) -> NoReturn:
    """Play a run in this process, struck at its at-th durable operation; the exit status says how it ended. A run that
    ended well leaves the number of its operations."""
    counter = Counter(fault, at)
    counter.install()
    try:
        play()
    except FedsrcError:
        os._exit(REFUSED)
    (folder / "operations").write_text(str(counter.count))
    os._exit(0)
