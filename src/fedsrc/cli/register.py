"""`fedsrc register`: fix everything before calibration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fedsrc.cli.options import CHOICES, FORMAT, FRESH, LEDGER, TABLE_OPTIONS, FilePath, FolderPath, options
from fedsrc.cli.output import emit
from fedsrc.cli.registering import choices_of, given_choices, say_development
from fedsrc.cli.streams import command, say
from fedsrc.cli.table import fallback_words, ledger_of, mixture_words, read_table, table_options
from fedsrc.common.durable import write_whole
from fedsrc.errors import FedsrcError
from fedsrc.federation.local import register_table
from fedsrc.planning.register import development_part, register_grid
from fedsrc.planning.renew import renew
from fedsrc.protocol.registration import Registration
from fedsrc.server.wording_2 import thresholds_words


@click.command("register")
@click.argument("records", type=FilePath, required=False)
@click.option("-o", "--output", "target", type=FilePath, default="registration.toml", show_default=True)
@click.option("--sites", help="Site names, comma-separated  [default: those of the table]")
@click.option("--renew", "run", type=FolderPath, help="Run folder whose certified claim is registered anew.")
@options(CHOICES)
@options(TABLE_OPTIONS)
@LEDGER
@FRESH
@FORMAT
def register_command(
    records: Path | None,
    target: Path,
    sites: str | None,
    run: Path | None,
    ledger: Path | None,
    fresh: bool,
    output: str,
    **settings: Any,
) -> None:
    """Fix everything before calibration: thresholds from labelled development RECORDS, and your choices.

    RECORDS are released once, with noise, and the ledger beside them keeps that release. With --grid and --sites no
    records are needed, and with --renew none are read.
    """
    names = tuple(name.strip() for name in sites.split(",")) if sites else None
    if target.exists():
        hint = "a registration is never changed: choose another -o, or delete the file if no site was asked under it"
        raise FedsrcError("exists already", where=str(target), hint=hint)
    if run is not None:
        if records is not None or sites is not None:
            raise FedsrcError("with --renew no RECORDS and no --sites are given", hint="they are those of the run")
        registration = renewal(run, settings)
        write_whole(target, registration.to_toml().encode())
        then = command("fedsrc", "certify", "FRESH.csv", "--registration", target)
        show_registration(registration, target, then, output)
        return
    if records is None:
        registration = register_grid(choices_of(settings, None, target), names)
    else:
        table = read_table(records, settings)
        picked = choices_of(settings, table, records)
        part, place = development_part(table, picked.unit, 1.0), ledger or ledger_of(records)
        registration = register_table(picked, table, part, place, sites=names, fresh=fresh)
        if registration.development is not None:
            say_development(table, registration.development, picked)
        for line in fallback_words(registration, picked):
            say(line)
    for line in mixture_words(registration):
        say(line)
    write_whole(target, registration.to_toml().encode())
    known = ["--records", records, *table_options(settings)] if records else ["--acceptance", 0.4, "--risk", 0.1]
    show_registration(registration, target, command("fedsrc", "forecast", target, *known), output)


def renewal(run: Path, settings: dict[str, Any]) -> Registration:
    """The registration of a run, made anew; what is not its to change is refused."""
    free = {"--validity-days", "--server-key", "--site-keys", "--capacities"}
    fixed = [name for name in given_choices() if name not in free]
    if fixed:
        raise FedsrcError(f"{fixed[0]} is fixed by the certificate that is renewed", hint="leave it out")
    names = ("validity_days", "server_key", "site_keys", "capacities")
    registration = renew(run, **{name: settings[name] for name in names})
    for line in renewal_words(registration):
        say(line)
    return registration


def renewal_words(registration: Registration) -> list[str]:
    """What is the same, and what must not be."""
    lines = [
        f"The same claim and thresholds as certificate {registration.renews}; no record was read.",
        "It is calibrated on fresh units: ledgers refuse every unit that was released. Each site allows it anew.",
    ]
    if registration.development is not None and registration.development.inside:
        share = registration.development.share
        lines.append(f"About {share:.0%} of a table's units are left out as before: they may have chosen thresholds.")
    if registration.schedule.dropout == "adversarial":
        lines.append("Capacities are as before unless --capacities says otherwise: what is not given is charged.")
    return lines


def show_registration(registration: Registration, target: Path, next_command: str, output: str) -> None:
    """What was registered, and what to do next."""
    if output == "json":
        emit({"registration": registration.digest, "file": str(target), "thresholds": registration.thresholds.values})
        return
    click.echo(f"Registered {registration.digest}")
    click.echo(f"  {target}: {len(registration.thresholds.values)} thresholds, {len(registration.sites)} sites")
    click.echo(f"  Thresholds: {thresholds_words(registration)}.")
    click.echo(f"Next: {next_command}")
