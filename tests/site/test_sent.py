"""What was sent under a mask key is sent again, whatever ledger is asked.

Mutants killed: a second ledger that answers with other noise under the same masks, one restored from a back-up that
does, bytes that leave before they are kept, a torn line that hides what was sent, requests outside cohorts kept too.
"""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from fedsrc.errors import DamagedError
from fedsrc.federation.airgap import answer_file, start
from fedsrc.federation.flower.app.fedsrc_relay.wire import GIVEN, RELEASE, Frame
from fedsrc.federation.live.guard import Guard
from fedsrc.protocol.messages import SignedRequest
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow
from fedsrc.site.sent import once
from tests.support.cohorts import SERVER, cohort_registration, ledger_of, member, own_table

THREE = [member(name) for name in "abc"]
REG, A = cohort_registration(THREE), THREE[0]


@pytest.fixture
def request_file(tmp_path: Path) -> Path:
    (found,) = start(REG, tmp_path / "run", SERVER).waiting
    return found


def answer(request: Path, ledger: Path, sent: Path | None) -> bytes:
    with closing(Ledger(ledger)) as book:
        allow(book, A.name, REG)
        return answer_file(request, lambda: own_table(A.name), book, A.key, mask=A.mask, sent=sent)


def test_a_second_ledger_sends_the_same_bytes(tmp_path: Path, request_file: Path) -> None:
    first = answer(request_file, tmp_path / "one", tmp_path / "sent")
    assert answer(request_file, tmp_path / "two", tmp_path / "sent") == first
    assert (tmp_path / "sent").stat().st_mode & 0o777 == 0o600
    assert answer(request_file, tmp_path / "three", None) != first  # what a mask key that forgets would do


def test_a_ledger_from_a_back_up_sends_the_same_bytes(tmp_path: Path, request_file: Path) -> None:
    with closing(ledger_of(tmp_path, A, REG)) as ledger:
        place = ledger.path
    shutil.copy(place, tmp_path / "back-up")
    first = answer(request_file, place, tmp_path / "sent")
    shutil.copy(tmp_path / "back-up", place)
    assert answer(request_file, place, tmp_path / "sent") == first


def test_live_too(tmp_path: Path, request_file: Path) -> None:
    first = answer(request_file, tmp_path / "one", tmp_path / "sent")
    with closing(Ledger(tmp_path / "two")) as book:
        allow(book, A.name, REG)
        guard = Guard(
            REG, A.name, book, lambda: own_table(A.name), A.key, mask=A.mask, sent=tmp_path / "sent", fresh=True
        )
        assert guard.answer(Frame(RELEASE, request_file.read_bytes())) == Frame(GIVEN, first)


def test_it_is_kept_before_it_leaves_and_a_torn_line_is_not_it(tmp_path: Path, request_file: Path) -> None:
    place = tmp_path / "sent"
    first = answer(request_file, tmp_path / "one", place)
    assert place.read_bytes() == first + b"\n"
    request = SignedRequest.model_validate_json(request_file.read_bytes()).request
    place.write_bytes(first[:50])  # killed while it was written, so nothing had left
    with pytest.warns(UserWarning, match="is not whole"):
        assert once(place, request, lambda: first) == first
    assert place.read_bytes() == first + b"\n"
    place.write_bytes(first.replace(b'"slots"', b'"slot"') + b"\n")
    with pytest.raises(DamagedError, match="was changed"):
        once(place, request, lambda: first)


def test_outside_cohorts_nothing_is_kept(tmp_path: Path, request_file: Path) -> None:
    request = SignedRequest.model_validate_json(request_file.read_bytes()).request
    alone = request.model_copy(update={"parts": None, "site": "a"})
    assert once(tmp_path / "sent", alone, lambda: b"x") == b"x"
    assert not (tmp_path / "sent").exists()
