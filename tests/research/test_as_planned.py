"""The paper's studies under the default of today, beside the paper's rule and the old default.

Mutants killed: a planned study of another seed, number of trials, population, split, partition, shift, size or label
error; a default that is not what a plan takes (open with privacy, more looks, exact development records); a setting
left out that a plan could have; sides, releases or policies exchanged; a lost setting not counted or not named; ties
counted as losses; settings that only one side certifies counted as compared; false certificates of another side, or
those of missed labels among the others; made-up laws counted as real answers; development records not counted, or
counted twice; the smallest losses named for the largest.

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
OTHER_UNITS = {"reuse", "halueval"}  # whose thresholds come from calibration scores: they set no development apart


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
            if [row["method"], of.release, of.policy] == ["fed-src-c", foreign, "final"]:
                base.setdefault(tuple(getattr(of, key) for key in keys), {})["paper_end"] = row
        for row in mine:
            of = row["of"]
            plan = "few" if of.objective == "records" else "default"
            side = plan if of.certificate != "plain" else "old" if of.policy == "first" else "end"
            base[tuple(getattr(of, key) for key in keys)][side] = row
        found += [{**each, "of": name, "key": key} for key, each in base.items() if "default" in each]
    return found


ROWS = sides()


def part(start: str, end: str) -> str:
    """What the page says from the one to the other."""
    return " ".join(TEXT.split()).split(start)[1].split(end)[0]


def lines_of(start: str) -> list[list[str]]:
    """The lines of the table after a paragraph that begins so."""
    table = TEXT.split(f"\n\n{start}")[1].split("\n\n")[1]
    return [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]


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


def never(row: dict[str, Any]) -> bool:
    return not row["fired"]


def test_the_lead_counts_what_the_tables_say() -> None:
    sides = ("default", "old", "paper")
    counts = [sum(how(row[side]) for row in ROWS) for how in (never, most) for side in sides]
    assert numbers(
        r"Of (\d+) settings of (\d+) studies, the default never certifies (\d+) \(the old default (\d+), the paper's"
        r" rule (\d+)\)\. It certifies (\d+) in most trials, the old default (\d+), the paper's rule (\d+)\."
    ) == [len(ROWS), len(PAIRS), *counts]


@pytest.mark.parametrize(
    ("other", "called", "end"), [("paper", "the paper's rule", r"\."), ("old", "the old default", ", of which")]
)
def test_the_lead_counts_and_names_every_setting_that_certifies_less_often(other: str, called: str, end: str) -> None:
    pairs = [(row["default"], row[other]) for row in ROWS]
    lost = [(mine, yours) for mine, yours in pairs if mine["fired"] < yours["fired"]]
    more = sum(mine["fired"] > yours["fired"] for mine, yours in pairs)
    assert numbers(rf"Beside {called}, it certifies less often in (\d+) settings, more often in (\d+){end}") == [
        len(lost), more
    ]  # fmt: skip
    shown = [
        line[3:] for line in lines_of("Certified less often") if line[1:3] == [called.removeprefix("the "), "certified"]
    ]
    assert sorted(shown) == sorted([f"{each['fired']}/{each['trials']}" for each in pair] for pair in lost)


def test_the_lead_counts_where_the_one_ahead_has_false_certificates_alone() -> None:
    """Mutants killed: the sides exchanged, certificates that are true counted too."""
    pairs = [(row["default"], row["old"]) for row in ROWS]
    ahead = [max(pair, key=lambda row: row["fired"]) for pair in pairs if pair[0]["fired"] != pair[1]["fired"]]
    false = [row for row in ahead if row["failures"] == row["fired"]]
    mine = sum(any(row is own for own, _ in pairs) for row in false)
    said = numbers(r"are of made-up laws; in (\d+) and (\d+) every certificate of the one ahead is false\.")
    assert said == [len(false) - mine, mine]


def test_the_lead_counts_and_names_where_the_papers_rule_accepts_more() -> None:
    said = numbers(r"it accepts less in (\d+) of (\d+), more in (\d+), with all its events, where the paper's rule")
    assert said == compared("default", "paper", "acceptance")
    said = numbers(r"\(registered, tasks\), the default accepts less in (\d+) of (\d+), more in (\d+)\.")
    assert {row["of"] for row in ROWS if "paper_end" in row} == {"registered", "tasks"}
    assert said == compared("default", "paper_end", "acceptance")


def accepted_less(other: str, among: list[dict[str, Any]]) -> list[tuple[float, float]]:
    pairs = [(row["default"], row[other]) for row in among if other in row]
    both = [(mine["acceptance"], yours["acceptance"]) for mine, yours in pairs if most(mine) and most(yours)]
    return [(mine, yours) for mine, yours in both if mine < yours and not math.isclose(mine, yours)]


@pytest.mark.parametrize("other", ["paper", "paper_end", "old"])
def test_who_stops_early_and_accepts_more_is_named(other: str) -> None:
    shown = [line[3:] for line in lines_of("Certified less often") if line[1:3] == [NAMES[other], "acceptance"]]
    assert sorted(shown) == sorted([f"{each:.3f}" for each in pair] for pair in accepted_less(other, ROWS))


def test_the_largest_losses_after_as_many_events_are_named() -> None:
    less = sorted(accepted_less("end", [row for row in ROWS if as_many(row)]), key=lambda pair: pair[0] - pair[1])
    assert numbers(r"after as many events: the (\d+) largest of (\d+) such settings") == [10, len(less)]
    shown = [line[1:] for line in lines_of("Less acceptance than the old default after as many")]
    assert shown == [[f"{each:.3f}" for each in pair] for pair in less[:10]]


def made_up(row: dict[str, Any]) -> bool:
    return not isinstance(study_of(row["of"]).by_name[row["default"]["of"].population], Demo | StudyTable)


def apart() -> list[list[dict[str, Any]]]:
    """Settings without privacy; with privacy on real answers; with privacy on made-up laws."""
    private = [row for row in ROWS if not math.isinf(row["default"]["of"].epsilon)]
    kinds = [[row for row in private if made_up(row) == way] for way in (False, True)]
    return [[row for row in ROWS if row not in private], *kinds]


def as_many(row: dict[str, Any]) -> bool:
    if not (most(row["default"]) and most(row["end"])):
        return False
    one, other = row["default"]["records"], row["end"]["records"]
    return bool(abs(one - other) <= 1e-3 * max(one, other))


def test_the_lead_says_what_is_made_up() -> None:
    laws = [(row["default"]["fired"], row["old"]["fired"]) for row in ROWS if made_up(row)]
    expected = [sum(mine < yours for mine, yours in laws), sum(mine > yours for mine, yours in laws)]
    assert numbers(r"of which (\d+) and (\d+) are of made-up laws") == expected


def test_the_lead_compares_what_is_accepted_after_as_many_events() -> None:
    first = compared("default", "old", "acceptance")
    assert numbers(r"beside that the default accepts less in (\d+) of (\d+), more in (\d+), with more records") == first
    both = [row for row in ROWS if most(row["default"]) and most(row["end"])]
    assert numbers(r"in most trials \((\d+) settings\)") == [sum(map(as_many, both))]
    parts = [[row for row in each if as_many(row)] for each in apart()] + [[row for row in both if not as_many(row)]]
    kept = [compared("default", "end", "acceptance", each) for each in parts]
    less, count, more = kept.pop()
    unequal = r"In (\d+) more they certify after unequal numbers, and it accepts less in (\d+), more in (\d+)\."
    assert numbers(unequal) == [count, less, more]
    assert numbers(
        r"accepts less without privacy in (\d+) of (\d+), more in (\d+); with privacy on real answers less in (\d+) of"
        r" (\d+), more in (\d+); and with privacy on made-up laws, of which a plan sees exact draws, less in (\d+) of"
        r" (\d+), more in (\d+)\."
    ) == [number for each in kept for number in each]


def test_sizes_are_rounded_by_few_events() -> None:
    """Where both use up their events."""
    both = [row for row in ROWS if most(row["default"]) and most(row["end"]) and as_many(row)]
    gaps = [row["default"]["records"] - row["end"]["records"] for row in both]
    assert max(map(abs, gaps)) == 3.0
    assert "sizes are rounded: by up to 3 events" in " ".join(TEXT.split())


def test_it_takes_all_its_events() -> None:
    """More than whoever stops at its first certificate."""
    pairs = [(row["default"], row[other]) for row in ROWS for other in ("old", "paper")]
    assert all(mine["records"] > yours["records"] for mine, yours in pairs if most(mine) and most(yours))


def test_the_lead_counts_what_few_records_take() -> None:
    names = ("Without privacy it", "with privacy on real answers it", "On made-up laws it")
    for among, called in zip(apart(), names, strict=True):
        fewer, both, more = compared("few", "old", "records", among)
        less, _, larger = compared("few", "old", "acceptance", among)
        pairs = [row for row in among if "few" in row and most(row["few"]) and most(row["old"])]
        gaps = [row["few"]["records"] + LABELLED[row["of"]] - row["old"]["records"] for row in pairs]
        assert numbers(
            called + r" takes more than the old default in (\d+) of (\d+) settings that both certify in most trials,"
            r" fewer in (\d+) \(with development records more in (\d+), fewer in (\d+)\), and accepts less in (\d+),"
            r" more in (\d+)"
        ) == [more, both, fewer, sum(gap > 0 for gap in gaps), sum(gap < 0 for gap in gaps), less, larger]


def test_without_privacy_few_records_may_look_sooner() -> None:
    """After 50 events, where the old default looks after 1,000."""
    free = [row for row in apart()[0] if "few" in row]
    assert {row["default"]["of"].sites * 10 for row in free} == {50}
    assert min(row["old"]["records"] for row in free if row["old"]["fired"]) >= 1_000
    assert "it may look after 50 events, the old default after 1,000" in TEXT


NAMES = {"paper": "paper's rule", "old": "old default", "default": "default", "few": "for few records",
         "end": "old default, all events", "paper_end": "paper's rule, all events"}  # fmt: skip


def lead_names(side: str) -> str:
    return f"{'planned' if side == 'few' else 'of the'} {NAMES[side]}"


def test_the_lead_says_where_held_out_answers_have_a_risk_above_target() -> None:
    said = f" {part('thresholds is above target in ', ' of settings with a certificate')}"
    shown = [line[1:] for line in lines_of("Held-out risk above target.")]
    for side, name in NAMES.items():
        held = [row for row in ROWS if side in row and row[side]["fired"] and row[side]["heldout_accepted"]]
        if side == "paper_end":
            assert not held
            continue
        assert {row["of"] for row in held} == {"c1", "halueval"}
        risks = [
            (row[side]["of"].target_risk, row[side]["heldout_unsupported"] / row[side]["heldout_accepted"])
            for row in held
        ]
        above = [(target, risk) for target, risk in risks if risk > target]
        assert f" {len(above)} of {len(held)} {lead_names(side)}," in said
        expected = [[name, f"{target:.2f}", f"{risk:.3f}"] for target, risk in above]
        assert sorted(line for line in shown if line[0] == name) == sorted(expected)


def test_every_side_says_its_own_false_certificates() -> None:
    said = f" {part('the truth is enumerated: ', ' That is not the same')}".replace(".", ",")
    right, missed = said.split(" more settings labels miss unsupported answers: there")
    shown = [line[1:] for line in lines_of("False certificates, of those issued.")]
    for side, name in NAMES.items():
        here = [row[side] for row in ROWS if side in row]
        for says, among in (
            (f"{right},", [each for each in here if not each["of"].label_missed]),
            (missed, [each for each in here if each["of"].label_missed]),
        ):
            failed, fired = (sum(row[what] for row in among) for what in ("failures", "fired"))
            assert (f" {failed} of {fired:,} {lead_names(side)}," in says) == bool(fired)
        wrong = [[name, f"{row['failures']}/{row['fired']}"] for row in here if row["failures"]]
        assert sorted(line for line in shown if line[0] == name) == sorted(wrong)
    assert right.endswith(f" In {sum(row['default']['of'].label_missed > 0 for row in ROWS)}")


def test_every_setting_stands_on_the_page_with_all_its_sides() -> None:
    for row in ROWS:
        named = [words(each) if isinstance(each, float) else str(each) for each in row["key"]]
        cells = [
            f"{each['fired']}/{each['trials']} | {each['acceptance']:.3f} | {each['records']:,.0f}"
            if each["fired"]
            else f"{each['fired']}/{each['trials']} | – | –"
            for side in NAMES
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
        for side in NAMES:
            for what in ("fired", "failures", "acceptance", "records"):
                assert given[f"{side}_{what}"] == expected.get(side, {}).get(what)
