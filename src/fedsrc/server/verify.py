"""Recompute a run and compare: the certificate must follow from registration and transcript."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from fedsrc.common.canonical import digest_bytes
from fedsrc.common.durable import read_text
from fedsrc.errors import FedsrcError
from fedsrc.protocol.certificate import MAX_BYTES, Body, check_certificate, parse_certificate
from fedsrc.protocol.names import CERTIFICATE
from fedsrc.protocol.notices import Notices, Revocation
from fedsrc.protocol.succession import ANYONE, Keys, keys_of
from fedsrc.server.folder import missing_file, replay_run
from fedsrc.server.issue import issue


class Verified(NamedTuple):
    """What `verify` found: the certificate's body, whether its key is one the caller trusts, and whether it is past."""

    body: Body
    trusted: bool
    expired: bool
    revoked: Revocation | None = None


def verify(
    folder: Path,
    *,
    trusted: tuple[str, ...] = (),
    successions: Iterable[Path] = (),
    revocations: Path | None = None,
    now: datetime | None = None,
) -> Verified:
    """Recompute a run's certificate from its registration and transcript, and check its signature.

    Any difference is an error. `trusted` are public keys; when given, the certificate must be signed by one of them, or
    by one that `successions` lead to. A notice that revokes it is looked for beside it and in `revocations`.
    """
    keys = keys_of(trusted, successions)
    expected = recompute(folder, keys)
    expires = datetime.fromisoformat(expected["expires"]) if expected["expires"] else None
    late = expires is not None and (now or datetime.now(UTC)) > expires
    return Verified(expected, bool(trusted), late, revocation_of(folder, keys, revocations))


def recompute(folder: Path, keys: Keys = ANYONE) -> Body:
    """What follows from a run's registration and transcript; its certificate must say that, signed by the right key."""
    registration, replay, chain = replay_run(folder)
    expected = issue(registration, replay, chain)
    where = folder / CERTIFICATE
    if replay.ended is None and not where.exists():
        raise FedsrcError("the run is still open: it has no certificate yet", where=str(folder))
    if not where.exists():
        raise missing_file(where)
    check_certificate(read_text(where, MAX_BYTES), expected, registration.server_key, keys, where=str(where))
    return expected


def revocation_of(folder: Path, keys: Keys = ANYONE, elsewhere: Path | None = None) -> Revocation | None:
    """The notice that revokes a run's certificate, or None. Whatever is no such notice, where one should be, is an
    error."""
    path = folder / CERTIFICATE
    text = read_text(path, MAX_BYTES)
    key = str(parse_certificate(text, str(path)).get("key"))
    return Notices(path, elsewhere, keys).revoking(digest_bytes(text.encode()), key)
