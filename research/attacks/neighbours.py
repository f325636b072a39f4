"""Neighbouring tables: two files that differ in one unit alone, and what that changes in the integers before the noise.

`measure` goes all the way from files on disk through reading, capping, the split, binning and encoding. Cases are
numbered: the same number is the same case on every machine. `development_change` does so for the development release.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl

from fedsrc.maths.arrays import Ints
from fedsrc.maths.basis import Basis
from fedsrc.maths.contrasts import ContrastCode
from fedsrc.planning.register import Choices, register_grid
from fedsrc.planning.sealing import Seal, seal
from fedsrc.protocol.registration import Registration
from fedsrc.records.development import calibrating, calibration_rows
from fedsrc.records.masses import contrasts, counted, unit_masses
from fedsrc.records.order import IN_ORDER
from fedsrc.records.stream import Table, examine
from fedsrc.records.units import Records
from fedsrc.site import streamed
from fedsrc.site.develop import development_masses, over_grid
from fedsrc.site.recognition import Intake

SITE = "a"
GROUPS = ("g0", "g1", "g2", "g3", "not listed")
Name = str | int  # of a unit: its source, its id or the number of its row
Reader = Literal["whole", "batches"]


class Row(NamedTuple):
    """One line of a table; None is a value that is not there. `name` is the source or the id, if there is one; `group`
    and `other` are for panels."""

    name: Name | None
    score: float | None
    loss: float | None
    group: str = ""
    other: float | None = None


@dataclass(frozen=True)
class Case:
    """A registration, a table, and the unit that will change in it."""

    registration: Registration
    rows: list[Row]
    victim: int  # the first row of the unit that changes
    kind: str
    reader: Reader
    batch: int
    order: str
    slots: int
    panel: int | None = None  # the number of its panel

    @property
    def column(self) -> str:
        return "source" if self.registration.privacy.unit == "source" else "id"

    @property
    def name(self) -> Name:
        """What the unit that changes is called."""
        name = self.rows[self.victim].name
        return self.victim if name is None else str(name)


class Seen(NamedTuple):
    """What a site makes of a table: the masses of every unit that calibrates, its release, and the exact integers."""

    masses: dict[Name, list[Any]]
    release_of: dict[Name, int]
    exact: Ints


@dataclass(frozen=True)
class Measured:
    """What one unit changed, at worst, over so many pairs of neighbouring tables. Shares are of the sensitivity."""

    pairs: int
    release: float  # the most that one release moved
    together: float  # the most that all releases moved, summed
    releases: int  # the most releases that moved at all
    others: int  # other units whose masses or part changed
    places: int  # other units that went to another place
    renamed: int  # pairs in which the unit was also renamed
    others_renamed: int  # other units whose masses or part changed by that


def case(number: int) -> Case:
    """A random table under a random registration."""
    rng = np.random.default_rng([20_261, number])
    source, named = bool(rng.random() < 0.7), bool(rng.random() < 0.6)
    registration = _registration(rng, source=source)
    whole_numbers, units = bool(rng.integers(2)), int(rng.integers(2, 26))
    names: list[Name] = [int(x) if whole_numbers else f"s{x}" for x in rng.permutation(10 * units)[:units]]
    rows = list[Row]()
    for name in names:
        for _ in range(int(rng.integers(1, 8)) if source else 1):
            rows.append(_row(rng, registration, name if source or named else None))
    rows = [rows[i] for i in rng.permutation(len(rows))]
    return Case(
        registration,
        rows,
        victim=int(rng.integers(len(rows))),
        kind=str(rng.choice(["csv", "parquet", "jsonl"])),
        reader="whole" if source or rng.random() < 0.3 else "batches",
        batch=int(rng.integers(1, 12)),
        order=IN_ORDER if rng.random() < 0.3 else str(rng.integers(1 << 60)),
        slots=int(rng.integers(1, units + 1)),
    )


def panel_case(number: int) -> Case:
    """The same with a panel: groups or a further score, any encoding that a panel may have."""
    made, rng = case(number), np.random.default_rng([20_264, number])
    registration = _panel(rng, made.registration)
    rows = [_grouped(rng, registration, row) for row in made.rows]
    return replace(made, registration=registration, rows=rows, panel=number)


def neighbour(made: Case, number: int) -> Case:
    """The same but for one unit's rows, under its name: as many as may be, anywhere, with any scores and losses.

    A record is one row, which stays where it stands. Where the unit is protected against adding nothing, it comes to
    score below every threshold; where neighbours are of the same groups, its answers keep theirs.
    """
    rng, low = np.random.default_rng([20_262, number]), made.registration.privacy.adjacency == "zero-out"
    name = made.rows[made.victim].name

    def new() -> Row:
        row = _row(rng, made.registration, name)
        row = row if made.panel is None else _grouped(rng, made.registration, row)
        return row._replace(score=0.0, other=0.0) if low else row

    if made.registration.privacy.adjacency == "same-group":
        mine = [i == made.victim if name is None else row.name == name for i, row in enumerate(made.rows)]
        rows = [new()._replace(group=row.group) if own else row for own, row in zip(mine, made.rows, strict=True)]
        return replace(made, rows=rows)
    if made.column == "id":
        return replace(made, rows=[new() if i == made.victim else row for i, row in enumerate(made.rows)])
    rows = [row for row in made.rows if row.name != name]
    for _ in range(int(rng.integers(1, 8))):
        rows.insert(int(rng.integers(len(rows) + 1)), new())
    return replace(made, rows=rows, victim=next(i for i, row in enumerate(rows) if row.name == name))


def renamed(made: Case, number: int) -> Case | None:
    """The same but for one unit's name, if units have names of their own."""
    rng, name = np.random.default_rng([20_263, number]), made.rows[made.victim].name
    if name is None:
        return None
    new = rng.choice(np.array(["", "zzz", "ÿ"])) + str(name) + rng.choice(np.array([".5", "x"]))
    other: Any = float(new) if isinstance(name, int) and new.replace(".", "").isdigit() else str(new)
    return replace(made, rows=[row._replace(name=other) if row.name == name else row for row in made.rows])


def measure(pairs: int, folder: Path, *, first: int = 0, make: Callable[[int], Case] = case) -> Measured:
    """The worst over so many pairs, from their files in a folder."""
    found = [_measured(number, folder, make) for number in range(first, first + pairs)]
    worst: Callable[[str], Any] = lambda name: max(getattr(each, name) for each in found)  # noqa: E731
    total: Callable[[str], int] = lambda name: sum(getattr(each, name) for each in found)  # noqa: E731
    return Measured(
        pairs, worst("release"), worst("together"), worst("releases"),
        total("others"), total("places"), total("renamed"), total("others_renamed"),
    )  # fmt: skip


def _measured(number: int, folder: Path, make: Callable[[int], Case]) -> Measured:
    one = make(number)
    other, third = neighbour(one, number), renamed(one, number)
    before, after = seen(one, folder / f"one.{one.kind}"), seen(other, folder / f"other.{one.kind}")
    change = _change(one, before, after)
    length = one.registration.mechanism.sensitivity
    sizes = np.sqrt((change.astype(np.float64) ** 2).sum(axis=tuple(range(1, change.ndim)))) / length
    together = float(np.sqrt((change.sum(axis=0).astype(np.float64) ** 2).sum()) / length)
    moved = 0
    if third is not None:
        moved = len(_differ(one, before.masses, seen(third, folder / f"third.{one.kind}").masses, third.name))
    return Measured(
        1, float(sizes.max(initial=0)), together, int((sizes > 0).sum()),
        len(_differ(one, before.masses, after.masses)), len(_differ(one, before.release_of, after.release_of)),
        int(third is not None), moved,
    )  # fmt: skip


def development_change(number: int, folder: Path, make: Callable[[int], Case] = case) -> float | None:
    """How far one unit moves the exact integers of the development release, as a share of its sensitivity.

    None: this case has no development part.
    """
    one = make(number)
    part = one.registration.development
    if part is None:
        return None
    grid = over_grid(one.registration)
    rule, exact = grid.mechanism, list[Ints]()
    for each, name in ((one, "one"), (neighbour(one, number), "other")):
        path = folder / f"{name}.{one.kind}"
        _write(each, path)
        records = _table(each, path).whole().at(SITE)
        exact.append(rule.basis.encode(development_masses(grid, records, part)))
    moved = (exact[0] - exact[1]).astype(np.float64)
    return float(np.linalg.norm(moved)) / rule.sensitivity


def _differ(made: Case, one: dict[Name, Any], other: dict[Name, Any], also: Name | None = None) -> list[Name]:
    """Units, but for the one that changes, that are not the same in both."""
    return [x for x in {*one, *other} - {made.name, also} if x not in one or x not in other or one[x] != other[x]]


def _change(made: Case, before: Seen, after: Seen) -> Ints:
    """What every release changed by. Against a unit that adds nothing, its own masses are taken out of the second."""
    if before.exact.shape != after.exact.shape:
        raise AssertionError("neighbouring tables have equally many units that calibrate")
    exact = after.exact.copy()
    if made.registration.privacy.adjacency == "zero-out" and made.name in after.masses:
        exact[after.release_of[made.name]] -= _encoded(made, np.asarray(after.masses[made.name]))
    return before.exact - exact


def seen(made: Case, path: Path) -> Seen:
    """Write a table, read it as a site does, and take its units release by release."""
    _write(made, path)
    masses, count, names = _batches(made, path) if made.reader == "batches" else _whole(made, path)
    order = _intake(len(names), made.order).order().tolist()
    releases = [(at, min(made.slots, len(names) - at)) for at in range(0, len(names), made.slots)]
    rule = made.registration.mechanism
    counts = [_lattice(made, count(first, slots)) for first, slots in releases]
    place = {names[unit]: at // made.slots for at, unit in enumerate(order)}
    return Seen(dict(zip(names, masses, strict=True)), place, np.asarray(counts).reshape(len(counts), *rule.shape))


def _lattice(made: Case, counts: Ints) -> Ints:
    """What is released of counts, before the noise."""
    code = made.registration.mechanism.code
    return counts if isinstance(code, ContrastCode) else code.encode(counts)


def _encoded(made: Case, masses: Ints) -> Ints:
    """What one unit adds to a release."""
    code = made.registration.mechanism.code
    if isinstance(code, ContrastCode):
        return contrasts(code, masses)
    return code.encode(masses if isinstance(code, Basis) else code.bins(masses))


def _table(made: Case, path: Path, batch: int = 1 << 17) -> Table:
    """The table as a site opens it, under its registration."""
    found = Table(path, missing="keep", batch=batch)
    return found if made.panel is None else found.under(made.registration)


Found = tuple[list[Any], Callable[[int, int], Ints], list[Name]]


def _whole(made: Case, path: Path) -> Found:
    """A table in memory: each unit's masses, how slots are counted, and the units' names."""
    records = _table(made, path).whole().at(SITE)
    units = calibrating(made.registration, records)[SITE]
    order = _intake(len(units), made.order).order()
    names: list[Name] = _numbers(made, records) if units.ids is None else [*units.ids]
    masses = unit_masses(made.registration, units).tolist()
    return masses, lambda at, n: counted(made.registration, units.take(order[at : at + n])), names


def _batches(made: Case, path: Path) -> Found:
    """The same of a table that is read in batches."""
    reg, contents = made.registration, examine(_table(made, path, made.batch), SITE)
    ids, masses, rows = contents.names().ids, list[Any](), list[int]()
    everyone: list[Name] = list(range(contents.rows)) if ids is None else list(ids)
    first = 0
    for part, kept in streamed._calibrating(reg, contents):
        masses += unit_masses(reg, part.units(kept)).tolist()
        rows += (kept + first).tolist()
        first += part.score.size
    intake = _intake(streamed.calibrating_units(reg, contents), made.order)
    return masses, lambda at, n: streamed.count(reg, contents, intake, at, n), [everyone[row] for row in rows]


def _numbers(made: Case, records: Records) -> list[Name]:
    """Of records that calibrate, the numbers of their rows."""
    keep = calibration_rows(made.registration, records)
    return [*range(len(records))] if keep is None else [*np.flatnonzero(keep).tolist()]


def _intake(units: int, order: str) -> Intake:
    return Intake(1, SITE, "", "", units, order)


def _registration(rng: np.random.Generator, *, source: bool) -> Registration:
    """Any encoding, basis, adjacency, cap, weight, loss grid, thresholds and development part."""

    def one_of(*values: Any) -> Any:
        return values[int(rng.integers(len(values)))]

    fields = register_grid(Choices(0.2, 1.0, grid=True, thresholds=int(rng.integers(1, 13))), [SITE]).model_dump()
    fields["privacy"] |= {
        "unit": "source" if source else "record",
        "max_answers": int(rng.integers(1, 7)) if source else 1,
        "answer_weight": one_of("source", "answer"),
        "loss_grid": one_of(1, 4, 10),
        "adjacency": one_of("zero-out", "replacement"),
    }
    fields["encoding"] |= {"kind": one_of("paired", "complementary"), "basis": one_of("bins", "suffix")}
    fields["development"] = one_of(None, {"share": float(rng.uniform(0.1, 0.9)), "seed": int(rng.integers(1 << 60))})
    return Registration.model_validate(fields)


def _panel(rng: np.random.Generator, base: Registration) -> Registration:
    """Any panel: groups with either rule for sources that span them, or two scores; all that it may release."""
    fields, m, B = base.model_dump(), len(base.thresholds.values), int(rng.integers(1, 5))
    source, several = base.privacy.unit == "source", bool(rng.random() < 0.7)
    fields["encoding"] = {"kind": "complementary", "basis": "suffix"}
    fields["certificate"]["ladder"] = [0.2]
    cut = {"values": base.thresholds.values, "weights": base.thresholds.weights}
    fields["claims"] = {"kind": "scores", "shares": [0.5, 0.5], "others": [{"column": "other", **cut}]}
    if several:
        whole = source and bool(rng.integers(2))
        fields["claims"] = {
            "kind": "groups", "names": GROUPS[:B], "shares": [1.0 / B] * B, "span": "whole" if whole else "shares",
            "most": B if whole else 1,
        }  # fmt: skip
        if rng.random() < 0.3:
            fields["privacy"]["adjacency"] = "same-group"
    kind = rng.random()
    if kind < 0.4 and base.privacy.mass_grid > 1:
        fields["encoding"] = {"kind": "moments"}
    made = Registration.model_validate(fields)
    if kind < 0.7:
        return made
    few = tuple(base.thresholds.values[: min(m, 4)])
    weights, others = (1.0 / len(few),) * len(few), len(made.cuts) - 1
    plan = Seal(few, weights, ((0.2, 1.0, (0.5,) * len(few) * (others + 1)),), others=((few, weights),) * others)
    return seal(made, plan)


def _grouped(rng: np.random.Generator, registration: Registration, row: Row) -> Row:
    """A row with a group, listed or not, and a further score."""
    scores = [0.0, 1.0, *registration.thresholds.values, None]
    return row._replace(group=str(rng.choice(GROUPS)), other=scores[int(rng.integers(len(scores)))])


def _row(rng: np.random.Generator, registration: Registration, name: Name | None) -> Row:
    """Any score and loss, the corners and the thresholds themselves more often, and now and then none."""
    scores = [0.0, 1.0, *registration.thresholds.values, float(rng.random()), None]
    losses = [0.0, 0.0, 1.0, 1.0, float(rng.random()), None]
    return Row(name, scores[int(rng.integers(len(scores)))], losses[int(rng.integers(len(losses)))])


def _write(made: Case, path: Path) -> None:
    """The table as a file, every row written by itself."""
    values: list[dict[str, Any]] = [{"score": row.score, "loss": row.loss} for row in made.rows]
    if made.panel is not None:
        values = [{**each, "group": row.group, "other": row.other} for each, row in zip(values, made.rows, strict=True)]
    if made.rows[0].name is not None:
        values = [{made.column: row.name, **each} for each, row in zip(values, made.rows, strict=True)]
    if made.kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in values), encoding="utf-8")
    elif made.kind == "csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, list(values[0]))
            table.writeheader()
            table.writerows(values)
    else:
        text = [{key: str(value) if key == made.column else value for key, value in row.items()} for row in values]
        types = {key: pl.String if key in (made.column, "group") else pl.Float64 for key in text[0]}
        pl.DataFrame(text, schema=types).write_parquet(path)
