"""What can be certified today, in the paper's regime: the default, the old default and the paper's rule side by side.

Mutants killed: a planned study of another seed, split, schedule, adjacency or number of trials; a default that is not
what a plan takes (open with privacy, more looks, exact development records); sides or policies exchanged; a lost
combination not counted; ties counted as losses; combinations that only one side certifies counted as compared;
development labels left out, or another table's; false certificates of a side left out; other splits of the same seed, a
split or a trial left out of them, their range edited.

Chance of a false alarm: none, it compares published files.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fedsrc.audit.cell import SPLIT, split
from fedsrc.audit.engine import run_task
from fedsrc.audit.study import Demo, Setting, Study
from fedsrc.audit.study_folder import tasks
from fedsrc.audit.study_records import records_of
from fedsrc.planning import open_plan, sealed_plan
from fedsrc.planning.aim import Objective
from fedsrc.planning.plan import Wish
from research.pages import FIGURES, RESULTS
from research.studies.catalogue import path_of, study_of
from research.studies.other_splits import SHIFTS, TRIALS, shifted, side_of
from research.studies.sides import KEYS, PLANNED, SIDES, Compared, compared
from research.studies.split_counts import RECORDS
from research.studies.today import LABELLED

TABLES = FIGURES / "studies"
LEAD = (RESULTS / "studies" / "certified-today.md").read_text(encoding="utf-8").split("## The paper's regime\n\n")[1]
SHARED = (
    "development_share", "heldout_share", "partition", "sites", "batch", "rounds", "weights", "adjacency",
    "aggregation", "draw", "unit", "thresholds", "min_acceptance", "failure_probability", "delta",
)  # fmt: skip


@pytest.mark.parametrize(("name", "planned"), PLANNED.items())
def test_both_studies_are_of_the_same_populations_split_and_sites(name: str, planned: str) -> None:
    one, other = study_of(name), study_of(planned)
    assert (one.seed, one.trials, one.populations) == (other.seed, other.trials, other.populations)
    assert len({tuple(getattr(each, key) for key in SHARED) for each in (*one.settings, *other.settings)}) == 1
    combinations = [{tuple(getattr(each, key) for key in KEYS) for each in study.settings} for study in (one, other)]
    assert combinations[0] == combinations[1]


def expected(setting: Setting) -> tuple[str, int, str, str]:
    """What a plan takes for the case of a setting: certificate, looks, where thresholds come from, objective."""
    private = not math.isinf(setting.epsilon)
    objective: Objective = "records" if setting.case == "few records" else "acceptance"
    looks = Wish(objective=objective).number_of_looks if private else 1
    noised = private and setting.case != "public development"
    return "sealed" if private else "open", looks, "noised" if noised else "development", objective


@pytest.mark.parametrize("planned", PLANNED.values())
def test_the_default_is_what_a_plan_takes(planned: str) -> None:
    settings = study_of(planned).settings
    assert {each.case for each in settings} == {"default", "few records", "public development"}
    for each in settings:
        found = (each.certificate, each.looks, each.thresholds_from, each.objective)
        assert found == expected(each)
        assert (each.release, each.policy, each.encoding) == ("default", "first", None)


def side(method: str, release: str, policy: str) -> pl.DataFrame:
    frames = [pl.read_csv(TABLES / f"{name}.csv", infer_schema_length=None) for name in PLANNED]
    return pl.concat(frames, how="vertical_relaxed").filter(method=method, release=release, policy=policy)


def planned_case(case: str) -> pl.DataFrame:
    frames = [pl.read_csv(TABLES / f"{name}.csv", infer_schema_length=None) for name in PLANNED.values()]
    return pl.concat(frames, how="vertical_relaxed").filter(case=case)


def numbers(pattern: str) -> list[int]:
    found = re.search(pattern, LEAD)
    assert found is not None, pattern
    return [int(each) for each in found.groups()]


def test_the_lead_counts_what_each_certifies() -> None:
    default, old = planned_case("default"), side("betting-ladder", "default", "first")
    paper = side("fed-src-c", "paper", "first")
    assert numbers(r"Of (\d+) combinations of population, target and epsilon, (\d+) were never certified") == [
        default.height, default.filter(fired=0).height,
    ]  # fmt: skip
    most = [each.filter(pl.col("fired") > 50).height for each in (default, old, paper)]
    assert most == numbers(r"certifies (\d+) in most trials; .* does in (\d+), and the paper's rule in (\d+)\.")


def test_the_lead_counts_what_is_lost() -> None:
    both = planned_case("default").join(side("betting-ladder", "default", "final"), on=KEYS, suffix="_old")
    assert numbers(r"certifies less often in (\d+) combinations .*\), more often in (\d+)\.") == [
        both.filter(pl.col("fired") < pl.col("fired_old")).height,
        both.filter(pl.col("fired") > pl.col("fired_old")).height,
    ]
    often = both.filter((pl.col("fired") > 50) & (pl.col("fired_old") > 50))
    less = often.filter(pl.col("acceptance") < pl.col("acceptance_old")).height
    more = often.filter(pl.col("acceptance") > pl.col("acceptance_old")).height
    said = numbers(
        r"it accepts less in (\d+) of the (\d+) combinations that both certify in most trials, more in (\d+)"
    )
    assert said == [less, often.height, more]
    for named, part in (
        ("Without", often.filter(epsilon=math.inf)),
        ("With", often.filter(pl.col("epsilon").is_finite())),
    ):
        less = part.filter(pl.col("acceptance") < pl.col("acceptance_old")).height
        more = part.filter(pl.col("acceptance") > pl.col("acceptance_old")).height
        assert numbers(rf"{named} privacy: less in (\d+) of (\d+), more in (\d+)\.") == [less, part.height, more]


def test_the_lead_says_how_many_thresholds_plans_keep() -> None:
    assert (open_plan.KEPT, max(sealed_plan.KEPT)) == (7, 5)
    assert "An open plan keeps the seven thresholds" in LEAD
    assert "A sealed plan keeps up to five" in LEAD


def test_other_splits_are_those_that_the_page_names() -> None:
    assert [*SHIFTS] == [1000 * i for i in range(1, 10)]
    assert "on nine other splits of every table" in LEAD
    assert "1000, 2000, ..., 9000" in LEAD


@pytest.mark.parametrize(("named", "private"), [("with privacy", True), ("Without privacy", False)])
def test_the_lead_counts_records(named: str, private: bool) -> None:
    few = planned_case("few records").filter((pl.col("epsilon").is_finite() == private) & (pl.col("fired") > 50))
    both = few.join(side("betting-ladder", "default", "first").filter(pl.col("fired") > 50), on=KEYS, suffix="_old")
    read = pl.col("population").replace_strict({name: labelled(name) for name in both["population"].unique()})
    gap, whole = pl.col("records") - pl.col("records_old"), pl.col("records") + read - pl.col("records_old")
    kept = pl.col("acceptance") - pl.col("acceptance_old")
    said = numbers(
        rf"{named} it takes more records than the old default in (\d+) of (\d+) combinations, fewer in (\d+) \(with"
        r" development records more in (\d+), fewer in (\d+)\), and accepts less in (\d+), more in (\d+)"
    )
    counted = [both.filter(each).height for each in (gap > 0, gap < 0, whole > 0, whole < 0, kept < 0, kept > 0)]
    assert said == [counted[0], both.height, *counted[1:]]


def labelled(population: str) -> int:
    return next(count for name, count in LABELLED.items() if population.startswith(name))


def test_development_records_are_counted() -> None:
    """Of HaluEval as the split sets them apart; of RAGTruth a share of 839 answers, and whole sources of six."""
    study = study_of("planned-halueval")
    for each in study.settings:
        population = study.by_name[each.population]
        assert isinstance(population, Demo)
        parts = split(records_of(population, Path()), each, np.random.default_rng([study.seed, SPLIT]))
        assert labelled(population.name) == len(parts.development)
    share = study_of("planned-ragtruth").settings[0].development_share
    assert labelled("RAGTruth QA, mistral") == int(839 * share)
    assert labelled("RAGTruth test, NLI baseline") == 6 * int(450 * share)


def test_the_lead_says_which_certificates_were_false() -> None:
    private = pl.col("epsilon").is_finite()
    for frame, called in (
        (planned_case("default"), "of the default"),
        (planned_case("public development").filter(private), "planned on exact development records, with privacy"),
        (planned_case("few records"), "planned for few records"),
        (side("betting-ladder", "default", "first"), "of the old default"),
        (side("betting-ladder", "default", "final"), "of the old default with all records"),
        (side("fed-src-c", "paper", "first"), "of the paper's rule"),
    ):
        assert f" {frame['failures'].sum()} of {frame['fired'].sum():,} {called}" in LEAD


def test_only_what_both_certify_in_most_trials_is_compared() -> None:
    def row(one: tuple[int, float | None], other: tuple[int, float | None]) -> dict[str, float | None]:
        named = {"a": one, "b": other}
        fired = {f"{name}_fired": each[0] for name, each in named.items()}
        return {**fired, **{f"{name}_trials": 100 for name in named}, **{f"{k}_x": v[1] for k, v in named.items()}}

    rows = [
        row((100, 1.0), (51, 2.0)), row((100, 2.0), (100, 1.0)), row((100, 3.0), (100, 1.0)), row((90, 1.0), (90, 1.0)),
        row((50, 1.0), (100, 2.0)), row((100, 1.0), (0, None)),
    ]  # fmt: skip
    assert compared(rows, ("a", "b"), "x") == Compared(both=4, less=1, more=2)


def test_another_split_has_another_seed_and_fewer_trials() -> None:
    for name in (*PLANNED, *PLANNED.values()):
        text = path_of(name).read_text(encoding="utf-8")
        one, other = Study.from_toml(text), Study.from_toml(shifted(text, 3000))
        assert (other.seed, other.trials) == (one.seed + 3000, TRIALS)
        assert (other.settings, other.populations, other.methods) == (one.settings, one.populations, one.methods)


def test_every_trial_of_every_split_is_kept() -> None:
    frame = pl.read_parquet(RECORDS)
    assert set(frame["shift"]) == {*SHIFTS}
    assert set(frame["side"]) == {*SIDES}
    counted = frame.group_by("shift", "side", *KEYS).agg(pl.col("trial").n_unique().alias("trials"), pl.len())
    assert (counted["trials"] == TRIALS).all()
    assert (counted["len"] == TRIALS).all()
    public = pl.col("side") == "public"  # without privacy that is the default
    assert counted.filter(~public).height == len(SHIFTS) * (len(SIDES) - 1) * 135
    assert counted.filter(public).height == len(SHIFTS) * 108


def test_the_lead_says_how_splits_differ() -> None:
    often = (pl.col("fired").sum() * 2 > TRIALS).alias("often")
    frame = pl.read_parquet(RECORDS).group_by("shift", "side", *KEYS).agg(often)
    most = {}
    for name in ("paper", "old", "default"):
        others = frame.filter(side=name).group_by("shift", maintain_order=True).agg(pl.col("often").sum()).sort("shift")
        most[name] = others["often"].to_list()
    for name, called in (("paper", "the paper's rule"), ("old", "the old default"), ("default", "the default")):
        assert numbers(rf"by {called} (\d+) to (\d+)[, .]") == [min(most[name]), max(most[name])]
    fewer = sum(one < other for one, other in zip(most["default"], most["old"], strict=True))
    assert numbers(r"On (\d+) others \(") == [len(SHIFTS)]
    assert numbers(r"fewer than the old default in (\d+) of these (\d+)") == [fewer, len(SHIFTS)]


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["today-halueval", "planned-halueval"])
def test_other_splits_are_what_the_studies_give(name: str) -> None:
    """A block of one split, run again."""
    shift = SHIFTS[4]
    text = shifted(path_of(name).read_text(encoding="utf-8"), shift)
    study = Study.from_toml(text)
    task = tasks(study)[-1]
    again = pl.read_parquet(run_task(text, "", task).data)
    for (index, method), part in again.group_by("setting", "method"):
        setting = study.settings[int(str(index))]
        if (called := side_of(setting, str(method))) is None:
            continue
        named = {"shift": shift, "side": called, **{key: getattr(setting, key) for key in KEYS}}
        kept = pl.read_parquet(RECORDS).filter(**named).sort("trial")
        for column in ("fired", "failed", "records"):
            assert part.sort("trial")[column].equals(kept[column]), (named, column)
