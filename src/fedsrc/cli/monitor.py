"""`fedsrc monitor`: the alarm on a deployed certificate, from the command line."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from fedsrc.cli.options import FORMAT, TRUST, WHOLE_TABLE, choices, given_choices, options, run_folder, server_key
from fedsrc.cli.output import show, show_monitor
from fedsrc.cli.streams import say
from fedsrc.cli.table import read_table
from fedsrc.cli.types import FilePath, FolderPath
from fedsrc.common import signing
from fedsrc.common.durable import write_whole
from fedsrc.errors import FedsrcError
from fedsrc.monitor.fresh import monitor_table, open_monitor
from fedsrc.monitor.monitor import MonitorChoices, existing_registration, register_monitor, state, state_of
from fedsrc.protocol.judgements import Monitor
from fedsrc.protocol.names import REGISTRATION
from fedsrc.protocol.registration import Registration

DEFAULTS = {
    "false_alarm": Monitor.model_fields["false_alarm"].default,
    "target_risk": "the certified one",
    "risk": "the certified target",
    **dict.fromkeys(("epsilon", "batch", "weights"), "as certified"),
}


@click.command("monitor")
@click.argument("records", type=FilePath, required=False)
@click.option("--certificate", type=FolderPath, help="Run folder of the deployed certificate; needed once.")
@run_folder("monitor")
@click.option("--ledger", type=FilePath, help="The ledger of the certified records: it knows which units are spent.")
@click.option("--register", "target", type=FilePath, help="Only write the monitor's registration to this file.")
@click.option("--registration", type=FilePath, help="A monitor's registration that was written before.")
@TRUST
@options(choices(MonitorChoices, DEFAULTS))
@options(WHOLE_TABLE)
@FORMAT
def monitor_command(
    records: Path | None, certificate: Path | None, folder: Path, trust: tuple[str, ...], output: str, **given: Any
) -> None:
    """Watch a deployed certificate on fresh labelled RECORDS, table after table, and ring when its risk has risen.

    Without RECORDS it shows where the monitor stands; a new one is opened, so that a gate can follow it before any
    label is there. Exit status 0: no alarm; 1: alarm; 2: error.
    """
    registration, target, ledger = given["registration"], given["target"], given["ledger"]
    if target is not None:
        write_registration(target, _new(certificate, given, trust), output)
        return
    if records is None and ((folder / REGISTRATION).exists() or (registration or certificate) is None):
        show_monitor(state(folder, trusted=trust, certificate=certificate), output)
    registered = existing_registration(folder, registration, certificate)
    if registered is not None and (asked := given_choices(given, MonitorChoices)):
        where = str(registration or folder)
        raise FedsrcError(f"{asked[0]} is fixed by the monitor's registration", where=where, hint="leave it out")
    registered = registered or _new(certificate, given, trust)
    signer = signing.load_or_make(server_key(given["key"]))
    if records is None:
        show_monitor(state_of(open_monitor(registered, folder, signer)), output)
    if ledger is None:
        raise FedsrcError(
            "--ledger is needed: a unit that was released before must not be released again",
            hint="name the ledger of the certified records, records.csv.ledger for example",
        )
    how = {name: given[name] for name in ("in_order", "fresh")}
    how["site_keys"] = {name: signing.load(Path(path)) for name, path in (given["sign_with"] or {}).items()}
    told = monitor_table(registered, read_table(records, given, registered), folder, ledger, signer, **how)
    show_monitor(state_of(told), output)


def write_registration(target: Path, registered: Registration, output: str) -> None:
    """Write a monitor's registration, for sites to allow."""
    if target.exists():
        raise FedsrcError("exists already", where=str(target), hint="a registration is never changed; choose another")
    write_whole(target, registered.to_toml().encode())
    names = registered.block_names
    what = f"{len(names)} groups" if names else f"one threshold{_of(registered)}, {registered.thresholds.values[0]!r},"
    watched = f"watches {what} at {len(registered.sites)} sites"
    told = {"registration": registered.digest, "file": str(target)}
    show(output, told, f"Registered {registered.digest}", f"  {target}: {watched}")


def _new(certificate: Path | None, settings: dict[str, Any], trust: tuple[str, ...]) -> Registration:
    if certificate is None:
        raise FedsrcError("--certificate is needed: the run folder of the certificate to watch over")
    names = [field.name for field in fields(MonitorChoices)]
    chosen = {name: settings[name] for name in names if settings[name] is not None}
    registered = register_monitor(certificate, MonitorChoices(**chosen), trusted=trust)
    say(f"A new monitor{_of(registered)} of {certificate}, registration {registered.digest}.")
    return registered


def _of(registered: Registration) -> str:
    """Name the score that is watched, where it is not just called that: of several, the one picked."""
    column = registered.claim.column
    return "" if column == "score" else f" for the score {column!r}"
