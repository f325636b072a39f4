"""Tables: good ones in every format, and every kind of bad one refused with what, where and next.

Mutants killed: off-by-one line numbers, silent nulls, a source across sites let through, unstable shuffles, a cap on
answers that looks at scores, a named column that is not there passed over, a source under another name passed over.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from fedsrc.errors import FedsrcError
from fedsrc.records.columns import ORDER, Columns
from fedsrc.records.keys import name_keys, place_keys, row_keys
from fedsrc.records.order import shuffled
from fedsrc.records.table import MISSING_SCORE, read_records
from fedsrc.records.units import Units, check_unit, most_answers, unit_codes, units_of

GOOD = "id,site,loss,score\na,north,1,0.25\nb,south,0,0.5\nc,north,0.5,1\n"


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_formats_agree(tmp_path: Path) -> None:
    csv = write(tmp_path / "t.csv", GOOD)
    frame = pl.read_csv(csv)
    frame.write_parquet(tmp_path / "t.parquet")
    frame.write_ndjson(tmp_path / "t.jsonl")
    write(tmp_path / "t.tsv", GOOD.replace(",", "\t"))
    tables = [read_records(tmp_path / name) for name in ("t.csv", "t.parquet", "t.jsonl", "t.tsv")]
    for each in tables:
        assert each.score.tolist() == [0.25, 0.5, 1.0]
        assert each.loss.tolist() == [1.0, 0.0, 0.5]
        assert [each.site_names[i] for i in each.site] == ["north", "south", "north"]
        assert each.ids == ["a", "b", "c"]
    assert len({each.digest for each in tables}) == 4


def test_boolean_losses_and_other_column_names(tmp_path: Path) -> None:
    pl.DataFrame({"s": [0.1, 0.9], "bad": [True, False]}).write_parquet(tmp_path / "t.parquet")
    found = read_records(tmp_path / "t.parquet", columns=Columns(score="s", loss="bad"))
    assert found.loss.tolist() == [1.0, 0.0]
    assert found.site_names == ("local",)


BAD = {
    "nan": ("loss,score\n1,0.5\n0,nan\n", r"line 3: score is missing or NaN"),
    "empty value": ("loss,score\n1,0.5\n,0.4\n", r"line 3: loss is missing or NaN"),
    "too large": ("loss,score\n1,1.7\n", r"line 2: score 1.7 is outside \[0, 1\]"),
    "negative": ("loss,score\n-0.1,0.7\n", r"line 2: loss -0.1 is outside \[0, 1\]"),
    "infinite": ("loss,score\n0,inf\n", r"line 2: score inf is outside"),
    "word": ("loss,score\n0,0.5\nso so,0.5\n?,0.1\n", r"line 3: loss 'so so' is neither (.|\n)*'so so', '\?'"),
    "no column": ("score\n0.5\n", r"no column 'loss' \(`loss_column=`\); the table has 'score'"),
    "a mixture": ("loss,score\n1,50%\n1,0.7\n", r"line 3: score has no percent sign, unlike those before"),
    "some semicolons": ("loss;score, raw\n1;0.5,0.4\n", r"no column 'score'"),
    "decimal comma": ('loss,score\n1,"0,5"\n', r"score '0,5' is not a number\nhint: write numbers with a point: 0.5"),
    "no rows": ("loss,score\n", r"the table has no rows"),
    "nothing": ("", r"cannot be read as csv"),
    "ragged long": ("loss,score\n1,0.5\n0,0.5,7\n", r"as csv: line 3 has 3 fields, and the first line 2"),
    "ragged short": ("loss,score\n1,0.5\n0\n", r"line 3: score is missing"),
    "no site": ("loss,score,site\n1,0.5,a\n0,0.5,\n", r"line 3: site is empty"),
    "repeated id": ("loss,score,id\n1,0.5,a\n0,0.5,a\n", r"id 'a' stands in more than one row"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_tables_are_refused(tmp_path: Path, name: str) -> None:
    text, message = BAD[name]
    with pytest.raises(FedsrcError, match=message):
        read_records(write(tmp_path / "t.csv", text))


def test_every_kind_of_fault_is_named_and_missing_values_last(tmp_path: Path) -> None:
    text = "loss,score\nso so,-1\n0,\n,0.5\n"
    with pytest.raises(FedsrcError) as found:
        read_records(write(tmp_path / "t.csv", text))
    error = found.value
    assert error.where == f"{tmp_path / 't.csv'} line 2"
    assert error.what == "score -1 is outside [0, 1]"
    unknown = "line 2: loss 'so so' is neither a number nor a label that fedsrc knows"
    others = f"{unknown}; line 3: score is missing or NaN; line 4: loss is missing or NaN"
    assert str(error.hint).splitlines()[1] == f"also: {others}"
    with pytest.raises(FedsrcError) as found:
        read_records(tmp_path / "t.csv", missing="keep")
    assert str(found.value.hint).splitlines()[1:] == [f"also: {unknown}"]


@pytest.mark.parametrize("what", ORDER)
def test_a_column_that_is_named_must_be_there(tmp_path: Path, what: str) -> None:
    """Also under the name that it would have anyway. Columns that nobody named may be absent."""
    path = write(tmp_path / "t.csv", "loss,score\n1,0.5\n")
    others: dict[str, Any] = {} if what in ("score", "loss") else {what: what}
    for named in (dict[str, Any]({what: "clinik"}), others):
        if not named:
            continue
        with pytest.raises(FedsrcError, match=rf"no column {named[what]!r} \(`{what}_column=`\); the table has 'loss'"):
            read_records(path, columns=Columns(**named))
    assert read_records(path, columns=Columns(loss="loss")).site_names == ("local",)


@pytest.mark.parametrize("what", ["site", "source", "id", "group"])
def test_a_score_or_loss_names_nothing(tmp_path: Path, what: str) -> None:
    """Sites' names are published."""
    path = write(tmp_path / "t.csv", "loss,s\n1,0.5\n")
    for name in ("loss", "s"):
        with pytest.raises(FedsrcError, match=f"is the score or the loss, and cannot be the {what}"):
            read_records(path, columns=replace(Columns(score="s"), **dict[str, Any]({what: name})))


def test_a_near_name_is_offered(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "loss,score,the clinic\n1,0.5,a\n")
    with pytest.raises(FedsrcError, match="hint: is it 'the clinic'\\? `site_column='the clinic'`"):
        read_records(path, columns=Columns(site="the clinik"))


def test_what_is_used_and_what_is_not() -> None:
    present = ["grounding", "loss", "clinic", "Question_ID", "note"]
    names = Columns(score="grounding", site="clinic")
    assert names.used(present) == {"score": "grounding", "loss": "loss", "site": "clinic"}
    assert names.unused(present) == ["Question_ID", "note"]
    assert names.like_source(present) == ["Question_ID"]
    assert Columns(source="Question_ID").like_source(present) == []


SOURCE_NAMES = [
    "question_id",
    "Question",
    "queryId",
    "DOC-ID",
    "document",
    "prompt no",
    "patient_nr",
    "sources",
    "Source",
]
OTHER_NAMES = ["note", "model", "identity", "documented", "questionable", "answer_no", "site_id", "label", "resource"]


@pytest.mark.parametrize("name", SOURCE_NAMES)
def test_a_column_named_like_a_source_is_not_passed_over(tmp_path: Path, name: str) -> None:
    text = f"{name},loss,score\nx,1,0.1\ny,0,0.2\nx,0,0.3\n"
    found = read_records(write(tmp_path / "t.csv", text))
    assert found.like_source == name
    with pytest.raises(FedsrcError, match=f"values of column '{name}' stand in several rows") as error:
        check_unit(found, None, "t.csv")
    assert "`unit='source'`" in str(error.value)
    assert "`unit='record'`" in str(error.value)
    assert check_unit(found, "record", "t.csv") == "record"
    named = read_records(tmp_path / "t.csv", columns=Columns(source=name))
    assert check_unit(named, "source", "t.csv") == "source"
    assert read_records(write(tmp_path / "u.csv", text.replace("x,0", "z,0"))).like_source is None
    assert read_records(write(tmp_path / "v.csv", text.replace("x,", ","))).like_source is None  # empty is no value


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_other_columns_are(tmp_path: Path, name: str) -> None:
    found = read_records(write(tmp_path / "t.csv", f"{name},loss,score\nx,1,0.1\nx,0,0.3\n"))
    assert found.like_source is None


def test_numbers_and_other_kinds_of_a_column_named_like_a_source(tmp_path: Path) -> None:
    kinds = {"i": ([7, 7], True), "c": (pl.Series(["a", "a"], dtype=pl.Categorical), True), "l": ([[1], [1]], False)}
    for name, (values, repeated) in kinds.items():
        path = tmp_path / f"{name}.parquet"
        pl.DataFrame({"doc": values, "loss": [0, 1], "score": [0.1, 0.2]}).write_parquet(path)
        assert (read_records(path).like_source == "doc") is repeated


def test_bad_files_are_refused(tmp_path: Path) -> None:
    for name, message in [("t.csv", "no such file"), ("t.xlsx", "no such file")]:
        with pytest.raises(FedsrcError, match=message):
            read_records(tmp_path / name)
    for name in ("t.parquet", "t.jsonl"):
        write(tmp_path / name, "this is not one")
        with pytest.raises(FedsrcError, match="cannot be read as"):
            read_records(tmp_path / name)
    with pytest.raises(FedsrcError, match="unknown kind of table"):
        read_records(write(tmp_path / "t.txt", GOOD))
    pl.DataFrame({"loss": [0.0], "score": [[1.0]]}).write_parquet(tmp_path / "l.parquet")
    with pytest.raises(FedsrcError, match="not numbers"):
        read_records(tmp_path / "l.parquet")


def test_rows_of_binary_files_are_counted_from_one(tmp_path: Path) -> None:
    pl.DataFrame({"loss": [0.0, 2.0], "score": [1.0, 1.0]}).write_parquet(tmp_path / "t.parquet")
    with pytest.raises(FedsrcError, match=r"row 2: loss 2 is outside"):
        read_records(tmp_path / "t.parquet")


def test_missing_values_keep_their_slot(tmp_path: Path) -> None:
    found = read_records(write(tmp_path / "t.csv", "loss,score\n,0.5\n0,\n"), missing="keep")
    assert found.loss.tolist() == [1.0, 0.0]
    assert found.score.tolist() == [0.5, MISSING_SCORE]


SOURCES = "source,site,loss,score\nx,a,1,0.1\ny,a,0,0.2\nx,a,0,0.3\nz,b,1,0.4\nx,a,0,0.5\n"


def test_sources_become_units(tmp_path: Path) -> None:
    found = read_records(write(tmp_path / "t.csv", SOURCES))
    assert found.repeats_sources
    assert most_answers(found, np.ones(5, dtype=bool)) == 3
    units = units_of(found, "a", "source", max_answers=3)
    assert units.ids == ("x", "y")
    assert np.diff(units.start).tolist() == [3, 1]
    assert sorted(units.score[:3].tolist()) == [0.1, 0.3, 0.5]
    assert unit_codes(found, "source").tolist() == [0, 1, 0, 2, 0]
    capped = units_of(found, "a", "source", max_answers=2)
    assert np.diff(capped.start).tolist() == [2, 1]


def test_the_cap_on_answers_is_blind_to_scores_and_losses(tmp_path: Path) -> None:
    mirrored = SOURCES.replace("0.1", "0.9").replace("x,a,1", "x,a,0")
    one = units_of(read_records(write(tmp_path / "t.csv", SOURCES)), "a", "source", max_answers=1)
    other = units_of(read_records(write(tmp_path / "u.csv", mirrored)), "a", "source", max_answers=1)
    expected = {0.1: 0.9}.get(float(one.score[0]), float(one.score[0]))
    assert float(other.score[0]) == expected


def test_the_unit_is_asked_for_when_it_is_not_plain(tmp_path: Path) -> None:
    found = read_records(write(tmp_path / "t.csv", SOURCES))
    with pytest.raises(FedsrcError, match="records are not independent"):
        check_unit(found, None, "t.csv")
    assert check_unit(found, "record", "t.csv") == "record"
    assert check_unit(found, "source", "t.csv") == "source"
    plain = read_records(write(tmp_path / "p.csv", GOOD))
    assert check_unit(plain, None, "p.csv") == "record"
    with pytest.raises(FedsrcError, match="needs a source column"):
        check_unit(plain, "source", "p.csv")
    split = read_records(write(tmp_path / "s.csv", SOURCES + "z,a,0,0.5\n"))
    with pytest.raises(FedsrcError, match="more than one site"):
        check_unit(split, "source", "s.csv")


def test_taking_units_keeps_their_answers() -> None:
    units = Units(np.array([0, 2, 3, 6]), np.arange(6.0), np.arange(6.0) / 10, ("a", "b", "c"))
    taken = units.take(np.array([2, 0]))
    assert taken.ids == ("c", "a")
    assert taken.start.tolist() == [0, 3, 5]
    assert taken.score.tolist() == [3, 4, 5, 0, 1]


def test_the_shuffle_is_frozen() -> None:
    """The order that ledgers rely on, for ever: a change here would release units twice."""
    assert shuffled(8, 12345).tolist() == [7, 0, 1, 5, 4, 6, 3, 2]
    assert sorted(shuffled(1000, 7).tolist()) == list(range(1000))
    assert shuffled(0, 1).tolist() == []


def test_keys_are_frozen() -> None:
    """Which answers count and which units calibrate, for ever: computed here from the definition, not by the code."""
    names = ["x", "", "Zoë", "7"]
    digests = [hashlib.sha256(f"fedsrc: some purpose: {name}".encode()).digest() for name in names]
    assert name_keys("some purpose", names).tolist() == [int.from_bytes(each[:8], "big") for each in digests]
    start = int(name_keys("p", ["row number"])[0])
    assert row_keys("p", range(3, 6)).tolist() == [
        splitmix64(start + (row + 1) * 0x9E3779B97F4A7C15) for row in (3, 4, 5)
    ]
    zero = np.zeros(3, dtype=np.uint64)
    known = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]  # splitmix64 from seed 0, as published
    assert place_keys(zero, np.arange(3, dtype=np.uint64)).tolist() == known


def splitmix64(state: int) -> int:
    """In whole numbers of any size."""
    mask = (1 << 64) - 1
    state &= mask
    state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & mask
    state = (state ^ state >> 27) * 0x94D049BB133111EB & mask
    return state ^ state >> 31


def test_whole_numbers_keep_their_names_beside_decimals(tmp_path: Path) -> None:
    """In JSON lines one name with decimals makes a column of decimals; no other unit may be renamed by that."""
    rows = '{{"source": 7, "id": 1, "loss": 0, "score": 0.5}}\n{{"source": {}, "id": {}, "loss": 0, "score": 0.5}}\n'
    one = read_records(write(tmp_path / "one.jsonl", rows.format(8, 2)))
    other = read_records(write(tmp_path / "other.jsonl", rows.format(8.5, 2.5)))
    assert (one.source_names, one.ids) == (("7", "8"), ["1", "2"])
    assert (other.source_names, other.ids) == (("7", "8.5"), ["1", "2.5"])
