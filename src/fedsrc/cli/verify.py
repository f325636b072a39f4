"""`fedsrc verify`: recompute a certificate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fedsrc.cli.options import FORMAT, LIFE, Digits, FolderPath, options
from fedsrc.cli.output import finish
from fedsrc.cli.streams import say
from fedsrc.errors import FedsrcError
from fedsrc.server.verify import verify


@click.command("verify")
@click.argument("folder", type=FolderPath)
@click.option("--trust", type=Digits(), multiple=True, help="Public key that must have signed; repeatable.")
@click.option("--registration", type=Digits(), help="Digest that the registration must have.")
@options(LIFE)
@FORMAT
def verify_command(folder: Path, trust: tuple[str, ...], registration: str | None, output: str, **life: Any) -> None:
    """Recompute a run's certificate from its transcript, and check chain, digests and signature.

    Exit status 0 certified, 1 abstained or revoked, 2 error.
    """
    found = verify(folder, trusted=trust, **life)
    if registration is not None and found.signed.registration != registration:
        raise FedsrcError(f"the run is of registration {found.signed.registration}", where=str(folder))
    if found.expired and found.revoked is None:
        raise FedsrcError(f"the certificate expired on {found.signed.expires_on}", where=str(folder))
    note = click.echo if output == "text" else say
    if found.revoked is not None:
        note(f"REVOKED: {found.revoked.words()}")
    note("Verified: the certificate follows from registration and transcript, and its signature fits.")
    if not found.trusted:
        note("Its key was not compared with one you trust; pass --trust KEY to do so.")
    finish(found.signed, found.replay, folder, output, revoked=found.revoked)
