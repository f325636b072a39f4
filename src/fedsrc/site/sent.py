"""What a member of a cohort has sent, kept beside its mask key: a request is answered once under that key, whatever
ledger is asked. A second ledger, or one restored from a back-up, would mask other noise alike, and lay the difference
bare.

Theory: (xvii) What is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedsrc.common import durable
from fedsrc.common.held import HeldFile, whole_lines
from fedsrc.errors import DamagedError, FedsrcError
from fedsrc.protocol.messages import Request, parse_release

MAX_BYTES = 1_000_000_000


def once(place: Path | None, request: Request, make: Callable[[], bytes]) -> bytes:
    """Return what was sent for a cohort's request before, or make it now and keep it, on disk before it leaves."""
    if place is None or not request.of_cohort:
        return make()
    file = HeldFile(place, "another process of this site is answering", 0o600)
    try:
        lines = list(whole_lines(durable.read_lines(place, MAX_BYTES), str(place)))
        file.cut(sum(len(line) + 1 for line in lines))
        for line in lines:
            if _request(line, place) == request.digest:
                return line
        data = make()
        file.append(data + b"\n")
    finally:
        file.close()
    return data


def _request(line: bytes, place: Path) -> str:
    try:
        return parse_release(line).request
    except FedsrcError as error:
        hint = "put it back as it was, or take a new mask key under a new registration"
        raise DamagedError(f"was changed: {error.what}", where=str(place), hint=hint) from error
