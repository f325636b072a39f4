"""Records and units: a checked table, and what privacy protects and independence is assumed of.

A unit is one record, or one source with all its answers. What a unit adds to a release, and whether it is of the
development part, its own name and its own rows decide: no other row of the table has a say.

Theory: (v), What a program owes the neighbouring relation.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats
from fedsrc.records.columns import Columns
from fedsrc.records.keys import name_keys, place_keys
from fedsrc.records.order import Positions
from fedsrc.records.rows import Digests, Rows

Unit = Literal["record", "source"]
LOCAL_SITE = "local"
UnitNames = range | Sequence[str]
KINDS = 30  # kinds of rows that all stand there an even number of times by chance: once in 2^30 tables


@dataclass(frozen=True)
class Records:
    """A checked table. Rows keep the table's order; `site` and `source` are codes into the name lists."""

    digest: str
    score: Floats
    loss: Floats
    site: Positions
    site_names: tuple[str, ...]
    source: Positions | None
    source_names: tuple[str, ...]
    ids: Sequence[str] | None
    group: Positions | None = None
    group_names: tuple[str, ...] = ()
    others: Floats | None = None  # further scores, (rows, scores), where several are registered
    like_source: str | None = None  # an unused column that is called what a source would be, and repeats its values
    rows: Rows | None = None  # all columns of the table it was read from
    cut_by: str = ""  # which of those columns make units, sites, scores and losses
    columns: Columns = field(default_factory=Columns)  # how it was read
    words: tuple[tuple[str, float], ...] = ()  # labels that are words, and the loss that each means
    labelled: NDArray[np.bool_] | None = None  # rows whose loss the table holds, where labels come on demand
    parts: dict[tuple[object, ...], NDArray[np.bool_]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )  # development parts that were found, by their rule

    def __len__(self) -> int:
        return self.score.size

    def at(self, site: str) -> Records:
        """Return the table as one site's own: without a site column all rows are; with one, all must be."""
        check_owner(self.site_names, site)
        return replace(self, site_names=(site,))

    def answer(self, row: int) -> str:
        """Return the name of a row's answer: its id, or its place in the table."""
        return f"row {row + 1}" if self.ids is None else self.ids[row]

    @cached_property
    def copies(self) -> int:
        """How many times every row stands in the table, if all do as often (or a multiple); 1 where too few kinds of
        rows are there to tell copies from coincidence. With ids no row has a copy."""
        counts = self.row_counts
        return int(np.gcd.reduce(counts)) if counts.size >= KINDS else 1

    @cached_property
    def row_counts(self) -> Positions:
        """How many rows there are of each kind, letter for letter."""
        if self.rows is None or self.ids is not None:
            return np.ones(len(self), dtype=np.int64)
        return np.unique(self.rows.digests.view("V16"), return_counts=True)[1].astype(np.int64)

    @property
    def repeats_sources(self) -> bool:
        """Whether some source has more than one answer, so that records are not independent."""
        return self.source is not None and np.unique(self.source).size < len(self)

    @property
    def dependent(self) -> bool:
        """Whether the table looks as if records were not independent; somebody must then say what the unit is."""
        return self.repeats_sources or self.like_source is not None


@dataclass(frozen=True)
class Units:
    """Units of one site: unit i owns answers start[i]:start[i+1] of `score` and `loss`, which stand in those `rows` of
    their table. `group` is the group of each answer, a code into `group_names`; `others` its further scores. Never
    leaves the site."""

    start: Positions
    score: Floats
    loss: Floats
    ids: tuple[str, ...] | None
    rows: Positions | None = None
    group: Positions | None = None
    group_names: tuple[str, ...] = ()
    others: Floats | None = None

    def __len__(self) -> int:
        return self.start.size - 1

    def take(self, positions: Positions) -> Units:
        """Return the units at those positions, in that order."""
        sizes = np.diff(self.start)[positions]
        start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        rows = np.repeat(self.start[positions] - start[:-1], sizes) + np.arange(start[-1])
        ids = None if self.ids is None else tuple(self.ids[i] for i in positions)
        table, group = (None if each is None else each[rows] for each in (self.rows, self.group))
        others = None if self.others is None else self.others[rows]
        return Units(start, self.score[rows], self.loss[rows], ids, table, group, self.group_names, others)


def units_of(
    records: Records, site: str, unit: Unit, *, max_answers: int = 1, keep: NDArray[np.bool_] | None = None,
    by_group: bool = False,
) -> Units:  # fmt: skip
    """Return one site's units. `keep` masks rows; sources keep at most max_answers, or so many in each group."""
    at_site = np.asarray([name == site for name in records.site_names])[records.site]
    rows = np.flatnonzero(at_site if keep is None else at_site & keep)
    if unit == "record":
        ids = None if records.ids is None else tuple(records.ids[i] for i in rows.tolist())
        return _owned(records, rows, np.arange(rows.size + 1, dtype=np.int64), ids)
    rows, start = _by_source(records, rows, max_answers, by_group=by_group)
    names = tuple(records.source_names[code] for code in _source_codes(records)[rows[start[:-1]]])
    return _owned(records, rows, start, names)


def _owned(records: Records, rows: Positions, start: Positions, ids: tuple[str, ...] | None) -> Units:
    """Make units of some rows of a table."""
    group = None if records.group is None else records.group[rows]
    others = None if records.others is None else records.others[rows]
    return Units(start, records.score[rows], records.loss[rows], ids, rows, group, records.group_names, others)


def unit_codes(records: Records, unit: Unit) -> Positions:
    """Return the unit of each row, as codes 0..n-1."""
    return np.arange(len(records), dtype=np.int64) if unit == "record" else _source_codes(records)


def unit_names(records: Records, unit: Unit) -> UnitNames:
    """Return each unit's name: its source, its id, or, where records have none, its row number."""
    if unit == "source":
        _source_codes(records)
        return records.source_names
    return range(len(records)) if records.ids is None else records.ids


def most_answers(records: Records, rows: NDArray[np.bool_]) -> int:
    """Return the largest number of answers that one source has among those rows."""
    return int(np.bincount(_source_codes(records)[rows]).max())


def unit_count(records: Records, unit: Unit) -> int:
    """Count the units of the table."""
    return len(records) if unit == "record" else len(records.source_names)


def units_by_site(records: Records, unit: Unit) -> list[int]:
    """Count the units of every site of the table."""
    codes, sites = unit_codes(records, unit), len(records.site_names)
    found: list[int] = np.bincount(np.unique(codes * sites + records.site) % sites, minlength=sites).tolist()
    return found


def check_unit(records: Records, unit: Unit | None, where: str) -> Unit:
    """Return the unit to use: as asked, or the record where that is plainly right; else the user must decide."""
    if unit == "source":
        _source_codes(records)
        _one_site_per_source(records, where)
        return unit
    if unit is None and records.copies > 1:
        times = "twice" if records.copies == 2 else f"{records.copies} times"
        raise FedsrcError(
            f"every row stands in it {times}, letter for letter",
            where=where,
            hint="keep one of each: a copy is no new answer; `unit='record'` asserts that all are answers of their own",
        )
    if unit is None and records.dependent:
        raise several_answers(where, None if records.repeats_sources else records.like_source)
    return "record"


def several_answers(where: str, column: str | None = None) -> FedsrcError:
    """Return the error for records whose sources answer more than once, or seem to by an unused column."""
    if column is None:
        return FedsrcError(
            "some sources have several answers, so records are not independent",
            where=where,
            hint="`unit='source'` makes the source the unit; `unit='record'` asserts that records are independent",
        )
    return FedsrcError(
        f"values of column {column!r} stand in several rows, and by its name it is a source",
        where=where,
        hint=f"`source_column={column!r}` `unit='source'` makes it the unit;"
        " `unit='record'` asserts that records are independent",
    )


def check_owner(names: tuple[str, ...], site: str) -> None:
    """Refuse a table, by its sorted site names, that holds other rows than one site's own."""
    if names not in ((LOCAL_SITE,), (site,)):
        other = next(name for name in names if name != site)
        raise FedsrcError(
            f"the table has rows of site {other!r}", hint=f"give site {site!r} a table of its own rows alone"
        )


def _source_codes(records: Records) -> Positions:
    if records.source is None:
        raise FedsrcError(
            "unit = 'source' needs a source column", hint="name it with `source_column=`, or use `unit='record'`"
        )
    return records.source


def _one_site_per_source(records: Records, where: str) -> None:
    pairs = np.unique(np.stack([_source_codes(records), records.site]), axis=1)
    if pairs.shape[1] > np.unique(pairs[0]).size:
        raise FedsrcError(
            "a source has answers at more than one site",
            where=where,
            hint="a source must live at one site: otherwise neither its privacy nor independence holds",
        )


def _by_source(
    records: Records, rows: Positions, max_answers: int, *, by_group: bool = False
) -> tuple[Positions, Positions]:
    """Group rows by source, at most max_answers each (or in each of its groups), and return where each source starts.

    The source's name and an answer's place among that source's rows decide which are kept.
    """
    codes, group = _source_codes(records), records.group if by_group else None
    pairs = codes if group is None else codes * len(records.group_names) + group
    rows = rows[np.argsort(pairs[rows], kind="stable")]  # by source, in table order within it or its group
    starts, owner, place = _runs(pairs[rows])
    names = name_keys("answers kept", [_pair_name(records, row, group) for row in rows[starts].tolist()])
    drawn = np.lexsort((place_keys(names[owner], place.astype(np.uint64)), owner))
    kept = place < max_answers  # the first of each source as drawn: in either order a source has the same stretch
    rows = rows[drawn][kept]
    starts = _runs(codes[rows])[0]
    return rows, np.append(starts, rows.size).astype(np.int64)


def _pair_name(records: Records, row: int, group: Positions | None) -> str:
    """Return the name of a row's source, and with it that of its group."""
    name = records.source_names[_source_codes(records)[row]]
    return name if group is None else json.dumps([name, records.group_names[group[row]]])


def _runs(codes: Positions) -> tuple[Positions, Positions, Positions]:
    """Return where runs of equal codes start, and for every entry the number of its run and its place in it."""
    first = np.ones(codes.size, dtype=np.bool_)
    first[1:] = codes[1:] != codes[:-1]
    starts, owner = np.flatnonzero(first), np.cumsum(first) - 1
    return starts, owner, np.arange(codes.size) - starts[owner]


@dataclass(frozen=True)
class Names:
    """By what a table's rows can be recognised in another table: ids and sources where it has them, and what each row
    holds (digests, so many cells each). `cut_by` says which columns the table is cut by."""

    ids: Iterable[str] | None = None
    sources: Iterable[str] | None = None
    rows: Iterable[Digests] = ()
    cells: int = 0
    cut_by: str = ""

    @property
    def kinds(self) -> int:
        return (self.ids is not None) + 2 * (self.sources is not None)
