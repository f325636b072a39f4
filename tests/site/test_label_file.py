"""The file of labels: on disk before it is acknowledged, one writer, torn tails cut, anything else an error.

Mutants killed: a label acknowledged before it is on disk, a torn line that is fatal or joined to the next one, a reader
that changes or holds the file, a second writer, a file that others may read, an edited line let through.
"""

from __future__ import annotations

import multiprocessing
from itertools import count
from pathlib import Path

import pytest

from fedsrc.common.places import labels_beside
from fedsrc.errors import BusyError, DamagedError, FedsrcError
from fedsrc.site.label_file import Label, LabelFile, read_labels
from research.attacks.struck import CRASHED, REFUSED, struck_run

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.site.test_label_file"])
FAULTS = ["before", "torn", "after", "full"]


def label(number: int, loss: float | None = 0.0, by: str = "ada") -> Label:
    return Label(
        answer=f"ä {number}", loss=loss, by=by, at="2026-01-02T03:04:05Z", shown="a" * 64, round="b" * 64
    )  # fmt: skip


MANY = [label(1), label(2, None), label(3, 1.0), label(3, 0.25, "ben"), label(1, 1.0)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    book = LabelFile(tmp_path / "t.csv.labels.jsonl")
    book.add(*MANY[:2])
    book.add(*MANY[2:])
    book.close()
    return tmp_path / "t.csv.labels.jsonl"


def test_what_was_added_is_read_by_anybody_of_the_site(path: Path) -> None:
    assert read_labels(path) == MANY
    assert path.stat().st_mode & 0o777 == 0o600
    book = LabelFile(path)
    assert book.labels == MANY
    assert read_labels(path) == MANY  # while it is held
    book.close()
    assert read_labels(path.with_name("none")) == []
    assert not path.with_name("none").exists()


def test_labels_lie_beside_the_file_itself(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "t.csv").write_text("")
    (tmp_path / "link.csv").symlink_to(tmp_path / "real" / "t.csv")
    assert labels_beside(tmp_path / "link.csv") == (tmp_path / "real" / "t.csv.labels.jsonl").resolve()


@pytest.mark.parametrize("cut", [1, 7, 60])
def test_a_torn_last_line_is_left_out_and_cut_by_the_next_writer(path: Path, cut: int) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-cut])
    with pytest.warns(UserWarning, match="line 5 is not whole: torn"):
        assert read_labels(path) == MANY[:4]
    assert path.read_bytes() == data[:-cut]  # a reader changes nothing
    with pytest.warns(UserWarning, match="line 5 is not whole: torn"):
        book = LabelFile(path)
    book.add(MANY[4])
    book.close()
    assert path.read_bytes() == data


@pytest.mark.parametrize(
    ("old", "new"),
    [(b'"loss":0.25', b'"loss":2.25'), (b'"ben"', b'"ben","x":1'), (b"{", b" {"), (b'"loss":null', b'"loss":NaN')],
)
def test_a_line_that_is_no_label_is_an_error_that_names_it(path: Path, old: bytes, new: bytes) -> None:
    path.write_bytes(path.read_bytes().replace(old, new, 1))
    with pytest.raises(DamagedError, match=r"line [124]: is not a label"):
        read_labels(path)


def test_two_writers_are_one_too_many(path: Path) -> None:
    first = LabelFile(path)
    with pytest.raises(BusyError, match="another process is adding labels"):
        LabelFile(path)
    first.close()
    LabelFile(path).close()


def add_all(path: Path, said: Path) -> None:
    """Add what is missing of MANY, one by one, and note each once it is acknowledged."""
    book = LabelFile(path)
    for each in MANY[len(book.labels) :]:
        book.add(each)
        with said.open("ab") as file:
            file.write(each.line())
    book.close()


def child(folder: Path, fault: str, at: int) -> None:
    struck_run(lambda: add_all(folder / "labels.jsonl", folder / "said"), folder, fault, at)


@pytest.mark.filterwarnings("ignore:.*torn by a crash:UserWarning")
@pytest.mark.parametrize("fault", FAULTS)
def test_killed_at_every_write_nothing_acknowledged_is_lost_or_doubled(tmp_path: Path, fault: str) -> None:
    for at in count(1):
        folder = tmp_path / str(at)
        folder.mkdir()
        process = CONTEXT.Process(target=child, args=(folder, fault, at))
        process.start()
        process.join()
        said = (folder / "said").read_bytes() if (folder / "said").exists() else b""
        kept = b"".join(each.line() for each in read_labels(folder / "labels.jsonl"))
        assert kept.startswith(said)
        if process.exitcode == 0:
            assert at > 2 * len(MANY)  # a write and a sync each: every one of them was struck
            return
        assert process.exitcode == (REFUSED if fault == "full" else CRASHED)
        add_all(folder / "labels.jsonl", folder / "said")
        assert read_labels(folder / "labels.jsonl") == MANY


def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FedsrcError, match="cannot be written"):
        LabelFile(tmp_path / "file" / "labels.jsonl")
