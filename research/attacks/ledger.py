"""Attacks on a ledger (P2, P4): copies of a table that look like another, against one ledger.

Every row has a number that no file holds; what leaves is counted by these numbers, so a row that leaves twice shows
whatever it was called. A ledger that knows files by their digest and units by their ids alone is the control.
"""

from __future__ import annotations

import os
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fedsrc.common.places import ledger_beside
from fedsrc.errors import FedsrcError
from fedsrc.planning.register import Choices, register_grid
from fedsrc.protocol.messages import Request
from fedsrc.protocol.registration import Registration
from fedsrc.records.columns import Columns
from fedsrc.records.development import calibrating
from fedsrc.records.stream import Table
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow
from fedsrc.site.recognition import Intake, Recognition
from fedsrc.site.site import Site, open_sites
from fedsrc.site.streamed import open_table
from research.attacks.old_rules import instead
from research.attacks.sections import Record, Row, Section, control, in_blocks, recorded, some, totals
from research.pages import markdown

SEQUENCES, MOVES, ROWS, BLOCK = 500, 8, 60, 10
HONEST, HONEST_ROWS = 200, 300
HOSPITALS, WARDS = ("north", "south"), ("x", "y")
SPELLINGS: dict[str, Callable[[str], str]] = {
    "white space": lambda name: f" {name} ",
    "composition": lambda name: unicodedata.normalize("NFD", name),
    "zeros": lambda name: name.zfill(7),
    "a float": lambda name: f"{name}.0",
}


def registered(sites: tuple[str, ...], unit: str = "record") -> Registration:
    """A grid, without noise: what is released is not the point here."""
    settings: dict[str, Any] = {"unit": unit, "max_answers": 2} if unit == "source" else {"independent": True}
    return register_grid(Choices(0.2, float("inf"), grid=True, thresholds=3, **settings), sites)


@dataclass(frozen=True)
class Cut:
    """How a file is read: by which site, source and id column, if any."""

    site: str | None = None
    source: str | None = None
    id: str = "id"

    @property
    def registration(self) -> Registration:
        sites = {"hospital": HOSPITALS, "ward": WARDS, None: ("local",)}[self.site]
        return registered(sites, "record" if self.source is None else "source")


CUTS = (*(Cut(site) for site in ("hospital", "ward", None)), Cut(None, "patient"), Cut(None, "question"))


@dataclass(frozen=True)
class File:
    """A file: where it is, what its columns are called, and which rows it holds."""

    path: Path
    called: dict[str, str]
    frame: pl.DataFrame

    def columns(self, cut: Cut) -> Columns:
        name = self.called.get
        site, source = (None if what is None else self.called[what] for what in (cut.site, cut.source))
        return Columns(name("score"), name("loss"), site, source, None, name(cut.id))


@dataclass
class World:
    """A ledger, the files there are, and which rows have left."""

    folder: Path
    rng: np.random.Generator
    ids: bool
    ledger: Ledger
    known: pl.DataFrame = field(default_factory=pl.DataFrame)
    files: list[tuple[File, Cut]] = field(default_factory=list)
    released: Counter[int] = field(default_factory=Counter)
    made: int = 0

    def one_of(self, values: Any) -> Any:
        return values[int(self.rng.integers(len(values)))]

    def new_rows(self, count: int) -> pl.DataFrame:
        """Fresh rows, each known by what it holds."""
        rng, first = self.rng, len(self.known)
        loss = rng.integers(0, 2, count)
        made = pl.DataFrame(
            {
                "row": np.arange(first, first + count),
                "hospital": rng.choice(HOSPITALS, count),
                "ward": rng.choice(WARDS, count),
                "patient": [f"p{i}" for i in rng.permutation(count) // 2 + first],
                "question": [f"q{i}" for i in rng.permutation(count) // 2 + first],
                "number": [f"n{i}" for i in range(first, first + count)],
                "score": rng.random(count) * (1 - 0.3 * loss),
                "loss": loss.astype(np.float64),
            }
        )
        self.known = pl.concat([self.known, made]) if len(self.known) else made
        return made

    def write(
        self, frame: pl.DataFrame, *, shuffle: bool = False, rename: bool = False,
        spell: Callable[[str], str] | None = None, ids: bool = True, widen: bool = False,
    ) -> File:  # fmt: skip
        """The rows as a file of some format, in another order or under other names of columns if told."""
        frame = frame.sample(fraction=1.0, shuffle=True, seed=int(self.rng.integers(1 << 30))) if shuffle else frame
        table = frame
        if self.ids and ids:
            names = [str(i) if i % 2 else f"Zo\u00eb{i}" for i in frame["row"].to_list()]
            table = frame.with_columns(id=pl.Series([spell(name) for name in names] if spell else names))
        table = table.with_columns(note=pl.lit("exported")) if widen else table
        called = {name: f"my {name}" if rename else name for name in table.columns if name != "row"}
        order = self.rng.permutation(list(called)).tolist() if shuffle else list(called)
        self.made += 1
        path = self.folder / f"{self.made}.{self.one_of(['csv', 'parquet', 'jsonl'])}"
        _write(table.select([pl.col(name).alias(called[name]) for name in order]), path)
        return File(path, called, frame)

    def attempt(self, file: File, cut: Cut, ledger: Ledger | None = None) -> str:
        """Take a file in and release some of what it has: accepted, asked about (--fresh), or refused."""
        table = Table(file.path, file.columns(cut), batch=17)
        try:
            sites = self._open(cut, table, ledger or self.ledger)
        except FedsrcError as error:
            return _said(error)
        for site in sites:
            self._release(site, cut, file, table)
        return "accepted"

    def _open(self, cut: Cut, table: Table, ledger: Ledger) -> list[Site]:
        if cut == Cut() and self.rng.random() < 0.5:
            return [open_table(cut.registration, "local", table, ledger)]
        return open_sites(cut.registration, table.whole(), ledger)

    def _release(self, site: Site, cut: Cut, file: File, table: Table) -> None:
        first = site.ledger.spent(site.intake)
        left = site.intake.units - first
        if not left:
            return
        slots, number = int(self.rng.integers(1, left + 1)), int(self.rng.integers(1, 1 << 40))
        reg = cut.registration
        scale = reg.mechanism.scale
        allow(site.ledger, site.name, reg)
        site.answer(Request(registration=reg.digest, number=number, round=1, site=site.name, slots=slots, scale=scale))
        leaving = site.intake.order()[first : first + slots].tolist()
        if cut.source is not None:
            units = calibrating(reg, table.whole())[site.name].ids or ()
            names = {units[i] for i in leaving}
            rows = file.frame.filter(pl.col(cut.source).is_in(names))["row"].to_list()
        else:
            mine = file.frame if cut.site is None else file.frame.filter(pl.col(cut.site) == site.name)
            rows = [mine["row"][i] for i in leaving]
        self.released.update(rows)

    @property
    def twice(self) -> int:
        """Rows that have left more than once."""
        return sum(times > 1 for times in self.released.values())


def _write(table: pl.DataFrame, path: Path) -> None:
    match path.suffix:
        case ".parquet":
            table.write_parquet(path)
        case ".jsonl":
            table.write_ndjson(path)
        case _:
            table.write_csv(path)


# ---------------------------------------------------------------- moves


def move(world: World) -> tuple[str, str]:
    """One random attempt: what was tried, and what became of it."""
    name = world.one_of(list(MOVES_BY_NAME))
    return name, MOVES_BY_NAME[name](world)


def _old_rows(world: World) -> pl.DataFrame:
    frame: pl.DataFrame = world.one_of(world.files)[0].frame
    return frame


def _other_cut(world: World, cut: Cut) -> Cut:
    found: Cut = world.one_of([each for each in CUTS if each != cut])
    return found


def recut(world: World) -> str:
    file, cut = world.one_of(world.files)
    return world.attempt(file, _other_cut(world, cut))


def again(world: World) -> str:
    return world.attempt(*world.one_of(world.files))


def reordered(world: World) -> str:
    return world.attempt(world.write(_old_rows(world), shuffle=True), world.one_of(CUTS))


def renamed(world: World) -> str:
    return world.attempt(world.write(_old_rows(world), rename=True), world.one_of(CUTS))


def respelled(world: World) -> str:
    spell = world.one_of(list(SPELLINGS.values()))
    return world.attempt(world.write(_old_rows(world), shuffle=True, spell=spell), world.one_of(CUTS))


def without_ids(world: World) -> str:
    return world.attempt(world.write(_old_rows(world), shuffle=True, ids=False), world.one_of(CUTS))


def widened(world: World) -> str:
    """A column more, and perhaps units by another column."""
    cut: Cut = world.one_of(CUTS)
    file = world.write(_old_rows(world), shuffle=True, widen=True)
    return world.attempt(file, replace(cut, id="number") if world.ids and world.rng.random() < 0.5 else cut)


def part(world: World) -> str:
    frame = _old_rows(world)
    some_rows = frame.sample(int(world.rng.integers(1, len(frame))), seed=int(world.rng.integers(1 << 30)))
    return world.attempt(world.write(some_rows, shuffle=True), world.one_of(CUTS))


def hidden(world: World) -> str:
    """A few old rows among new ones."""
    old = _old_rows(world).sample(int(world.rng.integers(1, 10)), seed=int(world.rng.integers(1 << 30)))
    return world.attempt(world.write(pl.concat([old, world.new_rows(ROWS)]), shuffle=True), world.one_of(CUTS))


def joined(world: World) -> str:
    return world.attempt(world.write(world.known, shuffle=True), world.one_of(CUTS))


def linked(world: World) -> str:
    """Through a symbolic link, with the ledger that the command line takes for it."""
    file, cut = world.one_of(world.files)
    world.made += 1
    link = world.folder / f"link-{world.made}{file.path.suffix}"
    link.symlink_to(file.path)
    return _by_its_ledger(world, replace(file, path=link), world.one_of([cut, _other_cut(world, cut)]))


def hard_linked(world: World) -> str:
    file, cut = world.one_of(world.files)
    world.made += 1
    link = world.folder / f"hard-{world.made}{file.path.suffix}"
    os.link(file.path, link)
    said = _by_its_ledger(world, replace(file, path=link), cut)
    link.unlink()
    return said


def _by_its_ledger(world: World, file: File, cut: Cut) -> str:
    try:
        path = ledger_beside(file.path)
    except FedsrcError:
        return "refused"
    if path.name != f"{file.path.resolve().name}.ledger":  # beside the link: a ledger that knows nothing
        with closing(Ledger(path)) as fresh:
            return world.attempt(file, cut, fresh)
    return world.attempt(file, cut)


def honest(world: World) -> str:
    """Fresh rows, by any cut: later moves copy them, too."""
    file, cut = world.write(world.new_rows(ROWS), shuffle=True), world.one_of(CUTS)
    said = world.attempt(file, cut)
    if said == "accepted":
        world.files.append((file, cut))
    return said


MOVES_BY_NAME: dict[str, Callable[[World], str]] = {
    "the same file by the same columns": again,
    "the same file by another site or source column": recut,
    "rows and columns in another order, another format": reordered,
    "columns under other names": renamed,
    "ids in another spelling": respelled,
    "without ids": without_ids,
    "a column more, perhaps by another id or source column": widened,
    "some of the rows": part,
    "a few of the rows among new ones": hidden,
    "all rows of all files": joined,
    "through a symbolic link": linked,
    "through a hard link": hard_linked,
    "honest: new rows": honest,
}


GOES_ON = ("the same file by the same columns", "through a symbolic link")


def play(seed: int, folder: Path) -> tuple[Counter[str], int, int]:
    """A sequence of moves on one ledger: what became of each, rows that left, and rows that left twice."""
    folder.mkdir()
    rng = np.random.default_rng([20_401, seed])
    said: Counter[str] = Counter()
    with closing(Ledger(folder / "one.ledger")) as ledger:
        world = World(folder, rng, bool(rng.random() < 0.5), ledger)
        first, cut = world.write(world.new_rows(ROWS)), world.one_of(CUTS)
        world.attempt(first, cut)
        world.files.append((first, cut))
        for _ in range(MOVES):
            name, found = move(world)
            said[f"{name}|{found}"] += 1
        return said, len(world.released), world.twice


# ---------------------------------------------------------------- the control: files by digest, units by ids alone


@contextmanager
def forgetful() -> Iterator[None]:
    """A ledger that does not know columns, rows or other spellings."""

    def check_again(_: Recognition, intake: Intake, __: Any, cut: str, units: int, *___: Any) -> None:
        if (intake.cut, intake.units) != (cut, units):
            raise FedsrcError("this table was taken in before, cut otherwise")

    with ExitStack() as stack:
        stack.enter_context(instead(Recognition, "check_again", check_again))
        stack.enter_context(instead(Recognition, "check_elsewhere", lambda *_: None))
        stack.enter_context(instead(Recognition, "_doubt", lambda *_: None))
        yield


def _block(old: bool, first: int, count: int, folder: Path) -> dict[str, int]:
    with forgetful() if old else ExitStack():
        found = [play(seed, folder / str(seed)) for seed in range(first, first + count)]
    sums: dict[str, int] = {"sequences": count, "rows": 0, "twice": 0, "with_twice": 0}
    for said, rows_left, twice in found:
        sums = totals([sums, said, {"rows": rows_left, "twice": twice, "with_twice": int(twice > 0)}])
    return sums


# ---------------------------------------------------------------- honest tables that look alike


LOOKS = [(ids, digits) for ids in (True, False) for digits in (2, 3, 4, 6, 15)]


def look_alike(rng: np.random.Generator, path: Path, first: int, ids: bool, digits: int) -> None:
    """A table of one system's traffic: rounded scores, losses of 0 and 1."""
    loss = (rng.random(HONEST_ROWS) < 0.3).astype(np.float64)
    score = np.clip(np.where(loss, 0.45, 0.75) + 0.15 * rng.standard_normal(HONEST_ROWS), 0, 1).round(digits)
    table = pl.DataFrame({"score": score, "loss": loss})
    named = table.with_columns(id=pl.Series([f"u{first + i}" for i in range(HONEST_ROWS)]))
    (named if ids else table).write_csv(path)


def _said(error: FedsrcError) -> str:
    """Whether a person is asked to assert that units are new, or the table is refused."""
    return "asked" if "fresh=True" in str(error.hint) else "refused"


def _look_alikes(first: int, count: int, folder: Path) -> dict[str, int]:
    """Two fresh tables of the same traffic, one after the other: whether the second is asked about."""
    found: Counter[str] = Counter()
    reg = Cut().registration
    for number in range(first, first + count):
        for at, (ids, digits) in enumerate(LOOKS):
            rng = np.random.default_rng([20_402, number, at])
            with closing(Ledger(folder / f"{number}-{at}.ledger")) as ledger:
                for part_of in (0, 1):
                    path = folder / f"{number}-{at}-{part_of}.csv"
                    look_alike(rng, path, part_of * HONEST_ROWS, ids, digits)
                    try:
                        open_table(reg, "local", Table(path), ledger)
                    except FedsrcError as error:
                        found[f"{at}|{_said(error)}"] += 1
    return dict(found)


# ---------------------------------------------------------------- the section


def run(scale: float = 1.0) -> Record:
    """Sequences by the rules of now and by the control, and honest look-alikes."""
    sequences, tables = some(SEQUENCES, scale), some(HONEST, scale)
    now = totals(in_blocks(partial(_block, False), sequences, BLOCK))
    old = totals(in_blocks(partial(_block, True), max(1, sequences // 5), BLOCK))
    alike = totals(in_blocks(_look_alikes, tables, BLOCK))
    return {
        "now": _by_move(now),
        "old": _by_move(old),
        "tables": tables,
        "alike": [
            {"ids": ids, "digits": digits, **{said: alike.get(f"{at}|{said}", 0) for said in ("asked", "refused")}}
            for at, (ids, digits) in enumerate(LOOKS)
        ],
    }


def _by_move(sums: dict[str, int]) -> Record:
    counts = {name: value for name, value in sums.items() if "|" not in name}
    moves = {
        name: {said: sums.get(f"{name}|{said}", 0) for said in ("refused", "asked", "accepted")}
        for name in MOVES_BY_NAME
    }
    return {**counts, "moves": moves}


def rows(record: Record) -> list[Row]:
    """The section's rows."""
    now, old = record["now"], record["old"]
    copies = {name: found for name, found in now["moves"].items() if name != "honest: new rows"}
    tried = {said: sum(found[said] for found in copies.values()) for said in ("refused", "asked", "accepted")}
    went_on = sum(copies[name]["accepted"] for name in GOES_ON)
    return [
        Row(
            "P2, P4: random sequences of copies of a table, and of honest tables, on one ledger",
            control(f"{old['twice']:,} rows left twice, in {old['with_twice']} of {old['sequences']} sequences")
            + "; " + recorded("2,000 of 2,000 and 241 of 1,000 twice"),
            f"{now['twice']:,} of {now['rows']:,} rows left twice, in {now['sequences']} sequences",
            "Rows are counted by what they hold. The control knows files by digest and units by ids alone.",
        ),
        Row(
            "P2, P4: what becomes of a copy",
            recorded("accepted as new"),
            f"of {sum(tried.values()):,}: {tried['refused']:,} refused, {tried['asked']:,} asked about,"
            f" {went_on:,} went on where they were, {tried['accepted'] - went_on:,} accepted as new",
            "The same file by the same columns goes on with the units it has left. Asked: a person must say with"
            " --fresh that no unit was in an earlier table.",
        ),
    ]  # fmt: skip


def more(record: Record) -> list[str]:
    """What became of every kind of attempt, and of honest tables."""
    moves = [
        (name, *(f"{found[said]:,}" for said in ("refused", "asked", "accepted")))
        for name, found in record["now"]["moves"].items()
    ]
    alike = [
        ("with ids" if each["ids"] else "without ids", str(each["digits"]),
         f"{each['asked'] / record['tables']:.1%}", f"{each['refused'] / record['tables']:.1%}")
        for each in record["alike"]
    ]  # fmt: skip
    return [
        "By what was tried:",
        markdown(("attempt", "refused", "asked", "accepted"), moves),
        f"What honest data gets: two fresh tables of {HONEST_ROWS} rows of the same traffic, one after the other,"
        f" {record['tables']} times each. A row holds a score, rounded, a loss of 0 or 1, and an id or none:",
        markdown(("second table", "decimals of the score", "asked", "refused"), alike),
    ]


SECTION = Section("ledger", "One ledger, the same rows in other clothes", run, rows, more)
