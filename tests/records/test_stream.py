"""Tables read in batches: the same intake, the same counts and the same errors as tables in memory, batch by batch.

Mutants killed: a window off by one at either end, ties at a window's end counted twice or not at all or from the wrong
side, keys drawn anew for every batch, a digit of the key skipped, the development part counted or its rows not numbered
anew, a batch dropped or counted twice, row numbers that start again with every batch, the first bad batch named instead
of the first bad column, ids of the development part forgotten, an intake written before the last row was checked, a
file that changes between two looks, the whole table collected after all.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from fedsrc.common.canonical import file_digest
from fedsrc.common.signing import Key, public_hex
from fedsrc.errors import FedsrcError
from fedsrc.federation.airgap import answer_file, start
from fedsrc.protocol.messages import Release
from fedsrc.protocol.protection import Development
from fedsrc.protocol.registration import Registration
from fedsrc.records import order as records_module
from fedsrc.records import stream
from fedsrc.records import window as window_module
from fedsrc.records.columns import Columns
from fedsrc.records.development import development_rows
from fedsrc.records.order import IN_ORDER, Keys, key_stream, shuffled
from fedsrc.records.stream import BATCH, Table
from fedsrc.records.table import Missing, read_records
from fedsrc.records.window import Window
from fedsrc.site import streamed as streamed_site
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow
from fedsrc.site.site import Site, open_sites
from fedsrc.site.streamed import open_site, open_table
from tests.records.test_records import BAD, SOURCES
from tests.support.helpers import changed, registration, table

FORMATS = ("csv", "tsv", "parquet", "jsonl")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with closing(Ledger(tmp_path / "ledger")) as opened:
        yield opened


def registered(site: str = "a", **sections: dict[str, Any]) -> Registration:
    """A registration of one site, without noise; losses count in tenths."""
    base = registration(table(300, sites=(site,)), epsilon=float("inf"), grid=True, thresholds=7, loss_grid=10)
    return changed(Registration.model_validate({**base.model_dump(), "development": None}), **sections)


def without(reg: Registration, share: float, seed: int) -> Registration:
    """The same with a development part."""
    return Registration.model_validate({**reg.model_dump(), "development": {"share": share, "seed": seed}})


def random_frame(rng: np.random.Generator, rows: int, *, ids: bool = False, site: str | None = None) -> pl.DataFrame:
    columns: dict[str, Any] = {"note": rng.integers(0, 9, rows).astype(str), "score": rng.random(rows).round(3)}
    columns["loss"] = rng.integers(0, 21, rows) / 20
    if ids:
        columns["id"] = [f"u{i}" for i in rng.permutation(rows)]
    if site is not None:
        columns["site"] = [site] * rows
    return pl.DataFrame(columns)


def write(frame: pl.DataFrame, path: Path) -> Path:
    match path.suffix:
        case ".parquet":
            frame.write_parquet(path, row_group_size=7)  # batches straddle row groups
        case ".jsonl":
            frame.write_ndjson(path)
        case suffix:
            frame.write_csv(path, separator="\t" if suffix == ".tsv" else ",")
    return path


def taken(window: Window, rows: int, rng: np.random.Generator) -> list[int]:
    """The rows in a window, asked for in batches of random sizes."""
    masks, left = list[np.ndarray[Any, Any]](), rows
    while left:
        masks.append(window.take(size := int(rng.integers(1, left + 1))))
        left -= size
    return np.flatnonzero(np.concatenate(masks)).tolist() if masks else []


def few_keys(distinct: list[int]) -> Callable[[int], Callable[[int], Keys]]:
    """A stream of keys with many ties, for every seed another."""

    def of(seed: int) -> Callable[[int], Keys]:
        rng = np.random.default_rng(seed)
        return lambda count: np.array(distinct, dtype=np.uint64)[[rng.integers(len(distinct)) for _ in range(count)]]

    return of


TIES = {
    "none": None,
    "one key": [5],
    "the ends": [0, 2**64 - 1],
    "the last digit": [2**48, 2**48 + 1, 2**48 + 2],
    "every digit": [0, 1, 2**16, 2**32, 2**48, 2**48 + 1, 2**63, 2**63 + 2**16, 2**64 - 1],
}


def test_keys_come_in_the_same_order_in_pieces() -> None:
    keys = key_stream(9)
    pieces = np.concatenate([keys(size) for size in (1, 0, 6, 93)])
    assert pieces.tolist() == key_stream(9)(100).tolist()


@pytest.mark.parametrize("name", TIES)
def test_windows_are_slices_of_the_order(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    distinct = TIES[name]
    if distinct is not None:
        monkeypatch.setattr(records_module, "key_stream", few_keys(distinct))
        monkeypatch.setattr(window_module, "key_stream", few_keys(distinct))
    rng = np.random.default_rng(0)
    for _ in range(60):
        rows, seed = int(rng.integers(1, 60)), int(rng.integers(1 << 60))
        first = int(rng.integers(0, rows + 1))
        slots = int(rng.integers(0, rows - first + 1))
        window = Window(str(seed), rows, first, slots, int(rng.integers(1, 70)))
        assert taken(window, rows, rng) == sorted(shuffled(rows, seed)[first : first + slots])


def test_windows_share_the_rows_out() -> None:
    """Window by window, every row once: of a long order, whose ends differ in late digits of their keys only."""
    rows, seed = 200_000, 11
    order, seen = shuffled(rows, seed), np.zeros(rows, dtype=np.int64)
    for first in range(0, rows, 40_000):
        mask = Window(str(seed), rows, first, 40_000, 1 << 14).take(rows)
        assert mask[order[first : first + 40_000]].all()
        seen += mask
    assert (seen == 1).all()


def test_windows_in_the_tables_own_order() -> None:
    rng = np.random.default_rng(0)
    assert taken(Window(IN_ORDER, 20, 5, 4, BATCH), 20, rng) == [5, 6, 7, 8]
    assert taken(Window(IN_ORDER, 20, 0, 20, BATCH), 20, rng) == list(range(20))
    assert taken(Window(IN_ORDER, 20, 20, 0, BATCH), 20, rng) == []


def test_a_window_of_everything_needs_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_module, "_digit_counts", None)
    rng = np.random.default_rng(0)
    assert taken(Window("7", 30, 0, 30, BATCH), 30, rng) == list(range(30))
    assert taken(Window("7", 30, 0, 0, BATCH), 30, rng) == []


def both(reg: Registration, source: Table, book: Ledger, case: int) -> list[Site]:
    """The table in batches and in memory, on one ledger; either is first, in order or shuffled, as the case has it."""
    in_order, sites = case % 3 == 0, list[Site]()
    for streamed in (True, False) if case % 4 < 2 else (False, True):
        if streamed:
            sites.append(open_table(reg, "a", source, book, in_order=in_order))
        else:
            sites += open_sites(reg, source.whole().at("a"), book, in_order=in_order)
    return sites


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("ties", ["none", "every digit"])
def test_counts_are_those_of_the_table_in_memory(
    tmp_path: Path, kind: str, ties: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever takes the table in first, the other finds the same intake and counts the same."""
    if (distinct := TIES[ties]) is not None:
        monkeypatch.setattr(records_module, "key_stream", few_keys(distinct))
        monkeypatch.setattr(window_module, "key_stream", few_keys(distinct))
    rng = np.random.default_rng(1)
    for case in range(12):
        rows = int(rng.integers(2, 70))
        ids, site = bool(rng.integers(2)), rng.choice(np.array([None, "a", "local"]))
        path = write(random_frame(rng, rows, ids=ids, site=site), tmp_path / f"{case}.{kind}")
        reg = registered()
        if case % 2:
            reg = without(reg, float(rng.random()), case)
        with closing(Ledger(tmp_path / f"{case}.ledger")) as book:
            one, other = both(reg, Table(path, batch=(1, 2, 3, 5, 8, 100)[case % 6]), book, case)
            assert one.intake == other.intake
            units = one.intake.units
            for first in range(0, units, 1 + units // 5):
                slots = int(rng.integers(0, units - first + 1))
                assert one.count(first, slots).tolist() == other.count(first, slots).tolist()
                assert one.count(first, slots).sum() == 10 * slots
            assert one.count(0, units).tolist() == other.count(0, units).tolist()


@pytest.mark.parametrize("missing", ["refuse", "keep"])
def test_missing_values(tmp_path: Path, ledger: Ledger, missing: Missing) -> None:
    path = tmp_path / "t.csv"
    path.write_text("s,loss\n0.5,\n,0\n0.9,nan\n0.1,1\n")
    source = Table(path, Columns(score="s"), missing, batch=1)
    if missing == "refuse":
        with pytest.raises(FedsrcError, match=r"line 3: score is missing or NaN"):
            open_table(registered(), "a", source, ledger)
        return
    streamed = open_table(registered(), "a", source, ledger)
    whole = open_sites(registered(), source.whole().at("a"), ledger)[0]
    assert streamed.count(0, 4).tolist() == whole.count(0, 4).tolist()
    assert streamed.count(0, 4).sum(axis=1).tolist() == [10, 30]


MANY_FAULTS = {
    "loss before, score after": "loss,score\n7,0.5\n0,0.5\n0,9\n",
    "outside before, missing after": "loss,score\n0,7\n0,0.5\n0,\n",
    "missing before, a word after": "loss,score\n0,\n0,0.5\n0,high\n",
    "two of a kind": "loss,score\n0,0.5\n0,8\n0,9\n",
    "id before, site after": "id,loss,score,site\n,0,0.5,a\nx,0,0.5,\n",
    "repeated id before, empty id after": "id,loss,score\nx,0,0.5\nx,0,0.5\n,0,0.5\n",
    "group before, repeated id after": "group,id,loss,score\n,x,0,0.5\ng,x,0,0.5\n",
    "two repeated ids": "id,loss,score\nz,0,0.5\nz,0,0.5\nb,0,0.5\nb,0,0.5\n",
    "ragged after a bad value": "loss,score,note\n7,0.5,\n0,0.5,\n0,0.5,x,y\n",
    "ragged only": "note,loss,score\n,1,0.5\n,0,0.5\n,0,0.5,1\n",
    "empty source": "source,loss,score\n,0,0.5\ns,0,0.5\n",
    "repeated source": "source,loss,score\ns,0,0.5\nt,0,0.5\ns,0,0.1\n",
    "rows of others": "site,loss,score\na,0,0.5\nc,0,0.5\nb,0,0.5\na,0,0.5\n",
    "rows of one other": "site,loss,score\nb,0,0.5\nb,0,0.5\n",
    "rows of local and others": "site,loss,score\nlocal,0,0.5\nz,0,0.5\nlocal,0,0.5\n",
    "rows of local and a": "site,loss,score\nlocal,0,0.5\na,0,0.5\n",
    "others and a repeated source": "site,source,loss,score\nb,s,0,0.5\nb,s,0,0.5\n",
    "a source under another name": "note,Question_ID,loss,score\n1,s,0,0.5\n1,t,0,0.5\n1,s,0,0.5\n",
    "a source under two other names": "doc,prompt,loss,score\n1,s,0,0.5\n2,s,0,0.5\n1,t,0,0.5\n",
    "a source and one under another name": "doc,source,loss,score\n1,s,0,0.5\n2,s,0,0.5\n1,t,0,0.5\n",
}


def trouble(act: Callable[[], object]) -> str:
    with pytest.raises(FedsrcError) as caught:
        act()
    return str(caught.value)


def same_trouble(path: Path, reg: Registration, ledger: Ledger) -> str:
    """The error of the table in memory, which every batch size must repeat, with nothing taken in."""
    said = trouble(lambda: open_sites(reg, read_records(path).at("a"), ledger))
    for batch in (1, 2, 3, 100):
        source = Table(path, batch=batch)
        assert trouble(lambda source=source: open_table(reg, "a", source, ledger)) == said  # type: ignore[misc]
    assert ledger.accounts("a") == []
    return said


@pytest.mark.parametrize("name", [*BAD, *MANY_FAULTS])
def test_errors_are_those_of_the_table_in_memory(tmp_path: Path, ledger: Ledger, name: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(BAD[name][0] if name in BAD else MANY_FAULTS[name])
    same_trouble(path, registered(), ledger)


def test_errors_of_other_formats(tmp_path: Path, ledger: Ledger) -> None:
    good = {"loss": [0.0, 1.0], "score": [0.5, 0.5]}
    frames: dict[str, tuple[dict[str, Any], str]] = {
        "row.parquet": ({"loss": [0.0, 2.0], "score": [1.0, 1.0]}, "row 2: loss 2 is outside"),
        "list.parquet": ({**good, "score": [[1.0], [0.5]]}, "column 'score' holds List"),
        "site.parquet": ({**good, "site": [["a"], ["a"]]}, "column 'site' holds List(String), not text"),
        "id.parquet": ({**good, "id": [b"\xff", b"\xfe"]}, "column 'id' holds Binary, not text"),
        "same.parquet": ({**good, "id": [7, 7]}, "id '7' stands in more than one row"),
        "none.parquet": ({"loss": [], "score": []}, "the table has no rows"),
        "doc.parquet": ({**good, "doc": [7, 7]}, "values of column 'doc' stand in several rows"),
        "doc.jsonl": ({**good, "doc": ["x", "x"]}, "values of column 'doc' stand in several rows"),
        "word.jsonl": ({**good, "score": [0.5, "x"]}, "line 2: score 'x' is not a number"),
    }
    for name, (columns, message) in frames.items():
        frame = pl.DataFrame(columns, strict=False)
        path = write(frame, tmp_path / name)
        assert message in same_trouble(path, registered(), ledger)
    for name, text in {"t.parquet": "not one", "t.jsonl": '{"loss": 1, "score":\n', "t.txt": "loss,score\n"}.items():
        (tmp_path / name).write_text(text)
        same_trouble(tmp_path / name, registered(), ledger)
    assert "there is no such file" in same_trouble(tmp_path / "nothing.csv", registered(), ledger)


def test_a_named_column_that_is_not_there(tmp_path: Path, ledger: Ledger) -> None:
    path = write(random_frame(np.random.default_rng(0), 9), tmp_path / "t.parquet")
    source = Table(path, Columns(site="clinik"))
    assert "no column 'clinik' (`site_column=`); the table has 'note'" in trouble(source.whole)
    assert trouble(lambda: open_table(registered(), "a", source, ledger)) == trouble(source.whole)


def test_records_declared_independent_are_let_in(tmp_path: Path, ledger: Ledger) -> None:
    frame = random_frame(np.random.default_rng(0), 9).with_columns(doc=pl.lit("x"))
    path = write(frame, tmp_path / "t.parquet")
    same_trouble(path, registered(), ledger)
    assert open_table(registered(privacy={"independent": True}), "a", Table(path), ledger).intake.units == 9


@pytest.mark.parametrize("ids", [False, True])
def test_a_table_that_has_grown_has_the_same_development_part(tmp_path: Path, ids: bool) -> None:
    frame, part = random_frame(np.random.default_rng(0), 60, ids=ids), Development(share=0.4, seed=7)
    tables = [read_records(write(frame.head(rows), tmp_path / f"{rows}.csv")) for rows in (40, 60)]
    short, long = (development_rows(each, part, "record") for each in tables)
    assert short.tolist() == long[:40].tolist()
    assert 0 < short.sum() < 40


def remembered(path: Path) -> list[Any]:
    with closing(sqlite3.connect(path)) as sql:
        return sql.execute("SELECT * FROM unit ORDER BY 1, 2").fetchall()


def test_every_id_and_source_is_remembered(tmp_path: Path) -> None:
    """Those of the development part too: its units are known, and are not to come back as calibration records.

    Records that share a source are let in when they are registered as independent."""
    frame = random_frame(np.random.default_rng(0), 40, ids=True)
    sources = pl.Series("source", [f"s{i % 15}" for i in range(40)])
    path = write(frame.with_columns(sources), tmp_path / "t.parquet")
    reg = without(registered(privacy={"independent": True}), 0.25, 3)
    with closing(Ledger(tmp_path / "one")) as one, closing(Ledger(tmp_path / "other")) as other:
        open_table(reg, "a", Table(path, batch=7), one)
        open_sites(reg, read_records(path).at("a"), other)
        again = write(pl.DataFrame({"id": ["v", "u7"], "loss": [0, 1], "score": [0.1, 0.2]}), tmp_path / "u.csv")
        with pytest.raises(FedsrcError, match="unit 'u7' was taken in before"):
            open_table(registered(), "a", Table(again, batch=1), one)
    assert len(remembered(tmp_path / "one")) == 40 + 15
    assert remembered(tmp_path / "one") == remembered(tmp_path / "other")


def test_names_are_taken_at_their_word(tmp_path: Path, ledger: Ledger) -> None:
    """One column may be both score and loss, and a name may look like a pattern."""
    frame = pl.DataFrame({"*": [0.1, 0.9], "^a.*$": [1.0, 0.0], "ab": [2.0, 2.0]})
    columns: list[dict[str, Any]] = [{"loss": "^a.*$"}, {"loss": "*", "id": "^a.*$"}]
    for number, named in enumerate(columns):
        names = Columns(score="*", unsupported=("1",), **named)
        source = Table(write(frame, tmp_path / f"{number}.parquet"), names)
        sites = both(registered(), source, ledger, 1)
        assert sites[0].count(0, 1).tolist() == sites[1].count(0, 1).tolist()
        ledger = Ledger(tmp_path / "other")


def test_unknown_sites_are_refused(tmp_path: Path, ledger: Ledger) -> None:
    path = write(random_frame(np.random.default_rng(0), 9), tmp_path / "t.csv")
    with pytest.raises(FedsrcError, match="site 'a' is not in the registration"):
        open_table(registered("b"), "a", Table(path), ledger)
    assert ledger.accounts("a") == []


@pytest.mark.parametrize("batch", [7, 100])
def test_rows_are_known_without_ids(tmp_path: Path, ledger: Ledger, batch: int) -> None:
    """One row that comes back, in another format, order and column order, needs a word; other rows do not."""
    one, other, third = (random_frame(np.random.default_rng(seed), 30) for seed in (1, 2, 3))
    open_table(registered(), "a", Table(write(one, tmp_path / "1.csv"), batch=batch), ledger)
    open_table(registered(), "a", Table(write(other, tmp_path / "2.csv"), batch=batch), ledger)
    mixed = pl.concat([third, one.slice(11, 1)])
    path = write(mixed.select(reversed(mixed.columns)), tmp_path / "3.parquet")
    for find in (lambda: Table(path, batch=batch), lambda: read_records(path).at("a")):
        with pytest.raises(FedsrcError, match="1 of its 31 rows are also in an earlier table"):
            open_site(registered(), "a", find(), ledger, Key.generate(), fresh=False)
    assert open_table(registered(), "a", Table(path), ledger, fresh=True).intake.number == 3
    assert [each.asserted for each in ledger.accounts("a")] == [False, False, True]


class Watch:
    """The most rows that any frame, any collected query, any draw of keys or any histogram has had."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most = 0
        self._patch = monkeypatch
        self.results(window_module, "key_stream", lambda keys: self.watched(keys, len))
        self.results(streamed_site, "counted", lambda counts: counts, of=lambda _, units: self.saw(len(units)))
        self.results(Table, "frames", lambda frames: (self.saw(frame.height, frame) for frame in frames))
        for reader in ("collect", "_collect_eager"):
            self.results(pl.LazyFrame, reader, lambda frame: self.saw(frame.height, frame))

    def saw(self, rows: int, what: Any = None) -> Any:
        self.most = max(self.most, rows)
        return what

    def watched(self, function: Any, size: Callable[[Any], int]) -> Any:
        return lambda *args: self.saw(size(result := function(*args)), result)

    def results(self, owner: Any, name: str, see: Callable[[Any], Any], of: Callable[..., Any] | None = None) -> None:
        inner = getattr(owner, name)

        def outer(*args: Any, **settings: Any) -> Any:
            if of is not None:
                of(*args)
            return see(inner(*args, **settings))

        self._patch.setattr(owner, name, outer)


@pytest.mark.parametrize("kind", FORMATS)
def test_never_more_than_a_batch_is_held(
    tmp_path: Path, ledger: Ledger, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(random_frame(np.random.default_rng(0), 500, ids=True), tmp_path / f"t.{kind}")
    reg = without(registered(), 0.2, 1)
    watch = Watch(monkeypatch)
    site = open_table(reg, "a", Table(path, batch=16), ledger)
    monkeypatch.setattr(type(site.intake), "order", None)
    assert 350 < site.intake.units < 450
    assert site.count(0, site.intake.units).sum() == 10 * site.intake.units
    assert site.count(30, 20).sum() == 200
    assert watch.most == 16


def test_a_table_that_changes_is_refused(tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the first look and the intake, and between the intake and the count."""
    path = write(random_frame(np.random.default_rng(0), 30, ids=True), tmp_path / "t.csv")
    bare = write(random_frame(np.random.default_rng(0), 30), tmp_path / "bare.csv")
    touch = iter(range(1, 100))

    def change(path: Path) -> None:
        os.utime(path, (0, next(touch)))

    def changing(path: Path) -> str:
        change(path)
        return file_digest(path)

    monkeypatch.setattr(stream, "file_digest", changing)
    with pytest.raises(FedsrcError, match="the table changed while it was read"):
        open_table(registered(), "a", Table(bare), ledger)
    monkeypatch.undo()
    contents = stream.examine(Table(path), "a")
    change(path)
    with pytest.raises(FedsrcError, match="the table changed while it was read"):
        list(contents.names().ids or ())
    assert ledger.accounts("a") == []
    site = open_table(registered(), "a", Table(path), ledger)
    change(path)
    with pytest.raises(FedsrcError, match="the table changed while it was read"):
        site.count(0, 5)


def test_sources_are_read_whole(tmp_path: Path, ledger: Ledger) -> None:
    path = tmp_path / "t.csv"
    path.write_text(SOURCES.replace(",b,", ",a,"))
    reg = registered(privacy={"unit": "source", "max_answers": 2})
    key = Key.generate()
    site = open_table(reg, "a", Table(path), ledger, key=key)
    whole = open_sites(reg, read_records(path).at("a"), ledger)[0]
    assert (site.intake, site.intake.units, site.key) == (whole.intake, 3, key)
    assert site.count(1, 2).tolist() == whole.count(1, 2).tolist()


def test_a_disk_that_cannot_sort_is_an_error() -> None:
    sorter = stream._Sorter()
    sorter.close()
    with pytest.raises(FedsrcError, match="cannot be sorted on disk"):
        sorter.add(pl.Series(["a"]))


def test_releases_by_files(tmp_path: Path, ledger: Ledger) -> None:
    """Request by request, from a table on disk: together the releases hold every unit once; asked again, the same."""
    server, key = Key.generate(), Key.generate()
    fields = registered(schedule={"batch": 30, "policy": "final"}).model_dump()
    fields["server_key"] = public_hex(server)
    fields["sites"] = [{"name": "a", "key": public_hex(key), "capacity": 90}]
    reg = Registration.model_validate(fields)
    allow(ledger, "a", reg)
    path = write(random_frame(np.random.default_rng(0), 90), tmp_path / "t.parquet")
    whole = open_sites(reg, read_records(path).at("a"), ledger)[0]
    request = start(reg, tmp_path / "run", server).waiting[0]
    data = answer_file(request, lambda: Table(path, batch=8), ledger, key)
    assert data == answer_file(request, lambda: Table(path, batch=20), ledger, key)
    release = Release.model_validate_json(data)
    assert release.signed_by(public_hex(key))
    exact = reg.mechanism.basis.encode(whole.count(0, 30))
    assert [release.first, release.second] == [tuple(row) for row in exact.tolist()]
    assert ledger.spent(whole.intake) == 30
