"""`fedsrc allow`: at a site, read what a registration asks, and allow it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from fedsrc.cli.types import EPSILON, FilePath
from fedsrc.protocol.registration import Registration
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow, describe_registration


@click.command("allow")
@click.argument("registration", type=FilePath)
@click.option("--site", required=True, help="The site's name in the registration.")
@click.option("--ledger", type=FilePath, required=True, help="The site's ledger, beside its records.")
@click.option(
    "--max-epsilon",
    type=EPSILON,
    help="Set the most privacy loss the site will ever spend on a unit, for it being this one or any other.",
)
@click.option("--show", is_flag=True, help="Only show what is asked.")
@click.option("--withdraw", is_flag=True, help="Take an earlier permission back.")
def allow_command(
    registration: Path, site: str, ledger: Path, max_epsilon: float | None, show: bool, withdraw: bool
) -> None:
    """At a site: read what a registration asks, and allow it."""
    registered = Registration.read(registration)
    click.echo("\n".join(describe_registration(registered, site)))
    if show:
        return
    with closing(Ledger(ledger, must_exist=withdraw)) as book:
        if withdraw:
            book.forbid(site, registered.digest)
        else:
            allow(book, site, registered, max_epsilon)
    click.echo(f"No longer allowed at site {site}." if withdraw else f"Allowed at site {site}. Its ledger is {ledger}.")
