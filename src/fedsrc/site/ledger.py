"""A site's own account, in SQLite: which units are spent, what was released, what it cost, what is allowed.

One transaction marks the units spent, of one intake or of several, stores the exact bytes of the release and debits
the privacy, before anything is sent. Asked again for the same request, the ledger gives the same bytes. Spent is spent
for every registration. The units that choose thresholds are released once too, all together: a table has one
development release in its life.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fedsrc.common import durable
from fedsrc.common.canonical import digest_bytes
from fedsrc.errors import FedsrcError
from fedsrc.maths.privacy import admits, compose, rho_tight
from fedsrc.protocol.messages import START, Link, Request
from fedsrc.protocol.registration import Registration
from fedsrc.records.order import IN_ORDER
from fedsrc.records.units import Names
from fedsrc.site.ledger_schema import upgrade
from fedsrc.site.recognition import Intake, Recognition

FIND_INTAKE = "SELECT number, site, content, cut, units, seed, cut_by FROM intake WHERE site = ? AND content = ?"
TAKE_IN = """
INSERT INTO intake (site, content, cut, units, seed, kinds, whole, cut_by, cells) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
ACCOUNTS = """
SELECT number, site, content, cut, units, seed, COALESCE(SUM(slots), 0), COUNT(request),
COALESCE(MAX(release.rho), 0), asserted, (SELECT rho FROM development WHERE development.content = intake.content)
FROM intake LEFT JOIN spend ON spend.intake = intake.number LEFT JOIN release USING (request)
WHERE site = ? GROUP BY number ORDER BY number
"""
MADE = "FROM release JOIN spend USING (request) JOIN intake ON intake = number WHERE site = ? AND registration = ?"
BY_HOLDER = "FROM release WHERE ? IS NOT NULL AND registration = ?"  # its chain runs over all of its sites
OTHERS = """
SELECT COUNT(*), TOTAL(fails) FROM (
    SELECT DISTINCT registration, COALESCE(fails, 1.0) AS fails
    FROM release JOIN spend USING (request) JOIN intake ON intake = number LEFT JOIN claim USING (registration)
    WHERE content = ? AND registration != ?
) WHERE fails > 0
"""
DELTA = 1e-6  # a site converts to epsilon at its own delta, whatever a registration says
WAIT_SECONDS = 20  # for another process that holds the ledger


@dataclass(frozen=True)
class Account:
    """One intake as a person wants to see it."""

    intake: Intake
    spent: int
    releases: int
    largest_rho: float
    asserted: bool  # somebody said that its units were in no earlier table, where the ledger could not tell
    developed: float | None  # what the one release of its development units cost them; inf: published as they are


class Take(NamedTuple):
    """So many of the next units of an intake; `capacity` is the most that its registration lets its site give."""

    intake: Intake
    slots: int
    capacity: int | None = None


class Ledger:
    """The ledger file. Every method is one transaction, and so is all that is done `at_once`."""

    def __init__(self, path: Path, *, must_exist: bool = False) -> None:
        self.path = path
        if must_exist and not path.is_file():
            raise FedsrcError(
                "there is no ledger here",
                where=str(path),
                hint="name it with `ledger=`; only a site that has none yet starts one, with `fedsrc allow`",
            )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)  # it holds ids, and which units were released in what order
            self._connection = sqlite3.connect(path, isolation_level=None, timeout=WAIT_SECONDS)
        except (sqlite3.Error, OSError) as error:
            raise FedsrcError(f"cannot be opened as a ledger: {error}", where=str(path)) from error
        try:
            self._connection.execute("PRAGMA synchronous = FULL")
            with self._transaction() as sql:
                upgrade(sql)
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
        names: Names,
        *,
        whole: bool = True,
        in_order: bool = False,
        fresh: bool = False,
    ) -> Intake:
        """Fix a table's unit count and order before its scores or losses are used.

        The same table again is the same intake. A record or source that another table held is refused, at whatever
        site and as whatever unit; where names and rows cannot tell, `fresh` must assert it. `whole`: all of the table
        is this site's, so no other site can take it in.
        """
        with self._transaction() as sql:
            known = Recognition(sql, str(self.path))
            row = sql.execute(FIND_INTAKE, (site, content)).fetchone()
            if row is not None:
                intake = Intake(*row[:6])
                known.check_again(intake, row[6], cut, units, in_order, names)
                return intake
            known.check_elsewhere(content, whole, cut, names.cut_by)
            seed = IN_ORDER if in_order else str(secrets.randbits(63))
            cursor = sql.execute(
                TAKE_IN, (site, content, cut, units, seed, names.kinds, whole, names.cut_by, names.cells)
            )
            intake = Intake(int(cursor.lastrowid or 0), site, content, cut, units, seed)
            doubt = known.remember(intake, names)
            if doubt is not None and not fresh:
                raise doubt
            sql.execute("UPDATE intake SET asserted = ? WHERE number = ?", (doubt is not None, intake.number))
            return intake

    def spent(self, intake: Intake, *, besides: str = "") -> int:
        """Count the units of an intake that have been released (under other registrations than `besides`)."""
        made = "FROM spend JOIN release USING (request) WHERE intake = ? AND registration != ?"
        with self._transaction() as sql:
            return int(sql.execute(f"SELECT COALESCE(SUM(slots), 0) {made}", (intake.number, besides)).fetchone()[0])

    def given(self, site: str, registration: str) -> int:
        """Count the units that a site has released under a registration."""
        with self._transaction() as sql:
            return int(sql.execute(f"SELECT COALESCE(SUM(slots), 0) {MADE}", (site, registration)).fetchone()[0])

    def answer(
        self,
        takes: Sequence[Take],
        request: Request,
        rho: float,
        make: Callable[[Sequence[int], Link], bytes],
        *,
        fails: float = 1.0,
    ) -> bytes:
        """Return the bytes for a request: stored ones if it was answered before, else made now from fresh units.

        `takes` are of one table. `make` gets the first place in each one's order, and where the release stands in the
        site's, or the holder's, chain under this registration. `rho` is for a unit being this one or any other.
        `fails`: the registered failure probability, which adds to those of other registrations on the same table;
        unless it is said, they may all fail.
        """
        with self._transaction() as sql:
            stored = self.stored(request)
            if stored is not None:
                return stored
            self._check_privacy(rho)
            firsts = [self._first(take, request.registration) for take in takes]
            sql.execute("INSERT OR IGNORE INTO claim VALUES (?, ?)", (request.registration, fails))
            data = make(firsts, self._link(sql, takes[0].intake, request))
            sql.execute("INSERT INTO release VALUES (?, ?, ?, ?)", (request.digest, request.registration, rho, data))
            for take, first in zip(takes, firsts, strict=True):
                row = (request.digest, take.intake.number, first, take.slots)
                sql.execute("INSERT INTO spend VALUES (?, ?, ?, ?)", row)
        return data

    def _first(self, take: Take, registration: str) -> int:
        """Return the place of an intake's first unspent unit; refuse to take more than are left."""
        first = self.spent(take.intake)
        left = take.intake.units - first
        if take.capacity is not None:
            left = min(left, take.capacity - self.given(take.intake.site, registration))
        if take.slots > left:
            raise FedsrcError(
                f"site {take.intake.site!r} has {max(0, left)} unspent units and was asked for {take.slots}",
                where=str(self.path),
                hint="a unit is released once in its life; bring new labelled records",
            )
        return first

    def develop(self, content: str, cut_by: str, rho: float, make: Callable[[], bytes]) -> bytes:
        """Return the one release of a table's development units: the stored bytes, or made now.

        No bytes: the units are published as they are. Whatever was first stands, for every registration.
        """
        with self._transaction() as sql:
            row = sql.execute("SELECT cut_by, release FROM development WHERE content = ?", (content,)).fetchone()
            if row is not None and row[0] not in (None, cut_by):
                raise Recognition(sql, str(self.path)).other_columns()
            if row is not None:
                return bytes(row[1])
            self._check_privacy(rho)
            data = make()
            sql.execute("INSERT INTO development VALUES (?, ?, ?, ?)", (content, cut_by, rho, data))
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
        """Return the registrations that a site has allowed."""
        with self._transaction() as sql:
            rows = sql.execute("SELECT text FROM allowed WHERE site = ? ORDER BY rowid", (site,)).fetchall()
        return [Registration.from_toml(text, where=str(self.path)) for (text,) in rows]

    def permitted(self, site: str, digest: str) -> Registration | None:
        """Return the registration of that digest if the site has allowed it."""
        query = "SELECT text FROM allowed WHERE site = ? AND registration = ?"
        with self._transaction() as sql:
            row = sql.execute(query, (site, digest)).fetchone()
        if row is None:
            return None
        found = Registration.from_toml(row[0], where=str(self.path))
        return found if found.digest == digest else None

    def limit(self, max_epsilon: float) -> None:
        """Set the largest epsilon that any unit of this ledger may ever cost, for it being this one or any other."""
        with self._transaction() as sql:
            sql.execute("INSERT OR REPLACE INTO policy VALUES (1, ?)", (max_epsilon,))

    def max_epsilon(self) -> float | None:
        """Return the ledger's own limit, if one is set."""
        with self._transaction() as sql:
            row = sql.execute("SELECT max_epsilon FROM policy").fetchone()
        return None if row is None else float(row[0])

    def stored(self, request: Request) -> bytes | None:
        """Return the bytes that answered a request before, if any."""
        with self._transaction() as sql:
            row = sql.execute("SELECT release FROM release WHERE request = ?", (request.digest,)).fetchone()
        return None if row is None else bytes(row[0])

    def sites(self) -> list[str]:
        """Return every site that this ledger knows."""
        query = "SELECT site FROM intake UNION SELECT site FROM allowed ORDER BY site"
        with self._transaction() as sql:
            return [str(row[0]) for row in sql.execute(query)]

    def accounts(self, site: str) -> list[Account]:
        """Return a site's intakes with what was spent of each."""
        with self._transaction() as sql:
            rows = sql.execute(ACCOUNTS, (site,)).fetchall()
        return [Account(Intake(*row[:6]), *row[6:]) for row in rows]

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Everything inside or nothing: a table that is refused at one site is taken in at none."""
        with self._transaction():
            yield

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        sql = self._connection
        if sql.in_transaction:  # inside `at_once`, which commits
            yield sql
            return
        try:
            sql.execute("BEGIN IMMEDIATE")
            try:
                yield sql
                durable.commit(sql)
            except BaseException:
                if sql.in_transaction:
                    sql.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise FedsrcError(f"ledger: {error}; nothing was changed", where=str(self.path)) from error

    def _link(self, sql: sqlite3.Connection, intake: Intake, request: Request) -> Link:
        """Return the next link of the chain, with how many registrations have had units of this table."""
        chain, registration = MADE if request.parts is None else BY_HOLDER, request.registration
        made = sql.execute(f"SELECT COUNT(*) {chain}", (intake.site, registration)).fetchone()[0]
        last = sql.execute(
            f"SELECT release.release {chain} ORDER BY release.rowid DESC LIMIT 1", (intake.site, registration)
        ).fetchone()
        others, fail = sql.execute(OTHERS, (intake.content, registration)).fetchone()
        before = START if last is None else digest_bytes(last[0])
        return Link(int(made) + 1, before, int(others) + 1, round(float(fail), 9))

    def _check_privacy(self, rho: float) -> None:
        """The pathwise filter, against the site's own limit: units still unspent have cost nothing yet.

        Paper: Theorem (privacy), eq. (rho-transcript).
        """
        limit = self.max_epsilon()
        if limit is not None and not admits(compose([]), rho, rho_tight(limit, DELTA)):
            raise FedsrcError(
                f"the release would cost more than epsilon {limit:g}, the site's limit; nothing was released",
                where=str(self.path),
            )
