"""Any table reads alike however it is written: separator, encoding, decimal commas, format.

Mutants killed: an encoding taken for another, a byte-order mark left in a name, a separator found in the data, a
decimal comma let through in a table that commas separate, a file decoded once and not again after it changed.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsrc.common.canonical import file_digest
from fedsrc.errors import FedsrcError
from fedsrc.records.scan import DECIMAL_COMMA, scan
from fedsrc.records.stream import Table
from fedsrc.records.table import read_records

ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252")
WORDS = st.text(st.sampled_from("abcz é;,|\t\"'%0-ßü"), max_size=12).filter(
    lambda word: re.match(DECIMAL_COMMA, word) is None  # 0,0 is a number where commas do not separate
)
ROWS = st.lists(
    st.tuples(st.integers(0, 1000), st.sampled_from("01"), WORDS, st.sampled_from(["north", "süd"])), min_size=1
)


def write(path: Path, rows: Sequence[Sequence[str]], separator: str, encoding: str) -> Path:
    text = StringIO()
    csv.writer(text, delimiter=separator, lineterminator="\n").writerows(rows)
    path.write_bytes(text.getvalue().encode(encoding))
    return path


@settings(max_examples=40, deadline=None)
@given(ROWS, st.sampled_from(ENCODINGS), st.sampled_from(",;\t|"), st.booleans())
def test_any_way_to_write_a_table_reads_alike(
    rows: list[tuple[int, str, str, str]], encoding: str, separator: str, decimal_comma: bool
) -> None:
    """Text in quotes may hold every separator; rows, and so units, are recognised across all of them."""
    named = [("id", "score", "loss", "note", "site")]
    cells = [(f"é{i}", f"{s / 1000:.3f}", loss, note, site) for i, (s, loss, note, site) in enumerate(rows)]
    other = [(i, s.replace(".", ","), *more) for i, s, *more in cells] if decimal_comma and separator != "," else cells
    with TemporaryDirectory() as folder:
        plain = read_records(write(Path(folder) / "plain.csv", named + cells, ",", "utf-8"))
        path = write(Path(folder) / "other.csv", [*named, *other], separator, encoding)
        found = read_records(path)
        parts = [frame.to_dicts() for frame in Table(path, batch=3).frames()]
        assert found.digest == file_digest(path)
    assert plain.rows is not None
    assert found.rows is not None
    for mine, theirs in ((found.score, plain.score), (found.loss, plain.loss), (found.site, plain.site)):
        assert mine.tolist() == theirs.tolist()
    assert (found.ids, found.site_names) == (plain.ids, plain.site_names)
    assert (found.rows.digests == plain.rows.digests).all()
    assert [row["id"] for part in parts for row in part] == found.ids


def test_a_quoted_header_and_windows_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b'\xef\xbb\xbf"loss";"score"\r\n"1";"0,5"\r\n"0";"1"\r\n')
    assert read_records(path).score.tolist() == [0.5, 1.0]
    assert scan(path)[1].written == "UTF-8 text, separated by semicolons"


def test_a_decoded_table_is_read_anew_when_it_changed(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", [("loss", "score", "ü"), ("1", "0.5", "")], ",", "cp1252")
    table = Table(path)
    assert table.whole().score.tolist() == [0.5]
    write(path, [("loss", "score", "ü"), ("1", "0.25", "x")], ",", "cp1252")
    found = table.whole()
    assert (found.score.tolist(), found.digest) == ([0.25], file_digest(path))


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16-le"])
def test_a_line_with_too_many_fields_is_named_in_any_encoding(tmp_path: Path, encoding: str) -> None:
    path = write(tmp_path / "t.csv", [("loss", "score", "ü"), ("1", "0.5", ""), ("1", "0.5", "é", "x")], ";", encoding)
    with pytest.raises(FedsrcError, match="line 3 has 4 fields, and the first line 3"):
        read_records(path)


def test_a_stray_zero_byte_does_not_make_utf_16(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"loss,score,note\n1,0.5,a\x00b\n")
    assert read_records(path).score.tolist() == [0.5]


def test_excel(tmp_path: Path) -> None:
    path = tmp_path / "t.xlsx"
    if find_spec("fastexcel") is None or find_spec("xlsxwriter") is None:
        path.write_bytes(b"PK")
        with pytest.raises(FedsrcError, match="needs fastexcel, which is not installed\nhint: pip install fastexcel"):
            read_records(path)
        return
    pl.DataFrame({"loss": [0, 1], "score": [0.5, 1]}).write_excel(path)
    assert read_records(path).score.tolist() == [0.5, 1.0]
