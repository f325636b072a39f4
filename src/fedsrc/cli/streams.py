"""Streams of a command: a line of log on stderr, output that outlives its reader, a command line in words."""

from __future__ import annotations

import ast
import os
import re
import shlex
import signal
import sys
from io import TextIOWrapper
from typing import Any, NoReturn, TextIO

import click

ARGUMENT = re.compile(r"`(\w+)=(True|\d+|'[^'`]*'|\"[^\"`]*\"|)`")  # an argument, as errors of the library name it


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


def command(*parts: object) -> str:
    """A command line as a shell takes it."""
    return shlex.join(str(part) for part in parts)


def in_flags(message: str) -> str:
    """A message of the library as a command line says it: `unit='source'` is --unit source, `grid=` is --grid."""
    return ARGUMENT.sub(_flag, message)


def _flag(argument: re.Match[str]) -> str:
    name, value = argument.groups()
    flag = f"--{name.replace('_', '-')}"
    return flag if value in ("", "True") else f"{flag} {shlex.quote(str(ast.literal_eval(value)))}"


def say(text: str) -> None:
    """A line of log on stderr."""
    click.echo(text, err=True)


def stop_on_terminate() -> None:
    """A request to terminate is an interruption: everything that was started is stopped."""

    def interrupt(*_: Any) -> NoReturn:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
