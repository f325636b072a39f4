"""Notices and successions as data: what is signed is what is read back, byte for byte, and nothing else is read.

Mutants killed: a field left out of what is signed, a byte that may change, a line of keys that stops early.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsrc.common.signing import Key, public_hex
from fedsrc.errors import FedsrcError
from fedsrc.protocol.notices import Notices, read_notice, revoke
from fedsrc.protocol.succession import ANYONE, Keys, Succession, keys_of, read_succession

A, B, C = (Key.from_private_bytes(bytes([n]) * 32) for n in (1, 2, 3))
ONE, TWO = "12" * 32, "34" * 32
NOTICE = revoke(ONE, "because", A, superseded_by=TWO).to_bytes()
STATEMENT = Succession.by(A, B).to_bytes()


@given(st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=50))
def test_a_notice_is_read_back(reason: str) -> None:
    made = revoke(ONE, reason, A)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "n.revoked"
        path.write_bytes(made.to_bytes())
        assert read_notice(path) == made
        assert Notices(Path(folder) / "c", path).revoking(ONE, public_hex(A)) == made


@given(place=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_no_byte_may_change(place: int, byte: int) -> None:
    for data, read in ((NOTICE, read_notice), (STATEMENT, read_succession)):
        i = place % len(data)
        if data[i] == byte:
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "file"
            path.write_bytes(data[:i] + bytes([byte]) + data[i + 1 :])
            with pytest.raises(FedsrcError):
                read(path)


def test_a_notice_needs_a_reason_and_another_successor() -> None:
    for certificate, reason, instead in ((ONE, "", None), (ONE, "a\nb", None), (ONE, "x", ONE), ("1", "x", None)):
        with pytest.raises(FedsrcError, match="this is no notice"):
            revoke(certificate, reason, A, superseded_by=instead)


def test_the_same_notice_at_another_time() -> None:
    one = revoke(ONE, "because", A)
    assert one.same_as(one.model_copy(update={"time": "2020-01-01T00:00:00Z"}))
    for other in (revoke(ONE, "why not", A), revoke(TWO, "because", A), revoke(ONE, "because", B)):
        assert not one.same_as(other)


def test_a_line_of_keys(tmp_path: Path) -> None:
    for name, pair in (("1", (A, B)), ("2", (B, C))):
        (tmp_path / name).write_bytes(Succession.by(*pair, "2026-01-02T03:04:05Z").to_bytes())
    keys = keys_of([public_hex(A)], [tmp_path / "1", tmp_path / "2"])
    assert list(keys.line(public_hex(A))) == [public_hex(each) for each in (A, B, C)]
    assert list(keys.line(public_hex(B))) == [public_hex(each) for each in (B, C)]
    assert list(ANYONE.line("x")) == ["x"]
    keys.check(public_hex(C), "2026-06-01T00:00:00Z", "c")
    for key in (A, B):
        keys.check(public_hex(key), "2026-01-02T03:04:05Z", "c")
        with pytest.raises(FedsrcError, match="succeeded on 2026-01-02T03:04:05Z"):
            keys.check(public_hex(key), "2026-01-02T03:04:06Z", "c")
    with pytest.raises(FedsrcError, match="not trusted"):
        Keys(frozenset({public_hex(B)})).check(public_hex(A), "", "c")
