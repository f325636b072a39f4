"""How commands end: a result on stdout as words or JSON, progress on a terminal, the exit status."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from fedsrc.cli.streams import command
from fedsrc.common.canonical import canonical_bytes
from fedsrc.monitor.monitor import MonitorState, state_of, words
from fedsrc.planning.forecast import Forecast, after_abstention
from fedsrc.protocol.certificate import Certificate, MonitorAccount
from fedsrc.protocol.names import REGISTRATION
from fedsrc.protocol.notices import Revocation
from fedsrc.report.card import card_text
from fedsrc.server.state import Replay
from fedsrc.server.verify import revocation_of

SUMMARY = {
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
}


def finish(
    found: Certificate | MonitorAccount,
    replay: Replay,
    folder: Path,
    output: str,
    *,
    development: Sequence[object] | None = None,
    revoked: Revocation | None = None,
) -> NoReturn:
    """Print what a replayed run came to and leave with its exit status. `development`: where a forecast finds
    development records; `revoked`: a notice that was found, where it does not lie beside the certificate."""
    if isinstance(found, MonitorAccount):
        show_monitor(state_of(found), output)
    revoked = revoked or revocation_of(found, folder)
    outlook = after_abstention(replay) if found.status == "ABSTAIN" else None
    if output == "json":
        result = found.model_dump(include=SUMMARY)
        result |= {"epsilon": found.privacy.epsilon, "delta": found.privacy.delta}
        result |= {"status": "REVOKED", "revoked": revoked.model_dump()} if revoked else {}
        emit(result | ({"forecast": asdict(outlook)} if outlook else {}))
    else:
        notes, verify = _notes(outlook, folder, development or ["DEVELOPMENT.csv"]), f"fedsrc verify {folder}"
        card = card_text(found, registration=replay.registration, verify=verify, notes=notes, revoked=revoked)
        click.echo(card)
    sys.exit(0 if found.status == "CERTIFIED" and revoked is None else 1)


def _notes(outlook: Forecast | None, folder: Path, development: Sequence[object]) -> tuple[str, ...]:
    """What an abstention would have taken; where that cannot be told, how to ask development records."""
    if outlook is None:
        return ()
    told = f"To certify, at the rates seen: {outlook.sentence()}"
    ask = command("fedsrc", "forecast", folder / REGISTRATION, "--records", *development)
    return (told, f"Development records carry no noise, and may tell more: {ask}") if outlook.too_few else (told,)


def show_monitor(found: MonitorState, output: str) -> NoReturn:
    """Print where a monitor stands and leave with its exit status: 1 is an alarm."""
    if output == "json":
        emit(asdict(found) | {"history": [each.model_dump() for each in found.history]})
    else:
        click.echo("\n".join(words(found)))
    sys.exit(1 if found.alarm else 0)


def emit(value: Mapping[str, Any]) -> None:
    """One JSON object on stdout."""
    click.echo(json.dumps(json.loads(canonical_bytes(dict(value)))))


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A line that moves on a terminal; silence in a pipe."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    with Progress(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console) as bar:
        task = bar.add_task("starting")
        yield lambda text: bar.update(task, description=text)
