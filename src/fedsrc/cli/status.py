"""`fedsrc status`: where a run stands."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import click

from fedsrc.cli.options import FORMAT
from fedsrc.cli.output import exit_status, show
from fedsrc.cli.types import FolderPath
from fedsrc.server.status import run_state, words


@click.command("status")
@click.argument("folder", type=FolderPath)
@FORMAT
def status_command(folder: Path, output: str) -> None:
    """Where a run stands: rounds, sites, what is missing, who was turned away. Changes nothing.

    Exit status 0 certified or still open, 1 abstained or revoked, 2 error.
    """
    state = run_state(folder)
    show(output, asdict(state), *words(state))
    sys.exit(exit_status(state.status, wrong=state.notice))
