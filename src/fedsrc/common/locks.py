"""Locks on files, as Linux and macOS have them.

Windows has none of the kind. There runs are verified and gates opened; what several processes could write at once is
refused before anything is spent.
"""

from __future__ import annotations

from typing import IO, Any

from fedsrc.errors import FedsrcError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def check_locks() -> None:
    """Refuse to begin where nothing could be held."""
    if fcntl is None:
        raise FedsrcError(
            "this system has no locks that keep two processes from writing one file",
            hint="certify, release, serve and monitor on Linux or macOS; verify a run and open a gate here",
        )


def hold(file: IO[Any]) -> None:
    """Hold a file for this process alone, until it is closed; OSError if another process holds it."""
    check_locks()
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_held(file: IO[Any]) -> bool:
    """Return whether another process holds a file; where nothing can be held, nobody does."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    return False
