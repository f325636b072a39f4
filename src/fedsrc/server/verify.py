"""Verify a run: its certificate must follow from registration and transcript, which are replayed."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from fedsrc.errors import DamagedError, FedsrcError
from fedsrc.protocol.certificate import Certificate, MonitorAccount, Signed
from fedsrc.protocol.damage import check_same
from fedsrc.protocol.names import CERTIFICATE, TRANSCRIPT
from fedsrc.protocol.notices import Notices, Revocation
from fedsrc.protocol.succession import ANYONE, Keys, keys_of
from fedsrc.server.folder import missing_file, replay_run
from fedsrc.server.issue import conclude
from fedsrc.server.state import Replay


class Verified(NamedTuple):
    """What `verify` found: what was signed, whether its key is one the caller trusts, whether it has expired, and the
    replayed transcript."""

    signed: Certificate | MonitorAccount
    trusted: bool
    expired: bool
    replay: Replay
    revoked: Revocation | None = None

    @property
    def certificate(self) -> Certificate:
        """The certificate; refused for a monitor, which has none."""
        if not isinstance(self.signed, Certificate):
            raise FedsrcError("the folder holds the account of a monitor, which is no certificate")
        return self.signed


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
    found, replay = recompute(folder, keys)
    late = found.expires is not None and (now or datetime.now(UTC)) > found.expires
    return Verified(found, bool(trusted), late, replay, revocation_of(found, folder, keys, revocations))


def recompute(folder: Path, keys: Keys = ANYONE) -> tuple[Certificate | MonitorAccount, Replay]:
    """Return a run's certificate, which must be what follows from registration and transcript, signed by the right
    key; and the replayed transcript."""
    replay, chain = replay_run(folder)
    expected = conclude(replay.registration, replay, chain)
    where = folder / CERTIFICATE
    if replay.ended is None and not where.exists():
        raise FedsrcError("the run is still open: it has no certificate yet", where=str(folder))
    if not where.exists():
        raise missing_file(where)
    found = type(expected).read(where)
    check_same(found, expected, str(where), server_key=replay.registration.server_key, keys=keys)
    if not replay.opened:
        raise DamagedError("the transcript is empty: no run was opened", where=str(folder / TRANSCRIPT))
    return found, replay


def revocation_of(found: Signed, folder: Path, keys: Keys = ANYONE, elsewhere: Path | None = None) -> Revocation | None:
    """Return the notice that revokes a run's certificate, or None. Anything else in its place is an error."""
    return Notices(folder / CERTIFICATE, elsewhere, keys).revoking(found.digest, found.key or "")
