"""`fedsrc site-status`: what a site has spent and allowed."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from fedsrc.cli.options import FORMAT
from fedsrc.cli.output import show
from fedsrc.cli.streams import command
from fedsrc.cli.types import FilePath
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import status_data, status_words
from fedsrc.site.rounds import waiting_words


@click.command("site-status")
@click.argument("ledger", type=FilePath)
@FORMAT
def site_status_command(ledger: Path, output: str) -> None:
    """At a site: what was spent, what is left or locked, what is allowed, in plain words."""
    with closing(Ledger(ledger, must_exist=True)) as book:
        rounds = {site: waiting_words(book, site) for site in book.sites()}
        sites = {site: {**status_data(book, site), "open_rounds": len(rounds[site])} for site in rounds}
        show(
            output, {"sites": sites}, *(line for site in rounds for line in (*status_words(book, site), *rounds[site]))
        )
    if any(rounds.values()) and output == "text":
        table = ledger.with_name(ledger.name.removesuffix(".ledger"))
        beside = table != ledger and table.exists()
        label = ["fedsrc", "label", table] if beside else ["fedsrc", "label", "TABLE", "--ledger", ledger]
        click.echo(f"Next: {command(*label)}, for what is open")
