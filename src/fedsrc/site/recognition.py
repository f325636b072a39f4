"""Whether units of a table were taken in before, with this table or with another.

A unit is known by its table (the file's digest, and the columns it was cut by), by its id and source, and by what its
row holds. A known id or source is refused; the same id in another spelling is asked about; rows in common beyond what
chance explains (`overlap`) are refused. Where nothing can tell, a person must assert that no unit was in an earlier
table.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fedsrc.errors import FedsrcError
from fedsrc.records.order import IN_ORDER, Positions, shuffled
from fedsrc.records.rows import Digests
from fedsrc.records.units import Names
from fedsrc.site.ledger_schema import plain
from fedsrc.site.overlap import Overlap, overlap, tally

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
DEVELOPMENT = "development records"
FIRST_CUT = (
    "the first cut stands: run again with the same columns, scale, label words, unit and registration (or without"
    " one, as then), or bring records that were not in this table"
)
BUCKETS = 64  # rows are compared a bucket at a time, so that a table need not be in memory whole


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
        """Return the fixed order of the units; spent units are a prefix of it."""
        if self.seed == IN_ORDER:
            return np.arange(self.units, dtype=np.int64)
        return shuffled(self.units, int(self.seed))


@dataclass(frozen=True)
class Recognition:
    """What a ledger remembers of tables, inside one of its transactions. `where` names the ledger in errors."""

    sql: sqlite3.Connection
    where: str

    def check_again(
        self, intake: Intake, cut_by: str | None, cut: str, units: int, in_order: bool, names: Names
    ) -> None:
        """Refuse a known table that is cut otherwise than before."""
        if intake.cut == DEVELOPMENT:
            if cut == DEVELOPMENT:
                return
            raise self._chose_thresholds()
        if intake.cut != cut or intake.units != units:
            raise FedsrcError(
                f"this table was taken in before as {intake.units} units ({intake.cut}), now as {units} ({cut})",
                where=self.where,
                hint=FIRST_CUT,
            )
        if in_order != (intake.seed == IN_ORDER):
            raise FedsrcError("this table was taken in before with another order", where=self.where)
        if cut_by is None:
            self._learn(intake, names)
        elif cut_by != names.cut_by:
            raise self.other_columns()

    def check_elsewhere(self, content: str, whole: bool, cut: str, cut_by: str) -> None:
        """Refuse a table that another site has, or that is cut otherwise there: its rows are the same units."""
        again = cut == DEVELOPMENT  # a table may be developed on twice
        row = self.sql.execute(FIND_ELSEWHERE, (content, whole, cut_by, DEVELOPMENT, again, DEVELOPMENT)).fetchone()
        if row is None:
            return
        if row[1] == DEVELOPMENT:
            raise self._chose_thresholds()
        raise FedsrcError(f"this table was taken in before, for site {row[0]!r}", where=self.where, hint=FIRST_CUT)

    def remember(self, intake: Intake, names: Names) -> FedsrcError | None:
        """Keep the names and rows of a new table and refuse known names; return why its units may be known, if so."""
        met = [self._remember_names(intake.content, kind, found) for kind, found in _by_kind(names)]
        self._remember_rows(intake, names.rows)
        return self._doubt(intake.content, names, [name for name in met if name is not None])

    def other_columns(self) -> FedsrcError:
        """Return the error for a known table that is cut by other columns."""
        what = "this table was taken in before, cut by other columns or read otherwise"
        return FedsrcError(what, where=self.where, hint=FIRST_CUT)

    def _learn(self, intake: Intake, names: Names) -> None:
        """Complete an intake of an older ledger, which has neither columns nor rows, if it knows every name."""
        for kind, found in _by_kind(names):
            for name in found or ():
                query = "SELECT 1 FROM unit WHERE kind = ? AND name = ?"
                if self.sql.execute(query, (kind, name)).fetchone() is None:
                    raise self.other_columns()
        self._remember_rows(intake, names.rows)
        query = "UPDATE intake SET cut_by = ?, cells = ? WHERE number = ?"
        self.sql.execute(query, (names.cut_by, names.cells, intake.number))

    def _chose_thresholds(self) -> FedsrcError:
        return FedsrcError(
            "this table chose thresholds or a score, so its units are spent and cannot calibrate",
            where=self.where,
            hint="calibrate on other records; `fedsrc certify` without a registration splits one table for you",
        )

    def _remember_rows(self, intake: Intake, rows: Iterable[Digests]) -> None:
        """Keep every row's digest, dealt into buckets."""
        for digests in rows:
            bucket = digests[:, 0] % BUCKETS
            dealt = digests[np.argsort(bucket, kind="stable")]
            ends = np.cumsum(np.bincount(bucket, minlength=BUCKETS))
            parts = np.split(dealt, ends[:-1])
            self.sql.executemany(
                "INSERT INTO row VALUES (?, ?, ?)",
                [(intake.number, i, part.tobytes()) for i, part in enumerate(parts) if len(part)],
            )

    def _remember_names(self, content: str, kind: str, names: Iterable[str] | None) -> str | None:
        """Keep names and refuse those of another table; return one that another table spells otherwise."""
        met = None
        insert = "INSERT INTO unit VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET name = name RETURNING content"
        for name in names or ():
            if (short := plain(name)) != name:
                known = self.sql.execute(insert, (f"plain {kind}", short, content)).fetchone()[0]
                met = short if known != content else met
            known = self.sql.execute(insert, (kind, name, content)).fetchone()[0]
            if known != content:
                raise FedsrcError(
                    f"{'unit' if kind == 'id' else 'source'} {name!r} was taken in before, with another table",
                    where=self.where,
                    hint="a unit may be used once; leave known units out of a new table",
                    private=(name,),
                )
        row = self.sql.execute(OTHER_SPELLING, (kind, content)).fetchone()
        return met if row is None else str(row[0])

    def _doubt(self, content: str, names: Names, other_spellings: list[str]) -> FedsrcError | None:
        if other_spellings:
            return self._question(
                f"{other_spellings[0]!r} is in another table too, give or take leading zeros and '.0': is it the same?",
                "write ids and sources in one way",
            )
        query = "SELECT DISTINCT kinds, cut_by FROM intake WHERE content != ? AND (cells = 0 OR cells != ?)"
        if not all(_named_alike(names, *other) for other in self.sql.execute(query, (content, names.cells))):
            return self._question(
                "another table was taken in before, and without the same id column or all the same columns in both a"
                " unit used twice would not be seen",
                "give both tables the same id column",
            )
        found = self._overlap(content, names.cells)
        if found is None or not found.doubtful:
            return None
        return self._question(
            f"{found.seen:,} of its {found.rows:,} rows are also in an earlier table: are they the same units?",
            "leave known units out, give both tables an id column",
        )

    def _question(self, what: str, hint: str) -> FedsrcError:
        hint += ", or pass `fresh=True` to assert that no unit was in an earlier table"
        return FedsrcError(what, where=self.where, hint=hint)

    def _overlap(self, content: str, cells: int) -> Overlap | None:
        """Compare a table's rows with those of the others that have as many cells."""
        query = "SELECT 1 FROM intake WHERE content != ? AND cells = ? LIMIT 1"
        if not cells or self.sql.execute(query, (content, cells)).fetchone() is None:
            return None
        counts: Counter[tuple[int, int]] = Counter()
        for bucket in range(BUCKETS):
            known, new = (self.sql.execute(ROWS, (bucket, content, mine, cells)).fetchall() for mine in (False, True))
            counts += tally((row[0] for row in known), (row[0] for row in new))
        return overlap(counts) if counts else None


def _by_kind(names: Names) -> tuple[tuple[str, Iterable[str] | None], ...]:
    return ("id", names.ids), ("source", names.sources)


def _named_alike(names: Names, kinds: int, cut_by: str | None) -> bool:
    """Whether two tables name their units by the same column, ids or sources: then names decide.

    An older ledger did not record columns, and records that were never in a file have none.
    """
    if not names.cut_by or not cut_by:
        return bool(kinds & names.kinds)
    mine, theirs = json.loads(names.cut_by), json.loads(cut_by)
    return any(
        kinds & names.kinds & bit and mine.get(what) == theirs.get(what) for what, bit in (("id", 1), ("source", 2))
    )
