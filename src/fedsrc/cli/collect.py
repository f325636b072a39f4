"""`fedsrc collect`: take in release files."""

from __future__ import annotations

from pathlib import Path

import click

from fedsrc.cli.options import FORMAT, KEY, server_key
from fedsrc.cli.output import finish, show
from fedsrc.cli.streams import command, say
from fedsrc.cli.types import FilePath, FolderPath
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
    """Take in release files; when a round is complete, write the next requests or the certificate.

    Exit status 0 certified or still open, 1 abstained, 2 error.
    """
    done = collect(folder, releases, signing.load(server_key(key)), without_missing=without_missing)
    report_collected(done, folder, output, key)


def report_collected(done: Collected, folder: Path, output: str, key: Path | None) -> None:
    """Print what a step of the files mode did, and the next step of a run that is open."""
    for path in done.taken_in:
        say(f"{path}: taken in")
    for path, earlier in done.too_late.items():
        say(f"{path}: refused, its round is closed and its request ended as {earlier}")
    for line in done.news:
        say(line)
    if done.certificate is not None:
        finish(done.certificate, done.replay, folder, output)
    waiting = [f"  {path}  ({whom})" for path, whom in done.asked.items()]
    if done.too_late and not done.taken_in:
        say("\n".join(["Requests that wait for a release:", *waiting]))
        raise FedsrcError("no release was new; nothing was changed", where=str(folder))
    again = command("fedsrc", "collect", folder, "RELEASE...", *(["--key", key] if key else []))
    show(
        output,
        {"status": "OPEN", "waiting": [str(path) for path in done.waiting]},
        "Status: OPEN. Requests that wait for a release:",
        *waiting,
        f"Next: carry them to their sites, then {again}",
    )
