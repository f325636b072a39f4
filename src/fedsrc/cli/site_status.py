"""`fedsrc site-status`: what a site has spent and allowed."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from fedsrc.cli.streams import command
from fedsrc.cli.types import FilePath
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import status_words
from fedsrc.site.rounds import waiting_words


@click.command("site-status")
@click.argument("ledger", type=FilePath)
def site_status_command(ledger: Path) -> None:
    """At a site: what was spent, what is left, what is allowed, in plain words."""
    with closing(Ledger(ledger, must_exist=True)) as book:
        rounds = {site: waiting_words(book, site) for site in book.sites()}
        click.echo("\n".join(line for site in rounds for line in (*status_words(book, site), *rounds[site])))
    if any(rounds.values()):
        table = ledger.with_name(ledger.name.removesuffix(".ledger"))
        beside = table != ledger and table.exists()
        label = ["fedsrc", "label", table] if beside else ["fedsrc", "label", "TABLE", "--ledger", ledger]
        click.echo(f"Next: {command(*label)}, for what is open")
