"""Files that are either whole or not there, and the five things that can make state durable.

Everything that must survive a crash goes through `write`, `sync`, `move`, `link` and `commit`, so that tests can
fail or kill the process at every one of them.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from fedsrc.errors import FedsrcError


def write(file: IO[bytes], data: bytes) -> None:
    """Hand bytes to the operating system."""
    file.write(data)
    file.flush()


def sync(handle: int) -> None:
    """Wait until a file or folder is on disk."""
    os.fsync(handle)


def move(source: Path, target: Path) -> None:
    """Put a file in another's place, in one step."""
    source.replace(target)


def link(source: Path, target: Path) -> None:
    """Give a file its name unless the name is taken, in one step."""
    target.hardlink_to(source)


def commit(sql: sqlite3.Connection) -> None:
    """Make a transaction durable."""
    sql.execute("COMMIT")


def write_whole(path: Path, data: bytes, *, mode: int = 0o644, replace: bool = True) -> None:
    """Put `data` at `path` in one step. With replace=False an existing file is kept and nothing changes."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                write(file, data)
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
    """Make a folder's new entries durable."""
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


def read_bytes(path: Path, limit: int) -> bytes:
    """A file of at most `limit` bytes."""
    try:
        if path.stat().st_size > limit:
            raise FedsrcError(f"larger than {limit:,} bytes", where=str(path))
        return path.read_bytes()
    except OSError as error:
        raise FedsrcError(error.strerror or str(error), where=str(path)) from error


def read_lines(path: Path, limit: int) -> Iterator[bytes]:
    """The lines of a file of at most `limit` bytes, one at a time, with their ends."""
    try:
        if path.stat().st_size > limit:
            raise FedsrcError(f"larger than {limit:,} bytes", where=str(path))
        with path.open("rb") as file:
            yield from file
    except OSError as error:
        raise FedsrcError(error.strerror or str(error), where=str(path)) from error


def read_text(path: Path, limit: int) -> str:
    """A UTF-8 text file of at most `limit` bytes."""
    try:
        return read_bytes(path, limit).decode()
    except UnicodeDecodeError as error:
        raise FedsrcError("not a UTF-8 text file", where=str(path)) from error
