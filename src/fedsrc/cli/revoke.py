"""`fedsrc revoke`: the issuer's word that a certificate no longer stands."""

from __future__ import annotations

from pathlib import Path

import click

from fedsrc.cli.options import FORMAT, SUCCESSION, FilePath, server_key
from fedsrc.cli.output import emit
from fedsrc.common import signing
from fedsrc.common.durable import write_whole
from fedsrc.errors import DamagedError, FedsrcError
from fedsrc.protocol.certificate import Signed, read_signed
from fedsrc.protocol.names import CERTIFICATE
from fedsrc.protocol.notices import Revocation, beside, check_signer, read_notice, revoke
from fedsrc.protocol.succession import Keys, keys_of

AnyPath = click.Path(path_type=Path)


@click.command("revoke")
@click.argument("certificate", type=AnyPath)
@click.option("--reason", required=True, help="Why, in words for whoever relied on it.")
@click.option("--superseded-by", "successor", type=AnyPath, help="Certificate, or run folder, that takes its place.")
@click.option("--key", type=FilePath, help="The key that signed it (PEM)  [default: the one that `fedsrc keys` shows]")
@SUCCESSION
@FORMAT
def revoke_command(
    certificate: Path, reason: str, successor: Path | None, key: Path | None, successions: tuple[Path, ...], output: str
) -> None:
    """Revoke CERTIFICATE, a run folder or a certificate file: write a signed notice beside it.

    Gates on that file stop accepting at their next look. Send the notice to whoever has a copy of the certificate.
    """
    instead = None if successor is None else _certified(successor)
    path = file_of(certificate)
    found = _signed(path)
    notice = revoke(found.digest, reason, signing.load(server_key(key)), superseded_by=instead)
    there = put(notice, path, found.key or "", keys_of(files=successions))
    if output == "json":
        emit({"file": str(beside(path)), **there.model_dump()})
        return
    click.echo(f"Revoked on {there.time}: certificate {there.certificate}")
    click.echo(f"  {beside(path)}: send it to whoever relies on the certificate")


def put(notice: Revocation, certificate: Path, key: str, keys: Keys) -> Revocation:
    """Write a notice beside its certificate. One that says the same stays; another is not written over, unless it
    revoked the certificate that this one superseded in its place."""
    place = beside(certificate)
    check_signer(notice, key, keys, str(place))
    earlier = place.exists() and read_notice(place).superseded_by == notice.certificate
    write_whole(place, notice.to_bytes(), replace=earlier)
    there = read_notice(place)
    if not there.same_as(notice):
        raise FedsrcError("another notice is there already", where=str(place), hint="a notice is never changed")
    return there


def file_of(certificate: Path) -> Path:
    """The certificate's file, of a run folder too."""
    return certificate / CERTIFICATE if certificate.is_dir() else certificate


def _signed(path: Path) -> Signed:
    """A certificate as its key signed it."""
    found = read_signed(path)
    if not found.as_signed():
        raise DamagedError("is not a certificate as it was signed", where=str(path))
    return found


def _certified(place: Path) -> str:
    """The digest of a certificate that may take another's place."""
    found = _signed(file_of(place))
    if found.status != "CERTIFIED":
        raise FedsrcError(f"certifies nothing: its status is {found.status!r}", where=str(place))
    return found.digest
