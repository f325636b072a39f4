"""The paper's studies under the default of today, beside the paper's rule and the old default.

Mutants killed: a planned study of another seed, number of trials, population, split, partition, shift, size or label
error; a default that is not what a plan takes (open with privacy, more looks, exact development records); a setting
left out that a plan could have; sides, releases or policies exchanged; a lost setting not counted; ties counted as
losses; settings that only one side certifies counted as compared; false certificates of another side.

Chance of a false alarm: none, it compares published files.
"""

from __future__ import annotations

import math
import re
from typing import Any

import polars as pl
import pytest

from fedsrc.audit.study import Demo, Setting, StudyTable
from fedsrc.planning.plan import Wish
from research.pages import FIGURES, RESULTS
from research.studies.as_planned import PAGE, keys_of
from research.studies.catalogue import study_of
from research.studies.sides import AS_PLANNED

TABLES = FIGURES / "studies"
TEXT = (RESULTS / "studies" / PAGE).read_text(encoding="utf-8")
SHARED = (
    "target_risk", "min_acceptance", "failure_probability", "epsilon", "delta", "unit", "draw", "thresholds",
    "development_share", "heldout_share", "partition", "beta", "sigma", "sites", "size", "weights", "moved", "drift",
    "batch", "rounds", "dropout", "withheld", "label_missed", "label_invented", "adjacency", "aggregation",
    "population",
)  # fmt: skip
PAIRS = [*AS_PLANNED.items()]
LAWS = {"privacy-curve", "redeep", "halueval-surrogate"}  # made up: they have no records


def cell(setting: Setting) -> tuple[object, ...]:
    return tuple(getattr(setting, key) for key in SHARED)


@pytest.mark.parametrize(("name", "planned"), PAIRS)
def test_both_studies_have_the_same_cells(name: str, planned: str) -> None:
    """Every setting that a plan can have: it asks all sites in every round, and reads each unit once."""
    one, other = study_of(name), study_of(planned)
    assert (one.seed, one.trials, one.block, one.populations) == (
        other.seed,
        other.trials,
        other.block,
        other.populations,
    )
    able = {cell(each) for each in one.settings if each.policy == "first" and each.queries == 1}
    assert {cell(each) for each in other.settings if each.objective == "acceptance"} == able
    assert {cell(each) for each in other.settings} == able


@pytest.mark.parametrize("planned", AS_PLANNED.values())
def test_the_default_is_what_a_plan_takes(planned: str) -> None:
    study = study_of(planned)
    assert study.methods == ("registered",)
    for each in study.settings:
        private = not math.isinf(each.epsilon)
        records = isinstance(study.by_name[each.population], StudyTable | Demo)
        looks = Wish(objective=each.objective).number_of_looks if private else 1
        found = (each.certificate, each.looks, each.thresholds_from, each.release, each.policy, each.encoding)
        source = "noised" if private and records else "development"
        assert found == ("sealed" if private else "open", looks, source, "default", "first", None)


def test_a_study_that_plans_for_few_records_does_so_in_every_cell() -> None:
    for planned in AS_PLANNED.values():
        few = {cell(each) for each in study_of(planned).settings if each.objective == "records"}
        assert few in (set(), {cell(each) for each in study_of(planned).settings}), planned


# ---------------------------------------------------------------- the page, from the published tables


def lines(name: str) -> list[dict[str, Any]]:
    """A published table, with the setting that each line is of."""
    table = pl.read_csv(TABLES / f"{name}.csv", infer_schema_length=None)
    settings = study_of(name).settings
    return [{**row, "of": settings[row["setting"]]} for row in table.iter_rows(named=True)]


def sides() -> list[dict[str, dict[str, Any]]]:
    """For every planned setting the lines of all sides, found by their cells and names alone."""
    found = []
    for name, planned in PAIRS:
        study, mine = study_of(name), lines(planned)
        own = "default" if any(each.release == "default" for each in study.settings) else "paper"
        foreign = "paper" if any(each.release == "paper" for each in study.settings) else "default"
        old = "betting-ladder" if "betting-ladder" in study.methods else "betting"
        keys = keys_of(study)
        base: dict[tuple[object, ...], dict[str, Any]] = {}
        for row in lines(name):
            of = row["of"]
            for side, method, release in (("paper", "fed-src-c", foreign), ("old", old, own)):
                if (row["method"], of.release, of.policy) == (method, release, "first"):
                    base.setdefault(tuple(getattr(of, key) for key in keys), {})[side] = row
        for row in mine:
            key = tuple(getattr(row["of"], each) for each in keys)
            base[key]["few" if row["of"].objective == "records" else "default"] = row
        found += [each for each in base.values() if "default" in each]
    return found


ROWS = sides()


def most(row: dict[str, Any]) -> bool:
    return bool(row["fired"] * 2 > row["trials"])


def numbers(pattern: str) -> list[int]:
    found = re.search(pattern.replace(" ", r"\s+"), TEXT)
    assert found is not None, pattern
    return [int(each.replace(",", "")) for each in found.groups()]


def compared(one: str, other: str, what: str) -> tuple[int, int, int]:
    pairs = [(row[one], row[other]) for row in ROWS if one in row]
    both = [(mine[what], yours[what]) for mine, yours in pairs if most(mine) and most(yours)]
    return len(both), sum(a < b for a, b in both), sum(a > b for a, b in both)


def test_the_lead_counts_what_the_tables_say() -> None:
    counts = [sum(most(row[side]) for row in ROWS) for side in ("default", "old", "paper")]
    said = numbers(
        r"In (\d+) settings of (\d+) studies, the default certifies (\d+) in most trials, the old default (\d+), the"
        r" paper's rule (\d+)\."
    )
    assert said == [len(ROWS), len(PAIRS), *counts]
    less = sum(row["default"]["fired"] < row["old"]["fired"] for row in ROWS)
    more = sum(row["default"]["fired"] > row["old"]["fired"] for row in ROWS)
    assert numbers(r"It certifies less often in (\d+) settings") == [less]
    assert numbers(r"more often in (\d+)\. It takes all") == [more]
    both, fewer, larger = compared("default", "old", "acceptance")
    assert numbers(r"it then accepts less in (\d+) of (\d+), more in (\d+)\.") == [fewer, both, larger]


def test_the_lead_counts_what_few_records_take() -> None:
    both, fewer, more = compared("few", "old", "records")
    _, less, larger = compared("few", "old", "acceptance")
    assert numbers(
        r"takes more than the old default in (\d+) of (\d+) settings, fewer in (\d+), and accepts less in (\d+),"
        r" more in (\d+)\."
    ) == [more, both, fewer, less, larger]


def test_every_side_says_its_own_false_certificates() -> None:
    said = numbers(
        r"enumerated: (\d+) of ([\d,]+) of the paper's rule, (\d+) of ([\d,]+) of the old default, (\d+) of ([\d,]+) of"
        r" the default, (\d+) of ([\d,]+) planned for few records"
    )
    here = {side: [row[side] for row in ROWS if side in row] for side in ("paper", "old", "default", "few")}
    counts = [sum(row[what] for row in each) for each in here.values() for what in ("failures", "fired")]
    assert said == counts


def test_every_setting_stands_on_the_page_with_all_its_sides() -> None:
    for row in ROWS:
        cells = [
            f"{each['fired']}/{each['trials']} | {each['acceptance']:.3f} | {each['records']:,.0f}"
            if each["fired"]
            else f"{each['fired']}/{each['trials']} | – | –"
            for side in ("paper", "old", "default", "few")
            if (each := row.get(side)) is not None
        ]
        assert f"| {' | '.join(cells)} |" in TEXT
