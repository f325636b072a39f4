"""`fedsrc allow`: at a site, read what a registration asks, and allow it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from fedsrc.cli.options import Epsilon, FilePath
from fedsrc.protocol.registration import Registration
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow, describe_registration


@click.command("allow")
@click.argument("registration", type=FilePath)
@click.option("--site", required=True, help="The site's name in the registration.")
@click.option("--ledger", type=FilePath, required=True, help="The site's ledger, beside its records.")
@click.option("--max-epsilon", type=Epsilon(), help="Set the most privacy the site will ever spend on a unit.")
@click.option("--show", is_flag=True, help="Only show what is asked.")
@click.option("--withdraw", is_flag=True, help="Take an earlier permission back.")
def allow_command(
    registration: Path, site: str, ledger: Path, max_epsilon: float | None, show: bool, withdraw: bool
) -> None:
    """At a site: read what a registration asks, and allow it."""
    registered = Registration.read(registration)
    for line in describe_registration(registered, site):
        click.echo(line)
    if show:
        return
    if withdraw:
        with closing(Ledger(ledger, must_exist=True)) as book:
            book.forbid(site, registered.digest)
        click.echo(f"No longer allowed at site {site}.")
        return
    with closing(Ledger(ledger)) as book:
        allow(book, site, registered, max_epsilon)
    click.echo(f"Allowed at site {site}. Its ledger is {ledger}.")
