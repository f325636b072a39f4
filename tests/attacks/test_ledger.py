"""One ledger never releases a row twice: re-cut, renamed, re-ordered, linked, subset and concatenated copies.

Each test here is an attack that once succeeded. Mutants killed: a file known by its digest without its columns, sites
or sources of another column taken for new, rows known by name or place of their columns, numbers known by how they are
written, a row forgotten, its bucket skipped, rows compared with themselves, ids that differ by white space,
composition, zeros or '.0' taken for new, a ledger beside a link, hard links passed over, records that chose a score
calibrating, an older ledger emptied or trusted with columns it never saw.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from scipy.stats import binom

from fedsrc.cli.main import cli
from fedsrc.common.canonical import digest_bytes, file_digest
from fedsrc.common.places import ledger_beside
from fedsrc.common.signing import Key
from fedsrc.errors import FedsrcError
from fedsrc.planning.register import Choices, register_grid
from fedsrc.protocol.messages import Link, Request
from fedsrc.protocol.registration import Registration
from fedsrc.records import table as reading
from fedsrc.records.columns import Columns
from fedsrc.records.rows import row_digests
from fedsrc.records.stream import Table
from fedsrc.records.table import read_records
from fedsrc.site.ledger import Ledger, Take
from fedsrc.site.ledger_schema import FIRST_SCHEMA, SCHEMAS, VERSION
from fedsrc.site.overlap import CHANCE, Overlap, overlap, tally
from fedsrc.site.policy import allow
from fedsrc.site.site import Site, open_sites
from fedsrc.site.streamed import open_table

KEY = Key.generate()
HOSPITALS, WARDS = ("north", "south"), ("x", "y")


def registered(sites: tuple[str, ...], unit: str = "record") -> Registration:
    """A grid, without noise: what is released is not the point here."""
    settings = {"unit": unit, "max_answers": 2} if unit == "source" else {"independent": True}
    return register_grid(Choices(0.2, float("inf"), grid=True, thresholds=3, **settings), sites)


CUTS = {"hospital": registered(HOSPITALS), "ward": registered(WARDS), None: registered(("local",))}


def rows(rng: np.random.Generator, first: int, count: int) -> pl.DataFrame:
    """Rows that are known by what they hold, each with its number in `row`, which no file gets."""
    loss = rng.integers(0, 2, count)
    return pl.DataFrame(
        {
            "row": np.arange(first, first + count),
            "hospital": rng.choice(HOSPITALS, count),
            "ward": rng.choice(WARDS, count),
            "score": rng.random(count) * (1 - 0.3 * loss),
            "loss": loss.astype(np.float64),
        }
    )


@dataclass
class World:
    """A ledger, and which rows have left it."""

    folder: Path
    rng: np.random.Generator
    ids: bool
    ledger: Ledger
    known: pl.DataFrame
    released: set[int] = field(default_factory=set)
    files: int = 0

    def write(self, frame: pl.DataFrame) -> tuple[Path, Columns, pl.DataFrame]:
        """The rows in a file of some format, in some order, their columns in some order under some names."""
        frame = frame.sample(fraction=1.0, shuffle=True, seed=int(self.rng.integers(1 << 30)))
        table = frame.with_columns(id=pl.col("row").cast(pl.String)) if self.ids else frame
        names = {name: name if self.rng.random() < 0.5 else f"my {name}" for name in table.columns if name != "row"}
        table = table.select([pl.col(name).alias(names[name]) for name in self.rng.permutation(list(names)).tolist()])
        self.files += 1
        path = self.folder / f"{self.files}.{self.rng.choice(['csv', 'parquet', 'jsonl', 'tsv'])}"
        match path.suffix:
            case ".parquet":
                table.write_parquet(path)
            case ".jsonl":
                table.write_ndjson(path)
            case suffix:
                table.write_csv(path, separator="," if suffix == ".csv" else "\t")
        return path, Columns(score=names["score"], loss=names["loss"], id=names.get("id")), frame

    def attempt(self, path: Path, columns: Columns, frame: pl.DataFrame, cut: str | None) -> bool:
        """Take a file in by a cut and release some of what it has; a row that has left before must not."""
        renamed = {"hospital": f"my {cut}", "ward": f"my {cut}"}.get(cut or "", "")
        present = Table(path).present
        site = None if cut is None else cut if cut in present else renamed
        columns = Columns(columns.score, columns.loss, site, None, None, columns.id)
        try:
            sites = self.sites(CUTS[cut], Table(path, columns, batch=17))
        except FedsrcError:
            return False
        for each in sites:
            mine = frame["row"].to_list() if cut is None else frame.filter(pl.col(cut) == each.name)["row"].to_list()
            self.release(each, CUTS[cut], mine)
        return True

    def sites(self, registration: Registration, table: Table) -> list[Site]:
        if len(registration.sites) == 1 and self.rng.random() < 0.5:
            return [open_table(registration, "local", table, self.ledger)]
        return open_sites(registration, table.whole(), self.ledger)

    def release(self, site: Site, registration: Registration, mine: list[int]) -> None:
        first, left = self.ledger.spent(site.intake), site.intake.units - self.ledger.spent(site.intake)
        if not left:
            return
        slots, scale = int(self.rng.integers(1, left + 1)), registration.mechanism.scale
        number = int(self.rng.integers(1, 1 << 40))
        allow(self.ledger, site.name, registration)
        site.answer(
            Request(registration=registration.digest, number=number, round=1, site=site.name, slots=slots, scale=scale)
        )
        leaving = {mine[place] for place in site.intake.order()[first : first + slots].tolist()}
        assert len(leaving) == slots
        assert not leaving & self.released
        self.released |= leaving


def play(folder: Path, seed: int) -> None:
    """Honest tables are all taken in; whatever else is tried on the same ledger, no row leaves it twice."""
    rng = np.random.default_rng(seed)
    with closing(Ledger(folder / f"{seed}.ledger")) as ledger:
        world = World(folder, rng, bool(rng.random() < 0.5), ledger, rows(rng, 0, 40))
        file = world.write(world.known)
        assert world.attempt(*file, ["hospital", "ward", None][rng.integers(3)])
        for _ in range(5):
            cut = ["hospital", "ward", None][rng.integers(3)]
            some = world.known.sample(int(rng.integers(1, 30)), seed=int(rng.integers(1 << 30)))
            new = rows(rng, len(world.known), int(rng.integers(1, 40)))
            match rng.integers(5):
                case 0:  # the first file again, perhaps by another cut: it goes on, or is refused
                    world.attempt(*file, cut)
                case 1:  # some rows alone
                    assert not world.attempt(*world.write(some), cut)
                case 2:  # all of them
                    assert not world.attempt(*world.write(world.known), cut)
                case 3:  # a few, among new ones
                    assert not world.attempt(*world.write(pl.concat([some, new])), cut)
                case _:  # new ones
                    assert world.attempt(*world.write(new), cut)
                    world.known = pl.concat([world.known, new])


@pytest.mark.parametrize("part", range(6))
def test_no_row_is_released_twice(tmp_path: Path, part: int) -> None:
    for seed in range(10 * part, 10 * part + 10):
        play(tmp_path, seed)


@pytest.mark.thorough
@pytest.mark.parametrize("part", range(10))
def test_no_row_is_released_twice_in_many_sequences(tmp_path: Path, part: int) -> None:
    for seed in range(1000 + 50 * part, 1050 + 50 * part):
        play(tmp_path, seed)


# --- one file, cut in other ways ----------------------------------------------------------------------------------


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with closing(Ledger(tmp_path / "l")) as opened:
        yield opened


@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_another_site_column_is_another_cut(tmp_path: Path, ledger: Ledger, ids: bool, kind: str) -> None:
    """Once, 2,000 of 2,000 records left twice this way, and both certificates verified."""
    frame = rows(np.random.default_rng(0), 0, 200).rename({"row": "id"})
    frame = frame if ids else frame.drop("id")
    path = tmp_path / f"t.{kind}"
    frame.write_parquet(path) if kind == "parquet" else frame.write_csv(path)
    open_sites(CUTS["hospital"], read_records(path, columns=Columns(site="hospital")), ledger)
    open_sites(CUTS["hospital"], read_records(path, columns=Columns(site="hospital")), ledger)  # as it was: it goes on
    for cut in ("ward", None):
        with pytest.raises(FedsrcError, match="taken in before, for site 'north'") as caught:
            open_sites(CUTS[cut], read_records(path, columns=Columns(site=cut)), ledger, fresh=True)
        assert "the first cut stands: run again with the same columns" in str(caught.value)


def test_a_table_refused_at_one_site_is_taken_in_at_none(tmp_path: Path, ledger: Ledger) -> None:
    """Its new rows at other sites stay new."""
    rng = np.random.default_rng(12)
    old, new = (rows(rng, first, 30).rename({"row": "id"}) for first in (0, 30))
    known = old.with_columns(hospital=pl.lit("south"))
    tables = {"1.csv": known, "2.csv": pl.concat([new.with_columns(hospital=pl.lit("north")), known[:1]]), "3.csv": new}
    for name, table in tables.items():
        table.write_csv(tmp_path / name)
    for name in ("1.csv", "2.csv", "3.csv"):
        records = read_records(tmp_path / name, columns=Columns(site="hospital"))
        if name == "2.csv":
            with pytest.raises(FedsrcError, match="was taken in before, with another table"):
                open_sites(CUTS["hospital"], records, ledger)
            assert ledger.accounts("north") == []
        else:
            open_sites(CUTS["hospital"], records, ledger)


def test_another_source_or_score_column_is_another_cut(tmp_path: Path, ledger: Ledger) -> None:
    """With as many distinct values: once, 241 of 1,000 rows left twice."""
    rng = np.random.default_rng(1)
    frame = rows(rng, 0, 200).with_columns(
        patient=pl.Series(rng.permutation(200) // 2), question=pl.Series(rng.permutation(200) // 2), other=pl.lit(0.5)
    )
    frame.write_csv(tmp_path / "t.csv")
    reg = registered(("local",), "source")

    def take_in(**columns: Any) -> object:
        found = read_records(tmp_path / "t.csv", columns=Columns(**columns))
        return open_sites(reg, found, ledger, fresh=True)

    take_in(source="patient")
    for columns in (
        {"source": "question"},
        {"source": "patient", "score": "other"},
        {"source": "patient", "id": "row"},
    ):
        with pytest.raises(FedsrcError, match="taken in before, cut by other columns"):
            take_in(**columns)


# --- names ----------------------------------------------------------------------------------------------------------


def named(path: Path, ids: list[str], seed: int) -> Table:
    """A table of other values each time, so that ids alone can tell."""
    rng = np.random.default_rng(seed)
    pl.DataFrame({"id": ids, "score": rng.random(len(ids)), "loss": rng.integers(0, 2, len(ids))}).write_csv(path)
    return Table(path)


SPELLINGS: dict[str, tuple[Callable[[int], str], Callable[[int], str], str]] = {
    "white space": (str, lambda i: f" {i} ", "'7' was taken in before"),
    "composition": (lambda i: f"Zo\u00eb{i}", lambda i: f"Zoe\u0308{i}", "'Zo\u00eb7' was taken in before"),
    "a float": (str, lambda i: f"{i}.0", "'7' is in another table too"),
    "zeros": (str, lambda i: f"{i:05d}", "'7' is in another table too"),
    "zeros, then none": (lambda i: f"{i:05d}", str, "'7' is in another table too"),
    "zeros, then a float": (lambda i: f"{i:05d}", lambda i: f"{i}.0", "'7' is in another table too"),
}


@pytest.mark.parametrize("case", SPELLINGS)
def test_an_id_is_known_in_other_spellings(tmp_path: Path, ledger: Ledger, case: str) -> None:
    one, other, message = SPELLINGS[case]
    reg = CUTS[None]
    open_table(reg, "local", named(tmp_path / "1.csv", [one(i) for i in range(5, 9)], 1), ledger)
    again = named(tmp_path / "2.csv", [other(i) for i in (7, 90, 91)], 2)
    with pytest.raises(FedsrcError, match=message):
        open_table(reg, "local", again, ledger)
    if "is in another" in message:  # a question, which a person may answer
        open_table(reg, "local", again, ledger, fresh=True)
    open_table(reg, "local", named(tmp_path / "3.csv", [other(i) for i in (100, 101)], 3), ledger)


def test_other_names_stay_other_names(tmp_path: Path, ledger: Ledger) -> None:
    tables = (["v1", "a7", "1.50"], ["v1.0", "a07", "1.5"], ["V1", "A7", "15"])
    sites = [
        open_table(CUTS[None], "local", named(tmp_path / f"{number}.csv", ids, number), ledger)
        for number, ids in enumerate(tables)
    ]
    assert [(site.intake.number, site.intake.units) for site in sites] == [(1, 3), (2, 3), (3, 3)]


# --- links ----------------------------------------------------------------------------------------------------------


def test_links_lead_to_one_ledger(tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "records.csv", tmp_path / "elsewhere"
    path.write_text("score,loss\n0.5,1\n")
    elsewhere.mkdir()
    (elsewhere / "latest.csv").symlink_to(path)
    (tmp_path / "folder").symlink_to(elsewhere)
    assert ledger_beside(path) == tmp_path / "records.csv.ledger"
    assert ledger_beside(elsewhere / "latest.csv") == tmp_path.resolve() / "records.csv.ledger"
    assert ledger_beside(tmp_path / "folder" / "latest.csv") == tmp_path.resolve() / "records.csv.ledger"
    assert ledger_beside(tmp_path / "none.csv") == tmp_path / "none.csv.ledger"
    (elsewhere / "latest.csv.ledger").touch()  # of a time when it was taken for the link's own
    with pytest.raises(FedsrcError, match="there is a ledger beside this link"):
        ledger_beside(elsewhere / "latest.csv")
    os.link(path, tmp_path / "hard.csv")
    for name in ("records.csv", "hard.csv"):
        with pytest.raises(FedsrcError, match="2 names"):
            ledger_beside(tmp_path / name)


# --- by the command line --------------------------------------------------------------------------------------------


def fedsrc(*args: object) -> tuple[int, str]:
    done = CliRunner().invoke(cli, [str(each) for each in args])
    return done.exit_code, done.output + str(done.exception or "")


def certified(path: Path, name: str, *options: object) -> tuple[int, str]:
    """A run of its own: another registration and another folder each time."""
    place = path.parent
    reg = place / f"{name}.toml"
    target = 0.2 + 0.001 * len(list(place.glob("*.toml")))
    code, said = fedsrc(
        "register", "--grid", "--sites", "local", "--target", target, "--epsilon", 1, "--batch", 50, "--rounds", 1,
        "--unit", "record", "-o", reg,
    )  # fmt: skip
    assert code == 0, said
    return fedsrc("certify", path, "--registration", reg, "--key", place / "k.pem", "-o", place / name, *options)


def test_a_linked_table_is_the_same_table(tmp_path: Path) -> None:
    path, link, hard = tmp_path / "records.csv", tmp_path / "latest.csv", tmp_path / "hard.csv"
    rows(np.random.default_rng(2), 0, 50).drop("row").write_csv(path)
    link.symlink_to(path)
    assert certified(path, "first")[0] in (0, 1)
    assert "every unit of this table has been released before" in certified(link, "linked")[1]
    os.link(path, hard)
    assert "2 names (hard links)" in certified(hard, "hard")[1]
    told = certified(hard, "told", "--ledger", tmp_path / "records.csv.ledger")
    assert "every unit of this table has been released before" in told[1]


@pytest.mark.parametrize("by", ["register", "choose"])
def test_what_chose_cannot_calibrate(tmp_path: Path, by: str) -> None:
    """The same file; and, on one ledger, a copy of some of its rows without ids."""
    path, book = tmp_path / "r.csv", tmp_path / "r.csv.ledger"
    frame = rows(np.random.default_rng(3), 0, 120).with_columns(source=pl.col("row").cast(pl.String)).drop("row")
    frame.write_csv(path)
    if by == "register":
        done = fedsrc("register", path, "--target", 0.2, "--epsilon", 1, "--unit", "record", "-o", tmp_path / "c.toml")
    else:
        done = fedsrc("choose", path, "--score", "score", "-o", tmp_path / "choice.json")
    assert done[0] == 0, done
    assert "chose thresholds or a score" in certified(path, "same")[1]
    frame.head(20).rename({"source": "who"}).write_csv(tmp_path / "copy.csv")
    assert (
        "20 of its 20 rows are also in an earlier table"
        in certified(tmp_path / "copy.csv", "copy", "--ledger", book)[1]
    )
    code, said = fedsrc("choose", path, "--score", "score", "-o", tmp_path / "again.json")
    assert code == 0, said  # developing twice is no harm, and one development
    with closing(sqlite3.connect(book)) as sql:
        assert sql.execute("SELECT COUNT(*), SUM(units) FROM intake").fetchone() == (1, 120)
        assert sql.execute("SELECT SUM(LENGTH(digests)) FROM row").fetchone() == (16 * 120,)


def test_what_calibrated_cannot_choose(tmp_path: Path) -> None:
    """Its records were promised that only noised totals of them are published."""
    path = tmp_path / "r.csv"
    frame = rows(np.random.default_rng(4), 0, 60).with_columns(source=pl.col("row").cast(pl.String)).drop("row")
    frame.write_csv(path)
    assert certified(path, "run")[0] in (0, 1)
    assert "taken in before" in fedsrc("choose", path, "--score", "score", "-o", tmp_path / "choice.json")[1]
    assert not (tmp_path / "choice.json").exists()


def test_an_assertion_is_remembered(tmp_path: Path) -> None:
    """--fresh where it was needed is in the site's status; where it was not, nothing was asserted."""
    frame, book = rows(np.random.default_rng(5), 0, 60).drop("row"), tmp_path / "l"
    for number, part in enumerate((frame[:30], frame[25:])):
        part.write_csv(tmp_path / f"{number}.csv")
        assert certified(tmp_path / f"{number}.csv", f"run{number}", "--ledger", book, "--fresh")[0] in (0, 1)
    said = fedsrc("site-status", book)[1]
    assert said.count("was asserted (--fresh), not seen") == 1


# --- older ledgers ----------------------------------------------------------------------------------------------------


def old_ledger(path: Path, table: Table, *, ids: list[str] | None) -> None:
    """What version 1 wrote when it took a table in."""
    content = table.whole().digest
    with closing(sqlite3.connect(path)) as sql:
        sql.executescript(FIRST_SCHEMA + "; PRAGMA user_version = 1")
        sql.execute(
            "INSERT INTO intake VALUES (1, 'local', ?, 'records', ?, '7', ?, 1)",
            (content, len(table.whole()), int(ids is not None)),
        )
        sql.executemany("INSERT INTO unit VALUES ('id', ?, ?)", [(name, content) for name in ids or ()])
        sql.execute("INSERT INTO spend VALUES ('r', 'x', 1, 0, 2, 0.1, X'00')")
        sql.commit()


def test_releases_of_an_older_ledger_stay_and_cost_twice(tmp_path: Path) -> None:
    """Their rho was for a unit against nothing: for it against any other it is at most twice that. The chain goes on
    from the last of them."""
    asked = [Request(registration="0" * 64, number=n, round=n, site="s", slots=2, scale=1.0) for n in (1, 2, 3)]
    with closing(sqlite3.connect(tmp_path / "l", isolation_level=None)) as sql:
        for name in ("tidy", "plain"):
            sql.create_function(name, 1, str)
        sql.executescript(";".join(SCHEMAS[:3]) + "; PRAGMA user_version = 3")
        sql.execute("INSERT INTO intake VALUES (1, 's', 't', 'records', 9, '7', 0, 1, '', 0, 0)")
        sql.execute("INSERT INTO development VALUES ('t', '', 0.3, X'01')")
        for first, each in ((0, asked[0]), (2, asked[1])):
            row = (each.digest, each.registration, 1, first, 2, 0.1, f"release {first}".encode())
            sql.execute("INSERT INTO spend VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    with closing(Ledger(tmp_path / "l")) as ledger:
        account = ledger.accounts("s")[0]
        assert (account.spent, account.releases, account.largest_rho, account.developed) == (4, 2, 0.2, 0.6)
        assert [ledger.stored(each) for each in asked] == [b"release 0", b"release 2", None]
        links = list[Link]()

        def make(firsts: Sequence[int], link: Link) -> bytes:
            links.append(link)
            return f"release {firsts[0]}".encode()

        assert ledger.answer([Take(account.intake, 2)], asked[2], 0.2, make) == b"release 4"
        assert (links[0].place, links[0].before) == (3, digest_bytes(b"release 2"))


def test_an_older_ledger_keeps_what_it_knows(tmp_path: Path) -> None:
    first = named(tmp_path / "1.csv", ["a", " 7 ", "008"], 1)
    old_ledger(tmp_path / "l", first, ids=["a", " 7 ", "008"])
    with closing(Ledger(tmp_path / "l")) as ledger:
        for ids, message in ((["7", "b"], "'7' was taken in before"), (["8", "b"], "'8' is in another table too")):
            with pytest.raises(FedsrcError, match=message):
                open_table(CUTS[None], "local", named(tmp_path / "2.csv", ids, 2), ledger)
        site = open_table(CUTS[None], "local", first, ledger)  # the same table: it goes on, and its rows are learnt
        assert (site.intake.number, ledger.spent(site.intake)) == (1, 2)
        (tmp_path / "3.csv").write_text(first.path.read_text().replace("id,", "name,"))
        with pytest.raises(FedsrcError, match="3 of its 3 rows are also"):
            open_table(CUTS[None], "local", Table(tmp_path / "3.csv"), ledger)
    with closing(sqlite3.connect(tmp_path / "l")) as sql:
        assert sql.execute("PRAGMA user_version").fetchone() == (VERSION,)


def test_an_older_ledger_that_cannot_tell_asks(tmp_path: Path) -> None:
    path = tmp_path / "1.csv"
    rows(np.random.default_rng(6), 0, 20).drop("row").write_csv(path)
    old_ledger(tmp_path / "l", Table(path), ids=None)
    rows(np.random.default_rng(7), 0, 20).drop("row").write_csv(tmp_path / "2.csv")
    with closing(Ledger(tmp_path / "l")) as ledger:
        with pytest.raises(FedsrcError, match="a unit used twice would not be seen"):
            open_table(CUTS[None], "local", Table(tmp_path / "2.csv"), ledger)
        with pytest.raises(FedsrcError, match="taken in before, for site 'local'"):
            open_sites(CUTS["ward"], read_records(path, columns=Columns(site="ward")), ledger, fresh=True)


def test_an_older_ledger_knows_no_other_sources(tmp_path: Path) -> None:
    """Its columns were not written down, its sources were."""
    path = tmp_path / "1.csv"
    frame = rows(np.random.default_rng(8), 0, 20).with_columns(who=pl.lit("w") + pl.col("row").cast(pl.String))
    frame.write_csv(path)
    old_ledger(tmp_path / "l", Table(path, Columns(id="row")), ids=[str(i) for i in range(20)])
    with closing(Ledger(tmp_path / "l")) as ledger:
        with pytest.raises(FedsrcError, match="cut by other columns"):
            open_table(CUTS[None], "local", Table(path, Columns(id="who")), ledger)
        assert open_table(CUTS[None], "local", Table(path, Columns(id="row")), ledger).intake.number == 1


# --- chance -----------------------------------------------------------------------------------------------------------


def draw(rng: np.random.Generator, count: int, digits: int) -> pl.DataFrame:
    """Rounded scores and binary losses: what honest tables of one system look like."""
    loss = (rng.random(count) < 0.3).astype(np.float64)
    score = np.clip(np.where(loss, 0.45, 0.75) + 0.15 * rng.standard_normal(count), 0, 1).round(digits)
    return pl.DataFrame({"score": score, "loss": loss})


def compared(known: pl.DataFrame, new: pl.DataFrame) -> Overlap:
    return overlap(tally([row_digests(known).tobytes()], [row_digests(new).tobytes()]))


def refusals(rng: np.random.Generator, trials: int, known: int, new: int, digits: int, copies: int = 0) -> int:
    found = 0
    for _ in range(trials):
        old = draw(rng, known, digits)
        copied = old.sample(copies, seed=int(rng.integers(1 << 30)))
        found += compared(old, pl.concat([draw(rng, new - copies, digits), copied])).doubtful
    return found


@pytest.mark.parametrize(("known", "new", "digits"), [(300, 300, 3), (1000, 1000, 4), (1000, 200, 4), (200, 1000, 4)])
def test_honest_tables_are_asked_about_as_seldom_as_stated(known: int, new: int, digits: int) -> None:
    """At most CHANCE where values repeat in pairs. False alarm: a binomial's upper 1e-6 point."""
    trials = 200
    limit = binom.isf(1e-6, trials, CHANCE)
    assert refusals(np.random.default_rng(known + new), trials, known, new, digits) <= limit < trials / 2


def test_honest_tables_at_the_worst_rate_of_coincidences() -> None:
    """Where a pair within either table is as likely as not, one in four is asked about, at most."""
    trials = 400
    limit = binom.isf(1e-6, trials, 0.25)
    assert 0 < refusals(np.random.default_rng(9), trials, 600, 600, 6) <= limit < trials / 2


@pytest.mark.parametrize(("digits", "copies"), [(3, 150), (4, 60), (6, 30), (15, 2)])
def test_copies_among_honest_rows_are_seen(digits: int, copies: int) -> None:
    """Of 300 rows. With all digits two suffice: one may be among the few that share a score of exactly 1."""
    assert refusals(np.random.default_rng(copies), 40, 300, 300, digits, copies) == 40


def test_rows_that_say_too_little_are_asked_about() -> None:
    """20,000 rows of 21 values: halves of one table, copies and strangers look alike."""
    rng = np.random.default_rng(10)
    known, new = (pl.DataFrame({"a": rng.integers(0, 21, 500), "b": rng.integers(0, 2, 500)}) for _ in range(2))
    assert compared(known, new).doubtful
    assert compared(known, new).log_chance > np.log(CHANCE)


def test_the_chance_is_that_of_dealing() -> None:
    """Against the dealing itself, for values that stand 2 to 5 times: the bound holds and is not far off."""
    rng, many = np.random.default_rng(11), np.repeat(np.arange(60), [2] * 30 + [3] * 15 + [4] * 10 + [5] * 5)
    chances = []
    for _ in range(2000):
        here = rng.random(many.size) < 0.4
        new, known = np.bincount(many[here], minlength=60), np.bincount(many[~here], minlength=60)
        counts: dict[tuple[int, int], int] = {}
        for stands in zip(known.tolist(), new.tolist(), strict=True):
            counts[stands] = counts.get(stands, 0) + 1
        chances.append(overlap(counts).log_chance)
    for level in (0.3, 0.05):
        share = float(np.mean(np.asarray(chances) <= np.log(level)))
        assert share <= level + 5 * np.sqrt(level / 2000)
    assert np.mean(np.asarray(chances) <= np.log(0.5)) > 0.05


def test_ids_of_another_column_decide_nothing(tmp_path: Path, ledger: Ledger) -> None:
    """A copy with a column more, whose units are named by that column: every row was new to the ledger."""
    frame = rows(np.random.default_rng(11), 0, 30).rename({"row": "id"})
    frame.write_csv(tmp_path / "1.csv")
    frame.with_columns(number=pl.int_range(1000, 1030)).write_csv(tmp_path / "2.csv")
    open_table(CUTS[None], "local", Table(tmp_path / "1.csv"), ledger)
    with pytest.raises(FedsrcError, match="a unit used twice would not be seen"):
        open_table(CUTS[None], "local", Table(tmp_path / "2.csv", Columns(id="number")), ledger)
    with pytest.raises(FedsrcError, match="taken in before"):
        open_table(CUTS[None], "local", Table(tmp_path / "2.csv"), ledger, fresh=True)


def test_a_table_that_changes_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of the last so many records, rewritten between its reading and its digest: the digest was that of the new
    rows, so that the new file counted as the old intake and each unit stood at another place of it, to be released
    again (47 of 400, in three registrations).

    Mutants killed: a digest taken before or after the rows without another look at the file.
    """
    path, data = tmp_path / "t.csv", rows(np.random.default_rng(5), 0, 401)
    data[:400].write_csv(path)

    def digest(of: Path) -> str:
        data[1:].write_csv(path)
        return file_digest(of)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(reading, "file_digest", digest)
        with pytest.raises(FedsrcError, match="changed while it was read"):
            read_records(path)
    assert read_records(path).digest == file_digest(path)
