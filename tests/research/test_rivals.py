"""What stands first on pages of studies: where ours loses, held-out answers of what was selected, the stress test.

Mutants killed: a loss left out, or a tie counted as one; a control, or exact counts beside a
private release, or another setting taken for a rival; exact counts left out without privacy; one run counted twice; a
method that fires rarely compared in acceptance; an interval of other counts, or of graded losses; a paper's line beside
another epsilon.

Chance of a false alarm: none.
"""

from __future__ import annotations

import math
from typing import Any

import polars as pl
import pytest

from research.studies.catalogue import contrast_rows, printed, study_of
from research.studies.contrast import contrast
from research.studies.rivals import losses
from research.studies.selected import selected


def row(method: str, fired: int, acceptance: float | None, **more: Any) -> dict[str, Any]:
    about = {"case": "IID", "release": "paper", "epsilon": 4.0, "role": "certificate", "trials": 200, "records": 1e3}
    return {**about, "method": method, "fired": fired, "acceptance": acceptance, **more}


def told(rows: list[dict[str, Any]]) -> tuple[str, list[list[str]]]:
    """The sentence, and the cells of the lines below it."""
    said, table = losses("baselines", pl.DataFrame(rows, infer_schema_length=None)).split("\n\n")
    return said, [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_losses_are_said_first() -> None:
    said, lines = told([
        row("betting-ladder", 107, 0.3), row("private-e-values", 197, 0.25), row("nprr", 150, 0.4),
        row("tie", 107, 0.3), row("rare", 90, 0.9), row("no-certificate", 200, 0.9, role="control"),
        row("exact", 200, 0.9, role="reference"),
        row("betting-ladder", 0, None, epsilon=math.inf), row("nprr", 0, None, epsilon=math.inf),
        row("betting-ladder", 200, 0.5, release="default"), row("sparing", 200, 0.5, release="default", records=999.0),
        row("lavish", 200, 0.5, release="default", records=1001.0),
    ])  # fmt: skip
    assert "in 7 comparisons" in said
    assert (
        "it fires less often in 2; where both fire in most trials, it accepts less in 1 and needs more records" in said
    )
    assert "records in 1. Of these 3 lines, 2 are on the paper's release, a foreign one, 1 on its own." in said
    assert [line[3] for line in lines] == ["private-e-values", "nprr", "sparing"]
    assert lines[1] == ["IID", "paper", "4", "nprr", "107/200", "0.300", "1,000", "150/200", "0.400", "1,000"]


def test_without_privacy_exact_counts_are_rivals_and_no_run_counts_twice() -> None:
    free = {"epsilon": math.inf}
    said, lines = told([
        row("betting-ladder", 200, 0.35, **free), row("exact", 200, 0.54, role="reference", **free),
        row("nprr", 200, 0.4, **free), row("nprr-as-registered", 200, 0.4, **free),
    ])  # fmt: skip
    assert "in 2 comparisons" in said
    assert "it accepts less in 2; all take the same records." in said
    assert [line[3] for line in lines] == ["exact", "nprr"]


def test_no_loss_is_no_line() -> None:
    said, lines = told([row("betting-ladder", 200, 0.5), row("nprr", 200, 0.4)])
    assert "it fires less often in 0; where both fire in most trials, it accepts less in 0" in said
    assert lines == []


def held(method: str, release: str, **more: Any) -> dict[str, Any]:
    about = {"target_risk": 0.2, "epsilon": 8.0, "release": release, "method": method, "fired": 100, "auc": 0.7}
    counts = {"heldout_accepted": 40.1, "heldout_unsupported": 3.0, "heldout_exceeds": 0}
    return {**about, **counts, "heldout_exceeds_low": 0.0, "heldout_exceeds_high": 0.036, **more}


def test_held_out_answers_of_what_was_selected() -> None:
    """Three of forty, as the paper prints it: [0.016, 0.204]."""
    table = pl.DataFrame([
        held("fed-src-c", "paper"), held("fed-src-c", "default"), held("betting-ladder", "default", auc=None),
        held("betting-ladder", "default", epsilon=4.0, fired=0),
    ])  # fmt: skip
    text = selected(study_of("halueval"), table, printed("halueval"))
    assert "| 0.2 | 8 | paper | fed-src-c | 100 | 40.1 | 0.075 | [0.016, 0.204] | 0/100 | [0.000, 0.036] |" in text
    assert "| 0.2 | 8 | paper | as printed | 183 | 40.1 | 0.074 | [0.016, 0.204] | – | [0.000, 0.020] |" in text
    assert "| 0.2 | 8 | default | betting-ladder | 100 | 40.1 | 0.075 | – | 0/100 | [0.000, 0.036] |" in text
    assert len(text.splitlines()) == 2 + 2 + 3 + 2
    none = table.with_columns(heldout_accepted=pl.lit(None, dtype=pl.Float64))
    assert selected(study_of("halueval"), none, printed("halueval")) == ""


def test_the_stress_test_names_the_method_that_is_fed() -> None:
    names = dict.fromkeys(name for each in contrast_rows() for name in (each["exact"], each["noised"]))
    rows = [
        {"population": "C1", "method": name, "epsilon": epsilon, "violations": i + int(epsilon == 1.0),
         "zero_certificate_rate": 0.25, "acceptance": None if name == "ratio" else 0.1 + (epsilon == 4.0) / 10}
        for i, name in enumerate(names)
        for epsilon in (math.inf, 4.0, 1.0)
    ]  # fmt: skip
    text = contrast(pl.DataFrame(rows, infer_schema_length=None))
    worst = list(names).index("naive-yu-liu") + 1
    assert (
        "| Yu-Liu | yu-liu / naive-yu-liu | 0.449 | 0.100 | 0.435 | 0.200 | 0.418 | 0.100 | 0.000 | 0.250 | 198 |"
        f" {worst} |"
    ) in text
    assert "| Private stitched ratio | ratio | 0.271 | abstains | abstains | abstains |" in text


@pytest.mark.parametrize("each", contrast_rows(), ids=lambda each: each["name"])
def test_the_stress_study_has_these_methods(each: dict[str, Any]) -> None:
    assert {each["exact"], each["noised"]} <= set(study_of("stress").methods)
