"""The ledger: a unit is spent once, the same request gives the same bytes, and a failure changes nothing.

Mutants killed: fresh noise on a repeated request, a prefix that overlaps, an id reused across tables, a table cut
another way taken in again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from fedsrc.common.canonical import digest_bytes
from fedsrc.errors import FedsrcError
from fedsrc.maths.privacy import rho_tight
from fedsrc.protocol.messages import START, Link, Request
from fedsrc.records.units import Names, Units
from fedsrc.site.ledger import Ledger, Take
from fedsrc.site.recognition import DEVELOPMENT, Intake

UNITS = Units(np.arange(11), np.linspace(0, 1, 10), np.zeros(10), tuple("abcdefghij"))
NAMED = Names(UNITS.ids)
OTHER = Units(np.arange(3), np.zeros(2), np.zeros(2), ("x", "a"))


def request(number: int, slots: int = 4) -> Request:
    return Request(registration="0" * 64, number=number, round=1, site="s", slots=slots, scale=1.0)


class Maker:
    """Makes different bytes each time and remembers the positions it was given."""

    def __init__(self) -> None:
        self.seen: list[list[int]] = []
        self.links: list[Link] = []

    def __call__(self, first: int, slots: int, link: Link) -> bytes:
        self.links.append(link)
        self.seen.append(list(range(first, first + slots)))
        return f"release {len(self.seen)}".encode()


def answer(
    ledger: Ledger,
    intake: Intake,
    asked: Request,
    rho: float,
    make: Callable[[int, int, Link], bytes],
    *,
    capacity: int | None = None,
    **how: float,
) -> bytes:
    """Answer from one intake."""
    take = Take(intake, asked.slots, capacity)
    return ledger.answer([take], asked, rho, lambda firsts, link: make(firsts[0], asked.slots, link), **how)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with closing(Ledger(tmp_path / "l")) as opened:
        yield opened


def test_spent_units_are_a_prefix_of_the_order(ledger: Ledger) -> None:
    make = Maker()
    intake = ledger.take_in("s", "t", "records", 10, NAMED)
    for number in (1, 2):
        answer(ledger, intake, request(number), 0.1, make)
    assert [*make.seen[0], *make.seen[1]] == list(range(8))
    assert ledger.spent(intake) == 8
    with pytest.raises(FedsrcError, match="2 unspent units and was asked for 4"):
        answer(ledger, intake, request(3), 0.1, make)
    assert ledger.spent(intake) == 8
    answer(ledger, intake, request(4, slots=2), 0.1, make)
    assert sorted(position for each in make.seen for position in each) == list(range(10))


def test_releases_under_a_registration_are_a_chain(ledger: Ledger) -> None:
    """Place and digest of the one before, whatever other registrations had in between; and how many there were."""
    intake, make = ledger.take_in("s", "0" * 64, "records", len(UNITS), NAMED), Maker()
    other = request(9, slots=1).model_copy(update={"registration": "1" * 64})
    fails = {"0" * 64: 0.05, "1" * 64: 0.01}
    first, _, third = (
        answer(ledger, intake, each, 0.1, make, fails=fails.get(each.registration, 0.05))
        for each in (request(1), other, request(2))
    )
    assert answer(ledger, intake, request(1), 0.1, make) == first  # asked again: nothing new
    assert make.links == [Link(1, START, 1), Link(1, START, 2, 0.05), Link(2, digest_bytes(first), 2, 0.01)]
    assert third != first


def test_the_same_request_gives_the_same_bytes_for_ever(tmp_path: Path) -> None:
    make = Maker()
    with closing(Ledger(tmp_path / "l")) as first:
        intake = first.take_in("s", "t", "records", 10, NAMED)
        data = answer(first, intake, request(1), 0.1, make)
    with closing(Ledger(tmp_path / "l")) as again:
        same = again.take_in("s", "t", "records", 10, NAMED)
        assert same == intake
        assert answer(again, same, request(1), 0.1, make) == data
    assert len(make.seen) == 1


def test_a_failure_while_releasing_spends_nothing(ledger: Ledger) -> None:
    intake = ledger.take_in("s", "t", "records", 10, NAMED)

    def fail(first: int, slots: int, link: Link) -> bytes:
        raise RuntimeError("no noise today")

    with pytest.raises(RuntimeError):
        answer(ledger, intake, request(1), 0.1, fail)
    assert ledger.spent(intake) == 0


def test_known_units_are_refused_in_another_table(ledger: Ledger) -> None:
    """At whatever site, and as whatever unit: the site's name and the unit are the registration's word."""
    ledger.take_in("s", "t", "records", 10, Names(UNITS.ids, ["p", "q"]))
    for site, names in [
        ("s", Names(["x", "a"])),
        ("elsewhere", Names(["x", "a"])),
        ("s", Names(None, ["q"])),
        ("s", Names(["new"], ["r", "p"])),
    ]:
        for _ in range(2):  # the refusal leaves no trace
            with pytest.raises(FedsrcError, match="was taken in before, with another table"):
                ledger.take_in(site, "u", "records", 2, names)
    assert ledger.take_in("s", "u", "records", 2, Names(["x", "y"], ["z"])).units == 2


def test_a_table_under_another_site_name_is_the_same_table(ledger: Ledger) -> None:
    """A server that renames the site gets nothing twice."""
    ledger.take_in("north", "t", "records", 10, Names())
    for whole in (True, False):
        with pytest.raises(FedsrcError, match="taken in before, for site 'north'"):
            ledger.take_in("north2", "t", "records", 10, Names(), whole=whole, fresh=True)
    ledger.take_in("a", "several", "records", 3, Names(), whole=False, fresh=True)
    ledger.take_in("b", "several", "records", 4, Names(), whole=False, fresh=True)
    with pytest.raises(FedsrcError, match="taken in before, for site 'a'"):
        ledger.take_in("c", "several", "records", 7, Names(), fresh=True)


def test_development_tables_cannot_calibrate_under_any_name(ledger: Ledger) -> None:
    ledger.take_in("local", "dev", DEVELOPMENT, 10, Names())
    for site in ("local", "north"):
        with pytest.raises(FedsrcError, match="chose thresholds"):
            ledger.take_in(site, "dev", "records", 10, Names(), fresh=True)


def test_the_sites_limit_holds_inside_the_transaction(ledger: Ledger) -> None:
    intake, make = ledger.take_in("s", "t", "records", 10, NAMED), Maker()
    ledger.limit(1.0)
    assert ledger.max_epsilon() == 1.0
    with pytest.raises(FedsrcError, match="more than epsilon 1"):
        answer(ledger, intake, request(1), rho_tight(1.0, 1e-6) * 1.01, make)
    assert (ledger.spent(intake), make.seen) == (0, [])
    answer(ledger, intake, request(1), rho_tight(1.0, 1e-6), make)


def test_a_table_stays_as_it_was_first_cut(ledger: Ledger) -> None:
    ledger.take_in("s", "t", "records", 10, NAMED)
    with pytest.raises(FedsrcError, match="taken in before as 10 units"):
        ledger.take_in("s", "t", "records, without 2 development units by seed 1", 10, NAMED)
    with pytest.raises(FedsrcError, match="another order"):
        ledger.take_in("s", "t", "records", 10, NAMED, in_order=True)


def test_tables_without_common_names_are_not_taken_for_fresh(ledger: Ledger) -> None:
    """An edited copy of a table has another digest: without names in common only the user can say that it is new."""
    ledger.take_in("s", "t", "records", 10, Names(["a"]))
    for names in (Names(), Names(None, ["q"])):
        with pytest.raises(FedsrcError, match="a unit used twice would not be seen"):
            ledger.take_in("s", "u", "records", 2, names)
    assert ledger.take_in("s", "u", "records", 2, Names(), fresh=True).units == 2
    assert ledger.take_in("s", "t", "records", 10, Names(["a"])).units == 10


def test_in_order_is_the_tables_order(ledger: Ledger) -> None:
    intake = ledger.take_in("s", "t", "records", 10, NAMED, in_order=True)
    assert intake.order().tolist() == list(range(10))
    shuffled = ledger.take_in("r", "v", "records", 10, Names(["other"]))
    assert sorted(shuffled.order().tolist()) == list(range(10))


def test_not_a_ledger(tmp_path: Path) -> None:
    (tmp_path / "l").write_text("this is not a database, it only looks like a file of some length" * 50)
    with pytest.raises(FedsrcError, match="cannot be opened as a ledger"):
        Ledger(tmp_path / "l")
