"""`fedsrc revoke`: the issuer's word that a certificate no longer stands."""

from __future__ import annotations

from pathlib import Path

import click

from fedsrc.cli.options import FORMAT, KEY, SUCCESSION, server_key
from fedsrc.cli.output import show
from fedsrc.cli.types import AnyPath
from fedsrc.common import signing
from fedsrc.protocol.succession import keys_of
from fedsrc.server.revoke import revoke_file


@click.command("revoke")
@click.argument("certificate", type=AnyPath)
@click.option("--reason", required=True, help="Why, in words for whoever relied on it.")
@click.option("--superseded-by", "successor", type=AnyPath, help="Certificate, or run folder, that takes its place.")
@KEY
@SUCCESSION
@FORMAT
def revoke_command(
    certificate: Path, reason: str, successor: Path | None, key: Path | None, successions: tuple[Path, ...], output: str
) -> None:
    """Revoke CERTIFICATE, a run folder or a certificate file: write a signed notice beside it.

    Gates on that file stop accepting at their next look. Send the notice to whoever has a copy of the certificate.
    """
    signer, keys = signing.load(server_key(key)), keys_of(files=successions)
    place, notice = revoke_file(certificate, reason, signer, superseded_by=successor, keys=keys)
    show(
        output,
        {"file": str(place), **notice.model_dump()},
        f"Revoked on {notice.time}: certificate {notice.certificate}",
        f"  {place}: send it to whoever relies on the certificate",
    )
