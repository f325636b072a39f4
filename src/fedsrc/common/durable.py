"""Atomic writes and bounded reads, and the five operations that make state durable.

Everything that must survive a crash goes through `write`, `sync`, `move`, `link` and `commit`, so that tests can
fail or kill the process at every one of them. What is read may come from anybody: regular files only, and bounded.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import IO, BinaryIO

from fedsrc.errors import FedsrcError

LONGEST_LINE = 64_000_000  # bytes
PIECE = 1 << 20
READ = os.O_RDONLY | sum(getattr(os, flag, 0) for flag in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))  # where it has them
KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def write(file: IO[bytes], data: bytes) -> None:
    """Hand bytes to the operating system."""
    file.write(data)
    file.flush()


def sync(handle: int) -> None:
    """Wait until a file or folder is on disk."""
    os.fsync(handle)


def move(source: Path, target: Path) -> None:
    """Replace a file atomically."""
    source.replace(target)


def link(source: Path, target: Path) -> None:
    """Give a file its name atomically, unless the name is taken."""
    target.hardlink_to(source)


def commit(sql: sqlite3.Connection) -> None:
    """Make a transaction durable."""
    sql.execute("COMMIT")


def write_whole(path: Path, data: bytes, *, mode: int = 0o644, replace: bool = True) -> None:
    """Write `data` to `path` atomically. With replace=False an existing file is kept and nothing changes."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                write(file, data)
                if hasattr(os, "fchmod"):  # Windows gives a file the rights of its folder
                    os.fchmod(file.fileno(), mode)
                sync(file.fileno())
            if replace:
                move(temporary, path)
            else:
                _link_or_move(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        sync_folder(path.parent)
    except OSError as error:
        raise unwritable(path, error) from error


def _link_or_move(temporary: Path, path: Path) -> None:
    """Give the file its name unless the name is taken; file systems without links (a USB stick's) move it."""
    try:
        link(temporary, path)
    except FileExistsError:
        pass  # another process was first; its file stands
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS) or path.exists():
            raise
        move(temporary, path)


def sync_folder(path: Path) -> None:
    """Make a folder's new entries durable; Windows opens no folder, and has no such call."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        sync(handle)
    finally:
        os.close(handle)


def unwritable(path: Path, error: OSError) -> FedsrcError:
    """The error for a file that cannot be written."""
    reason = error.strerror or str(error)
    return FedsrcError(
        f"cannot be written: {reason}", where=str(path), hint="check the folder, its rights and free space"
    )


def open_regular(path: Path) -> BufferedReader:
    """A regular file, opened to read. A device, a pipe, a socket or a folder, which may have no end, is refused.

    A link to a regular file is fine.
    """
    try:
        _regular_or_refused(path, path.stat())  # before it is opened: opening a device may do something
        handle = os.open(path, READ)
        try:
            _regular_or_refused(path, os.fstat(handle))  # and after: it may have become another
            return os.fdopen(handle, "rb")
        except BaseException:
            os.close(handle)
            raise
    except OSError as error:
        raise unreadable(path, error) from error


def _regular_or_refused(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = next((words for test, words in KINDS if test(found.st_mode)), "something else")
        raise FedsrcError(f"is {kind}, not a file", where=str(path), hint="name a file, or a link to one")


def check_regular(path: Path) -> None:
    """Refuse what is there and not a regular file; whoever reads it reports that it is missing."""
    with suppress(OSError):
        _regular_or_refused(path, path.stat())


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder; one that cannot be looked at is an error, whichever the system names."""
    try:
        return path.is_dir()
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> FedsrcError:
    """Return the error for a file that cannot be read."""
    return FedsrcError(error.strerror or str(error), where=str(path))


def read_bytes(path: Path, limit: int) -> bytes:
    """Read a file of at most `limit` bytes, whatever the system says of its size."""
    return b"".join(_pieces(path, limit, lambda file, most: file.read(min(most, PIECE))))


def read_lines(path: Path, limit: int, *, start: int = 0, longest: int = LONGEST_LINE) -> Iterator[bytes]:
    """Yield the lines of a file of at most `limit` bytes, from a place in it, with their line ends."""
    for line in _pieces(path, limit, lambda file, most: file.readline(min(most, longest + 1)), start):
        if len(line) > longest:
            raise FedsrcError(f"has a line of more than {longest:,} bytes", where=str(path))
        yield line


def _pieces(path: Path, limit: int, take: Callable[[BinaryIO, int], bytes], start: int = 0) -> Iterator[bytes]:
    """Yield a file piece by piece; refuse it as soon as it is known to be too large."""
    with open_regular(path) as file:
        left = limit - start
        try:
            file.seek(start)
            if os.fstat(file.fileno()).st_size > limit:
                raise _larger(path, limit)
            while piece := take(file, left + 1):
                left -= len(piece)
                if left < 0:
                    raise _larger(path, limit)
                yield piece
        except OSError as error:
            raise unreadable(path, error) from error


def _larger(path: Path, limit: int) -> FedsrcError:
    return FedsrcError(f"larger than {limit:,} bytes", where=str(path))


def read_text(path: Path, limit: int) -> str:
    """Read a UTF-8 text file of at most `limit` bytes."""
    try:
        return read_bytes(path, limit).decode()
    except UnicodeDecodeError as error:
        raise FedsrcError("not a UTF-8 text file", where=str(path)) from error
