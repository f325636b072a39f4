"""JSON lines behind a first line that says whose they are: what a model gave, kept as it comes.

With an identity the file is held alone by this process and can be added to. A line that a crash tore off at the end is
cut then, and only after the file has shown itself to be a recording; without an identity nothing is written.
"""

from __future__ import annotations

import fcntl
import json
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO

from fedsrc.errors import BusyError, FedsrcError

FORMAT = 1
HEAD = '{"format": 1, "identity": '
Take = Callable[[dict[str, Any], str], None]


class LineFile:
    """A recording of rows; `take` gets each row that is there, and where it stands."""

    def __init__(self, path: Path, identity: dict[str, str] | None, take: Take, option: str) -> None:
        self.path, self._option = path, option
        self._expected = identity
        self.identity: dict[str, str] = {} if identity is None else dict(identity)
        if path.suffix == ".gz":
            raise FedsrcError("a recording is not compressed", where=str(path), hint="give a name that ends in .jsonl")
        if identity is None and not path.is_file():
            raise FedsrcError("there is no such recording", where=str(path), hint="name a model to record it")
        self._file = None if identity is None else _held(path)
        self._begun = False
        if self._file is not None:
            weakref.finalize(self, self._file.close)
        whole = self._read(take)
        if self._file is not None:
            self._file.truncate(whole)
            self._begun = whole > 0

    def _read(self, take: Take) -> int:
        """Read what is recorded; the number of bytes in whole lines."""
        whole = 0
        try:
            with self.path.open("rb") as file:
                for number, line in enumerate(file, start=1):
                    where = f"{self.path} line {number}"
                    if number == 1:
                        self._check_head(line, where)
                    elif line.endswith(b"\n"):
                        take(_object(line, where), where)
                    if line.endswith(b"\n"):
                        whole += len(line)
        except OSError as error:
            raise FedsrcError(f"cannot be read: {error}", where=str(self.path)) from error
        return whole

    def _check_head(self, line: bytes, where: str) -> None:
        head = HEAD.encode()
        if not line.endswith(b"\n") and head.startswith(line[: len(head)]):
            return  # torn while its first line was written: there is nothing in it yet
        identity = _identity(_object(line, where), where)
        if self._expected is not None and identity != self._expected:
            names = sorted({name for name, _ in set(identity.items()) ^ set(self._expected.items())})
            hint = f"choose another {self._option}"
            raise FedsrcError(f"was recorded with another {' and '.join(names)}", where=str(self.path), hint=hint)
        self.identity = identity

    def append(self, rows: Iterable[dict[str, Any]]) -> None:
        """Write rows down, at once."""
        assert self._file is not None
        lines = [] if self._begun else [f"{HEAD}{json.dumps(self.identity)}}}"]
        lines += [json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows]
        try:
            self._file.write("".join(f"{line}\n" for line in lines).encode())
            self._file.flush()
        except OSError as error:
            raise FedsrcError(f"cannot be written: {error}", where=str(self.path)) from error
        self._begun = True


def _held(path: Path) -> BinaryIO:
    """The file, opened to append and held alone, made if it is not there."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("ab")
    except OSError as error:
        raise FedsrcError(f"cannot be written: {error}", where=str(path)) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise BusyError("another command is writing it", where=str(path), hint="wait, or choose another") from error
    return file


def _object(line: bytes, where: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FedsrcError("is not a recording, or is damaged", where=where) from error
    if not isinstance(value, dict):
        raise FedsrcError("is not a recording, or is damaged", where=where)
    return value


def _identity(head: dict[str, Any], where: str) -> dict[str, str]:
    """The model that a recording's first line names."""
    found = head.get("identity")
    plain = isinstance(found, dict) and all(isinstance(each, str) for each in found.values())
    if head.get("format") != FORMAT or not isinstance(found, dict) or not plain:
        raise FedsrcError("is not a recording of this version", where=where)
    return dict(found)
