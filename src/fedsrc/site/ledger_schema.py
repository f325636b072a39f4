"""The tables of a ledger file, and how a file of an earlier version is brought up to date."""

from __future__ import annotations

import re
import sqlite3
import unicodedata

from fedsrc.errors import FedsrcError

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
# A release may hold units of several intakes; and rho, once for a unit against nothing, is for it against any other,
# which is at most twice as much: contributions are nonnegative, so squared distances are at most the sum of two norms.
FOURTH_SCHEMA = """
ALTER TABLE spend RENAME TO spent;
CREATE TABLE release (
    request TEXT PRIMARY KEY, registration TEXT NOT NULL, rho REAL NOT NULL, release BLOB NOT NULL
) STRICT;
INSERT INTO release SELECT request, registration, 2 * rho, release FROM spent ORDER BY rowid;
CREATE TABLE spend (
    request TEXT NOT NULL, intake INTEGER NOT NULL, first INTEGER NOT NULL, slots INTEGER NOT NULL,
    PRIMARY KEY (intake, first)
) STRICT;
INSERT INTO spend SELECT request, intake, first, slots FROM spent;
DROP TABLE spent;
UPDATE development SET rho = 2 * rho;
"""
# Where people label on demand, a round is opened and its units are spent before anybody sees them.
FIFTH_SCHEMA = """
CREATE TABLE opened (
    request TEXT PRIMARY KEY, registration TEXT NOT NULL, asked TEXT, time TEXT, secret TEXT,
    closed INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO opened (request, registration) SELECT request, registration FROM release ORDER BY rowid;
"""
# A member of a cohort answers one request a round, and rounds only grow: masks of two sums must never meet.
SIXTH_SCHEMA = """
ALTER TABLE opened ADD COLUMN member TEXT;
ALTER TABLE opened ADD COLUMN round INTEGER;
"""
SCHEMAS = (
    FIRST_SCHEMA,
    SECOND_SCHEMA,
    THIRD_SCHEMA,
    FOURTH_SCHEMA,
    FIFTH_SCHEMA,
    SIXTH_SCHEMA,
)  # a ledger of version n has been through the first n of them
VERSION = len(SCHEMAS)
NUMBER = re.compile(r"0*(\d+)(\.0*)?", re.ASCII)


def upgrade(sql: sqlite3.Connection) -> None:
    """Create the tables, or bring those of an earlier version up to date."""
    version = int(sql.execute("PRAGMA user_version").fetchone()[0])
    if version > VERSION:
        raise FedsrcError("it was written by a newer version of fedsrc")
    for name, function in (("tidy", _tidy), ("plain", plain)):
        sql.create_function(name, 1, function, deterministic=True)
    for schema in SCHEMAS[version:]:
        for statement in schema.split(";\n"):
            sql.execute(statement)
    if version < VERSION:
        sql.execute(f"PRAGMA user_version = {VERSION}")


def plain(name: str) -> str:
    """Write a whole number without leading zeros and '.0', which spreadsheets add and drop; keep other names."""
    found = NUMBER.fullmatch(name)
    return name if found is None else found[1]


def _tidy(name: str) -> str:
    """Write an id or source as tables are read since ledgers have known rows: stripped and in composed form."""
    return unicodedata.normalize("NFC", name.strip())
