"""What we say the paper prints is what it prints: research/studies/printed.toml and sizes in our studies.

The golden entries were read from the paper on their own; `_trunc` marks means that it cuts to an integer. They cover
counts and records of the HaluEval curve, two counts and one round of the privacy curve, and records of two rows each of
the ReDeEP-style curve and of the sweep of reuse. With FEDSRC_PAPER set to the paper's .tex file, not part of the
repository, every row is compared with its table there. Numbers in notes, which are prose, are not compared.

Mutants killed: a digit changed in one of the rows of the golden entries, or in a study's size, rows of two epsilons
swapped, records of rounds times another batch; with the paper's text, any digit of any row, a row left out or doubled.

Chance of a false alarm: none.
"""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from fedsrc.audit.study import Binormal
from research.studies.beside import one_tuple
from research.studies.catalogue import NAMES, contrast_rows, printed, study_of
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


# ---------------------------------------------------------------- row by row, where the paper's text is at hand

Row = dict[str, Any]
COLUMNS = {  # of the paper's tables: what stands in which column
    "privacy": {"fired": 1, "acceptance": 3, "rounds": 5},
    "redeep-full": {"fired": 1, "acceptance": 2, "heldout_risk": 4, "heldout_accepted": 5, "heldout_exceeds": 6,
                    "records": 7},
    "hecurve": {"fired": 1, "acceptance": 2, "heldout_risk": 4, "heldout_accepted": 5, "heldout_interval": 7,
                "heldout_exceeds": 8, "records": 9},
    "dpe": {"fired": 3, "acceptance": 4},
    "dpe, the capital heuristic on 400 rounds": {"fired": 1, "acceptance": 2},
    "reuse": {"fired": 1, "acceptance": 2, "records": 3},
    "eta": {"fired": 3, "acceptance": 4},
    "heterogeneity": {"acceptance": 3},
}  # fmt: skip
PARTITIONS = {
    "IID": "IID", "natural: three tasks": "Natural domain/task", "Dirichlet 0.1": r"Dirichlet $\beta=0.1$",
    "weight moved 0.01": r"Target-mixture shift ($\delta=0.01$)", "moved 0.01": r"Target-mixture shift ($\delta=0.01$)",
    "drift 0": r"Within-client stability ($\gamma=0$)", "moved 0": "IID",
}  # fmt: skip
COMMANDS = {"Fed-SRC-C": r"\FedContrast", "Fed-SRC-VA": r"\FedVA"}


@pytest.fixture(scope="module")
def text() -> str:
    """The paper, without its comments."""
    path = os.environ.get("FEDSRC_PAPER")
    if not path:
        pytest.skip("set FEDSRC_PAPER to the paper's .tex file to compare its tables; it is not part of the repository")
    return re.sub(r"(?<!\\)%.*", "", Path(path).read_text(encoding="utf-8"))


def lines(text: str, label: str) -> dict[str, list[str]]:
    """The rows of one of its tables, by their first cell."""
    (whole,) = (part for part in text.split(r"\begin{table")[1:] if f"\\label{{tab:{label}}}" in part)
    body = whole.split(r"\midrule", 1)[1].split(r"\bottomrule")[0]
    cells = [[cell.strip() for cell in row.split("&")] for row in re.split(r"\\\\", body) if "&" in row]
    found = {re.sub(r"\\midrule|\\multicolumn\{.*\n", "", first).strip(): rest for first, *rest in cells}
    assert len(found) == len(cells)
    return {first: [first, *rest] for first, rest in found.items()}


def first_cell(label: str, match: Row) -> str:
    """How the paper names the row of a setting."""
    if label == "heterogeneity":
        return PARTITIONS[match["case"]]
    if label == "eta":
        kind, value = match["case"].split()
        return rf"$\{'delta' if kind == 'moved' else 'gamma'}={'0.40' if value == '0.4' else value}$"
    if "size" in match:
        return str(match["size"])
    epsilon = match["epsilon"]
    number = r"\infty" if math.isinf(epsilon) else f"{epsilon:g}"
    return f"${number}$" if label.startswith("dpe") or math.isinf(epsilon) else number


def figure(cell: str) -> Any:
    """What a cell holds: a number, an interval, or nothing."""
    if "[" in cell:
        return [float(each) for each in re.findall(r"\d+\.\d+", cell)]
    return None if re.match("none|abstains", cell) else float(cell.partition("/")[0])


TABLES = [
    (name, paper.label.split(" ", 1)[1].removeprefix("validity and ").split(" (")[0], place)
    for name in NAMES
    for place, paper in enumerate(printed(name))
    if paper.rows
]


@pytest.mark.parametrize(("study", "label", "place"), TABLES)
def test_every_row_is_the_papers(text: str, study: str, label: str, place: int) -> None:
    table, paper = lines(text, label.partition(",")[0]), printed(study)[place]
    seen = []
    for row in paper.rows:
        match = row["match"]
        if label == "hecurve" and match["target_risk"] != 0.2:  # in its caption
            continue
        there = table[first_cell(label, match)]
        seen.append(there[0])
        says = {name: figure(there[column]) for name, column in COLUMNS[label].items()}
        if (rounds := says.pop("rounds", None)) is not None:
            says["records"] = round(rounds * ROUND)
        given = {name: value for name, value in row.items() if name != "match"}
        whole = study in ("c1", "halueval")  # where held-out answers are
        assert given == {k: x for k, x in says.items() if x is not None and (whole or "heldout" not in k)}, match
    assert len(seen) == len(set(seen))
    missing = {"Natural domain/task"} if study == "c1-transfer" and label == "heterogeneity" else set()
    assert set(table) - set(seen) == missing


def test_firing_at_other_targets_is_in_the_caption(text: str) -> None:
    caption = re.sub(r"\s+", " ", text)
    assert "The primary target $r_\\star=0.10$ never certifies" in caption
    assert r"all trials certify through $\eps=4$, and 187 of 200 certify at $\eps=2$" in caption
    others = {
        (row["match"]["target_risk"], row["match"]["epsilon"]): row["fired"]
        for row in printed("halueval-surrogate")[0].rows
        if row["match"]["target_risk"] != 0.2
    }
    assert others == {(0.1, math.inf): 0, (0.3, math.inf): 200, (0.3, 8.0): 200, (0.3, 4.0): 200, (0.3, 2.0): 187}


def test_the_stress_test_is_the_papers(text: str) -> None:
    table = lines(text, "contrast")
    assert len(table) == len(contrast_rows())
    for row in contrast_rows():
        there = table[COMMANDS.get(row["name"], row["name"])]
        shares = dict(zip(("inf", "4", "1"), map(figure, there[1:4]), strict=True))
        assert row["acceptance"] == {name: value for name, value in shares.items() if value is not None}
        assert (row["zero"], row["violations"]) == (float(there[5].split()[0]), int(there[6]))


def test_the_tuple_is_the_papers(text: str) -> None:
    (there,) = lines(text, "audit").values()
    names = {"method": pl.String, "release": pl.String, "setting": pl.Int64, "epsilon": pl.Float64}
    (line,) = (
        row for row in one_tuple(pl.DataFrame(schema=names), pl.DataFrame()).splitlines() if row.startswith("| paper")
    )
    _, *cells = (cell.strip() for cell in line.strip("|").split("|"))
    *figures, decision = (each.strip("$") for each in there[1:])
    assert [float(cell.replace(",", "")) for cell in cells[:-1]] == [float(each) for each in figures]
    assert cells[-1] == decision
