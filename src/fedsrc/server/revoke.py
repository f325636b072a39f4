"""Revoking a certificate: its issuer's signed notice, written beside it."""

from __future__ import annotations

from pathlib import Path

from fedsrc.common.durable import write_whole
from fedsrc.common.signing import Key
from fedsrc.errors import DamagedError, FedsrcError
from fedsrc.protocol.certificate import Signed, read_signed
from fedsrc.protocol.names import CERTIFICATE
from fedsrc.protocol.notices import Revocation, beside, check_signer, read_notice, revoke
from fedsrc.protocol.succession import ANYONE, Keys


def revoke_file(
    certificate: Path, reason: str, key: Key, *, superseded_by: Path | None = None, keys: Keys = ANYONE
) -> tuple[Path, Revocation]:
    """Revoke a certificate, a file or a run folder's; return the notice and its file.

    A notice that says the same stays as it is. Another one is not replaced, unless it revoked the certificate that this
    one superseded in the same place.
    """
    path, found = _signed(certificate)
    instead = None
    if superseded_by is not None:
        _, successor = _signed(superseded_by)
        if successor.status != "CERTIFIED":
            what = f"certifies nothing: its status is {successor.status!r}"
            raise FedsrcError(what, where=str(superseded_by))
        instead = successor.digest
    place = beside(path)
    notice = revoke(found.digest, reason, key, superseded_by=instead)
    check_signer(notice, found.key or "", keys, str(place))
    earlier = place.exists() and read_notice(place).superseded_by == notice.certificate
    write_whole(place, notice.to_bytes(), replace=earlier)
    there = read_notice(place)
    if not there.same_as(notice):
        raise FedsrcError("another notice is there already", where=str(place), hint="a notice is never changed")
    return place, there


def _signed(certificate: Path) -> tuple[Path, Signed]:
    """Return a certificate's file and what is signed there."""
    path = certificate / CERTIFICATE if certificate.is_dir() else certificate
    found = read_signed(path)
    if not found.as_signed():
        raise DamagedError("is not a certificate as it was signed", where=str(path))
    return path, found
