"""What we say the paper prints is what it prints: research/studies/printed.toml and sizes in our studies.

The golden entries were read from the paper on their own; `_trunc` marks means that it cuts to an integer.
Mutants killed: a digit changed in printed.toml (fired, records) or in a study's size, rows of two epsilons swapped,
records of rounds times another batch.

Chance of a false alarm: none.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from fedsrc.audit.study import Binormal
from research.studies.catalogue import printed, study_of
from tests.support.helpers import golden

SAYS = {entry["id"]: entry["paper"] for entry in golden("paper-numbers.json")["entries"]}
TRIALS, ROUND = 200, 1000  # of the paper: trials a cell, records a round


def row(study: str, **match: Any) -> dict[str, Any]:
    """The paper's figures for one setting, as printed.toml has them."""
    rows = [each for paper in printed(study) for each in paper.rows if each["match"] == match]
    assert len(rows) == 1
    return rows[0]


@pytest.mark.parametrize("study", ["halueval", "halueval-surrogate"])
@pytest.mark.parametrize(
    ("epsilon", "name", "fired"), [(math.inf, "N_he_inf", 200), (8.0, "N_he_8_trunc", 183), (4.0, "N_he_4_trunc", 11)]
)
def test_records_of_the_halueval_curve(study: str, epsilon: float, name: str, fired: int) -> None:
    """The count that fired is that of the exact interval which the paper prints beside it."""
    found = row(study, target_risk=0.2, epsilon=epsilon)
    assert (found["records"], found["fired"]) == (SAYS[name], fired)
    assert f"cp_0_{found['fired']}_lo" in SAYS


@pytest.mark.parametrize(("epsilon", "rate"), [(8.0, "rate62"), (4.0, "rate2")])
def test_the_privacy_curve(epsilon: float, rate: str) -> None:
    assert row("privacy-curve", epsilon=epsilon)["fired"] / TRIALS == SAYS[rate]


def test_records_are_rounds_times_a_thousand() -> None:
    assert row("privacy-curve", epsilon=8.0)["records"] == pytest.approx(SAYS["rounds62"] * ROUND)


def test_records_of_the_redeep_style_curve() -> None:
    assert row("redeep", epsilon=1.0)["records"] == SAYS["N_re_1_trunc"]
    calibrate = SAYS["split_sum"] - 125 - 253
    assert round(row("redeep", epsilon=4.0)["records"] / calibrate) == SAYS["reuse_redeep_eps4"]


@pytest.mark.parametrize("size", [120, 480])
def test_reuse(size: int) -> None:
    assert size in study_of("reuse").sweep["size"]
    assert round(row("reuse", size=size)["records"] / size) == SAYS[f"reuse{size}"]


def test_sizes_of_the_cells() -> None:
    made_up = {each.name: each for each in study_of("registered").populations if isinstance(each, Binormal)}
    sizes = [made_up[f"{name} (surrogate)"].records for name in ("C2", "C3", "C4")]
    assert sizes[1] == SAYS["ragtruth_sum"] == SAYS["split_sum"] + sizes[0] + sizes[2]
    assert {setting.size for setting in study_of("halueval").settings} == {SAYS["halueval_split"] - 320}
