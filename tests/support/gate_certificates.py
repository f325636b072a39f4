"""For tests of the gate: the certificate of a real run, renewals of it by the same key, and the command line."""

from __future__ import annotations

import atexit
import shutil
import sys
import tempfile
import warnings
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fedsrc.cli.main import main
from fedsrc.common.canonical import digest_bytes
from fedsrc.common.clock import TIME
from fedsrc.common.signing import Key, public_hex
from fedsrc.federation.local import certify_table
from fedsrc.protocol.names import CERTIFICATE
from fedsrc.protocol.notices import revoke
from tests.support.forged import forged, unsigned
from tests.support.helpers import registration, table

KEY = Key.generate()
TRUSTED = (public_hex(KEY),)
CLAIM = {"score": "lift", "loss": "unsupported", "population": "questions of 2026"}


@lru_cache
def original_run() -> Path:
    """The folder of a run on 2,000 records, to be copied; it is removed when the process ends."""
    records = table(2000, sites=("north", "south"))
    registered = registration(records, batch=50, weights={"north": 0.5, "south": 0.5}, claim=CLAIM)
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    assert certify_table(registered, records, folder / "run", folder / "ledger", KEY).status == "CERTIFIED"
    return folder / "run"


def copied_run(folder: Path) -> Path:
    """A copy of that run, to be changed."""
    return Path(shutil.copytree(original_run(), folder / "run"))


@lru_cache
def original() -> str:
    """The text of the certificate that it ended in."""
    return (original_run() / CERTIFICATE).read_text(encoding="utf-8")


def body() -> dict[str, Any]:
    """What the certificate says, unsigned."""
    return unsigned(original())


def certificate(*, key: Key = KEY, **fields: Any) -> str:
    """The text of a certificate that says something else, signed."""
    return forged({**body(), **fields}, key)


def renewed(seconds: int, **fields: Any) -> str:
    """A certificate of a run so many seconds later."""
    calibrated = datetime.strptime(body()["calibrated"], TIME).timestamp() + seconds
    expires = datetime.fromisoformat(body()["expires"]).timestamp() + seconds
    moment = datetime.fromtimestamp(expires, datetime.fromisoformat(body()["expires"]).tzinfo)
    return certificate(
        calibrated=datetime.fromtimestamp(calibrated).strftime(TIME), expires=moment.isoformat(), **fields
    )


def notice_of(text: str, reason: str, *, key: Key = KEY, superseded_by: str | None = None) -> bytes:
    """The notice that revokes a certificate, as its file holds it."""
    return revoke(digest_bytes(text.encode()), reason, key, superseded_by=superseded_by).to_bytes()


class Done(NamedTuple):
    """What a command came to."""

    status: int
    out: str
    err: str


class Terminal:
    """The command line, in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        monkeypatch.setattr("warnings.showwarning", warnings.showwarning)
        self._patch, self._capture = monkeypatch, capsys

    def __call__(self, *args: str) -> Done:
        self._patch.setattr(sys, "argv", ["fedsrc", *args])
        with pytest.raises(SystemExit) as end:
            main()
        return Done(int(end.value.code or 0), *self._capture.readouterr())
