"""A log of one event a line, in a file that does not grow without end: whoever knocks cannot fill the disk.

Its owner alone can read it, and what is turned over: why a site refuses may say something of its records.
"""

from __future__ import annotations

import io
import logging
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from logging.handlers import RotatingFileHandler
from pathlib import Path

from fedsrc.common.durable import unwritable

BYTES, FILES = 10_000_000, 5
LONGEST_LINE = 500
MODE = 0o600


class OwnFile(RotatingFileHandler):
    """A file for its owner alone, whatever mode it had; those turned over keep theirs."""

    def _open(self) -> io.TextIOWrapper:
        handle = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, MODE)
        _close_to_others(handle)
        return os.fdopen(handle, "a", encoding=self.encoding)


@contextmanager
def open_log(path: Path | None, *, aloud: bool = False) -> Iterator[Callable[[str], None]]:
    """A function that writes lines with their time to a file and, if wanted, to stderr."""
    log = logging.Logger("fedsrc")  # of its own: no other logger hears it
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)] if aloud else []
    if path is not None:
        handlers.append(_file(path))
    words = logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
    words.converter = time.gmtime
    for each in handlers:
        each.setFormatter(words)
        log.addHandler(each)
    try:
        yield lambda text: log.info(one_line(text))
    finally:
        for each in handlers:
            each.close()


def _file(path: Path) -> OwnFile:
    """A log's file; earlier ones beside it are closed to others, too."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for earlier in (path.with_name(f"{path.name}.{number}") for number in range(1, FILES + 1)):
            if earlier.is_file():
                earlier.chmod(MODE)
        return OwnFile(path, maxBytes=BYTES, backupCount=FILES, encoding="utf-8")
    except OSError as error:
        raise unwritable(path, error) from error


def _close_to_others(handle: int) -> None:
    found = os.fstat(handle).st_mode
    if stat.S_ISREG(found) and stat.S_IMODE(found) != MODE:  # /dev/null stays as it is
        os.fchmod(handle, MODE)


def one_line(text: str) -> str:
    """A line of the log is one event, whatever the other end put into it."""
    lines = text.splitlines()
    return " | ".join("".join(c if c.isprintable() else "?" for c in line[:LONGEST_LINE]) for line in lines)
