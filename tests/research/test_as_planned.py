"""The paper's studies under the default of today, beside the paper's rule and the old default.

Mutants killed: a planned study of another seed, number of trials, population, split, partition, shift, size or label
error; a default that is not what a plan takes (open with privacy, more looks, exact development records); a setting
left out that a plan could have; sides, releases or policies exchanged; a lost setting not counted or not named; ties
counted as losses; settings that only one side certifies counted as compared; false certificates of another side;
development records not counted, or counted twice.

Chance of a false alarm: none, it compares published files.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsrc.audit.cell import DEVELOPMENT, SPLIT, split
from fedsrc.audit.study import Demo, Printed, Setting, StudyTable
from fedsrc.audit.study_records import records_of
from fedsrc.planning.plan import Wish
from research.pages import FIGURES, RESULTS, words
from research.studies.as_planned import LABELLED, PAGE, keys_of, rows
from research.studies.catalogue import study_of
from research.studies.results import read_result
from research.studies.sides import AS_PLANNED

TABLES = FIGURES / "studies"
TEXT = (RESULTS / "studies" / PAGE).read_text(encoding="utf-8")
SHARED = (
    "target_risk", "min_acceptance", "failure_probability", "epsilon", "delta", "unit", "draw", "thresholds",
    "development_share", "heldout_share", "develops", "loss_grid",
    "groups", "reading", "charged", "partition", "beta", "sigma", "sites", "size", "weights", "moved", "drift",
    "batch", "rounds", "dropout", "withheld", "label_missed", "label_invented", "adjacency", "aggregation",
    "population",
)  # fmt: skip
PAIRS = [*AS_PLANNED.items()]
OTHER_UNITS = {"reuse"}  # whose thresholds come from the calibration scores: it sets no development records apart


def cell(setting: Setting, *but: str) -> tuple[object, ...]:
    return tuple(getattr(setting, key) for key in SHARED if key not in but)


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
    but = ("develops",) if name in OTHER_UNITS else ()
    able = {cell(each, *but) for each in one.settings if each.policy == "first" and each.queries == 1}
    plans = [each for each in other.settings if each.certificate != "plain"]
    for objective in {each.objective for each in plans}:
        assert {cell(each, *but) for each in plans if each.objective == objective} == able
    own = any(each.release == "default" for each in one.settings)
    for policy, expected in (("final", able), ("first", set() if own else able)):  # the old default on its own release
        plain = [each for each in other.settings if (each.certificate, each.policy) == ("plain", policy)]
        assert {cell(each, *but) for each in plain} == expected


@pytest.mark.parametrize("planned", AS_PLANNED.values())
def test_the_default_is_what_a_plan_takes(planned: str) -> None:
    study = study_of(planned)
    assert study.methods == ("registered",)
    for each in study.settings:
        private = not math.isinf(each.epsilon)
        records = not isinstance(study.by_name[each.population], Printed)
        looks = Wish(objective=each.objective).number_of_looks if private else 1
        source = "noised" if private and records else "development"
        taken = "sealed" if private else "open", looks, source
        found = each.certificate, each.looks, each.thresholds_from
        assert found == (("plain", 1, "development") if each.certificate == "plain" else taken)
        assert (each.release, each.encoding) == ("default", None)
        assert each.policy == "first" or each.certificate == "plain"


def test_development_records_are_counted() -> None:
    """Of studies that plan for few records: as many as the split sets apart."""
    few = {name for name, other in PAIRS if any(each.objective == "records" for each in study_of(other).settings)}
    assert set(LABELLED) == few
    for name in few:
        study = study_of(AS_PLANNED[name])
        for each in study.settings:
            population = study.by_name[each.population]
            if isinstance(population, Printed):
                assert LABELLED[name] == DEVELOPMENT
            elif isinstance(population, Demo):
                records = records_of(population, Path())
                assert LABELLED[name] == len(
                    split(records, each, np.random.default_rng([study.seed, SPLIT])).development
                )
            else:
                assert isinstance(population, StudyTable)
                assert population.about.startswith("839 answers") or population.about.startswith("the same answers")
                assert LABELLED[name] == int(839 * each.development_share)


# ---------------------------------------------------------------- the page, from the published tables


def lines(name: str) -> list[dict[str, Any]]:
    """A published table, with the setting that each line is of."""
    result = read_result(name, TABLES)
    return [
        {**row, "of": result.study.settings[row["setting"]]} for row in result.tables().methods.iter_rows(named=True)
    ]


def sides() -> list[dict[str, Any]]:
    """For every planned setting the lines of all sides, found by their cells and names alone."""
    found = []
    for name, planned in PAIRS:
        study, mine, keys = study_of(name), lines(planned), keys_of(study_of(name))
        own = any(each.release == "default" for each in study.settings)
        foreign = "paper" if any(each.release == "paper" for each in study.settings) else "default"
        shown = [("paper", "fed-src-c", foreign)] + [("old", "betting-ladder", "default")] * own
        base: dict[tuple[object, ...], dict[str, Any]] = {}
        for row in lines(name):
            of = row["of"]
            for side, *what in shown:
                if [row["method"], of.release] == what and of.policy == "first":
                    base.setdefault(tuple(getattr(of, key) for key in keys), {})[side] = row
        for row in mine:
            of = row["of"]
            plan = "few" if of.objective == "records" else "default"
            side = plan if of.certificate != "plain" else "old" if of.policy == "first" else "end"
            base[tuple(getattr(of, key) for key in keys)][side] = row
        found += [{**each, "of": name, "key": key} for key, each in base.items() if "default" in each]
    return found


ROWS = sides()


def most(row: dict[str, Any]) -> bool:
    return bool(row["fired"] * 2 > row["trials"])


def numbers(pattern: str) -> list[int]:
    found = re.search(pattern.replace(" ", r"\s+"), TEXT)
    assert found is not None, pattern
    return [int(each.replace(",", "")) for each in found.groups()]


def compared(one: str, other: str, what: str, among: list[dict[str, Any]] | None = None) -> list[int]:
    """Of those that both certify in most trials: less, all, more."""
    pairs = [(row[one], row[other]) for row in (ROWS if among is None else among) if one in row and other in row]
    both = [(mine[what], yours[what]) for mine, yours in pairs if most(mine) and most(yours)]
    less = sum(a < b and not math.isclose(a, b) for a, b in both)
    return [less, len(both), sum(a > b and not math.isclose(a, b) for a, b in both)]


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
    first = compared("default", "old", "acceptance")
    assert numbers(r"beside that the default accepts less in (\d+) of (\d+), more in (\d+), with more records") == first
    free, private = ([row for row in ROWS if math.isinf(row["default"]["of"].epsilon) == way] for way in (True, False))
    assert numbers(
        r"accepts less without privacy in (\d+) of (\d+), more in (\d+), and with privacy less in (\d+) of (\d+), more"
        r" in (\d+)\."
    ) == [*compared("default", "end", "acceptance", free), *compared("default", "end", "acceptance", private)]
    lost = [tuple(str(row[side]["fired"]) for side in ("default", "old")) for row in ROWS if less_often(row)]
    named = re.findall(r": (\d+) of \d+ beside (\d+)", TEXT.split("more often in")[0])
    assert sorted(named) == sorted(lost)


def less_often(row: dict[str, Any]) -> bool:
    return bool(row["default"]["fired"] < row["old"]["fired"])


def test_the_lead_counts_what_few_records_take() -> None:
    fewer, both, more = compared("few", "old", "records")
    less, _, larger = compared("few", "old", "acceptance")
    assert numbers(
        r"it takes more than the old default in (\d+) of (\d+) settings that both certify in most trials, fewer in"
        r" (\d+), and accepts less in (\d+), more in (\d+)\."
    ) == [more, both, fewer, less, larger]
    pairs = [row for row in ROWS if "few" in row and most(row["few"]) and most(row["old"])]
    gaps = [row["few"]["records"] + LABELLED[row["of"]] - row["old"]["records"] for row in pairs]
    said = numbers(r"with them it takes more in (\d+), fewer in (\d+)\.")
    assert said == [sum(gap > 0 for gap in gaps), sum(gap < 0 for gap in gaps)]


def test_every_side_says_its_own_false_certificates() -> None:
    names = {"paper": "of the paper's rule", "old": "of the old default", "default": "of the default",
             "few": "planned for few records", "end": "of the old default, all events"}  # fmt: skip
    said = TEXT.split("the truth is enumerated: ")[1].split("\n\n")[0]
    for side, name in names.items():
        here = [row[side] for row in ROWS if side in row]
        failed, fired = (sum(row[what] for row in here) for what in ("failures", "fired"))
        found = re.search(rf"(\d+) of ([\d,]+) {name}(?: \((.*?)\))?(?:, \d|\.$)", said)
        assert found is not None, name
        assert [int(each.replace(",", "")) for each in found.groups()[:2]] == [failed, fired]
        where = re.findall(r": (\d+)(?:;|$)", found[3] or "")
        assert [int(each) for each in where] == [row["failures"] for row in here if row["failures"]]


def test_every_setting_stands_on_the_page_with_all_its_sides() -> None:
    for row in ROWS:
        named = [words(each) if isinstance(each, float) else str(each) for each in row["key"]]
        cells = [
            f"{each['fired']}/{each['trials']} | {each['acceptance']:.3f} | {each['records']:,.0f}"
            if each["fired"]
            else f"{each['fired']}/{each['trials']} | – | –"
            for side in ("paper", "old", "default", "few", "end")
            if (each := row.get(side)) is not None
        ]
        section = TEXT.split(f"## {study_of(row['of']).name}\n")[1].split("\n## ")[0]
        assert f"| {' | '.join([*named, *cells])} |" in section


@pytest.mark.parametrize("name", ["reuse", "tasks", "heterogeneity"])
def test_the_code_gives_those_rows(name: str) -> None:
    """The page itself is recomputed in the thorough tests."""
    base, planned = (read_result(each, TABLES) for each in (name, AS_PLANNED[name]))
    found = list(rows(base, planned))
    mine = [row for row in ROWS if row["of"] == name]
    assert len(found) == len(mine)
    for given, expected in zip(found, sorted(mine, key=lambda row: row["default"]["setting"]), strict=True):
        assert tuple(given["key"].values()) == expected["key"]
        for side in ("paper", "old", "default", "few", "end"):
            for what in ("fired", "failures", "acceptance", "records"):
                assert given[f"{side}_{what}"] == expected.get(side, {}).get(what)
