"""What the crash tests run in child processes: whole runs, with a fault at one chosen durable operation."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from fedsrc.common import durable as files
from fedsrc.common.signing import Key, public_hex
from fedsrc.errors import FedsrcError
from fedsrc.federation.airgap import answer_file, collect, start
from fedsrc.federation.local import certify_table, register_table
from fedsrc.planning.register import Choices, development_part
from fedsrc.protocol.messages import read_request
from fedsrc.protocol.registration import Registration
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow
from tests.support.helpers import registration, table

Fault = Literal["none", "before", "torn", "after", "full"]
CRASHED, REFUSED = 9, 7
NAMES = ("a", "b", "c")
DURABLE = ("write", "sync", "move", "link", "commit")
RECORDS = table(1500, sites=NAMES, ids=True)


@lru_cache(maxsize=8)
def key(number: int) -> Key:
    """Fixed keys, so that every process has the same."""
    return Key.from_private_bytes(bytes([number]) * 32)


def certify_registration(ledger: Path) -> Registration:
    """From the table itself: its development part is released first."""
    choices = Choices(0.2, 4.0, batch=100, rounds=3, policy="final")
    return register_table(choices, RECORDS, development_part(RECORDS, "record", 0.2), ledger)


def files_registration() -> Registration:
    fields = registration(RECORDS, batch=60, rounds=2, policy="final", grid=True, thresholds=5).model_dump()
    fields["development"] = None
    fields["server_key"] = public_hex(key(9))
    fields["sites"] = [{"name": n, "key": public_hex(key(i)), "capacity": 150} for i, n in enumerate(NAMES)]
    return Registration.model_validate(fields)


def certify(folder: Path, run: str = "run") -> None:
    """The local mode, from a table to a certificate."""
    registered = certify_registration(folder / "ledger")
    certify_table(registered, RECORDS, folder / run, folder / "ledger", key(9))


def by_files(folder: Path, run: str = "run") -> None:
    """The files mode: request, release and collect until the certificate."""
    reg = files_registration()
    for name in NAMES:
        with closing(Ledger(folder / f"{name}.ledger")) as ledger:
            allow(ledger, name, reg, max_epsilon=10.0)
    done = start(reg, folder / run, key(9))
    while done.certificate is None:
        done = collect(folder / run, [answer(folder, path) for path in done.waiting], key(9))


def answer(folder: Path, path: Path) -> Path:
    site = read_request(path).request.site
    own = table(200, seed=NAMES.index(site) + 50, ids=True)
    with closing(Ledger(folder / f"{site}.ledger")) as ledger:
        data = answer_file(path, lambda: own, ledger, key(NAMES.index(site)))
    target = folder / "stick" / path.name.replace("request", "release")
    files.write_whole(target, data)
    return target


SCENARIOS: dict[str, Callable[..., None]] = {"certify": certify, "files": by_files}


class Counter:
    """Counts durable operations and strikes at the chosen one."""

    def __init__(self, fault: Fault, at: int) -> None:
        self.fault, self.at, self.count = fault, at, 0

    def wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*args: Any) -> Any:
            self.count += 1
            if self.count != self.at or self.fault == "none":
                return real(*args)
            if self.fault == "full":
                raise _no_space(name)
            if self.fault == "torn" and name == "write":
                file, data = args
                real(file, data[: len(data) // 2])
            if self.fault == "after":
                real(*args)
            os._exit(CRASHED)

        return operation


def _no_space(name: str) -> Exception:
    if name == "commit":
        return sqlite3.OperationalError("database or disk is full")
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def child(scenario: str, folder: str, fault: Fault, at: int, run: str = "run") -> None:
    """Run a scenario in this process with a fault; the exit status says how it ended."""
    counter = Counter(fault, at)
    for name in DURABLE:
        setattr(files, name, counter.wrap(name, getattr(files, name)))
    try:
        SCENARIOS[scenario](Path(folder), run)
    except FedsrcError:
        os._exit(REFUSED)
    if fault == "none":
        Path(folder, "operations").write_text(str(counter.count))
    os._exit(0)
