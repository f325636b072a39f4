"""The page of attacks is what its records say, and every section can be measured again.

Mutants killed: a figure edited in the page, a section without a record, a control that no longer fails, a section that
shows something else than it measured, refusals that are told by words or by a status which nothing says any more.
Chance of a false alarm: none for the page; of a section at a small size, that of the noise being refused (1e-4 a run at
most) where it draws real noise.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from research.attacks import decisions, units
from research.attacks.neighbours import case
from research.attacks.page import PAGE, SECTIONS, page
from research.attacks.sections import RECORDS, Record, Section, keep, kept
from research.attacks.server import attempts
from research.pages import RESULTS

SMALL = {"units": 0.004, "membership": 0.005, "ledger": 0.02, "server": 0.01, "decisions": 0.05, "service": 0.001,
         "faults": 0.008}  # fmt: skip


def test_the_page_is_what_its_records_say() -> None:
    assert page() == (RESULTS / PAGE).read_text(encoding="utf-8")
    assert sorted(path.stem for path in RECORDS.glob("*.json")) == sorted(section.name for section in SECTIONS)


def test_a_record_is_kept_as_it_is(tmp_path: Path) -> None:
    record = {"a": 1, "b": [0.1, None, "x"], "c": {"d": True}}
    keep("name", record, tmp_path)
    assert kept("name", tmp_path) == record


def test_pairs_are_counted_by_what_they_are() -> None:
    kinds = {units.kind_of(number) for number in range(60)}
    assert len({kind[:3] for kind in kinds}) == 8
    assert units.kind_of(3).unit == case(3).registration.privacy.unit


def test_a_server_that_cheats_is_refused_or_charged(tmp_path: Path) -> None:
    """Attack V1, one by one, with real files, keys and ledgers: what is not refused abstains."""
    for what, said in attempts(tmp_path).items():
        assert said.startswith(("the transcript breaks the protocol: ", "ABSTAIN")), what


def test_certificates_are_not_thrown_away() -> None:
    """Attack V2: the control is the rule that did."""
    found = decisions.thrown_away(0, 200, Path())
    assert (found["now"], found["old"] > 0) == (0, True)


def test_no_row_left_twice() -> None:
    """Attacks P2, P4: what the page says was measured, and the control that fails."""
    record = kept("ledger")
    assert (record["now"]["sequences"], record["now"]["twice"]) == (500, 0)
    assert record["old"]["twice"] > 0


def asked(record: Record) -> int:
    """How often a person was asked whether a copy's units are new."""
    return sum(each["asked"] for name, each in record["now"]["moves"].items() if name != "honest: new rows")


def refused(record: Record) -> bool:
    """Whether every strange file was refused, none of them as a crash."""
    return {each["exit"] for each in record["files"]} == {1}


def test_who_is_refused_and_who_is_asked() -> None:
    """What decides is what is said and which status there is: if those change, a figure must not become empty."""
    assert asked(kept("ledger")) > 1000
    assert refused(kept("service"))


@pytest.mark.thorough
@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.name)
def test_a_section_can_be_measured_again(section: Section, tmp_path: Path) -> None:
    record = section.run(SMALL[section.name])
    keep(section.name, record, tmp_path)
    assert kept(section.name, tmp_path) == json.loads(json.dumps(record))
    assert all(all(row) for row in section.rows(record))
    assert all(section.more(record))
    assert section.name != "ledger" or asked(record)
    assert section.name != "service" or refused(record)
