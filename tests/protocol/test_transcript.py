"""The transcript: chained, append-only, torn tails cut with a warning, any other damage an error naming its line.

Mutants killed: a chain that skips the first line, edits or reorders let through, a torn tail that is fatal.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsrc.errors import BusyError, DamagedError, FedsrcError
from fedsrc.protocol.transcript import Announced, Closed, Entry, Opened, Transcript, read_transcript

ENTRIES: list[Entry] = [
    Opened(registration="a" * 64),
    Announced(site="north", units=10),
    Announced(site="süd ☃", units=3),
    Closed(round=1),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    transcript = Transcript(tmp_path / "transcript.jsonl")
    transcript.append(*ENTRIES[:2])
    transcript.append(*ENTRIES[2:])
    transcript.close()
    return tmp_path / "transcript.jsonl"


def test_what_was_written_is_read(path: Path) -> None:
    entries, chain = read_transcript(path)
    assert entries == ENTRIES
    assert chain.lines == 4
    again = Transcript(path)
    assert again.entries == ENTRIES
    assert again.chain == chain
    again.close()


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_torn_last_line_is_cut_with_a_warning(path: Path, cut: int) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-cut])
    with pytest.warns(UserWarning, match="line 4 is not whole: torn"):
        entries, chain = read_transcript(path)
    assert entries == ENTRIES[:3]
    with pytest.warns(UserWarning, match="line 4 is not whole: torn"):
        transcript = Transcript(path)
    transcript.append(ENTRIES[3])
    transcript.close()
    assert path.read_bytes() == data
    assert chain.lines == 3


def test_every_changed_byte_is_noticed(path: Path) -> None:
    """Flip one bit of every byte in turn: never read back as a whole, different transcript."""
    data = path.read_bytes()
    for position in range(len(data)):
        path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        if position == len(data) - 1:  # the last newline: a torn tail
            with pytest.warns(UserWarning, match="torn"):
                assert read_transcript(path)[0] == ENTRIES[:3]
            continue
        line = data[:position].count(b"\n") + 1
        if line < len(ENTRIES):
            with pytest.raises(DamagedError, match=f"after it was written: line ({line}|{line + 1}) "):
                read_transcript(path)
            continue
        try:
            entries, chain = read_transcript(path)
        except FedsrcError:
            continue
        assert entries[:3] == ENTRIES[:3]  # only the head hash, which the certificate holds, tells a changed last line
        assert chain.head != _head(data, path)


def _head(data: bytes, path: Path) -> str:
    path.write_bytes(data)
    return read_transcript(path)[1].head


def test_reordered_doubled_and_dropped_lines_are_errors(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    for wrong, at in [([0, 2, 1, 3], 2), ([0, 1, 1, 2, 3], 3), ([0, 1, 3], 3), ([1, 2, 3], 1)]:
        path.write_bytes(b"".join(lines[i] for i in wrong))
        with pytest.raises(DamagedError, match=f"line {at}"):
            read_transcript(path)


def test_two_writers_are_one_too_many(path: Path) -> None:
    first = Transcript(path)
    with pytest.raises(BusyError, match="another process"):
        Transcript(path)
    first.close()
    Transcript(path).close()
