"""A site's own account, in SQLite: which units are spent, what was released, what privacy that cost.

One transaction marks the units spent, stores the exact bytes of the release and debits the privacy, before anything
is sent. Asked again for the same request, the ledger gives the same bytes. Spent is spent for every registration.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedsrc.errors import FedsrcError
from fedsrc.records import Positions, Units, shuffled
from fedsrc.release import Request

SCHEMA = """
CREATE TABLE IF NOT EXISTS intake (
    number INTEGER PRIMARY KEY, site TEXT NOT NULL, content TEXT NOT NULL, cut TEXT NOT NULL,
    units INTEGER NOT NULL, seed TEXT NOT NULL, UNIQUE (site, content)
) STRICT;
CREATE TABLE IF NOT EXISTS unit (
    site TEXT NOT NULL, id TEXT NOT NULL, intake INTEGER NOT NULL, PRIMARY KEY (site, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS spend (
    request TEXT PRIMARY KEY, registration TEXT NOT NULL, intake INTEGER NOT NULL, first INTEGER NOT NULL,
    slots INTEGER NOT NULL, rho REAL NOT NULL, release BLOB NOT NULL, UNIQUE (intake, first)
) STRICT;
"""
IN_ORDER = "in order"


@dataclass(frozen=True)
class Intake:
    """A table taken in by a site: its digest, how it was cut into units, their count and the order of spending."""

    number: int
    site: str
    content: str
    cut: str
    units: int
    seed: str

    def order(self) -> Positions:
        """The fixed order of the units; spent units are a prefix of it."""
        if self.seed == IN_ORDER:
            return np.arange(self.units, dtype=np.int64)
        return shuffled(self.units, int(self.seed))


class Ledger:
    """The ledger file. Every method is one transaction."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, isolation_level=None, timeout=30)
        except (sqlite3.Error, OSError) as error:
            raise FedsrcError(f"cannot be opened as a ledger: {error}", where=str(path)) from error
        try:
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.executescript(SCHEMA)
        except sqlite3.Error as error:
            self._connection.close()
            raise FedsrcError(f"cannot be opened as a ledger: {error}", where=str(path)) from error

    def close(self) -> None:
        self._connection.close()

    def take_in(self, site: str, content: str, cut: str, units: Units, *, in_order: bool = False) -> Intake:
        """Fix a table's unit count and order before its scores or losses are used; the same table again is the same
        intake, a unit id seen in another table is refused."""
        with self._transaction() as sql:
            row = sql.execute("SELECT * FROM intake WHERE site = ? AND content = ?", (site, content)).fetchone()
            if row is not None:
                return self._known(Intake(*row), cut, units, in_order)
            seed = IN_ORDER if in_order else str(secrets.randbits(63))
            cursor = sql.execute(
                "INSERT INTO intake (site, content, cut, units, seed) VALUES (?, ?, ?, ?, ?)",
                (site, content, cut, len(units), seed),
            )
            number = int(cursor.lastrowid or 0)
            self._remember(sql, site, number, units)
            return Intake(number, site, content, cut, len(units), seed)

    def spent(self, intake: Intake) -> int:
        """How many units of an intake have been released."""
        with self._transaction() as sql:
            return self._spent(sql, intake)

    def answer(self, intake: Intake, request: Request, rho: float, make: Callable[[Positions], bytes]) -> bytes:
        """The bytes for a request: stored ones if it was answered before, otherwise made now from fresh units."""
        with self._transaction() as sql:
            row = sql.execute("SELECT release FROM spend WHERE request = ?", (request.digest,)).fetchone()
            if row is not None:
                return bytes(row[0])
            first = self._spent(sql, intake)
            if first + request.slots > intake.units:
                left = intake.units - first
                raise FedsrcError(
                    f"site {intake.site!r} has {left} unspent units and was asked for {request.slots}",
                    where=str(self.path),
                    hint="a unit is released once in its life; bring new labelled records",
                )
            data = make(intake.order()[first : first + request.slots])
            sql.execute(
                "INSERT INTO spend VALUES (?, ?, ?, ?, ?, ?, ?)",
                (request.digest, request.registration, intake.number, first, request.slots, rho, data),
            )
        return data

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        sql = self._connection
        try:
            sql.execute("BEGIN IMMEDIATE")
            try:
                yield sql
                sql.execute("COMMIT")
            except BaseException:
                if sql.in_transaction:
                    sql.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise FedsrcError(f"ledger: {error}; nothing was changed", where=str(self.path)) from error

    def _known(self, intake: Intake, cut: str, units: Units, in_order: bool) -> Intake:
        if intake.cut != cut or intake.units != len(units):
            raise FedsrcError(
                f"this table was taken in before as {intake.units} units ({intake.cut}), now as {len(units)} ({cut})",
                where=str(self.path),
                hint="its units stay as they were first cut; use the same unit, development part and missing rule",
            )
        if in_order != (intake.seed == IN_ORDER):
            raise FedsrcError("this table was taken in before with another order", where=str(self.path))
        return intake

    def _remember(self, sql: sqlite3.Connection, site: str, number: int, units: Units) -> None:
        if units.ids is None:
            return
        try:
            sql.executemany("INSERT INTO unit VALUES (?, ?, ?)", ((site, each, number) for each in units.ids))
        except sqlite3.IntegrityError as error:
            raise FedsrcError(
                f"site {site!r}: {self._seen(sql, site, number, units)}",
                where=str(self.path),
                hint="a unit may be used once; leave known units out of a new table",
            ) from error

    def _seen(self, sql: sqlite3.Connection, site: str, number: int, units: Units) -> str:
        query = "SELECT intake FROM unit WHERE site = ? AND id = ?"
        for each in units.ids or ():
            row = sql.execute(query, (site, each)).fetchone()
            if row is not None and row[0] != number:
                return f"unit {each!r} was taken in before, with another table"
        return "a unit id is repeated"

    def _spent(self, sql: sqlite3.Connection, intake: Intake) -> int:
        row = sql.execute("SELECT COALESCE(SUM(slots), 0) FROM spend WHERE intake = ?", (intake.number,)).fetchone()
        return int(row[0])
