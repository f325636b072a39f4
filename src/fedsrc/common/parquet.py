"""How large a Parquet file becomes, told by its last bytes: a small file may hold a great many equal rows.

Those bytes are one Thrift structure in the compact protocol, read here into plain values. Nothing else of the file is
read. Its number of rows is what a reader goes by, too; a file that lies about its bytes is not seen through.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from fedsrc.common.durable import open_regular
from fedsrc.errors import FedsrcError

UNREADABLE = (pl.exceptions.PolarsError, pl.exceptions.PanicException)  # a damaged table can make polars panic
MAGIC, TAIL = b"PAR1", 8
MAX_FOOTER = 32_000_000  # bytes
FREE_ROWS, ROWS_PER_BYTE = 3_000_000, 30  # more rows than the first need so many bytes of file
FREE_BYTES, BYTES_PER_BYTE = 1_000_000_000, 200  # the same for what the file unpacks to
ROW_GROUPS, FILE_ROWS, GROUP_BYTES, GROUP_ROWS = 4, 3, 2, 3  # numbers of fields
BOOLEANS = (1, 2)  # kinds of field that are their own value
LONG = 15  # a list whose length stands apart
DEEPEST = 32
Fields = dict[int, Any]


class _Unpacked(NamedTuple):
    """What a file says that it holds."""

    rows: int
    size: int  # bytes


def check_unpacked(path: Path) -> None:
    """Refuse a Parquet file that unpacks to far more than its size. What is not Parquet is left to its reader."""
    with open_regular(path) as file:
        packed = os.fstat(file.fileno()).st_size
        file.seek(max(0, packed - TAIL))
        length, magic = int.from_bytes(file.read(4), "little"), file.read(4)
        if magic != MAGIC or length > packed - TAIL:
            return
        if length > MAX_FOOTER:
            raise ValueError(f"its footer has more than {MAX_FOOTER:,} bytes")
        file.seek(packed - TAIL - length)
        found = unpacked(file.read(length))
    if found.rows > max(FREE_ROWS, packed * ROWS_PER_BYTE):
        raise _too_much(path, f"{found.rows:,} rows", packed)
    if found.size > max(FREE_BYTES, packed * BYTES_PER_BYTE):
        raise _too_much(path, f"{found.size:,} bytes", packed)


def _too_much(path: Path, what: str, packed: int) -> FedsrcError:
    return FedsrcError(
        f"unpacks to {what} from a file of {packed:,} bytes, far more than records do",
        where=str(path),
        hint="nearly all of its rows are the same; if they are records, save them as .csv, or in several tables",
    )


def unpacked(footer: bytes) -> _Unpacked:
    """Read rows and bytes off a footer, whichever of its fields says more; raise ValueError if it is damaged."""
    try:
        fields = _Thrift(footer).struct()
        groups = fields.get(ROW_GROUPS, [])
        rows, size = (sum(max(0, group[field]) for group in groups) for field in (GROUP_ROWS, GROUP_BYTES))
        return _Unpacked(max(rows, fields[FILE_ROWS]), size)
    except (KeyError, IndexError, TypeError, RecursionError) as error:
        raise ValueError("its footer is damaged") from error


class _Thrift:
    """Reads values one after another; a value's end is where the next begins."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at, self._depth = data, 0, 0
        self._kinds: dict[int, Callable[[], Any]] = {
            **dict.fromkeys((1, 2, 3), self._byte),
            **dict.fromkeys((4, 5, 6), self._whole),
            7: lambda: self._skip(8),
            8: lambda: self._skip(self._varint()),
            **dict.fromkeys((9, 10), self._list),
            11: self._map,
            12: self.struct,
        }

    def struct(self) -> Fields:
        """Fields by number."""
        self._depth += 1
        if self._depth > DEEPEST:
            raise ValueError("its footer is nested too deep")
        fields, number = Fields(), 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._whole()
            fields[number] = None if head & 15 in BOOLEANS else self._kinds[head & 15]()
        self._depth -= 1
        return fields

    def _list(self) -> list[Any]:
        head = self._byte()
        count, read = self._varint() if head >> 4 == LONG else head >> 4, self._kinds[head & 15]
        return [read() for _ in range(count)]

    def _map(self) -> None:
        count = self._varint()
        kinds = self._byte() if count else 0
        for _ in range(count):
            self._kinds[kinds >> 4]()
            self._kinds[kinds & 15]()

    def _whole(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 128:
            value, shift = value | (byte & 127) << shift, shift + 7
            if shift > 63:
                raise ValueError("its footer is damaged")
        return value | byte << shift

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _skip(self, count: int) -> None:
        self._at += count
        if self._at > len(self._data):
            raise IndexError
