"""What every command shares: kinds of paths, output and its streams, the options of a local model, a line of log."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

import click

from fedsrc.scores.models.backends import DTYPES

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


class Unbroken(TextIOWrapper):
    """A stream whose reader may leave (`| head`): the rest is lost, and the command goes on to its own exit status."""

    def __init__(self, stream: TextIO) -> None:
        binary = open(stream.fileno(), "wb", closefd=False)  # noqa: SIM115 it lives as long as the process
        super().__init__(binary, stream.encoding, stream.errors, line_buffering=True)

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except BrokenPipeError:
            self._go_quiet()
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except BrokenPipeError:
            self._go_quiet()

    def _go_quiet(self) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())


def outlive_readers() -> None:
    """Let no closed pipe end this process, where its output is its own (and not, say, that of a test)."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and stream is getattr(sys, f"__{name}__"):
            setattr(sys, name, Unbroken(stream))


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


def command(*parts: object) -> str:
    """A command line as a shell takes it."""
    return shlex.join(str(part) for part in parts)


def say(text: str) -> None:
    """A line of log on stderr."""
    click.echo(text, err=True)
