"""A site's own account, in SQLite: which units are spent, what was released, what it cost, what is allowed.

One transaction marks the units spent, stores the exact bytes of the release and debits the privacy, before anything
is sent. Asked again for the same request, the ledger gives the same bytes. Spent is spent for every registration.
The units that choose thresholds are released once too, all together: a table has one development release in its life.

A unit is known by its table (the file's digest, and the columns it was cut by), by its id and source, and by what its
row holds. A known id or source is refused; the same id in another spelling is asked about; rows in common beyond what
chance explains (`overlap`) are refused. Where nothing can tell, and wherever a person knows better, `fresh` asserts
that no unit was in an earlier table, and the ledger remembers that it was asserted.
"""

from __future__ import annotations

import json
import re
import secrets
import sqlite3
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedsrc.common import durable
from fedsrc.common.canonical import digest_bytes
from fedsrc.errors import FedsrcError
from fedsrc.maths.privacy import admits, compose, rho_tight
from fedsrc.protocol.messages import START, Link, Request
from fedsrc.protocol.registration import Registration
from fedsrc.records.order import IN_ORDER, Positions, shuffled
from fedsrc.records.rows import Digests
from fedsrc.records.units import Names
from fedsrc.site.overlap import Overlap, overlap, tally

FIRST_SCHEMA = """
CREATE TABLE IF NOT EXISTS intake (
    number INTEGER PRIMARY KEY, site TEXT NOT NULL, content TEXT NOT NULL, cut TEXT NOT NULL,
    units INTEGER NOT NULL, seed TEXT NOT NULL, kinds INTEGER NOT NULL, whole INTEGER NOT NULL,
    UNIQUE (site, content)
) STRICT;
CREATE TABLE IF NOT EXISTS unit (
    kind TEXT NOT NULL, name TEXT NOT NULL, content TEXT NOT NULL, PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS spend (
    request TEXT PRIMARY KEY, registration TEXT NOT NULL, intake INTEGER NOT NULL, first INTEGER NOT NULL,
    slots INTEGER NOT NULL, rho REAL NOT NULL, release BLOB NOT NULL, UNIQUE (intake, first)
) STRICT;
CREATE TABLE IF NOT EXISTS allowed (
    site TEXT NOT NULL, registration TEXT NOT NULL, text TEXT NOT NULL, PRIMARY KEY (site, registration)
) STRICT;
CREATE TABLE IF NOT EXISTS policy (one INTEGER PRIMARY KEY CHECK (one = 1), max_epsilon REAL NOT NULL) STRICT;
"""
SECOND_SCHEMA = """
ALTER TABLE intake ADD COLUMN cut_by TEXT;
ALTER TABLE intake ADD COLUMN cells INTEGER NOT NULL DEFAULT 0;
ALTER TABLE intake ADD COLUMN asserted INTEGER NOT NULL DEFAULT 0;
CREATE TABLE row (intake INTEGER NOT NULL, bucket INTEGER NOT NULL, digests BLOB NOT NULL) STRICT;
CREATE INDEX row_by_bucket ON row (bucket, intake);
INSERT OR IGNORE INTO unit SELECT kind, tidy(name), content FROM unit WHERE tidy(name) != name;
DELETE FROM unit WHERE tidy(name) != name;
INSERT OR IGNORE INTO unit SELECT 'plain ' || kind, plain(name), content FROM unit WHERE plain(name) != name;
"""
THIRD_SCHEMA = """
CREATE TABLE development (
    content TEXT PRIMARY KEY, cut_by TEXT, rho REAL NOT NULL, release BLOB NOT NULL
) STRICT;
INSERT OR IGNORE INTO development SELECT content, NULL, 9e999, X'' FROM intake
WHERE cut = 'development records' OR cut LIKE '%for development%';
CREATE TABLE claim (registration TEXT PRIMARY KEY, fails REAL NOT NULL) STRICT;
"""
SCHEMAS = (FIRST_SCHEMA, SECOND_SCHEMA, THIRD_SCHEMA)  # a ledger of version n has been through the first n of them
FIND_INTAKE = "SELECT number, site, content, cut, units, seed, cut_by FROM intake WHERE site = ? AND content = ?"
FIND_ELSEWHERE = """
SELECT site, cut FROM intake WHERE content = ? AND (whole OR ? OR cut_by IS NOT ?) AND NOT (cut = ? AND ?)
ORDER BY cut = ? DESC LIMIT 1
"""
OTHER_SPELLING = """
SELECT plain.name FROM unit AS plain JOIN unit AS other ON other.name = plain.name AND other.kind = ?1
WHERE plain.kind = 'plain ' || ?1 AND plain.content != other.content AND ?2 IN (plain.content, other.content) LIMIT 1
"""
ROWS = """
SELECT digests FROM row JOIN intake ON intake = number WHERE bucket = ?1 AND (content = ?2) = ?3 AND cells = ?4
"""
ACCOUNTS = """
SELECT number, site, content, cut, units, seed, COALESCE(SUM(slots), 0), COUNT(request),
COALESCE(MAX(spend.rho), 0), asserted, (SELECT rho FROM development WHERE development.content = intake.content)
FROM intake LEFT JOIN spend ON spend.intake = intake.number WHERE site = ? GROUP BY number ORDER BY number
"""
MADE = "FROM spend JOIN intake ON intake = number WHERE site = ? AND registration = ?"
LAST = f"SELECT release {MADE} ORDER BY spend.rowid DESC LIMIT 1"
OTHERS = """
SELECT COUNT(*), TOTAL(fails) FROM (
    SELECT DISTINCT registration, COALESCE(fails, 1.0) AS fails
    FROM spend JOIN intake ON intake = number LEFT JOIN claim USING (registration)
    WHERE content = ? AND registration != ?
) WHERE fails > 0
"""
DEVELOPMENT = "development records"
FIRST_CUT = (
    "the first cut stands: run again with the same columns, unit and registration (or without one, as then),"
    " or bring records that were not in this table"
)
NUMBER = re.compile(r"0*(\d+)(\.0*)?", re.ASCII)
VERSION = len(SCHEMAS)
BUCKETS = 64  # rows are compared a bucket at a time, so that a table need not be in memory whole
DELTA = 1e-6  # a site converts to epsilon at its own delta, whatever a registration says
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
    asserted: bool  # somebody said that its units were in no earlier table, where the ledger could not tell
    developed: float | None  # what the one release of its development units cost them; inf: published as they are


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
            row = sql.execute(FIND_INTAKE, (site, content)).fetchone()
            if row is not None:
                return self._known(sql, Intake(*row[:6]), row[6], cut, units, in_order, names)
            self._check_elsewhere(sql, content, whole, cut, names.cut_by)
            seed = IN_ORDER if in_order else str(secrets.randbits(63))
            cursor = sql.execute(
                "INSERT INTO intake (site, content, cut, units, seed, kinds, whole, cut_by, cells)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (site, content, cut, units, seed, names.kinds, whole, names.cut_by, names.cells),
            )
            intake = Intake(int(cursor.lastrowid or 0), site, content, cut, units, seed)
            met = [self._remember(sql, content, "id", names.ids), self._remember(sql, content, "source", names.sources)]
            self._remember_rows(sql, intake, names.rows)
            doubt = self._doubt(sql, content, names, [name for name in met if name is not None])
            if doubt is not None and not fresh:
                raise doubt
            sql.execute("UPDATE intake SET asserted = ? WHERE number = ?", (doubt is not None, intake.number))
            return intake

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
        make: Callable[[int, int, Link], bytes],
        *,
        capacity: int | None = None,
        fails: float = 1.0,
    ) -> bytes:
        """The bytes for a request: stored ones if it was answered before, otherwise made now from fresh units.

        `make` gets the first place in the intake's order, the number of places, and where the release stands in the
        site's chain under this registration. `fails`: the registered failure probability, which adds to those of other
        registrations on the same table; unless it is said, they may all fail.
        """
        with self._transaction() as sql:
            stored = self._stored(sql, request)
            if stored is not None:
                return stored
            self._check_privacy(sql, rho)
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
            sql.execute("INSERT OR IGNORE INTO claim VALUES (?, ?)", (request.registration, fails))
            data = make(first, request.slots, self._link(sql, intake, request.registration))
            sql.execute(
                "INSERT INTO spend VALUES (?, ?, ?, ?, ?, ?, ?)",
                (request.digest, request.registration, intake.number, first, request.slots, rho, data),
            )
        return data

    def develop(self, content: str, cut_by: str, rho: float, make: Callable[[], bytes]) -> bytes:
        """The one release of a table's development units: the stored bytes, or made now.

        No bytes: the units are published as they are. Whatever was first stands, for every registration.
        """
        with self._transaction() as sql:
            row = sql.execute("SELECT cut_by, release FROM development WHERE content = ?", (content,)).fetchone()
            if row is not None and row[0] not in (None, cut_by):
                raise self._other_columns()
            if row is not None:
                return bytes(row[1])
            self._check_privacy(sql, rho)
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
        """Set the largest epsilon that any unit of this ledger may ever cost, at DELTA."""
        with self._transaction() as sql:
            sql.execute("INSERT OR REPLACE INTO policy VALUES (1, ?)", (max_epsilon,))

    def max_epsilon(self) -> float | None:
        """The ledger's own limit, if one is set."""
        with self._transaction() as sql:
            return self._max_epsilon(sql)

    def stored(self, request: Request) -> bytes | None:
        """The bytes that answered a request before, if any."""
        with self._transaction() as sql:
            return self._stored(sql, request)

    def sites(self) -> list[str]:
        """Every site this ledger knows."""
        query = "SELECT site FROM intake UNION SELECT site FROM allowed ORDER BY site"
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
            for name, function in (("tidy", _tidy), ("plain", _plain)):
                sql.create_function(name, 1, function, deterministic=True)
            for schema in SCHEMAS[version:]:
                for statement in schema.split(";\n"):
                    sql.execute(statement)
            if version < VERSION:
                sql.execute(f"PRAGMA user_version = {VERSION}")

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

    def _known(
        self,
        sql: sqlite3.Connection,
        intake: Intake,
        cut_by: str | None,
        cut: str,
        units: int,
        in_order: bool,
        names: Names,
    ) -> Intake:
        """The same table again: it must be cut as it was."""
        if intake.cut == DEVELOPMENT:
            if cut == DEVELOPMENT:
                return intake
            raise self._chose_thresholds()
        if intake.cut != cut or intake.units != units:
            raise FedsrcError(
                f"this table was taken in before as {intake.units} units ({intake.cut}), now as {units} ({cut})",
                where=str(self.path),
                hint=FIRST_CUT,
            )
        if in_order != (intake.seed == IN_ORDER):
            raise FedsrcError("this table was taken in before with another order", where=str(self.path))
        if cut_by is None:
            self._learn(sql, intake, names)
        elif cut_by != names.cut_by:
            raise self._other_columns()
        return intake

    def _learn(self, sql: sqlite3.Connection, intake: Intake, names: Names) -> None:
        """Complete an intake of an older ledger, which has neither columns nor rows, if it knows every name."""
        for kind, found in (("id", names.ids), ("source", names.sources)):
            for name in found or ():
                if sql.execute("SELECT 1 FROM unit WHERE kind = ? AND name = ?", (kind, name)).fetchone() is None:
                    raise self._other_columns()
        self._remember_rows(sql, intake, names.rows)
        query = "UPDATE intake SET cut_by = ?, cells = ? WHERE number = ?"
        sql.execute(query, (names.cut_by, names.cells, intake.number))

    def _other_columns(self) -> FedsrcError:
        what = "this table was taken in before, cut by other columns"
        return FedsrcError(what, where=str(self.path), hint=FIRST_CUT)

    def _check_elsewhere(self, sql: sqlite3.Connection, content: str, whole: bool, cut: str, cut_by: str) -> None:
        """One table's rows belong to one site each, by one cut: under another site's name they are the same units."""
        again = cut == DEVELOPMENT  # a table may be developed on twice
        row = sql.execute(FIND_ELSEWHERE, (content, whole, cut_by, DEVELOPMENT, again, DEVELOPMENT)).fetchone()
        if row is None:
            return
        if row[1] == DEVELOPMENT:
            raise self._chose_thresholds()
        raise FedsrcError(
            f"this table was taken in before, for site {row[0]!r}",
            where=str(self.path),
            hint=FIRST_CUT,
        )

    def _chose_thresholds(self) -> FedsrcError:
        return FedsrcError(
            "this table chose thresholds or a score, so its units are spent and cannot calibrate",
            where=str(self.path),
            hint="calibrate on other records; `fedsrc certify` without a registration splits one table for you",
        )

    def _doubt(
        self, sql: sqlite3.Connection, content: str, names: Names, other_spellings: list[str]
    ) -> FedsrcError | None:
        """Why units of a table that was just remembered may have been in another; None if they were not."""
        if other_spellings:
            return self._question(
                f"{other_spellings[0]!r} is in another table too, give or take leading zeros and '.0': is it the same?",
                "write ids and sources in one way",
            )
        query = "SELECT DISTINCT kinds, cut_by FROM intake WHERE content != ? AND (cells = 0 OR cells != ?)"
        if not all(_named_alike(names, *other) for other in sql.execute(query, (content, names.cells))):
            return self._question(
                "another table was taken in before, and without the same id column or all the same columns in both a"
                " unit used twice would not be seen",
                "give both tables the same id column",
            )
        found = self._overlap(sql, content, names.cells)
        if found is None or not found.doubtful:
            return None
        return self._question(
            f"{found.seen:,} of its {found.rows:,} rows are also in an earlier table: are they the same units?",
            "leave known units out, give both tables an id column",
        )

    def _question(self, what: str, hint: str) -> FedsrcError:
        hint += ", or pass `fresh=True` to assert that no unit was in an earlier table"
        return FedsrcError(what, where=str(self.path), hint=hint)

    def _overlap(self, sql: sqlite3.Connection, content: str, cells: int) -> Overlap | None:
        """What a table's rows have in common with those of others that have as many cells."""
        query = "SELECT 1 FROM intake WHERE content != ? AND cells = ? LIMIT 1"
        if not cells or sql.execute(query, (content, cells)).fetchone() is None:
            return None
        counts: Counter[tuple[int, int]] = Counter()
        for bucket in range(BUCKETS):
            known, new = (sql.execute(ROWS, (bucket, content, mine, cells)).fetchall() for mine in (False, True))
            counts += tally((row[0] for row in known), (row[0] for row in new))
        return overlap(counts) if counts else None

    def _remember_rows(self, sql: sqlite3.Connection, intake: Intake, rows: Iterable[Digests]) -> None:
        """Keep every row's digest, dealt into buckets."""
        for digests in rows:
            bucket = digests[:, 0] % BUCKETS
            dealt = digests[np.argsort(bucket, kind="stable")]
            ends = np.cumsum(np.bincount(bucket, minlength=BUCKETS))
            parts = np.split(dealt, ends[:-1])
            sql.executemany(
                "INSERT INTO row VALUES (?, ?, ?)",
                [(intake.number, i, part.tobytes()) for i, part in enumerate(parts) if len(part)],
            )

    def _remember(self, sql: sqlite3.Connection, content: str, kind: str, names: Iterable[str] | None) -> str | None:
        """Keep names, and refuse those of another table. One that another table spells otherwise is returned."""
        met = None
        insert = "INSERT INTO unit VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET name = name RETURNING content"
        for name in names or ():
            if (plain := _plain(name)) != name:
                known = sql.execute(insert, (f"plain {kind}", plain, content)).fetchone()[0]
                met = plain if known != content else met
            known = sql.execute(insert, (kind, name, content)).fetchone()[0]
            if known != content:
                raise FedsrcError(
                    f"{'unit' if kind == 'id' else 'source'} {name!r} was taken in before, with another table",
                    where=str(self.path),
                    hint="a unit may be used once; leave known units out of a new table",
                    private=(name,),
                )
        row = sql.execute(OTHER_SPELLING, (kind, content)).fetchone()
        return met if row is None else str(row[0])

    def _link(self, sql: sqlite3.Connection, intake: Intake, registration: str) -> Link:
        """The next link of the site's chain; and how many registrations have had units of this table."""
        made = sql.execute(f"SELECT COUNT(*) {MADE}", (intake.site, registration)).fetchone()[0]
        last = sql.execute(LAST, (intake.site, registration)).fetchone()
        others, fail = sql.execute(OTHERS, (intake.content, registration)).fetchone()
        before = START if last is None else digest_bytes(last[0])
        return Link(int(made) + 1, before, int(others) + 1, round(float(fail), 9))

    def _stored(self, sql: sqlite3.Connection, request: Request) -> bytes | None:
        row = sql.execute("SELECT release FROM spend WHERE request = ?", (request.digest,)).fetchone()
        return None if row is None else bytes(row[0])

    def _max_epsilon(self, sql: sqlite3.Connection) -> float | None:
        row = sql.execute("SELECT max_epsilon FROM policy").fetchone()
        return None if row is None else float(row[0])

    def _check_privacy(self, sql: sqlite3.Connection, rho: float) -> None:
        """The pathwise filter, against the site's own limit: units still unspent have cost nothing yet.

        Paper: Theorem (privacy), eq. (rho-transcript).
        """
        limit = self._max_epsilon(sql)
        if limit is not None and not admits(compose([]), rho, rho_tight(limit, DELTA)):
            raise FedsrcError(
                f"the release would cost more than epsilon {limit:g}, the site's limit; nothing was released",
                where=str(self.path),
            )

    def _given(self, sql: sqlite3.Connection, site: str, registration: str) -> int:
        query = (
            "SELECT COALESCE(SUM(slots), 0) FROM spend JOIN intake ON intake = number"
            " WHERE site = ? AND registration = ?"
        )
        return int(sql.execute(query, (site, registration)).fetchone()[0])

    def _spent(self, sql: sqlite3.Connection, intake: Intake, besides: str = "") -> int:
        query = "SELECT COALESCE(SUM(slots), 0) FROM spend WHERE intake = ? AND registration != ?"
        return int(sql.execute(query, (intake.number, besides)).fetchone()[0])


def _named_alike(names: Names, kinds: int, cut_by: str | None) -> bool:
    """Whether a table's units have names from the same column, ids or sources, as those of another: then names decide.

    An older ledger did not write columns down, and records that were never in a file have none.
    """
    if not names.cut_by or not cut_by:
        return bool(kinds & names.kinds)
    mine, theirs = json.loads(names.cut_by), json.loads(cut_by)
    return any(
        kinds & names.kinds & bit and mine.get(what) == theirs.get(what) for what, bit in (("id", 1), ("source", 2))
    )


def _tidy(name: str) -> str:
    """An id or source as tables are read since ledgers have known rows: without white space around it, composed."""
    return unicodedata.normalize("NFC", name.strip())


def _plain(name: str) -> str:
    """A whole number without leading zeros and '.0', which spreadsheets add and drop; other names as they are."""
    found = NUMBER.fullmatch(name)
    return name if found is None else found[1]
