"""Recorded runs on one table, by the call that most people make first."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

import fedsrc
from fedsrc.common.durable import write_whole
from fedsrc.federation.local import certify_table
from fedsrc.protocol.registration import Registration
from fedsrc.records.table import read_records
from fedsrc.server.revoke import revoke_file
from fedsrc.server.session import Session
from fedsrc.server.state import Replay
from tests.recorded.tables import write_table
from tests.support.recordings import key

NONE = math.inf  # epsilon of a run without privacy
Build = Callable[[Path], Path]


def key_file(work: Path, name: str = "server") -> Path:
    """The file of a key that its name decides."""
    place = work / f"{name}.pem"
    write_whole(place, key(name).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return place


@dataclass(frozen=True)
class Certified:
    """A table that `fedsrc.certify` takes from the start to the end."""

    target: float
    epsilon: float
    units: int = 1200
    table: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    unlabelled: int = 0
    in_order: bool = False

    def __call__(self, work: Path) -> Path:
        table = write_table(work / "table.csv", self.units, **self.table)
        more: dict[str, Any] = {}
        if self.unlabelled:
            apart = {**self.table, "labels": False}
            more["unlabelled"] = write_table(work / "log.csv", self.unlabelled, **apart)
        if keys := list(self.options.get("site_keys", {})):
            more["sign_with"] = {name: key_file(work, name) for name in keys}
        fedsrc.certify(
            table, target=self.target, epsilon=self.epsilon, output=work / "run", key=key_file(work),
            in_order=self.in_order, **more, **self.options,
        )  # fmt: skip
        return work / "run"


def under(
    registered: Registration, table: Path, run: str = "run", sign_with: Sequence[str] = (), server: str = "server"
) -> Path:
    """Certify a table under a registration that is there already; return the run."""
    work = table.parent
    keys = {name: key_file(work, name) for name in sign_with}
    return fedsrc.certify(
        table, registration=registered, output=work / run, key=key_file(work, server), sign_with=keys,
        ledger=work / "ledger",
    ).folder  # fmt: skip


class _StoppedError(Exception):
    """The run is over for now."""


def stopped(work: Path, options: Mapping[str, Any] | None = None) -> Path:
    """A run that is stopped after its second round, and signed as it stands."""
    made = fedsrc.register(
        target=0.02, epsilon=8.0, sites=["local"], grid=True, thresholds=4, batch=100, **(options or {})
    )  # fmt: skip
    table = write_table(work / "table.csv", 800)

    def watch(replay: Replay) -> None:
        if replay.rounds == 2:
            raise _StoppedError

    with suppress(_StoppedError):
        certify_table(made, read_records(table), work / "run", work / "ledger", key("server"), watch=watch)
    with Session(work / "run", made, key("server")) as session:
        session.finish()
    return work / "run"


def again(work: Path) -> Path:
    """A second registration on units of a table whose other units an earlier one had: both may fail."""
    table = write_table(work / "table.csv", 1200)
    settings: dict[str, Any] = {"grid": True, "sites": ["local"], "thresholds": 4, "batch": 100}
    for number, (target, rounds) in enumerate(((0.02, 2), (0.03, 3), (0.25, 4))):
        made = fedsrc.register(target=target, epsilon=8.0, rounds=rounds, failure_probability=0.04, **settings)
        run = under(made, table, f"run{number}")
    return run


def renewed(work: Path, *, days: int = 700) -> Path:
    """A claim that is made anew on fresh units."""
    made = fedsrc.register(target=0.25, epsilon=8.0, sites=["local"], grid=True, thresholds=4, batch=200)
    first = under(made, write_table(work / "table.csv", 800), "first")
    anew = fedsrc.register(renew=first, validity_days=days)
    return under(anew, write_table(work / "fresh.csv", 800), "run")


def revoked(work: Path) -> Path:
    """A certificate that its issuer takes back."""
    made = fedsrc.register(target=0.25, epsilon=8.0, sites=["local"], grid=True, thresholds=4, batch=200)
    run = under(made, write_table(work / "table.csv", 800))
    revoke_file(run, "the labels were of another question: \u201equoted\u201c", key("server"))
    return run


def superseded(work: Path) -> Path:
    """A certificate that its renewal takes the place of."""
    anew = renewed(work)
    revoke_file(work / "first", "renewed", key("server"), superseded_by=anew)
    return work / "first"


@dataclass(frozen=True)
class Registered:
    """A table under a registration that was made before, on a public grid unless it is said."""

    target: float
    epsilon: float
    units: int = 1200
    table: dict[str, Any] = field(default_factory=dict)
    sites: Sequence[str] = ("local",)
    options: dict[str, Any] = field(default_factory=dict)
    change: Callable[[Registration], Registration] = lambda made: made

    def __call__(self, work: Path) -> Path:
        made = fedsrc.register(
            target=self.target, epsilon=self.epsilon, sites=self.sites, grid=True, **{"thresholds": 4, **self.options}
        )  # fmt: skip
        sites = self.sites if self.sites != ("local",) else ()
        table = write_table(work / "table.csv", self.units, **{"sites": sites, **self.table})
        return under(self.change(made), table, sign_with=[*self.options.get("site_keys", ())])


def demo(work: Path) -> Path:
    """What `fedsrc demo` writes."""
    words = ["demo", "-o", str(work), "--key", str(key_file(work)), "--format", "json"]
    subprocess.run([sys.executable, "-m", "fedsrc.cli", *words], check=True, stdout=subprocess.DEVNULL)
    return work / "run"
