"""Opening a table on disk: which formats are read, what cannot be, and whether the file has changed since."""

from __future__ import annotations

import codecs
import csv
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

import polars as pl

from fedsrc.common.durable import check_regular
from fedsrc.common.parquet import UNREADABLE, check_unpacked
from fedsrc.errors import FedsrcError

HEAD, CHUNK = 1 << 18, 1 << 20  # bytes that show a separator; bytes read at once
LINES = 50  # that must be cut alike by a separator
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
ENCODINGS = {"utf-8": "UTF-8", "utf-16-le": "UTF-16", "utf-16-be": "UTF-16", "cp1252": "Windows-1252"}
NULS = 0.1  # share of bytes that are zero in UTF-16, at least: digits, separators and Latin letters are half zero
DECIMAL_COMMA = r"^(\s*[-+]?\d*),(\d+\s*%?\s*)$"
TEXT = (".csv", ".tsv")
SUFFIXES = (*TEXT, ".xlsx", ".parquet", ".jsonl", ".ndjson")


@dataclass(frozen=True)
class Place:
    """Turns a row number into words: line 812 of a text file, row 811 of a Parquet file or of a table in memory.
    `written` says how the table is stored."""

    path: Path | str
    word: Literal["line", "row"]
    first: int
    written: str = "a table in memory"

    def row(self, index: int) -> str:
        return f"{self.path} {self.word} {index + self.first}"


def scan(path: Path, names: Collection[str] = ()) -> tuple[pl.LazyFrame, Place]:
    """Return the table, not yet read, and how its rows are counted. Where a format says of every cell what it is, the
    columns that hold `names` are read as text, cell by cell: no row has a say in how another's name is read."""
    suffix = path.suffix.lower()
    if not path.exists():
        raise FedsrcError("there is no such file", where=str(path))
    check_regular(path)
    if suffix == ".parquet":
        check_unpacked(path)
        return pl.scan_parquet(path, glob=False), Place(path, "row", 1, "Parquet")
    if suffix in (".jsonl", ".ndjson"):
        return _json_lines(path, names), Place(path, "line", 1, "JSON lines")
    if suffix == ".xlsx":
        return _spreadsheet(path, names), Place(path, "row", 2, "Excel, its first sheet")
    if suffix in TEXT:
        return _text(path, *_form(path))
    raise FedsrcError(
        f"unknown kind of table {suffix!r}",
        where=str(path),
        hint=f"use {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}",
    )


class _Form(NamedTuple):
    """How a text file is written."""

    encoding: str
    separator: str


def _text(path: Path, encoding: str, separator: str) -> tuple[pl.LazyFrame, Place]:
    """Scan a text file. UTF-8 is read as a stream; another encoding is decoded in memory, whole, whenever it is read.

    Where commas do not separate, a cell 0,5 is the number 0.5.
    """
    if encoding == "utf-8":
        table = pl.scan_csv(path, separator=separator, infer_schema=False, glob=False)
    else:

        def read(rows: int | None = None) -> pl.DataFrame:
            text = _head(path, encoding) if rows == 0 else _decoded(path.read_bytes(), encoding)
            return pl.read_csv(text.encode(), separator=separator, infer_schema=False, n_rows=rows)

        table = pl.defer(read, schema=read(0).schema)
    if separator != ",":
        table = table.with_columns(pl.col(pl.String).str.replace(DECIMAL_COMMA, "${1}.${2}"))
    return table, Place(path, "line", 2, f"{ENCODINGS[encoding]} text, separated by {SEPARATORS[separator]}")


def _json_lines(path: Path, names: Collection[str]) -> pl.LazyFrame:
    table = pl.scan_ndjson(path, infer_schema_length=None)
    found = table.collect_schema()
    words = _words(found, names)
    return pl.scan_ndjson(path, schema={**found, **words}) if words else table


def _words(found: Collection[str], names: Collection[str]) -> dict[str, type[pl.String]]:
    return {name: pl.String for name in found if name in names}


def _spreadsheet(path: Path, names: Collection[str]) -> pl.LazyFrame:
    if find_spec("fastexcel") is None:
        hint = "pip install fastexcel, or save the sheet as .csv"
        raise FedsrcError("an Excel file needs fastexcel, which is not installed", where=str(path), hint=hint)

    def read(words: dict[str, type[pl.String]] | None = None) -> pl.DataFrame:
        return pl.read_excel(path, infer_schema_length=None, schema_overrides=words)

    words = _words(read().columns, names)
    return pl.defer(lambda: read(words), schema=read(words).schema)


def _decoded(data: bytes, encoding: str, errors: str = "strict") -> str:
    """Decode a text file. Where not all of it is UTF-8, every line is read by itself, as UTF-8 or else Windows-1252:
    one row's bytes have no say in how another row is read."""
    if encoding != "cp1252":
        return data.decode(encoding, errors).removeprefix("\ufeff")
    return "".join(_line(each, errors) for each in data.splitlines(keepends=True)).removeprefix("\ufeff")


def _line(data: bytes, errors: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("cp1252", errors)


def _head(path: Path, encoding: str) -> str:
    with path.open("rb") as file:
        return _decoded(file.read(HEAD), encoding, "ignore")


def _form(path: Path) -> _Form:
    """Find out from its bytes how a text file is written: the same bytes, the same answer."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    encoding = _encoding(path, head)
    return _Form(encoding, _separator(_head(path, encoding), path.suffix.lower()))


def _encoding(path: Path, head: bytes) -> str:
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16-le" if head.startswith(codecs.BOM_UTF16_LE) else "utf-16-be"
    if head.count(0) > NULS * len(head):
        return "utf-16-le" if head[1::2].count(0) > head[::2].count(0) else "utf-16-be"
    return "utf-8" if _is_utf8(path) else "cp1252"


def _is_utf8(path: Path) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    with path.open("rb") as file:
        try:
            while chunk := file.read(CHUNK):
                if decoder.getstate()[0] or not chunk.isascii():
                    decoder.decode(chunk)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
    return True


def _separator(head: str, suffix: str) -> str:
    """Return what cuts the first line in two or more, and the next ones in as many; of several, what cuts it finest."""
    usual = "\t" if suffix == ".tsv" else ","

    def fits(separator: str) -> tuple[bool, int, bool]:
        lines = [len(each) for each in islice(csv.reader(StringIO(head), delimiter=separator), LINES) if each]
        whole = lines[:1] if len(lines) < 3 else lines[:-1]  # the last may be cut off
        return len(set(whole)) == 1 and whole[0] > 1, lines[0] if lines else 0, separator == usual

    with suppress(csv.Error):
        return max(SEPARATORS, key=fits)
    return usual


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn what the reader raises while a table is read into an error that names the file."""
    suffix = path.suffix.lower()
    try:
        yield
    except (*UNREADABLE, OSError, ValueError) as error:
        why = (_uneven(path) if suffix in TEXT else None) or _first_line(error)
        raise FedsrcError(f"cannot be read as {suffix[1:]}: {why}", where=str(path), private=(why,)) from error


def _uneven(path: Path) -> str | None:
    """Say which line of a text file has more fields than its first, if one has."""
    with suppress(OSError, ValueError, csv.Error):
        encoding, separator = _form(path)
        with StringIO(_decoded(path.read_bytes(), encoding), newline="") as file:
            lines = csv.reader(file, delimiter=separator)
            fields = len(next(lines, ()))
            for each in lines:
                if len(each) > fields:
                    return f"line {lines.line_num} has {len(each)} fields, and the first line {fields}"
    return None


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
