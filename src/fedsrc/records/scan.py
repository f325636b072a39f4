"""Opening a table on disk: which formats are read, what cannot be, and whether the file has changed since."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import polars as pl

from fedsrc.common.durable import check_regular
from fedsrc.common.parquet import UNREADABLE, check_unpacked
from fedsrc.errors import FedsrcError

MAX_HEADER = 1_000_000  # bytes
SEPARATORS = "save it with commas between the columns and points in the numbers (0.5, not 0,5)"


@dataclass(frozen=True)
class Place:
    """Turns a row number into words: line 812 of a text file, row 811 of a Parquet file or of a table in memory."""

    path: Path | str
    word: Literal["line", "row"]
    first: int

    def row(self, index: int) -> str:
        return f"{self.path} {self.word} {index + self.first}"


def scan(path: Path) -> tuple[pl.LazyFrame, Place]:
    """Return the table, not yet read, and how its rows are counted."""
    suffix = path.suffix.lower()
    if not path.exists():
        raise FedsrcError("there is no such file", where=str(path))
    check_regular(path)
    if suffix == ".parquet":
        check_unpacked(path)
        return pl.scan_parquet(path, glob=False), Place(path, "row", 1)
    if suffix in (".jsonl", ".ndjson"):
        return pl.scan_ndjson(path, infer_schema_length=None), Place(path, "line", 1)
    if suffix in (".csv", ".tsv"):
        separator = "\t" if suffix == ".tsv" else ","
        _check_separator(path, separator)
        return pl.scan_csv(path, separator=separator, infer_schema=False, glob=False), Place(path, "line", 2)
    raise FedsrcError(
        f"unknown kind of table {suffix!r}", where=str(path), hint="use .csv, .tsv, .parquet, .jsonl or .ndjson"
    )


def _check_separator(path: Path, separator: str) -> None:
    """Refuse a table whose first line has ';' (as spreadsheets write in half of Europe) and no separator."""
    with path.open("rb") as file:
        head = file.readline(MAX_HEADER)
    if b";" in head and separator.encode() not in head:
        raise FedsrcError(
            f"its columns are separated by ';', not by {'a tab' if separator == chr(9) else repr(separator)}",
            where=str(path),
            hint=SEPARATORS,
        )


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn what the reader raises while a table is read into an error that names the file."""
    suffix = path.suffix.lower()
    try:
        yield
    except (*UNREADABLE, OSError, ValueError) as error:
        raise FedsrcError(
            f"cannot be read as {suffix[1:]}: {_first_line(error)}",
            where=str(path),
            hint="every line needs the same number of fields" if suffix in (".csv", ".tsv") else None,
            private=(_first_line(error),),
        ) from error


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


class Version(NamedTuple):
    """What changes when a file does."""

    inode: int
    size: int
    changed: int


def file_version(path: Path) -> Version:
    """Return a file's version without reading it."""
    with readable(path):
        found = path.stat()
    return Version(found.st_ino, found.st_size, found.st_mtime_ns)


def check_version(path: Path, version: Version) -> None:
    """Refuse a file that has changed since: a ledger knows rows by the digest, so both must be of the same file."""
    if file_version(path) != version:
        raise FedsrcError(
            "the table changed while it was read; nothing was released",
            where=str(path),
            hint="leave the file alone, then release again",
        )
