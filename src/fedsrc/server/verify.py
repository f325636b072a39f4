"""Recompute a run and compare: the certificate must follow from registration and transcript."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from fedsrc.common.durable import read_text
from fedsrc.errors import FedsrcError
from fedsrc.protocol.certificate import MAX_BYTES, Body, check_certificate
from fedsrc.protocol.names import CERTIFICATE
from fedsrc.server.folder import missing_file, replay_run
from fedsrc.server.issue import issue


class Verified(NamedTuple):
    """What `verify` found: the certificate's body, and whether its key is one the caller trusts."""

    body: Body
    trusted: bool
    expired: bool


def verify(folder: Path, *, trusted: tuple[str, ...] = (), now: datetime | None = None) -> Verified:
    """Recompute a run's certificate from its registration and transcript, and check its signature.

    Any difference is an error. `trusted` are public keys; when given, the certificate must be signed by one of them.
    """
    registration, replay, chain = replay_run(folder)
    expected = issue(registration, replay, chain)
    where = folder / CERTIFICATE
    if replay.ended is None and not where.exists():
        raise FedsrcError("the run is still open: it has no certificate yet", where=str(folder))
    if not where.exists():
        raise missing_file(where)
    check_certificate(read_text(where, MAX_BYTES), expected, registration.server_key, trusted, where=str(where))
    expires = datetime.fromisoformat(expected["expires"]) if expected["expires"] else None
    late = expires is not None and (now or datetime.now(UTC)) > expires
    return Verified(expected, bool(trusted), late)
