"""`fedsrc register`: fix everything before calibration."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import click

from fedsrc.cli.options import CHOICES, FORMAT, LEDGER, TABLE_OPTIONS, FilePath, options
from fedsrc.cli.output import emit
from fedsrc.cli.registering import choices_of, say_development
from fedsrc.cli.streams import command, say
from fedsrc.cli.table import ledger_of, mixture_words, read_table, table_options
from fedsrc.common.durable import write_whole
from fedsrc.errors import FedsrcError
from fedsrc.planning.register import development_part, register, register_grid
from fedsrc.protocol.registration import Registration
from fedsrc.site.ledger import Ledger
from fedsrc.site.site import note_development


@click.command("register")
@click.argument("records", type=FilePath, required=False)
@click.option("-o", "--output", "target", type=FilePath, default="registration.toml", show_default=True)
@click.option("--sites", help="Site names, comma-separated  [default: those of the table]")
@options(CHOICES)
@options(TABLE_OPTIONS)
@LEDGER
@FORMAT
def register_command(
    records: Path | None, target: Path, sites: str | None, ledger: Path | None, output: str, **settings: Any
) -> None:
    """Fix everything before calibration: thresholds from labelled development RECORDS, and your choices.

    With --grid and --sites no records are needed.
    """
    names = tuple(name.strip() for name in sites.split(",")) if sites else None
    if target.exists():
        hint = "a registration is never changed: choose another -o, or delete the file if no site was asked under it"
        raise FedsrcError("exists already", where=str(target), hint=hint)
    if records is None:
        registration = register_grid(choices_of(settings, None, target), names)
    else:
        table = read_table(records, settings)
        picked = choices_of(settings, table, records)
        registration = register(picked, table, development_part(table, picked.unit, 1.0), sites=names)
        if registration.development is not None:
            with closing(Ledger(ledger or ledger_of(records))) as book:
                note_development(table, book)
            say_development(table, registration.development, picked)
    for line in mixture_words(registration):
        say(line)
    write_whole(target, registration.to_toml().encode())
    known = ["--records", records, *table_options(settings)] if records else ["--acceptance", 0.4, "--risk", 0.1]
    show_registration(registration, target, command("fedsrc", "forecast", target, *known), output)


def show_registration(registration: Registration, target: Path, next_command: str, output: str) -> None:
    """What was registered, and what to do next."""
    if output == "json":
        emit({"registration": registration.digest, "file": str(target), "thresholds": registration.thresholds.values})
        return
    click.echo(f"Registered {registration.digest}")
    click.echo(f"  {target}: {len(registration.thresholds.values)} thresholds, {len(registration.sites)} sites")
    if registration.thresholds.origin == "development":
        click.echo(
            "  Thresholds are published quantiles of these records, which privacy does not protect (--grid avoids it)."
        )
    click.echo(f"Next: {next_command}")
