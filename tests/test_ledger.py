"""The ledger: a unit is spent once, the same request gives the same bytes, and a failure changes nothing.

Mutants killed: fresh noise on a repeated request, a prefix that overlaps, an id reused across tables, a table cut
another way taken in again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from fedsrc.errors import FedsrcError
from fedsrc.ledger import Ledger
from fedsrc.records import Units
from fedsrc.release import Request

UNITS = Units(np.arange(11), np.linspace(0, 1, 10), np.zeros(10), tuple("abcdefghij"))
OTHER = Units(np.arange(3), np.zeros(2), np.zeros(2), ("x", "a"))


def request(number: int, slots: int = 4) -> Request:
    return Request(registration="0" * 64, number=number, round=1, site="s", slots=slots, scale=1.0)


class Maker:
    """Makes different bytes each time and remembers the positions it was given."""

    def __init__(self) -> None:
        self.seen: list[list[int]] = []

    def __call__(self, first: int, slots: int) -> bytes:
        self.seen.append(list(range(first, first + slots)))
        return f"release {len(self.seen)}".encode()


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with closing(Ledger(tmp_path / "l")) as opened:
        yield opened


def test_spent_units_are_a_prefix_of_the_order(ledger: Ledger) -> None:
    make = Maker()
    intake = ledger.take_in("s", "t", "records", 10, UNITS.ids)
    for number in (1, 2):
        ledger.answer(intake, request(number), 0.1, make)
    assert [*make.seen[0], *make.seen[1]] == list(range(8))
    assert ledger.spent(intake) == 8
    with pytest.raises(FedsrcError, match="2 unspent units and was asked for 4"):
        ledger.answer(intake, request(3), 0.1, make)
    assert ledger.spent(intake) == 8
    ledger.answer(intake, request(4, slots=2), 0.1, make)
    assert sorted(position for each in make.seen for position in each) == list(range(10))


def test_the_same_request_gives_the_same_bytes_for_ever(tmp_path: Path) -> None:
    make = Maker()
    with closing(Ledger(tmp_path / "l")) as first:
        intake = first.take_in("s", "t", "records", 10, UNITS.ids)
        data = first.answer(intake, request(1), 0.1, make)
    with closing(Ledger(tmp_path / "l")) as again:
        same = again.take_in("s", "t", "records", 10, UNITS.ids)
        assert same == intake
        assert again.answer(same, request(1), 0.1, make) == data
    assert len(make.seen) == 1


def test_a_failure_while_releasing_spends_nothing(ledger: Ledger) -> None:
    intake = ledger.take_in("s", "t", "records", 10, UNITS.ids)

    def fail(first: int, slots: int) -> bytes:
        raise RuntimeError("no noise today")

    with pytest.raises(RuntimeError):
        ledger.answer(intake, request(1), 0.1, fail)
    assert ledger.spent(intake) == 0


def test_known_units_are_refused_in_another_table(ledger: Ledger) -> None:
    ledger.take_in("s", "t", "records", 10, UNITS.ids)
    with pytest.raises(FedsrcError, match="unit 'a' was taken in before"):
        ledger.take_in("s", "u", "records", 2, OTHER.ids)
    assert ledger.take_in("elsewhere", "u", "records", 2, OTHER.ids).units == 2  # another site's ids are its own
    with pytest.raises(FedsrcError, match="unit 'a' was taken in before"):
        ledger.take_in("s", "u", "records", 2, OTHER.ids)  # the refusal left no trace


def test_a_table_stays_as_it_was_first_cut(ledger: Ledger) -> None:
    ledger.take_in("s", "t", "records", 10, UNITS.ids)
    with pytest.raises(FedsrcError, match="taken in before as 10 units"):
        ledger.take_in("s", "t", "records, without 2 development units by seed 1", 10, UNITS.ids)
    with pytest.raises(FedsrcError, match="another order"):
        ledger.take_in("s", "t", "records", 10, UNITS.ids, in_order=True)


def test_tables_without_ids_are_not_taken_for_fresh(ledger: Ledger) -> None:
    """An edited copy of a table has another digest: without ids only the user can say that its units are new."""
    ledger.take_in("s", "t", "records", 10, None)
    for ids in (None, ["p", "q"]):
        with pytest.raises(FedsrcError, match="a unit used twice would not be seen"):
            ledger.take_in("s", "u", "records", 2, ids)
    assert ledger.take_in("s", "u", "records", 2, None, fresh=True).units == 2
    assert ledger.take_in("s", "t", "records", 10, None).units == 10


def test_in_order_is_the_tables_order(ledger: Ledger) -> None:
    intake = ledger.take_in("s", "t", "records", 10, UNITS.ids, in_order=True)
    assert intake.order().tolist() == list(range(10))
    shuffled = ledger.take_in("r", "t", "records", 10, UNITS.ids)
    assert sorted(shuffled.order().tolist()) == list(range(10))


def test_not_a_ledger(tmp_path: Path) -> None:
    (tmp_path / "l").write_text("this is not a database, it only looks like a file of some length" * 50)
    with pytest.raises(FedsrcError, match="cannot be opened as a ledger"):
        Ledger(tmp_path / "l")
