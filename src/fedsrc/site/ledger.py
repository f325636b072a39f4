"""A site's own account, in SQLite: which units are spent, what was released, what it cost, what is allowed.

One transaction marks the units spent, of one intake or of several, stores the exact bytes of the release and debits
the privacy, before anything is sent. Where people label on demand, units are spent when their round is opened. Asked
again for the same request, the ledger gives the same bytes. Spent is spent for every registration. The units that
choose thresholds are released once too, all together: a table has one development release in its life.
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
from fedsrc.common.clock import utc_now
from fedsrc.common.locks import check_locks
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
SELECT number, site, content, cut, units, seed, COALESCE(SUM(slots), 0), COUNT(release),
COALESCE(MAX(release.rho), 0), asserted, (SELECT rho FROM development WHERE development.content = intake.content)
FROM intake LEFT JOIN spend ON spend.intake = intake.number LEFT JOIN release USING (request)
WHERE site = ? GROUP BY number ORDER BY number
"""
GIVEN = "FROM opened JOIN spend USING (request) JOIN intake ON intake = number WHERE site = ? AND registration = ?"
WHOLE = "FROM opened WHERE ? IS NOT NULL AND registration = ?"  # a holder's chain runs over its sites; a member's too
KEPT = "(SELECT release.release FROM release WHERE release.request = opened.request)"
EARLIER = "opened.rowid < (SELECT rowid FROM opened WHERE request = ?)"  # before a request was first asked
OTHERS = """
SELECT COUNT(*), TOTAL(fails) FROM (
    SELECT DISTINCT registration, COALESCE(fails, 1.0) AS fails
    FROM opened JOIN spend USING (request) JOIN intake ON intake = number LEFT JOIN claim USING (registration)
    WHERE content = ? AND registration != ?
) WHERE fails > 0
"""
TAKEN = """
SELECT number, site, content, cut, units, seed, slots, first FROM spend JOIN intake ON intake = number
WHERE request = ? ORDER BY spend.rowid
"""
WAITING = """
SELECT asked, time, secret, closed FROM opened
WHERE asked IS NOT NULL AND (?1 IS NULL OR request = ?1) AND request NOT IN (SELECT request FROM release)
ORDER BY rowid
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


class Opened(NamedTuple):
    """A round that waits for labels: what was asked, since when, what keys the digest of its labels, whether its
    operator has closed it, and which units it has: so many of each intake, from a place in its order."""

    request: Request
    time: str
    secret: str
    closed: bool
    taken: tuple[tuple[Intake, int, int], ...]


class Ledger:
    """The ledger file. Every method is one transaction, and so is all that is done `at_once`."""

    def __init__(self, path: Path, *, must_exist: bool = False) -> None:
        self.path = path
        check_locks()
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
        """Count the units of an intake that are spent (under other registrations than `besides`)."""
        made = "FROM spend JOIN opened USING (request) WHERE intake = ? AND registration != ?"
        with self._transaction() as sql:
            return int(sql.execute(f"SELECT COALESCE(SUM(slots), 0) {made}", (intake.number, besides)).fetchone()[0])

    def given(self, site: str, registration: str) -> int:
        """Count the units that a site has spent under a registration."""
        with self._transaction() as sql:
            return int(sql.execute(f"SELECT COALESCE(SUM(slots), 0) {GIVEN}", (site, registration)).fetchone()[0])

    def open(self, takes: Sequence[Take], request: Request, rho: float, *, fails: float = 1.0) -> Opened:
        """Open a round whose units are to be labelled: they are spent now, whatever becomes of it. Asked again, the
        round is the same."""
        with self._transaction() as sql:
            self._check_privacy(rho)
            self._spend(takes, request, fails)
            row = (request.to_bytes().decode(), utc_now(), secrets.token_hex(32), request.digest)
            sql.execute("UPDATE opened SET asked = ?, time = ?, secret = ? WHERE request = ? AND asked IS NULL", row)
            return self.waiting(request)[0]

    def waiting(self, request: Request | None = None) -> list[Opened]:
        """Return the rounds that were opened and not answered yet, or the one of a request."""
        with self._transaction() as sql:
            rows = sql.execute(WAITING, (None if request is None else request.digest,)).fetchall()
            asked = [Request.model_validate_json(row[0]) for row in rows]
            taken = [sql.execute(TAKEN, (each.digest,)).fetchall() for each in asked]
        return [
            Opened(each, time, secret, bool(closed), tuple((Intake(*row[:6]), row[7], row[6]) for row in found))
            for each, (_, time, secret, closed), found in zip(asked, rows, taken, strict=True)
        ]

    def close_round(self, request: Request) -> None:
        """Let a round be answered although labels are missing."""
        with self._transaction() as sql:
            sql.execute("UPDATE opened SET closed = 1 WHERE request = ?", (request.digest,))

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
            firsts = self._spend(takes, request, fails)
            data = make(firsts, self._link(sql, takes[0].intake, request))
            sql.execute("INSERT INTO release VALUES (?, ?, ?, ?)", (request.digest, request.registration, rho, data))
        return data

    def _spend(self, takes: Sequence[Take], request: Request, fails: float) -> list[int]:
        """Mark the units of a request as spent, if they are not yet; return the first place of those that take some, in
        each one's order."""
        sql, digest, taking = self._connection, request.digest, [take for take in takes if take.slots]
        known = sql.execute("SELECT intake, first FROM spend WHERE request = ? ORDER BY rowid", (digest,)).fetchall()
        if sql.execute("SELECT 1 FROM opened WHERE request = ?", (digest,)).fetchone():
            if [row[0] for row in known] != [take.intake.number for take in taking]:
                raise FedsrcError(
                    f"round {request.round} was opened on another table, or on this one before it was changed",
                    where=str(self.path),
                    hint="bring the table as it was then; only labels may be added to it",
                )
            return [int(row[1]) for row in known]
        member, round = (takes[0].intake.site, request.round) if request.of_cohort else (None, None)
        if member is not None:
            self._check_round(member, request)
        firsts = [self._first(take, request.registration) for take in taking]
        sql.execute("INSERT OR IGNORE INTO claim VALUES (?, ?)", (request.registration, fails))
        sql.execute(
            "INSERT INTO opened (request, registration, member, round) VALUES (?, ?, ?, ?)",
            (digest, request.registration, member, round),
        )
        for take, first in zip(taking, firsts, strict=True):
            sql.execute("INSERT INTO spend VALUES (?, ?, ?, ?)", (digest, take.intake.number, first, take.slots))
        return firsts

    def check_member(self, site: str, registration: str) -> None:
        """Refuse a second member of the cohorts of one registration: what one of them sends is not the other's."""
        found = "SELECT member FROM opened WHERE registration = ? AND member IS NOT NULL AND member != ?"
        with self._transaction() as sql:
            other = sql.execute(found, (registration, site)).fetchone()
        if other is not None:
            raise FedsrcError(
                f"this ledger answers for site {other[0]!r} already, which is in a cohort of the same registration",
                where=str(self.path),
                hint="every member of a cohort has a ledger of its own; records in one hand are one site",
            )

    def _check_round(self, member: str, request: Request) -> None:
        """Refuse a cohort's request for a round that is over or was asked otherwise, and a second member."""
        self.check_member(member, request.registration)
        found = "SELECT MAX(round) FROM opened WHERE registration = ? AND member IS NOT NULL"
        last = self._connection.execute(found, (request.registration,)).fetchone()[0] or 0
        if request.round <= last:
            raise FedsrcError(
                f"round {last} of its cohort was answered, so another request for round {request.round} is not",
                where=str(self.path),
            )

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
        """Return the link of the chain for a request, with how many registrations have had units of this table. Rounds
        that were opened and never answered have their place: none is given up unseen."""
        chain, registration = GIVEN if request.parts is None else WHOLE, request.registration
        mine = (intake.site, registration, request.digest)
        opened = sql.execute(f"SELECT COUNT(*) {chain} AND {EARLIER}", mine).fetchone()[0]
        last = sql.execute(
            f"SELECT {KEPT} {chain} AND {EARLIER} AND {KEPT} IS NOT NULL ORDER BY opened.rowid DESC LIMIT 1", mine
        ).fetchone()
        others, fail = sql.execute(OTHERS, (intake.content, registration)).fetchone()
        before = START if last is None else digest_bytes(last[0])
        return Link(int(opened) + 1, before, int(others) + 1, round(float(fail), 9))

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
