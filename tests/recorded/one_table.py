"""Recorded runs on one table, by the call that most people make first."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

import fedsrc
from fedsrc.common.durable import write_whole
from fedsrc.protocol.registration import Registration
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

    def __call__(self, work: Path) -> Path:
        table = write_table(work / "table.csv", self.units, **self.table)
        more: dict[str, Any] = {}
        if self.unlabelled:
            apart = {**self.table, "labels": False}
            more["unlabelled"] = write_table(work / "log.csv", self.unlabelled, **apart)
        if keys := [name for name in self.options.get("site_keys", {})]:
            more["sign_with"] = {name: key_file(work, name) for name in keys}
        fedsrc.certify(
            table, target=self.target, epsilon=self.epsilon, output=work / "run", key=key_file(work), **more,
            **self.options,
        )  # fmt: skip
        return work / "run"


def under(registered: Registration, table: Path, run: str = "run") -> Path:
    """Certify a table under a registration that is there already; return the run."""
    work = table.parent
    found = fedsrc.certify(table, registration=registered, output=work / run, key=key_file(work), sign_with={})
    return found.folder


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
        return under(self.change(made), write_table(work / "table.csv", self.units, **{"sites": sites, **self.table}))


def demo(work: Path) -> Path:
    """What `fedsrc demo` writes."""
    words = ["demo", "-o", str(work), "--key", str(key_file(work)), "--format", "json"]
    subprocess.run([sys.executable, "-m", "fedsrc.cli", *words], check=True, stdout=subprocess.DEVNULL)
    return work / "run"
