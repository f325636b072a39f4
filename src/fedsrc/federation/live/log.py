"""A log with one event a line. It rotates, so that whoever connects cannot fill the disk.

Only its owner can read it and its rotated files: why a site refuses may say something about its records.
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
    """A log file that only its owner can read, whatever mode it had."""

    def _open(self) -> io.TextIOWrapper:
        handle = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, MODE)
        if stat.S_ISREG(os.fstat(handle).st_mode):  # /dev/null stays as it is
            os.fchmod(handle, MODE)
        return os.fdopen(handle, "a", encoding=self.encoding)


@contextmanager
def open_log(path: Path | None, *, aloud: bool = False) -> Iterator[Callable[[str], None]]:
    """Yield a function that writes lines with their time to a file and, `aloud`, to stderr."""
    log = logging.Logger("fedsrc")  # attached to no other logger
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
    """Open a log file; close the rotated ones beside it to others, too."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for earlier in (path.with_name(f"{path.name}.{number}") for number in range(1, FILES + 1)):
            if earlier.is_file():
                earlier.chmod(MODE)
        return OwnFile(path, maxBytes=BYTES, backupCount=FILES, encoding="utf-8")
    except OSError as error:
        raise unwritable(path, error) from error


def one_line(text: str) -> str:
    """Put an event on one line, whatever the other end wrote into it."""
    lines = text.splitlines()
    return " | ".join("".join(c if c.isprintable() else "?" for c in line[:LONGEST_LINE]) for line in lines)
