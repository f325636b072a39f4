"""`fedsrc site-status`: what a site has spent and allowed."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from fedsrc.cli.types import FilePath
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import status_words


@click.command("site-status")
@click.argument("ledger", type=FilePath)
def site_status_command(ledger: Path) -> None:
    """At a site: what was spent, what is left, what is allowed, in plain words."""
    with closing(Ledger(ledger, must_exist=True)) as book:
        click.echo("\n".join(line for site in book.sites() for line in status_words(book, site)))
