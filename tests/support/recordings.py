"""Recorded runs: where they lie, whose keys signed them, and what is read from them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel

from fedsrc.common.signing import Key, public_hex
from fedsrc.protocol.certificate import read_signed
from fedsrc.protocol.names import CERTIFICATE, REGISTRATION, TRANSCRIPT
from fedsrc.protocol.notices import SUFFIX, read_notice
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.transcript import read_transcript
from tests.support import ROOT

RUNS = ROOT / "tests" / "recorded" / "runs"
FILES = (REGISTRATION, TRANSCRIPT, CERTIFICATE, CERTIFICATE + SUFFIX)  # of a run folder, as far as it has them


@lru_cache(maxsize=100)
def key(name: str) -> Key:
    """A private key that its name decides. Recordings are signed by such keys, so that a test can forge with them."""
    return Key.from_private_bytes(hashlib.sha256(f"recorded {name}".encode()).digest())


def public(name: str) -> str:
    """The public part of a key."""
    return public_hex(key(name))


@lru_cache(maxsize=1)
def _holders() -> dict[str, str]:
    return {public(name): name for name in ("server", "holder", *SITES)}


SITES = ("north", "south", "west", "nörd", "süd", "日本", "a", "b", "c", "d", "e")


def holder_of(public_key: str) -> Key:
    """The private key whose public part this is."""
    return key(_holders()[public_key])


def recorded() -> tuple[str, ...]:
    """The names of all recorded runs."""
    return tuple(sorted(path.name for path in RUNS.iterdir() if (path / REGISTRATION).exists()))


def read_files(folder: Path, names: Sequence[str] = FILES) -> dict[str, bytes]:
    """The files of a run folder, by their names."""
    return {name: (folder / name).read_bytes() for name in names if (folder / name).exists()}


def write_files(folder: Path, files: dict[str, bytes]) -> Path:
    """Write the files of a run folder, and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def values_of(name: str) -> Iterator[BaseModel]:
    """Everything that a recorded run holds: its registration, entries, certificate or account, and notice."""
    folder = RUNS / name
    yield Registration.read(folder / REGISTRATION)
    yield from read_transcript(folder / TRANSCRIPT)[0]
    if (folder / CERTIFICATE).exists():
        yield read_signed(folder / CERTIFICATE)
    if (folder / (CERTIFICATE + SUFFIX)).exists():
        yield read_notice(folder / (CERTIFICATE + SUFFIX))
