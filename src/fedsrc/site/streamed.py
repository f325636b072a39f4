"""A site whose table stays on disk: taken in and counted in batches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from fedsrc.common.signing import Key
from fedsrc.maths.arrays import Ints
from fedsrc.protocol.registration import Registration
from fedsrc.records.development import check_count, cut_words
from fedsrc.records.masses import histogram
from fedsrc.records.order import IN_ORDER
from fedsrc.records.stream import Contents, Mask, Table, Window, examine
from fedsrc.records.table import NEEDED
from fedsrc.records.units import Records, Units
from fedsrc.site.ledger import Intake, Ledger
from fedsrc.site.site import Site, open_sites


def open_table(
    registration: Registration,
    name: str,
    table: Table,
    ledger: Ledger,
    *,
    in_order: bool = False,
    fresh: bool = False,
    key: Key | None = None,
) -> Site:
    """Take a site's own table in, as `site.open_sites` does for one in memory: same checks, intake and counts."""
    registration.site(name)  # unknown sites are refused
    if registration.privacy.unit == "source":
        keys = {} if key is None else {name: key}
        records = table.whole().at(name)
        return open_sites(registration, records, ledger, in_order=in_order, fresh=fresh, keys=keys)[0]
    contents = examine(table, name, independent=registration.privacy.independent)
    units = contents.rows - set_apart(registration, contents.rows)
    intake = ledger.take_in(
        name, contents.digest, cut_words(registration), units, contents.names(), in_order=in_order, fresh=fresh
    )
    return Site(registration, name, ledger, intake, partial(count, registration, contents, intake), key)


def set_apart(registration: Registration, rows: int) -> int:
    """How many of a table's records are its development part and do not calibrate."""
    development = registration.development
    if development is None or not development.inside:
        return 0
    check_count(development, rows)
    return development.units


def count(registration: Registration, contents: Contents, intake: Intake, first: int, slots: int) -> Ints:
    """The histogram of so many units from a place in the intake's order, in one pass over scores and losses."""
    table, check = contents.table, contents.table.check()
    chosen = _chooser(registration, contents, intake, first, slots)
    total = np.zeros((2, len(registration.thresholds.values) + 1), dtype=np.int64)
    for frame in table.frames([table.columns.name(what) for what in NEEDED]):
        part = check.part(frame)
        rows = np.flatnonzero(chosen(frame.height))
        units = Units(np.arange(rows.size + 1, dtype=np.int64), part.score[rows], part.loss[rows], None)
        total += histogram(registration, units)
    check.finish()
    contents.check_same()
    return total


def _chooser(
    registration: Registration, contents: Contents, intake: Intake, first: int, slots: int
) -> Callable[[int], Mask]:
    """Which of the next rows are asked for: those outside the development part, numbered anew, in the window."""
    development, size = registration.development, contents.table.batch
    apart = set_apart(registration, contents.rows)
    seed = IN_ORDER if development is None else str(development.seed)
    aside = Window(seed, contents.rows, 0, apart, size)
    window = Window(intake.seed, intake.units, first, slots, size)

    def chosen(rows: int) -> Mask:
        mask = ~aside.take(rows)
        units = np.flatnonzero(mask)
        mask[units] = window.take(units.size)
        return mask

    return chosen


def open_site(
    registration: Registration, name: str, found: Records | Table, ledger: Ledger, key: Key, *, fresh: bool
) -> Site:
    """One site's own table behind its ledger; a table on disk is read in batches."""
    if isinstance(found, Table):
        return open_table(registration, name, found, ledger, fresh=fresh, key=key)
    return open_sites(registration, found.at(name), ledger, fresh=fresh, keys={name: key})[0]
