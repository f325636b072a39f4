"""`fedsrc verify`: recompute a certificate."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from fedsrc.cli.options import FORMAT, LIFE, TRUST, options
from fedsrc.cli.output import finish, show
from fedsrc.cli.streams import say
from fedsrc.cli.types import DIGITS, AnyPath
from fedsrc.errors import DamagedError, FedsrcError
from fedsrc.monitor.monitor import brief, state
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.succession import keys_of
from fedsrc.report.carried import FILES, MONITOR, opened
from fedsrc.report.standing import rung_sentence
from fedsrc.server.verify import verify


def digest_of(registration: str) -> str:
    """Return the digest that was given, or that of the file."""
    try:
        return str(DIGITS.parse(registration))
    except ValueError:
        return Registration.read(Path(registration)).digest


@click.command("verify")
@click.argument("place", metavar="RUN", type=AnyPath)
@TRUST
@click.option("--registration", help="File or digest of the registration that the run must be of.")
@options(LIFE)
@FORMAT
def verify_command(place: Path, output: str, **given: Any) -> None:
    """Recompute a run's certificate from its transcript, and check chain, digests and signature.

    RUN is its folder, or a page that `fedsrc view RUN -o card.html` wrote, or what was saved from one: the run in it is
    checked, and not the page's own words. Exit status 0 it verifies, certified or abstained, 1 it does not verify, has
    expired, was revoked, or its monitor rang, 2 error: there is nothing to verify.
    """
    keys_of(given["trust"], given["successions"])  # a fault in what was named is not the run's
    there = False
    try:
        with opened(place) as folder:
            there = all((folder / name).exists() for name in FILES)
            _verify(folder, place, output, **given)
    except FedsrcError as error:
        if not (there or isinstance(error, DamagedError)):
            raise
        say(f"error: {error}")
        show(output, {"status": "NOT VERIFIED", "problem": error.what}, "It does not verify: do not rely on it.")
        sys.exit(1)


def _verify(
    folder: Path, place: Path, output: str, *, trust: tuple[str, ...], registration: str | None, **life: Any
) -> None:
    found = verify(folder, trusted=trust, **life)
    if registration is not None and found.signed.registration != digest_of(registration):
        raise FedsrcError(f"the run is of registration {found.signed.registration}", where=str(folder))
    if found.expired and found.revoked is None:
        raise FedsrcError(f"the certificate expired on {found.signed.expires_on}", where=str(folder))
    watched = None
    if folder != place and any((folder / MONITOR).iterdir()):
        watched = state(folder / MONITOR, trusted=trust, successions=life["successions"], certificate=folder)
    note = click.echo if output == "text" else say
    if found.revoked is not None:
        note(f"REVOKED: {found.revoked.words()}")
    note("Verified: the certificate follows from registration and transcript, and its signature fits.")
    if folder != place:
        note("That is the run which the page carries. The page's own words are not checked: rely on what stands here.")
        note("A page does not know what came after it was made: ask the issuer whether the certificate was revoked.")
    if found.signed.status == "ABSTAIN":
        note("It is a sound abstention: the run certified nothing, and says so. Exit status 0 is for that it verifies.")
    if not found.trusted:
        note("Its key was not compared with one you trust; pass --trust KEY to do so.")
    if watched is not None:
        note(f"Its monitor, as far as the page carries it: {brief(watched)}")
    alarm = rung_sentence(watched.alarm_groups or ()) if watched is not None and watched.alarm else ""
    finish(found.signed, found.replay, folder, output, revoked=found.revoked, sound=True, alarm=alarm, named=place)
