"""What commands that read tables and end in a certificate share: the table's options, and how a result is printed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from fedsrc.cli_common import FilePath, command
from fedsrc.common.canonical import canonical_bytes
from fedsrc.monitor.monitor import MonitorState, state_of, words
from fedsrc.planning.forecast import Forecast, after_abstention
from fedsrc.protocol.certificate import Body
from fedsrc.protocol.names import REGISTRATION
from fedsrc.records.stream import Table
from fedsrc.records.table import Columns
from fedsrc.records.units import Records
from fedsrc.report.card import card_text
from fedsrc.server.folder import read_registration, read_run
from fedsrc.server.state import Replay

Command = TypeVar("Command", bound=Callable[..., Any])
SUMMARY = (
    "status",
    "threshold",
    "target_risk",
    "contrast_upper",
    "acceptance_lower",
    "risk_upper",
    "records",
    "rounds",
    "sites",
    "registration",
    "transcript",
)
NAMES = tuple(field.name for field in fields(Columns))
COLUMNS = [
    click.option(f"--{name}-column", f"{name}_column", help=f"Name of the {name} column  [default: {name}]")
    for name in NAMES
]
TABLE_OPTIONS = [
    *COLUMNS,
    click.option(
        "--missing",
        type=click.Choice(["refuse", "keep"]),
        default="refuse",
        show_default=True,
        help="keep: a missing score is never accepted, a missing loss counts as unsupported.",
    ),
]
FRESH = click.option("--fresh", is_flag=True, help="Assert that no unit was in an earlier table (without ids).")
LEDGER = click.option("--ledger", type=FilePath, help="The site's ledger  [default: beside the records]")


def options(many: list[Callable[[Command], Command]]) -> Callable[[Command], Command]:
    """Apply a list of click options."""

    def apply(command: Command) -> Command:
        for option in reversed(many):
            command = option(command)
        return command

    return apply


def ledger_of(records: Path) -> Path:
    """A ledger lies beside its records."""
    return records.with_name(records.name + ".ledger")


def table_at(path: Path, settings: Mapping[str, Any]) -> Table:
    """The table, not yet read, under the user's column names."""
    return Table(path, Columns(**{name: settings[f"{name}_column"] for name in NAMES}), settings["missing"])


def read_table(path: Path, settings: Mapping[str, Any]) -> Records:
    """The table in memory."""
    return table_at(path, settings).whole()


def finish(body: Body, folder: Path, output: str, *, development: Sequence[object] | None = None) -> NoReturn:
    """Print the result and leave with its exit status. `development`: where a forecast finds development records."""
    if body.get("kind") == "monitor":
        show_monitor(state_of(body), output)
    outlook = after(folder) if body["status"] == "ABSTAIN" else None
    if output == "json":
        result = {name: body[name] for name in SUMMARY}
        result |= {"epsilon": body["privacy"]["epsilon"], "delta": body["privacy"]["delta"]}
        emit(result | ({"forecast": asdict(outlook)} if outlook else {}))
    else:
        click.echo(_card(body, folder, _notes(outlook, folder, development or ["DEVELOPMENT.csv"])))
    sys.exit(0 if body["status"] == "CERTIFIED" else 1)


def _notes(outlook: Forecast | None, folder: Path, development: Sequence[object]) -> tuple[str, ...]:
    """What an abstention would have taken; where that cannot be told, how to ask development records."""
    if outlook is None:
        return ()
    told = f"To certify, at the rates seen: {outlook.sentence()}"
    ask = command("fedsrc", "forecast", folder / REGISTRATION, "--records", *development)
    return (told, f"Development records carry no noise, and may tell more: {ask}") if outlook.too_few else (told,)


def _card(body: Body, folder: Path, notes: tuple[str, ...]) -> str:
    return card_text(body, registration=read_registration(folder), verify=f"fedsrc verify {folder}", notes=notes)


def show_monitor(found: MonitorState, output: str) -> NoReturn:
    """Print where a monitor stands and leave with its exit status: 1 is an alarm."""
    if output == "json":
        emit(asdict(found))
    else:
        click.echo("\n".join(words(found)))
    sys.exit(1 if found.alarm else 0)


def after(folder: Path) -> Forecast | None:
    """What an abstention would have taken to certify."""
    registration, entries, _ = read_run(folder)
    return after_abstention(Replay(registration, entries))


def emit(value: Mapping[str, Any]) -> None:
    """One JSON object on stdout."""
    click.echo(json.dumps(json.loads(canonical_bytes(dict(value)))))
