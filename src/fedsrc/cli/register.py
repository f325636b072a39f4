"""`fedsrc register`: fix everything before calibration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fedsrc.cli.options import CHOICES, FORMAT, LEDGER_AND_TABLE, choices, options, output_file
from fedsrc.cli.output import show
from fedsrc.cli.registering import choices_of, say_development
from fedsrc.cli.streams import command, say
from fedsrc.cli.table import asking, fallback_words, mixture_words, read_table, table_options
from fedsrc.cli.types import NAMES, FilePath, FolderPath
from fedsrc.common.durable import write_whole
from fedsrc.common.places import ledger_beside
from fedsrc.common.words import count
from fedsrc.face import DEVELOPMENT_SHARE, check_new, renewal
from fedsrc.federation.local import register_table
from fedsrc.planning.register import Choices, development_part, register_grid
from fedsrc.protocol.registration import Registration
from fedsrc.records.units import unit_count
from fedsrc.server.wording_2 import thresholds_words


@click.command("register")
@click.argument("records", type=FilePath, required=False)
@output_file("registration.toml")
@click.option("--sites", type=NAMES, help="Site names, comma-separated  [default: those of the table]")
@click.option("--renew", "run", type=FolderPath, help="Run folder whose certified claim is registered anew.")
@options(choices(Choices))
@options(LEDGER_AND_TABLE)
@FORMAT
def register_command(
    records: Path | None, target: Path, sites: tuple[str, ...] | None, output: str, **given: Any
) -> None:
    """Fix everything before calibration: thresholds from labelled development RECORDS, and your choices.

    RECORDS are released once, with noise, and the ledger beside them keeps that release. With --grid and --sites no
    records are needed, and with --renew none are read.
    """
    check_new(target)
    run = given["run"]
    after = command("fedsrc", "certify", "FRESH.csv", "--registration", target)
    if run is not None:
        target_risk, epsilon = given.pop("target_risk"), given.pop("epsilon")
        rest = {name: value for name, value in given.items() if name in CHOICES}
        registration = renewal(run, records, target_risk, epsilon, sites, rest)
    elif records is None:
        registration = register_grid(choices_of(given, None, target), sites)
        after = command("fedsrc", "forecast", target, "--acceptance", 0.4, "--risk", 0.1)
    else:
        table = asking(lambda settled: read_table(records, settled), given)
        picked = choices_of(given, table, records)
        part, place = development_part(table, picked.unit, 1.0), given["ledger"] or ledger_beside(records)
        if not picked.grid:
            say_development(table, part, picked, records, said=given["score_scale"] is not None)
        for line in locking_words(records, unit_count(table, picked.unit), picked):
            say(line)
        registration = register_table(picked, table, part, place, sites=sites, fresh=given["fresh"])
        for line in fallback_words(registration, picked):
            say(line)
        after = command("fedsrc", "forecast", target, "--records", records, *table_options(given))
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


def locking_words(records: Path, units: int, picked: Choices) -> list[str]:
    """Say, before it is done, that a table that chooses thresholds does not calibrate, and what would spare it."""
    if picked.grid:
        return []
    apart = round(DEVELOPMENT_SHARE * units)
    return [
        f"These {count(units, picked.unit)} choose thresholds and can no longer calibrate: bring others for that."
        f" (Without a registration, {command('fedsrc', 'certify', records)} sets about {apart:,} of them apart by"
        f" itself, and calibrates on the other {units - apart:,}.)"
    ]


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
