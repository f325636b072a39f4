"""`fedsrc release`: at a site, answer a request file."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import click

from fedsrc.cli.options import FORMAT, LEDGER_AND_TABLE, MASK_KEY, SITE_KEY, options, output_file
from fedsrc.cli.output import show
from fedsrc.cli.table import table_at, to_label
from fedsrc.cli.types import FilePath
from fedsrc.common import signing
from fedsrc.common.durable import write_whole
from fedsrc.common.places import ledger_beside, mask_beside, sent_beside
from fedsrc.federation.airgap import answer_file
from fedsrc.site.ledger import Ledger
from fedsrc.site.rounds import NotYetError


@click.command("release")
@click.argument("request", type=FilePath)
@click.argument("records", type=FilePath)
@SITE_KEY
@MASK_KEY
@output_file(help="[default: the request's name with .release.json]")
@options(LEDGER_AND_TABLE)
@FORMAT
def release_command(
    request: Path, records: Path, key: Path, mask_key: Path | None, target: Path | None, ledger: Path | None,
    fresh: bool, output: str, **settings: Any,
) -> None:  # fmt: skip
    """At a site: answer a request file with a release file. Asked again, it writes the same bytes."""
    place = target or request.with_name(request.name.removesuffix(".json").removesuffix(".request") + ".release.json")
    secret = mask_key or mask_beside(key)
    mask = signing.load(secret) if mask_key or secret.exists() else None
    with closing(Ledger(ledger or ledger_beside(records), must_exist=True)) as book:
        try:
            data = answer_file(
                request, lambda: table_at(records, settings), book, signing.load(key), mask=mask,
                sent=sent_beside(secret), fresh=fresh,
            )  # fmt: skip
        except NotYetError as wait:
            label = to_label(records, ledger, settings)
            told = {"status": "OPEN", "labels_wanted": wait.missing, "next": label}
            show(output, told, f"Not yet: {wait.what}.", f"Next: {label}; then this again.")
            return
    write_whole(place, data)
    show(output, {"status": "RELEASED", "file": str(place)}, f"Wrote {place}: carry it to the server.")
