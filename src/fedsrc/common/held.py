"""Append-only files of lines, each held by one process: what is added is on disk when `append` returns."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from fedsrc.common import durable
from fedsrc.common.locks import hold
from fedsrc.errors import BusyError

TRIES, PAUSE = 5, 0.1  # to hold a file, seconds


class HeldFile:
    """A file that this process alone adds to, made with the given rights if it is new."""

    def __init__(self, path: Path, busy: str, mode: int = 0o666) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            new = not path.exists()
            self._file = open(path, "a+b", opener=lambda name, flags: os.open(name, flags, mode))  # noqa: SIM115
            if new:
                durable.sync_folder(path.parent)
        except OSError as error:
            raise durable.unwritable(path, error) from error
        try:
            self._hold(busy)
        except BaseException:
            self._file.close()
            raise

    def cut(self, size: int) -> None:
        """Drop what a crash left behind the last whole line, and wait for the disk, as who was killed may not have."""
        try:
            if size < self.path.stat().st_size:
                self._file.truncate(size)
            durable.sync(self._file.fileno())
        except OSError as error:
            raise durable.unwritable(self.path, error) from error

    def append(self, data: bytes) -> None:
        """Write bytes in one go and wait for the disk."""
        try:
            durable.write(self._file, data)
            durable.sync(self._file.fileno())
        except OSError as error:
            raise durable.unwritable(self.path, error) from error

    def close(self) -> None:
        with suppress(OSError):  # what could not be written was reported then
            self._file.close()

    def _hold(self, busy: str) -> None:
        """Lock the file, or refuse. Retry: a process that only tests the lock holds it for a moment, too."""
        for attempt in range(TRIES):
            try:
                hold(self._file)
                return
            except OSError as error:
                if attempt == TRIES - 1:
                    raise BusyError(busy, where=str(self.path)) from error
            time.sleep(PAUSE)


def whole_lines(lines: Iterable[bytes], where: str) -> Iterator[bytes]:
    """Yield lines without their ends. A torn last line is left out with a warning."""
    for number, line in enumerate(lines, start=1):
        if not line.endswith(b"\n"):
            torn = "torn by a crash while writing, or cut off; it is left out"
            warnings.warn(f"{where} line {number} is not whole: {torn}", stacklevel=2)
            return
        yield line[:-1]
