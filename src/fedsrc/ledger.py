"""A site's own account, in SQLite: which units are spent, what was released, what it cost, what is allowed.

One transaction marks the units spent, stores the exact bytes of the release and debits the privacy, before anything
is sent. Asked again for the same request, the ledger gives the same bytes. Spent is spent for every registration.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedsrc import files
from fedsrc.errors import FedsrcError
from fedsrc.records import Positions, shuffled
from fedsrc.registration import Registration
from fedsrc.release import Request

SCHEMA = """
CREATE TABLE IF NOT EXISTS intake (
    number INTEGER PRIMARY KEY, site TEXT NOT NULL, content TEXT NOT NULL, cut TEXT NOT NULL,
    units INTEGER NOT NULL, seed TEXT NOT NULL, named INTEGER NOT NULL, UNIQUE (site, content)
) STRICT;
CREATE TABLE IF NOT EXISTS unit (
    site TEXT NOT NULL, id TEXT NOT NULL, intake INTEGER NOT NULL, PRIMARY KEY (site, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS spend (
    request TEXT PRIMARY KEY, registration TEXT NOT NULL, intake INTEGER NOT NULL, first INTEGER NOT NULL,
    slots INTEGER NOT NULL, rho REAL NOT NULL, release BLOB NOT NULL, UNIQUE (intake, first)
) STRICT;
CREATE TABLE IF NOT EXISTS allowed (
    site TEXT NOT NULL, registration TEXT NOT NULL, text TEXT NOT NULL, PRIMARY KEY (site, registration)
) STRICT;
CREATE TABLE IF NOT EXISTS policy (site TEXT PRIMARY KEY, max_epsilon REAL NOT NULL) STRICT;
"""
FIND_INTAKE = "SELECT number, site, content, cut, units, seed FROM intake WHERE site = ? AND content = ?"
ACCOUNTS = """
SELECT number, site, content, cut, units, seed, COALESCE(SUM(slots), 0), COUNT(request), COALESCE(MAX(rho), 0)
FROM intake LEFT JOIN spend ON spend.intake = intake.number WHERE site = ? GROUP BY number ORDER BY number
"""
IN_ORDER = "in order"
DEVELOPMENT = "development records"
VERSION = 1
WAIT_SECONDS = 20  # for another process that holds the ledger


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


@dataclass(frozen=True)
class Account:
    """One intake as a person wants to see it."""

    intake: Intake
    spent: int
    releases: int
    largest_rho: float


class Ledger:
    """The ledger file. Every method is one transaction."""

    def __init__(self, path: Path, *, must_exist: bool = False) -> None:
        self.path = path
        if must_exist and not path.is_file():
            raise FedsrcError(
                "there is no ledger here",
                where=str(path),
                hint="name it with --ledger; only a site that has none yet starts one, with `fedsrc allow`",
            )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, isolation_level=None, timeout=WAIT_SECONDS)
        except (sqlite3.Error, OSError) as error:
            raise FedsrcError(f"cannot be opened as a ledger: {error}", where=str(path)) from error
        try:
            self._connection.execute("PRAGMA synchronous = FULL")
            self._create()
        except (sqlite3.Error, FedsrcError) as error:
            self._connection.close()
            what = error.what if isinstance(error, FedsrcError) else error
            raise FedsrcError(f"cannot be opened as a ledger: {what}", where=str(path)) from error

    def close(self) -> None:
        self._connection.close()

    def take_in(
        self,
        site: str,
        content: str,
        cut: str,
        units: int,
        ids: Iterable[str] | None,
        *,
        in_order: bool = False,
        fresh: bool = False,
    ) -> Intake:
        """Fix a table's unit count and order before its scores or losses are used; the same table again is the same
        intake, a unit id seen in another table is refused. Where ids cannot tell, `fresh` must assert it."""
        with self._transaction() as sql:
            row = sql.execute(FIND_INTAKE, (site, content)).fetchone()
            if row is not None:
                return self._known(Intake(*row), cut, units, in_order)
            if not fresh:
                self._check_comparable(sql, site, ids is not None)
            seed = IN_ORDER if in_order else str(secrets.randbits(63))
            cursor = sql.execute(
                "INSERT INTO intake (site, content, cut, units, seed, named) VALUES (?, ?, ?, ?, ?, ?)",
                (site, content, cut, units, seed, ids is not None),
            )
            number = int(cursor.lastrowid or 0)
            if ids is not None:
                self._remember(sql, site, number, ids)
            return Intake(number, site, content, cut, units, seed)

    def spent(self, intake: Intake, *, besides: str = "") -> int:
        """How many units of an intake have been released (under other registrations than `besides`)."""
        with self._transaction() as sql:
            return self._spent(sql, intake, besides)

    def given(self, site: str, registration: str) -> int:
        """How many units a site has released under a registration."""
        with self._transaction() as sql:
            return self._given(sql, site, registration)

    def answer(
        self,
        intake: Intake,
        request: Request,
        rho: float,
        make: Callable[[int, int], bytes],
        *,
        capacity: int | None = None,
    ) -> bytes:
        """The bytes for a request: stored ones if it was answered before, otherwise made now from fresh units.

        `make` gets the first place in the intake's order and the number of places.
        """
        with self._transaction() as sql:
            row = sql.execute("SELECT release FROM spend WHERE request = ?", (request.digest,)).fetchone()
            if row is not None:
                return bytes(row[0])
            first = self._spent(sql, intake)
            left = intake.units - first
            if capacity is not None:
                left = min(left, capacity - self._given(sql, intake.site, request.registration))
            if request.slots > left:
                raise FedsrcError(
                    f"site {intake.site!r} has {max(0, left)} unspent units and was asked for {request.slots}",
                    where=str(self.path),
                    hint="a unit is released once in its life; bring new labelled records",
                )
            data = make(first, request.slots)
            sql.execute(
                "INSERT INTO spend VALUES (?, ?, ?, ?, ?, ?, ?)",
                (request.digest, request.registration, intake.number, first, request.slots, rho, data),
            )
        return data

    def allow(self, site: str, registration: Registration) -> None:
        """Allow releases of a registration at a site."""
        with self._transaction() as sql:
            row = (site, registration.digest, registration.to_toml())
            sql.execute("INSERT OR IGNORE INTO allowed VALUES (?, ?, ?)", row)

    def forbid(self, site: str, registration: str) -> None:
        """Withdraw the permission for a registration."""
        with self._transaction() as sql:
            sql.execute("DELETE FROM allowed WHERE site = ? AND registration = ?", (site, registration))

    def allowed(self, site: str) -> list[Registration]:
        """The registrations a site has allowed."""
        with self._transaction() as sql:
            rows = sql.execute("SELECT text FROM allowed WHERE site = ? ORDER BY rowid", (site,)).fetchall()
        return [Registration.from_toml(text, where=str(self.path)) for (text,) in rows]

    def limit(self, site: str, max_epsilon: float) -> None:
        """Set the largest epsilon that a site will ever allow one of its units."""
        with self._transaction() as sql:
            sql.execute("INSERT OR REPLACE INTO policy VALUES (?, ?)", (site, max_epsilon))

    def max_epsilon(self, site: str) -> float | None:
        """The site's own limit, if it has set one."""
        with self._transaction() as sql:
            row = sql.execute("SELECT max_epsilon FROM policy WHERE site = ?", (site,)).fetchone()
        return None if row is None else float(row[0])

    def sites(self) -> list[str]:
        """Every site this ledger knows."""
        query = "SELECT site FROM intake UNION SELECT site FROM allowed UNION SELECT site FROM policy ORDER BY site"
        with self._transaction() as sql:
            return [str(row[0]) for row in sql.execute(query)]

    def accounts(self, site: str) -> list[Account]:
        """A site's intakes with what was spent of each."""
        with self._transaction() as sql:
            rows = sql.execute(ACCOUNTS, (site,)).fetchall()
        return [Account(Intake(*row[:6]), *row[6:]) for row in rows]

    def _create(self) -> None:
        with self._transaction() as sql:
            version = int(sql.execute("PRAGMA user_version").fetchone()[0])
            if version > VERSION:
                raise FedsrcError("it was written by a newer version of fedsrc")
            if version < VERSION:
                for statement in SCHEMA.split(";\n"):
                    sql.execute(statement)
                sql.execute(f"PRAGMA user_version = {VERSION}")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        sql = self._connection
        try:
            sql.execute("BEGIN IMMEDIATE")
            try:
                yield sql
                files.commit(sql)
            except BaseException:
                if sql.in_transaction:
                    sql.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise FedsrcError(f"ledger: {error}; nothing was changed", where=str(self.path)) from error

    def _known(self, intake: Intake, cut: str, units: int, in_order: bool) -> Intake:
        if intake.cut == DEVELOPMENT != cut:
            raise FedsrcError(
                "this table chose thresholds, so its units are not protected and cannot calibrate",
                where=str(self.path),
                hint="calibrate on other records; `fedsrc certify` without a registration splits one table for you",
            )
        if intake.cut != cut or intake.units != units:
            raise FedsrcError(
                f"this table was taken in before as {intake.units} units ({intake.cut}), now as {units} ({cut})",
                where=str(self.path),
                hint="its units stay as they were first cut; use the same unit, development part and missing rule",
            )
        if in_order != (intake.seed == IN_ORDER):
            raise FedsrcError("this table was taken in before with another order", where=str(self.path))
        return intake

    def _check_comparable(self, sql: sqlite3.Connection, site: str, named: bool) -> None:
        """Without ids in both tables, nobody can tell whether a unit comes back under another table's digest."""
        query = "SELECT COUNT(*) FROM intake WHERE site = ? AND (NOT named OR NOT ?)"
        if sql.execute(query, (site, named)).fetchone()[0]:
            raise FedsrcError(
                f"site {site!r} has taken in another table before, and without ids a unit used twice would not be seen",
                where=str(self.path),
                hint="give both tables an id column, or pass --fresh to assert that no unit was in an earlier table",
            )

    def _remember(self, sql: sqlite3.Connection, site: str, number: int, ids: Iterable[str]) -> None:
        for each in ids:
            try:
                sql.execute("INSERT INTO unit VALUES (?, ?, ?)", (site, each, number))
            except sqlite3.IntegrityError as error:
                raise FedsrcError(
                    f"site {site!r}: unit {each!r} was taken in before",
                    where=str(self.path),
                    hint="a unit may be used once; leave known units out of a new table",
                ) from error

    def _given(self, sql: sqlite3.Connection, site: str, registration: str) -> int:
        query = (
            "SELECT COALESCE(SUM(slots), 0) FROM spend JOIN intake ON intake = number"
            " WHERE site = ? AND registration = ?"
        )
        return int(sql.execute(query, (site, registration)).fetchone()[0])

    def _spent(self, sql: sqlite3.Connection, intake: Intake, besides: str = "") -> int:
        query = "SELECT COALESCE(SUM(slots), 0) FROM spend WHERE intake = ? AND registration != ?"
        return int(sql.execute(query, (intake.number, besides)).fetchone()[0])
