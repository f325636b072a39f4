"""A site whose table stays on disk: taken in and counted in batches."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator
from functools import partial

import numpy as np

from fedsrc.common.places import labels_beside
from fedsrc.common.signing import Key
from fedsrc.maths.arrays import Ints
from fedsrc.protocol.protection import Development
from fedsrc.protocol.registration import Registration
from fedsrc.records.columns import NEEDED
from fedsrc.records.development import cut_words, in_development
from fedsrc.records.listed import NOT_WATCHED, check_listed, groups_in
from fedsrc.records.masses import counted
from fedsrc.records.order import Positions
from fedsrc.records.rows import tidy
from fedsrc.records.stream import Contents, Table, examine
from fedsrc.records.table import Part, as_text
from fedsrc.records.units import Records
from fedsrc.records.window import Window
from fedsrc.site.admission import check_mask_key
from fedsrc.site.ledger import Ledger
from fedsrc.site.recognition import Intake
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
    mask: Key | None = None,
) -> Site:
    """Take a site's own table in, as `site.open_sites` does for one in memory: same checks, intake and counts."""
    registration.site(name)  # unknown sites are refused
    if registration.privacy.unit == "source" or registration.on_demand:
        keys = {} if key is None else {name: key}
        records = table.whole(labels="on demand" if registration.on_demand else "there").at(name)
        _tell_unseen(registration, groups_in(records))
        labels = labels_beside(table.path) if registration.on_demand else None
        return open_sites(
            registration, records, ledger, in_order=in_order, fresh=fresh, keys=keys, labels=labels, mask=mask
        )[0]
    contents = examine(table, name, independent=registration.privacy.independent)
    _tell_unseen(registration, _listed_in(registration, contents))
    intake = ledger.take_in(
        name, contents.digest, cut_words(registration), calibrating_units(registration, contents), contents.names(),
        in_order=in_order, fresh=fresh,
    )  # fmt: skip
    return Site(registration, name, ledger, intake, partial(count, registration, contents, intake), key, mask=mask)


def calibrating_units(registration: Registration, contents: Contents) -> int:
    """Count the records of a table that calibrate; where some do not, that takes a pass."""
    if _inside(registration) is None:
        return contents.rows
    return sum(int(rows.size) for _, rows in _calibrating(registration, contents))


def count(registration: Registration, contents: Contents, intake: Intake, first: int, slots: int) -> Ints:
    """Count so many units from a place in the intake's order, in one pass."""
    window = Window(intake.seed, intake.units, first, slots, contents.table.batch)
    total: Ints = np.zeros(1, dtype=np.int64)  # grows to the shape of what is counted
    for part, rows in _calibrating(registration, contents):
        asked = rows[window.take(rows.size)]
        total = total + counted(registration, part.units(asked))
    return total


def _calibrating(registration: Registration, contents: Contents) -> Iterator[tuple[Part, Positions]]:
    """Yield the table batch by batch, and which rows of each calibrate: those outside the development part."""
    table, check, development = contents.table, contents.table.check(), _inside(registration)
    used = table.settled.used(table.present)
    wanted = [*NEEDED, *(["id"] if development is not None else []), *(["group"] if registration.groups else [])]
    others = [name for name, _ in table.settled.others]
    for frame in table.frames(list(dict.fromkeys([*(used[what] for what in wanted if what in used), *others]))):
        first, part = check.rows, check.part(frame)
        keep = np.ones(frame.height, dtype=np.bool_)
        if development is not None:
            names = part.text["id"].to_list() if "id" in part.text else range(first, check.rows)
            keep = ~in_development(development, names)
        yield part, np.flatnonzero(keep)
    check.finish()
    contents.check_same()


def _inside(registration: Registration) -> Development | None:
    """Return the development part if the calibration table holds it."""
    development = registration.development
    return development if development is not None and development.inside else None


def open_site(
    registration: Registration, name: str, found: Records | Table, ledger: Ledger, key: Key, *,
    mask: Key | None = None, fresh: bool,
) -> Site:  # fmt: skip
    """Open one site's own table behind its ledger; a table on disk is read in batches. `mask` is its mask key, of a
    cohort's member."""
    check_mask_key(registration, name, mask)
    if isinstance(found, Table):
        found = found.under(registration)
        return open_table(registration, name, found, ledger, fresh=fresh, key=key, mask=mask)
    if found.group is not None:
        _tell_unseen(registration, groups_in(found))
    return open_sites(registration, found.at(name), ledger, fresh=fresh, keys={name: key}, mask=mask)[0]


def _tell_unseen(registration: Registration, present: Collection[str]) -> None:
    """Refuse a table without any listed group before it is taken in; name those that no row has to its owner, who may
    keep a log, and so nothing else that rows hold."""
    groups = registration.groups
    if groups is None:
        return
    if (told := check_listed(groups.names, groups.column, present, "the table", suggest=False)) is not None:
        warnings.warn(told if registration.monitor is None else f"{told}{NOT_WATCHED}", stacklevel=2)


def _listed_in(registration: Registration, contents: Contents) -> set[str]:
    """Return the listed groups that rows of a table have; it is read until all were seen."""
    groups, found = registration.groups, set[str]()
    if groups is None:
        return found
    column = contents.table.settled.name("group")
    for frame in contents.table.frames([column]):
        found |= {*groups.names} & {*tidy(as_text(frame.to_series().alias("group"))).unique().to_list()}
        if len(found) == len(groups.names):
            break
    contents.check_same()
    return found
