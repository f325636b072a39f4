"""What held-out answers say of every threshold: accepted, unsupported, and an interval of their risk.

Binary losses have the exact interval, graded ones that of Hoeffding and Bentkus, which is wider. Where a unit is a
source of several answers there is none, for its answers are not independent; where it is an answer, answers count as
independent, also those that share a source.

A threshold's interval holds by itself. A study looks at many thresholds, and picks one by its certificate alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.optimize import brentq

from fedsrc.audit.cell import Cell, build
from fedsrc.audit.methods.ltt import hoeffding_bentkus
from fedsrc.audit.study import Study
from fedsrc.maths.binomial import clopper_pearson

SAME = {"epsilon", "delta", "target_risk", "release", "policy", "rounds", "batch", "queries", "reading", "case"}


def by_threshold(study: Study, tables: Path) -> pl.DataFrame:
    """Return one row per population, split and threshold; none where nothing is held out.

    Settings that differ in what decides neither the split nor the thresholds have the same rows, given once, under the
    number of the first.

    Paper: Table (redeep-full), per-threshold selective-risk intervals.
    """
    rows: list[dict[str, Any]] = []
    seen: set[str] = set()
    for index, setting in enumerate(study.settings):
        key = setting.model_dump_json(exclude={"case"} if setting.thresholds_from == "noised" else SAME)
        if not setting.heldout_share or key in seen:
            continue
        seen.add(key)
        cell = build(setting, study.by_name[setting.population], seed=study.seed, folder=tables)
        rows += [{"setting": index, "population": setting.population, **row} for row in _thresholds(cell)]
    return pl.DataFrame(rows, infer_schema_length=None)


def _thresholds(cell: Cell) -> list[dict[str, Any]]:
    """Return what is held out beside what is calibrated on, for each threshold."""
    if cell.heldout is None:
        return []
    facts = cell.facts(cell.weights)
    return [
        {
            "threshold": value,
            "acceptance": float(facts.acceptance[j]),
            "risk": float(facts.risk[j]),
            "heldout_accepted": int(cell.heldout[0, j]),
            "heldout_unsupported": float(cell.heldout[1, j]),
            **_risk(cell, int(cell.heldout[0, j]), float(cell.heldout[1, j])),
        }
        for j, value in enumerate(cell.registration.thresholds.values)
    ]


def _risk(cell: Cell, accepted: int, unsupported: float) -> dict[str, float | None]:
    """Return the held-out risk, and where units are records its interval."""
    names = ("heldout_risk", "heldout_risk_low", "heldout_risk_high")
    if accepted == 0:
        return dict.fromkeys(names)
    low: float | None
    high: float | None
    if cell.binary:
        low, high = clopper_pearson(round(unsupported), accepted)
    elif cell.setting.unit == "record":
        low, high = bounded_mean(unsupported, accepted)
    else:
        low = high = None
    return dict(zip(names, (unsupported / accepted, low, high), strict=True))


def bounded_mean(total: float, count: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return an interval for the mean of independent losses in [0, 1]: the means that neither Hoeffding-Bentkus test
    rejects, each at half of what may fail."""

    def highest(total: float) -> float:
        def excess(mean: float) -> float:
            p = hoeffding_bentkus(np.asarray([total]), np.asarray([float(count)]), mean)
            return float(p[0]) - (1.0 - confidence) / 2

        return 1.0 if excess(1.0) > 0.0 else float(brentq(excess, total / count, 1.0, xtol=1e-12))

    return 1.0 - highest(count - total), highest(total)
