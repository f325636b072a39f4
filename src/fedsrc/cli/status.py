"""`fedsrc status`: where a run stands."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import click

from fedsrc.cli.options import FORMAT, FolderPath
from fedsrc.cli.output import emit
from fedsrc.server.status import run_state, words


@click.command("status")
@click.argument("folder", type=FolderPath)
@FORMAT
def status_command(folder: Path, output: str) -> None:
    """Where a run stands: rounds, sites, what is missing, who was turned away. Changes nothing."""
    state = run_state(folder)
    if output == "json":
        emit(asdict(state))
    else:
        click.echo("\n".join(words(state)))
    sys.exit(0 if state.status == "CERTIFIED" and not state.notice else 1)
