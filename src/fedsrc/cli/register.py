"""`fedsrc register`: fix everything before calibration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fedsrc.cli.options import FORMAT, LEDGER_AND_TABLE, choices, given_choices, options, output_file
from fedsrc.cli.output import show
from fedsrc.cli.registering import check_new, choices_of, say_development
from fedsrc.cli.streams import command, say
from fedsrc.cli.table import fallback_words, mixture_words, read_table, table_options
from fedsrc.cli.types import NAMES, FilePath, FolderPath
from fedsrc.common.durable import write_whole
from fedsrc.common.places import ledger_beside
from fedsrc.errors import FedsrcError
from fedsrc.federation.local import register_table
from fedsrc.planning.register import Choices, development_part, register_grid
from fedsrc.planning.renew import renew
from fedsrc.protocol.registration import Registration
from fedsrc.server.wording_2 import thresholds_words

RENEWABLE = ("validity_days", "server_key", "site_keys", "capacities")  # what a renewal may change


@click.command("register")
@click.argument("records", type=FilePath, required=False)
@output_file("registration.toml")
@click.option("--sites", type=NAMES, help="Site names, comma-separated  [default: those of the table]")
@click.option("--renew", "run", type=FolderPath, help="Run folder whose certified claim is registered anew.")
@options(choices(Choices))
@options(LEDGER_AND_TABLE)
@FORMAT
def register_command(
    records: Path | None,
    target: Path,
    sites: tuple[str, ...] | None,
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
    check_new(target)
    after = command("fedsrc", "certify", "FRESH.csv", "--registration", target)
    if run is not None:
        if records is not None or sites is not None:
            raise FedsrcError("with --renew no RECORDS and no --sites are given", hint="they are those of the run")
        registration = renewal(run, settings)
    elif records is None:
        registration = register_grid(choices_of(settings, None, target), sites)
        after = command("fedsrc", "forecast", target, "--acceptance", 0.4, "--risk", 0.1)
    else:
        table = read_table(records, settings)
        picked = choices_of(settings, table, records)
        part, place = development_part(table, picked.unit, 1.0), ledger or ledger_beside(records)
        registration = register_table(picked, table, part, place, sites=sites, fresh=fresh)
        if registration.development is not None:
            say_development(table, registration.development, picked)
        for line in fallback_words(registration, picked):
            say(line)
        after = command("fedsrc", "forecast", target, "--records", records, *table_options(settings))
    for line in renewal_words(registration) if run else mixture_words(registration):
        say(line)
    write_whole(target, registration.to_toml().encode())
    show(
        output,
        {"registration": registration.digest, "file": str(target), "thresholds": registration.thresholds.values},
        f"Registered {registration.digest}",
        f"  {target}: {len(registration.thresholds.values)} thresholds, {len(registration.sites)} sites",
        f"  Thresholds: {thresholds_words(registration)}.",
        f"Next: {after}",
    )


def renewal(run: Path, settings: dict[str, Any]) -> Registration:
    """Register a run's claim anew; a choice that the certificate fixes is refused."""
    free = {f"--{name.replace('_', '-')}" for name in RENEWABLE}
    fixed = [flag for flag in given_choices() if flag not in free]
    if fixed:
        raise FedsrcError(f"{fixed[0]} is fixed by the certificate that is renewed", hint="leave it out")
    return renew(run, **{name: settings[name] for name in RENEWABLE})


def renewal_words(registration: Registration) -> list[str]:
    """Say what is the same, and what must not be."""
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
