"""What every command says on its streams, however it ends; this module loads nothing heavy."""

from __future__ import annotations

import ast
import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Callable
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NoReturn, TextIO

import click

PAUSE = 0.2  # seconds between looks for a signal

ARGUMENT = re.compile(
    r"`(\w+)=(True|\d+|'[^'`]*'|\"[^\"`]*\"|\['[^'`]*'(?:, '[^'`]*')*\]|)`"
)  # an argument, as errors of the library name it
FLAGS = {
    "target_risk": "target",
    "cohorts": "cohort",
    "mask_keys": "mask-key",
    "also_scores": "also-score",
}  # where they are not alike


class Unbroken(TextIOWrapper):
    """A stream whose reader may leave (`| head`): the rest is lost, and the command keeps its exit status."""

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
    """Keep running when a pipe is closed, unless stdout or stderr were replaced, as tests do."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and stream is getattr(sys, f"__{name}__"):
            setattr(sys, name, Unbroken(stream))


def command(*parts: object) -> str:
    """Quote a command line for a shell."""
    return shlex.join(f"./{part}" if isinstance(part, Path) and str(part)[0] == "-" else str(part) for part in parts)


def in_flags(message: str) -> str:
    """Say a message of the library in flags: `unit='source'` is --unit source, `grid=` is --grid."""
    return ARGUMENT.sub(_flag, message)


def flag(name: str) -> str:
    """Return the flag that sets an argument of the library."""
    return f"--{FLAGS.get(name, name.replace('_', '-'))}"


def _flag(argument: re.Match[str]) -> str:
    name, value = argument.groups()
    if value in ("", "True"):
        return flag(name)
    found = ast.literal_eval(value)
    return f"{flag(name)} {shlex.quote(','.join(found) if isinstance(found, list) else str(found))}"


def say(text: str) -> None:
    """Write a line to the log on stderr; what the library says of arguments, in flags."""
    click.echo(in_flags(text), err=True)


def stopped() -> Callable[[], None]:
    """Return a function that waits for an interruption or SIGTERM, from now on.

    It looks again and again: the system may hand a signal to another thread, which does not wake one that waits for a
    lock; and a handler that sets an event can meet the event's own lock.
    """
    came: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: came.append(number))

    def wait() -> None:
        while not came:
            time.sleep(PAUSE)

    return wait


def stop_on_terminate() -> None:
    """Treat SIGTERM as an interruption, so that everything that was started is stopped."""

    def interrupt(*_: Any) -> NoReturn:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
