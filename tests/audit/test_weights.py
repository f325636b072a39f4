"""Declared weights that differ from site to site, and recruitment by them.

Chance of a false alarm: none, generators are seeded.
Mutants killed: equal weights whatever is declared, weights of another order of sites, a recruiter that asks the sites
in turn, facts of an equal mixture, eta against equal weights, another column's sites.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from fedsrc.audit.cell import Cell, build
from fedsrc.audit.events import happen
from fedsrc.audit.evidence import transfer
from fedsrc.audit.outcomes import Block, rows
from fedsrc.audit.study import Binormal, Population, Printed, Setting, StudyTable
from fedsrc.errors import FedsrcError

SCORED = Binormal(name="p", records=600, unsupported=0.3, auc=0.85, seed=4, about="")
LAW = Printed(name="p", acceptance=(0.8, 0.4), risk=(0.3, 0.1), about="")
SEED = (5, 0)


def cell_of(population: Population = SCORED, **setting: Any) -> Cell:
    given = {"partition": "log-normal", "weights": "by size", "thresholds_from": "support", "batch": 40, **setting}
    return build(Setting(population="p", **given), population, seed=2, folder=Path())


def sizes(cell: Cell) -> Any:
    return np.array([site.law.size for site in cell.sites])


def test_weights_are_shares_of_the_units() -> None:
    cell = cell_of()
    assert np.ptp(sizes(cell)) > 50
    assert cell.registration.weights == pytest.approx(sizes(cell) / 600)
    assert len(set(cell_of(weights="equal").registration.weights or ())) == 1


def test_the_mixture_is_all_units_together() -> None:
    """With weights by size every unit counts the same, whatever site it is dealt to."""
    cell = cell_of()
    facts, pooled = cell.facts(cell.weights), cell_of(sites=1)
    np.testing.assert_allclose(facts.acceptance, pooled.facts(pooled.weights).acceptance, atol=1e-12)
    np.testing.assert_allclose(facts.risk, pooled.facts(pooled.weights).risk, atol=1e-12)
    equal = cell.facts(np.full(5, 0.2))
    assert np.abs(facts.risk - equal.risk).max() > 0.003


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_recruitment_asks_the_site_with_the_largest_deficit(dropout: float) -> None:
    cell = cell_of(policy="recruit", rounds=60, dropout=dropout)
    w = np.asarray(cell.registration.weights)
    events = happen(cell, trials=4, seed=SEED)
    for trial in range(4):
        before, asked = np.zeros(5), []
        for look in range(60):
            deficit = w * before.sum() - before
            best = max(range(5), key=lambda k: (deficit[k], w[k], -k))
            touched = np.flatnonzero(events.answered[trial, look] | events.dropped[trial, look])
            assert touched.tolist() == [best]
            asked.append(best)
            before = events.slots[trial, look].astype(float)
        turns = [k % 5 for k in range(60)]
        assert sorted(asked) != sorted(turns)
        assert transfer(cell.registration, events.slots)[trial, -1] < 0.5 * 5 * 40 / events.records[trial, -1] + 1e-12


def test_shares_and_not_turns_are_reached() -> None:
    """The mixture that recruitment draws comes near the declared one; an equal one is far from it."""
    cell = cell_of(policy="recruit", rounds=200)
    share = happen(cell, trials=1, seed=SEED).slots[0, -1] / (200 * 40)
    assert np.abs(share - np.asarray(cell.registration.weights)).max() < 0.005
    assert np.abs(share - 0.2).max() > 0.1


@pytest.mark.parametrize("policy", ["first", "recruit"])
def test_bounds_hold_and_certificates_come(policy: str) -> None:
    cell = cell_of(policy=policy, matched=True, batch=200, target_risk=0.25, epsilon=4.0, release="default")
    block = Block(cell, happen(cell, trials=20, seed=SEED), SEED)
    found = rows(block, policy, ("fed-src-c", "betting-ladder"), first=0)
    assert found["missed"].sum() == 0
    assert found["fired"].sum() > 20
    assert found["failed"].sum() == 0


def test_a_natural_partition_is_by_the_column_that_is_named(tmp_path: Path) -> None:
    """One site a task, whatever column says it; weights by size are the tasks' shares."""
    frame = pl.DataFrame({
        "score": np.linspace(0, 1, 60), "loss": [0.0, 1.0] * 30, "task": ["a"] * 10 + ["b"] * 20 + ["c"] * 30,
        "site": ["x", "y"] * 30,
    })  # fmt: skip
    frame.write_parquet(tmp_path / "t.parquet")
    setting = Setting(population="p", partition="natural", weights="by size", thresholds_from="support")
    cells = {
        name: build(setting, StudyTable(name="p", table="t.parquet", site=name), seed=2, folder=tmp_path)
        for name in ("site", "task")
    }
    assert sizes(cells["task"]).tolist() == [10, 20, 30]
    assert cells["task"].registration.weights == pytest.approx([1 / 6, 1 / 3, 1 / 2])
    assert sizes(cells["site"]).tolist() == [30, 30]
    with pytest.raises(FedsrcError, match="nowhere"):
        build(setting, StudyTable(name="p", table="t.parquet", site="nowhere"), seed=2, folder=tmp_path)


def test_a_law_without_records_has_no_sizes() -> None:
    with pytest.raises(FedsrcError, match="has no size"):
        cell_of(LAW, partition="iid", thresholds_from="grid")
    with pytest.raises(ValueError, match="moved weight needs declared weights"):
        Setting(population="p", weights="by size", moved=0.1)
