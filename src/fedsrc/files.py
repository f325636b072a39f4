"""Files that are either whole or not there: every write goes to a temporary file, to disk, then into place."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from fedsrc.errors import FedsrcError


def write_whole(path: Path, data: bytes, *, mode: int = 0o644, replace: bool = True) -> None:
    """Put `data` at `path` in one step. With replace=False an existing file is kept and nothing changes."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            _into_place(temporary, path, replace)
        finally:
            temporary.unlink(missing_ok=True)
        sync_folder(path.parent)
    except OSError as error:
        raise unwritable(path, error) from error


def sync_folder(path: Path) -> None:
    """Make a folder's new entries durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def unwritable(path: Path, error: OSError) -> FedsrcError:
    """The error for a file that cannot be written."""
    reason = error.strerror or str(error)
    return FedsrcError(
        f"cannot be written: {reason}", where=str(path), hint="check the folder, its rights and free space"
    )


def _into_place(temporary: Path, path: Path, replace: bool) -> None:
    if replace:
        temporary.replace(path)
        return
    with suppress(FileExistsError):  # another process was first; its file stands
        path.hardlink_to(temporary)
