"""`fedsrc collect`: take in release files."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import NoReturn

import click

from fedsrc.cli.options import FORMAT, KEY, FilePath, FolderPath, server_key
from fedsrc.cli.output import emit, finish
from fedsrc.cli.streams import say
from fedsrc.common import signing
from fedsrc.errors import FedsrcError
from fedsrc.federation.airgap import Collected, collect


@click.command("collect")
@click.argument("folder", type=FolderPath)
@click.argument("releases", type=FilePath, nargs=-1)
@click.option("--close", "without_missing", is_flag=True, help="Close the round without the releases still missing.")
@FORMAT
@KEY
def collect_command(
    folder: Path, releases: tuple[Path, ...], without_missing: bool, output: str, key: Path | None
) -> None:
    """Take in release files; when a round is complete, write the next requests or the certificate."""
    done = collect(folder, releases, signing.load(server_key(key)), without_missing=without_missing)
    report_collected(done, folder, output, key)


def report_collected(done: Collected, folder: Path, output: str, key: Path | None) -> NoReturn:
    """What a step of the files mode came to."""
    for path in done.taken_in:
        say(f"{path}: taken in")
    for path, earlier in done.too_late.items():
        say(f"{path}: refused, its round is closed and its request ended as {earlier}")
    for line in done.news:
        say(line)
    if done.certificate is not None:
        finish(done.certificate, done.replay, folder, output)
    lines = [f"  {path}  ({whom})" for path, whom in done.asked.items()]
    if done.too_late and not done.taken_in:
        say("\n".join(["Requests that wait for a release:", *lines]))
        raise FedsrcError("no release was new; nothing was changed", where=str(folder))
    if output == "json":
        emit({"status": "OPEN", "waiting": [str(path) for path in done.waiting]})
    else:
        click.echo("\n".join(["Status: OPEN. Requests that wait for a release:", *lines]))
        again = ["fedsrc", "collect", str(folder), "RELEASE...", *(["--key", str(key)] if key else [])]
        click.echo(f"Next: carry them to their sites, then {shlex.join(again)}")
    sys.exit(1)
