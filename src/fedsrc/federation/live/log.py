"""A log of one event a line, in a file that does not grow without end: whoever knocks cannot fill the disk."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from logging.handlers import RotatingFileHandler
from pathlib import Path

BYTES, FILES = 10_000_000, 5
LONGEST_LINE = 500


@contextmanager
def open_log(path: Path | None, *, aloud: bool = False) -> Iterator[Callable[[str], None]]:
    """A function that writes lines with their time to a file and, if wanted, to stderr."""
    log = logging.Logger("fedsrc")  # of its own: no other logger hears it
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)] if aloud else []
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        handlers.append(RotatingFileHandler(path, maxBytes=BYTES, backupCount=FILES, encoding="utf-8"))
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


def one_line(text: str) -> str:
    """A line of the log is one event, whatever the other end put into it."""
    lines = text.splitlines()
    return " | ".join("".join(c if c.isprintable() else "?" for c in line[:LONGEST_LINE]) for line in lines)
