"""How commands end: a result on stdout as words or JSON, and the exit status."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import click

from fedsrc.cli.streams import command
from fedsrc.common.canonical import canonical_bytes
from fedsrc.monitor.monitor import MonitorState, state_of, words
from fedsrc.planning.forecast import Forecast
from fedsrc.protocol.certificate import Certificate, MonitorAccount
from fedsrc.protocol.names import REGISTRATION
from fedsrc.protocol.notices import Revocation
from fedsrc.report.card import card_text
from fedsrc.report.outlook import in_short, outlook
from fedsrc.report.panels import slowest
from fedsrc.server.state import Replay
from fedsrc.server.verify import revocation_of

SUMMARY = {
    "status", "threshold", "target_risk", "contrast_upper", "acceptance_lower", "risk_upper", "records", "rounds",
    "sites", "registration", "transcript",
}  # fmt: skip


def show(output: str, value: Mapping[str, Any], *lines: str) -> None:
    """Print a result: one JSON object, or its lines."""
    if output == "json":
        click.echo(json.dumps(json.loads(canonical_bytes(dict(value)))))
    else:
        click.echo("\n".join(lines))


def exit_status(status: str, *, wrong: bool = False) -> int:
    """Return 0 for a run that is certified or still open, 1 for one that abstained. `wrong`: a notice or an alarm."""
    return 0 if status in ("CERTIFIED", "OPEN") and not wrong else 1


def finish(
    found: Certificate | MonitorAccount,
    replay: Replay,
    folder: Path,
    output: str,
    *,
    development: Sequence[object] | None = None,
    revoked: Revocation | None = None,
    sound: bool = False,
    alarm: str = "",
    named: Path | None = None,
) -> NoReturn:
    """Print what a replayed run came to, and exit with its status.

    `development`: where a forecast finds development records. `revoked`: a notice that does not lie beside the
    certificate. `sound`: the question was whether it verifies, so that an abstention is 0 too. `alarm`: its
    monitor's. `named`: what the run was read from, where that is not its folder.
    """
    if isinstance(found, MonitorAccount):
        show_monitor(state_of(found), output)
    revoked = revoked or revocation_of(found, folder)
    told = outlook(replay) if None in replay.choices else None
    groups, whole = (told, None) if isinstance(told, dict) else ({}, told)
    result = found.model_dump(include=SUMMARY)
    shown = {"epsilon", "adjacency", "replacement_epsilon", "zero_out_epsilon", "delta", "colluding", "epsilon_among"}
    result |= found.privacy.model_dump(include=shown)
    result |= {"strongest": None if found.strongest is None else found.strongest.model_dump()}
    result |= {"status": "ALARM"} if alarm else {}
    result |= {"status": "REVOKED", "revoked": revoked.model_dump()} if revoked else {}
    result |= {"forecast": asdict(whole)} if whole else {}
    result |= _panel(found, groups)
    notes = _notes(found, [*groups.values(), *([whole] if whole else [])], folder, development or ["DEVELOPMENT.csv"])
    how: dict[str, Any] = {"verify": f"fedsrc verify {named or folder}", "notes": notes}
    takes = {name: in_short(each, found.records, found.privacy.unit) for name, each in groups.items()}
    how |= {"revoked": revoked, "alarm": alarm, "takes": takes}
    show(output, result, card_text(found, registration=replay.registration, **how))
    sys.exit(exit_status("CERTIFIED" if sound else found.status, wrong=bool(alarm or revoked)))


def _panel(found: Certificate, groups: Mapping[str, Forecast]) -> dict[str, Any]:
    """Return the groups or scores of a panel, and the score that is picked; nothing where there is one claim."""
    if found.panel is None:
        return {}
    members = [
        each.model_dump(include={"name", "status", "threshold", "acceptance_lower", "risk_upper"})
        | ({"forecast": asdict(groups[each.name])} if each.name in groups else {})
        for each in found.panel.members
    ]
    return {"panel": members, "picked": found.panel.picked}


def _notes(
    found: Certificate, told: Sequence[Forecast], folder: Path, development: Sequence[object]
) -> tuple[str, ...]:  # fmt: skip
    """Say what an abstention would have taken; where that cannot be told, how to ask development records."""
    whole = [] if found.by_group is not None else told
    said = [f"To certify, at the rates seen: {slowest(found)}{each.sentence()}" for each in whole]
    ask = command("fedsrc", "forecast", folder / REGISTRATION, "--records", *development)
    if any(each.too_few for each in told):
        said.append(f"Development records carry no noise, and may tell more: {ask}")
    return tuple(said)


def show_monitor(found: MonitorState, output: str) -> NoReturn:
    """Print where a monitor stands and exit with its status: 1 is an alarm."""
    rows = {"history": found.history, "groups": found.groups or ()}
    plain = {name: [each.model_dump() for each in several] for name, several in rows.items()}
    show(output, asdict(found) | plain, *words(found))
    sys.exit(1 if found.alarm else 0)
