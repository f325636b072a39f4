"""Which of the listed groups a table has, looked at before any of its records are spent."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence

import numpy as np

from fedsrc.errors import FedsrcError
from fedsrc.protocol.registration import Registration
from fedsrc.records.units import Records

NOT_WATCHED = "; nothing is watched there"


def check_listed(
    names: Sequence[str], column: str, present: Collection[str], where: str, *, suggest: bool = True
) -> str | None:
    """Refuse a table that has no row of any listed group; say to its owner which of them no row has, and, of what its
    records hold, what may be meant. None if all occur."""
    unseen = [name for name in names if name not in present]
    if not unseen:
        return None
    told = f"no row has the group {', '.join(map(repr, unseen))} in column {column!r}"
    near = difflib.get_close_matches(unseen[0], sorted(present), n=1) if suggest else []
    told += f"; is {near[0]!r} meant?" if near else ""
    if len(unseen) == len(names):
        raise FedsrcError(told, where=where, private=tuple(near))
    return told


def check_registered(registration: Registration, records: Records, where: str = "the table") -> str | None:
    """Do the same for the groups of a registration. A table without their column is refused when it is counted."""
    groups = registration.groups
    if groups is None or records.group is None:
        return None
    told = check_listed(groups.names, groups.column, groups_in(records), where)
    return told if told is None or registration.monitor is None else f"{told}{NOT_WATCHED}"


def groups_in(records: Records) -> set[str]:
    """Return the groups that rows of a table have."""
    return set() if records.group is None else {records.group_names[i] for i in np.unique(records.group).tolist()}
