"""What every command shares: kinds of paths, the output format, the options of a local model, and a line of log."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from fedsrc.scores.backends import DTYPES

FilePath = click.Path(path_type=Path, dir_okay=False)
FolderPath = click.Path(path_type=Path, file_okay=False)
FORMAT = click.option("--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True)
JOBS = click.option(
    "--jobs", type=int, default=-1, show_default=True, callback=lambda _context, _option, value: _jobs(value),
    help="Blocks of trials at once; -1: one per core.",
)  # fmt: skip
REVISION = click.option("--revision", help="Revision of the model.")
DEVICE = click.option("--device", default="auto", show_default=True, help="cpu, cuda, or auto.")
DTYPE = click.option("--dtype", type=click.Choice(["auto", *DTYPES]), default="auto", show_default=True)
BATCH_TOKENS = click.option(
    "--batch-tokens", type=click.IntRange(1), help="Tokens of one forward pass.  [default: by device]"
)
MODEL_CHOICES = ("revision", "device", "dtype", "batch_tokens")  # what open_model takes of them


def _jobs(value: int) -> int:
    if value == 0:
        raise click.BadParameter("0 blocks at once would never end; -1 is one per core")
    return value


def named(pairs: Iterable[str]) -> dict[str, str] | None:
    """NAME=VALUE, each once, as a dictionary; None for none."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals and value) or name in found:
            raise click.BadParameter(f"{pair!r} is not of the form NAME=VALUE, each name once")
        found[name] = value
    return found or None


def say(text: str) -> None:
    """A line of log on stderr."""
    click.echo(text, err=True)
