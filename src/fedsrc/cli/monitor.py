"""`fedsrc monitor`: the alarm on a deployed certificate, from the command line."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from fedsrc.cli.options import FORMAT, FRESH, TABLE_OPTIONS, FilePath, FolderPath, options
from fedsrc.cli.output import emit, show_monitor
from fedsrc.cli.streams import say
from fedsrc.cli.table import read_table
from fedsrc.common import signing
from fedsrc.common.canonical import file_digest
from fedsrc.common.durable import write_whole
from fedsrc.errors import FedsrcError
from fedsrc.monitor.monitor import MonitorChoices, register_monitor, state, state_of
from fedsrc.monitor.table import monitor_table
from fedsrc.protocol.names import CERTIFICATE, REGISTRATION
from fedsrc.protocol.registration import Registration


def _pairs(_context: click.Context, _option: click.Parameter, value: str | None) -> dict[str, str] | None:
    """name=text,name=text"""
    if value is None:
        return None
    pairs = [part.partition("=") for part in value.split(",")]
    if not all(name and equals and text for name, equals, text in pairs):
        raise click.BadParameter(f"{value!r} is not of the form north=...,south=...")
    return {name.strip(): text.strip() for name, _, text in pairs}


SHARE = click.FloatRange(0, 1, min_open=True, max_open=True)
CHOICES = [
    click.option("--false-alarm", type=SHARE, help="Most probability of any false alarm, ever  [default: 0.05]"),
    click.option(
        "--run-length", type=click.IntRange(2), help="Instead: least mean number of units until a false alarm."
    ),
    click.option("--risk", type=SHARE, help="Risk above which it rings  [default: the certified target]"),
    click.option(
        "--epsilon", type=click.FloatRange(0, min_open=True), help="Privacy loss per unit  [default: as certified]"
    ),
    click.option("--batch", type=click.IntRange(1), help="Units per site and round  [default: as certified]"),
    click.option(
        "--sample", type=click.Choice(["traffic", "accepted"]), default="traffic", show_default=True,
        help="What the fresh units are drawn from: all answers, or accepted ones alone.",
    ),
    click.option("--weights", callback=_pairs, help="Deployment weights of the sites  [default: as certified]"),
    click.option("--server-key", help="Public key of the server that may ask and sign."),
    click.option("--site-keys", callback=_pairs, help="Public keys of the sites: releases must be signed."),
    click.option("--capacities", callback=_pairs, help="Most units each site will give."),
]  # fmt: skip
NAMES = [field.name for field in fields(MonitorChoices)]


@click.command("monitor")
@click.argument("records", type=FilePath, required=False)
@click.option("--certificate", type=FolderPath, help="Run folder of the deployed certificate; needed once.")
@click.option("-o", "--output", "folder", type=FolderPath, default="monitor", show_default=True)
@click.option("--ledger", type=FilePath, help="The ledger of the certified records: it knows which units are spent.")
@click.option("--register", "target", type=FilePath, help="Only write the monitor's registration to this file.")
@click.option("--registration", type=FilePath, help="A monitor's registration that was written before.")
@click.option("--in-order", is_flag=True, help="Rows are in the order of time: use them so, not shuffled.")
@click.option("--trust", multiple=True, help="Public key that must have signed; repeatable.")
@click.option("--sign-with", callback=_pairs, help="Private key files of sites whose keys are registered.")
@click.option("--key", type=FilePath, help="Signing key (PEM), made on first use.")
@FRESH
@options(CHOICES)
@options(TABLE_OPTIONS)
@FORMAT
def monitor_command(
    records: Path | None,
    certificate: Path | None,
    folder: Path,
    ledger: Path | None,
    target: Path | None,
    registration: Path | None,
    in_order: bool,
    trust: tuple[str, ...],
    sign_with: dict[str, str] | None,
    key: Path | None,
    fresh: bool,
    output: str,
    **settings: Any,
) -> None:
    """Watch a deployed certificate on fresh labelled RECORDS, table after table, and ring when its risk has risen.

    Without RECORDS it shows where the monitor stands. Exit status 0: no alarm; 1: alarm; 2: error.
    """
    if target is not None:
        write_registration(target, _new(certificate, settings, trust), output)
        return
    if records is None:
        show_monitor(state(folder, trusted=trust, certificate=certificate), output)
    registered = _registration(folder, certificate, registration, settings, trust)
    if ledger is None:
        raise FedsrcError(
            "--ledger is needed: a unit that was released before must not be released again",
            hint="name the ledger of the certified records, records.csv.ledger for example",
        )
    signer = signing.load_or_make(key or Path(click.get_app_dir("fedsrc")) / "server.key")
    site_keys = {name: signing.load(Path(path)) for name, path in (sign_with or {}).items()}
    table = read_table(records, settings)
    told = monitor_table(registered, table, folder, ledger, signer, in_order=in_order, fresh=fresh, site_keys=site_keys)
    show_monitor(state_of(told), output)


def write_registration(target: Path, registered: Registration, output: str) -> None:
    """Write a monitor's registration, for sites to allow."""
    if target.exists():
        raise FedsrcError("exists already", where=str(target), hint="a registration is never changed; choose another")
    write_whole(target, registered.to_toml().encode())
    if output == "json":
        emit({"registration": registered.digest, "file": str(target)})
        return
    click.echo(f"Registered {registered.digest}")
    click.echo(
        f"  {target}: watches one threshold, {registered.thresholds.values[0]!r}, at {len(registered.sites)} sites"
    )


def _registration(
    folder: Path, certificate: Path | None, given: Path | None, settings: dict[str, Any], trust: tuple[str, ...]
) -> Registration:
    """The folder's own, the one given, or a new one for the certificate. What is registered is not changed."""
    existing = folder / REGISTRATION
    place = given or (existing if existing.exists() else None)
    if place is None:
        return _new(certificate, settings, trust)
    asked = _given()
    if asked:
        raise FedsrcError(f"{asked[0]} is fixed by the monitor's registration", where=str(place), hint="leave it out")
    registered = Registration.read(place)
    if registered.monitor is None:
        raise FedsrcError("is not the registration of a monitor", where=str(place), hint="choose another -o")
    if certificate is not None and file_digest(certificate / CERTIFICATE) != registered.monitor.certificate:
        raise FedsrcError(f"watches over another certificate than that of {certificate}", where=str(place))
    return registered


def _new(certificate: Path | None, settings: dict[str, Any], trust: tuple[str, ...]) -> Registration:
    if certificate is None:
        raise FedsrcError("--certificate is needed: the run folder of the certificate to watch over")
    chosen = {name: settings[name] for name in NAMES if settings[name] is not None}
    for name, kind in (("weights", float), ("capacities", int)):
        if name in chosen:
            chosen[name] = _numbers(chosen[name], kind, name)
    registered = register_monitor(certificate, MonitorChoices(**chosen), trusted=trust)
    say(f"A new monitor of {certificate}, registration {registered.digest}.")
    return registered


def _numbers(pairs: dict[str, str], kind: type[float] | type[int], name: str) -> dict[str, float]:
    try:
        return {site: kind(text) for site, text in pairs.items()}
    except ValueError as error:
        raise FedsrcError(f"--{name} needs a number for each site") from error


def _given() -> list[str]:
    """Which of the monitor's choices were given."""
    context = click.get_current_context()
    sources = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
    return [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name in NAMES and context.get_parameter_source(parameter.name or "") in sources
    ]
