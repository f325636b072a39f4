"""Append-only files of what a model gave: JSON lines, the first of which names the model.

A file opened with an identity is locked by this process and can be appended to. A last line that a crash tore off is
cut, but only after the file has shown itself to be a recording. Without an identity the file is only read.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fedsrc.common.locks import hold
from fedsrc.data.answers import json_object
from fedsrc.errors import BusyError, FedsrcError
from fedsrc.maths.arrays import Floats

FORMAT = 1
HEAD = b'{"format": 1, "identity": '
DAMAGED = "is not a recording, or is damaged"
PLACES = 6  # decimals of a recorded number
Take = Callable[[dict[str, Any], str], None]


class LineFile:
    """A recording of rows. `take` gets every row and where it stands.

    It is not kept: it belongs to the recording, whose last reference must free the lock.
    """

    def __init__(self, path: Path, identity: dict[str, str] | None, take: Take, option: str) -> None:
        self.path, self._option = path, option
        self._expected = identity
        self.identity: dict[str, str] = {} if identity is None else dict(identity)
        if path.suffix == ".gz":
            raise FedsrcError("a recording is not compressed", where=str(path), hint="give a name that ends in .jsonl")
        if identity is None and not path.is_file():
            raise FedsrcError("there is no such recording", where=str(path), hint="name a model to record it")
        self._file = None if identity is None else _locked(path)
        if self._file is not None:
            weakref.finalize(self, self._file.close)
        whole = self._read(take)
        if self._file is not None:
            self._file.truncate(whole)
        self._begun = whole > 0

    def _read(self, take: Take) -> int:
        """Read what is recorded; return the number of bytes in whole lines."""
        whole = 0
        try:
            with self.path.open("rb") as file:
                for number, line in enumerate(file, start=1):
                    where = f"{self.path} line {number}"
                    if number == 1:
                        self._check_head(line, where)
                    elif line.endswith(b"\n"):
                        take(json_object(line, where, DAMAGED), where)
                    if line.endswith(b"\n"):
                        whole += len(line)
        except OSError as error:
            raise FedsrcError(f"cannot be read: {error}", where=str(self.path)) from error
        return whole

    def _check_head(self, line: bytes, where: str) -> None:
        if not line.endswith(b"\n") and HEAD.startswith(line[: len(HEAD)]):
            return  # torn while its first line was written: there is nothing in it yet
        head = json_object(line, where, DAMAGED)
        found = head.get("identity")
        plain = isinstance(found, dict) and all(isinstance(each, str) for each in found.values())
        if head.get("format") != FORMAT or not isinstance(found, dict) or not plain:
            raise FedsrcError("is not a recording of this version", where=where)
        if self._expected is not None and found != self._expected:
            names = sorted({name for name, _ in set(found.items()) ^ set(self._expected.items())})
            hint = f"choose another {self._option}"
            raise FedsrcError(f"was recorded with another {' and '.join(names)}", where=str(self.path), hint=hint)
        self.identity = found

    def append(self, rows: Sequence[dict[str, Any]], take: Take) -> None:
        """Take the rows as a replay would, so that both give the same numbers, and write them at once."""
        assert self._file is not None
        for row in rows:
            take(row, str(self.path))
        lines = [] if self._begun else [f"{HEAD.decode()}{json.dumps(self.identity)}}}"]
        lines += [json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows]
        try:
            self._file.write("".join(f"{line}\n" for line in lines).encode())
            self._file.flush()
        except OSError as error:
            raise FedsrcError(f"cannot be written: {error}", where=str(self.path)) from error
        self._begun = True


def _locked(path: Path) -> BinaryIO:
    """Open a file to append, creating it if need be, and lock it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("ab")
    except OSError as error:
        raise FedsrcError(f"cannot be written: {error}", where=str(path)) from error
    try:
        hold(file)
    except OSError as error:
        file.close()
        raise BusyError("another command is writing it", where=str(path), hint="wait, or choose another") from error
    return file


@contextmanager
def parsing(damaged: str, where: str) -> Iterator[None]:
    """Refuse a row whose fields are missing or of another kind."""
    try:
        yield
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise FedsrcError(damaged, where=where) from error


def typed(value: Any, kind: type) -> Any:
    """Return a field that is exactly of a kind: True is no int."""
    if type(value) is not kind:
        raise TypeError(kind.__name__)
    return value


def numbers(value: Any) -> Floats:
    """Return a list of JSON numbers as an array."""
    if not all(type(each) in (int, float) for each in typed(value, list)):
        raise TypeError("numbers")
    return np.asarray(value, dtype=np.float64)


def rounded(values: Floats) -> list[Any]:
    """Return an array as it is recorded."""
    found: list[Any] = np.round(values, PLACES).tolist()
    return found
