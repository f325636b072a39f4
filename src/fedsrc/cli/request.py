"""`fedsrc request`: start a run by files."""

from __future__ import annotations

from pathlib import Path

import click

from fedsrc.cli.collect import report_collected
from fedsrc.cli.options import FORMAT, KEY, run_folder, server_key
from fedsrc.cli.types import FilePath
from fedsrc.common import signing
from fedsrc.federation.airgap import start
from fedsrc.protocol.registration import Registration


@click.command("request")
@click.argument("registration", type=FilePath)
@run_folder()
@FORMAT
@KEY
def request_command(registration: Path, folder: Path, output: str, key: Path | None) -> None:
    """Start a run by files: write the first requests, to be carried to the sites.

    Exit status 0 certified or still open, 1 abstained, 2 error.
    """
    done = start(Registration.read(registration), folder, signing.load(server_key(key)))
    report_collected(done, folder, output, key)
