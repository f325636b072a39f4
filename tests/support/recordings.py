"""Recorded runs, and lives of certificates: where they lie, whose keys signed them, and what is read from them."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel

from fedsrc.common.signing import Key, public_hex
from fedsrc.errors import FedsrcError
from fedsrc.protocol.certificate import read_signed
from fedsrc.protocol.monitor_status import read_status
from fedsrc.protocol.names import CERTIFICATE, REGISTRATION, STATUS, TRANSCRIPT
from fedsrc.protocol.notices import SUFFIX, read_notice
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.succession import read_succession
from fedsrc.protocol.transcript import read_transcript
from fedsrc.server.verify import verify
from tests.support import ROOT

DIGESTS = ROOT / "tests" / "recorded" / "runs.sha256"
RUNS = ROOT / "tests" / "recorded" / "runs"
LIFE_DIGESTS = ROOT / "tests" / "recorded" / "lives.sha256"
LIVES = ROOT / "tests" / "recorded" / "lives"
FILES = (REGISTRATION, TRANSCRIPT, CERTIFICATE, CERTIFICATE + SUFFIX)  # of a run folder, as far as it has them


@lru_cache(maxsize=100)
def key(name: str) -> Key:
    """A private key that its name decides. Recordings are signed by such keys, so that a test can forge with them."""
    return Key.from_private_bytes(hashlib.sha256(f"recorded {name}".encode()).digest())


def public(name: str) -> str:
    """The public part of a key."""
    return public_hex(key(name))


def signer_of(public_key: str) -> Key:
    """The private key of a recorded certificate's public one: the server's, of all of them."""
    if public_key != public("server"):
        raise ValueError(f"no recorded run is signed by {public_key}")
    return key("server")


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
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def digests(root: Path = RUNS) -> list[str]:
    """A line for every recorded file, as `sha256sum` writes it."""
    files = sorted(path for path in root.rglob("*") if path.is_file())
    return [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(root).as_posix()}" for path in files]


def values_of(name: str) -> Iterator[BaseModel]:
    """Everything that a recorded run holds: its registration, entries, certificate or account, and notice."""
    yield from values_in(RUNS / name)


def values_in(folder: Path) -> Iterator[BaseModel]:
    """The same of any run folder, and a monitor's status."""
    yield Registration.read(folder / REGISTRATION)
    yield from read_transcript(folder / TRANSCRIPT)[0]
    if (folder / CERTIFICATE).exists():
        yield read_signed(folder / CERTIFICATE)
    if (folder / (CERTIFICATE + SUFFIX)).exists():
        yield read_notice(folder / (CERTIFICATE + SUFFIX))
    if (folder / STATUS).exists():
        yield read_status(folder)


def life_values() -> Iterator[BaseModel]:
    """Everything that recorded lives hold."""
    for path in sorted(LIVES.rglob(REGISTRATION)):
        yield from values_in(path.parent)
    for path in sorted(LIVES.rglob("succession.json")):
        yield read_succession(path)


class Verdict(NamedTuple):
    """What `fedsrc verify` says of a folder when no key is named as trusted."""

    status: str | None  # of what was signed, if it verifies
    why: str | None  # not, if it does not
    revoked: bool = False
    expired: bool = False

    @property
    def word(self) -> str:
        return "refused" if self.status is None else "verified"


def verdict(folder: Path, now: datetime | None = None) -> Verdict:
    """Verify a folder. A torn last line is a warning to people, and no verdict."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            found = verify(folder, now=now)
        except FedsrcError as error:
            return Verdict(None, error.what)
    return Verdict(found.signed.status, None, found.revoked is not None, found.expired)
