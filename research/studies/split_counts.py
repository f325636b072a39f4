"""How the counts of what can be certified today differ between splits, from what every trial gave (`other_splits`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import polars as pl

from research.pages import FIGURES, markdown
from research.studies.sides import KEYS, Compared, Row, apart, compared, mostly

RECORDS = FIGURES / "other_splits.parquet"
SHOWN = {"paper": "the paper's rule", "old": "the old default", "default": "the default", "few": "for few records"}
HEAD = [
    "seed", "paper's rule", "old default", "default", "for few records", "never by the default",
    "default less / more often than old", "accepts less / more, of", "public development: less / more, of",
    "for few records: more / fewer records, of", "false certificates",
]  # fmt: skip
ABOUT = """### Other splits

The same on nine other splits of every table, {trials} trials each: the studies with 1000, 2000, ..., 9000 added to the
seed, so with other development, calibration and held-out records, other sites, and other noise on the development
release. Counted as above: combinations certified in most trials, then the default beside the old default. Acceptance is
with all 30,000 records; it and records are compared where both sides certify in most trials, 'public development' and
'for few records' with privacy alone. False certificates: of the default, for few records, of the old default with all
records. Nine were planned; the first five were published before the other four were run. The page's own split came
before all nine, and means leave it out."""
SOURCE = """Made by `python -m research.studies.other_splits TABLES`; what every trial gave is in
`research/results/other_splits.parquet`."""


class Counts(NamedTuple):
    """What the page counts of one split."""

    most: dict[str, int]
    never: int
    less_often: int
    more_often: int
    accepted: Compared
    public: Compared
    records: Compared
    false: tuple[int, ...]


def counts(found: list[Row]) -> Counts:
    """Count over the combinations of one split."""
    gaps = [row["default_fired"] / row["default_trials"] - row["old_fired"] / row["old_trials"] for row in found]
    private, _ = apart(found)
    return Counts(
        {side: sum(mostly(row, side) for row in found) for side in SHOWN},
        sum(not row["default_fired"] for row in found),
        sum(gap < 0 for gap in gaps),
        sum(gap > 0 for gap in gaps),
        compared(found, ("default", "old_all"), "acceptance"),
        compared(private, ("public", "old_all"), "acceptance"),
        compared(private, ("few", "old"), "records"),
        tuple(sum(row[f"{side}_failures"] for row in found) for side in ("default", "few", "old_all")),
    )


def rows(frame: pl.DataFrame) -> list[Row]:
    """One row per population, target and epsilon of one split, from its trials."""
    return [dict(_row(key, part)) for key, part in frame.group_by(KEYS, maintain_order=True)]


def _row(key: tuple[object, ...], part: pl.DataFrame) -> Iterator[tuple[str, object]]:
    yield from zip(KEYS, key, strict=True)
    for (side,), each in part.group_by("side", maintain_order=True):
        sure = each.filter("fired")
        yield f"{side}_trials", each.height
        yield f"{side}_fired", sure.height
        yield f"{side}_failures", int(each["failed"].sum())
        yield from ((f"{side}_{what}", sure[what].mean()) for what in ("acceptance", "records"))


def every(found: list[Row]) -> dict[str, Counts]:
    """Return the counts of the page's own split, and of the others as published."""
    frame = pl.read_parquet(RECORDS)
    others = {f"+ {shift}": counts(rows(part)) for (shift,), part in frame.group_by("shift", maintain_order=True)}
    return {"as above": counts(found), **others}


def lead(found: list[Row]) -> str:
    """Say how the counts range over the splits that were run after the page's own."""
    _, *others = every(found).values()
    each = ", ".join(_range(name, [one.most[side] for one in others]) for side, name in SHOWN.items() if side != "few")
    fewer = sum(one.most["default"] < one.most["old"] for one in others)
    return (
        f"That is one split of each table. On {len(others)} others ([below](#other-splits)), certified in most trials"
        f" are: {each}. The default certifies fewer than the old default in {fewer} of these {len(others)}."
    )


def _range(name: str, values: list[int]) -> str:
    return f"by {name} {min(values)} to {max(values)}, {sum(values) / len(values):.1f} on average"


def section(found: list[Row]) -> list[str]:
    """Return the parts of the section."""
    trials = pl.read_parquet(RECORDS)["trial"].n_unique()
    all_ = every(found)
    body = [*(_line(name, each) for name, each in all_.items()), _means(list(all_.values())[1:])]
    return [ABOUT.format(trials=trials), markdown(HEAD, body), SOURCE]


FORMS = (*["{}"] * (len(SHOWN) + 1), "{} / {}", *["{} / {}, {}"] * 3, "{} / {} / {}")  # of a line's cells


def _numbers(each: Counts) -> list[tuple[int, ...]]:
    """Return what stands in a line, cell by cell."""
    compared_ = [(one.less, one.more, one.both) for one in (each.accepted, each.public)]
    records = (each.records.more, each.records.less, each.records.both)
    most = [(each.most[side],) for side in SHOWN]
    return [*most, (each.never,), (each.less_often, each.more_often), *compared_, records, each.false]


def _means(all_: list[Counts]) -> list[str]:
    """The last line: means over the other splits."""
    cells = zip(*map(_numbers, all_), strict=True)
    means = ([f"{sum(column) / len(all_):.1f}" for column in zip(*each, strict=True)] for each in cells)
    return ["mean of the others", *(form.format(*each) for form, each in zip(FORMS, means, strict=True))]


def _line(name: str, each: Counts) -> list[str]:
    return [name, *(form.format(*cell) for form, cell in zip(FORMS, _numbers(each), strict=True))]
