"""Which record of a study is in which part of its split, and at which site it calibrates.

A study's split is drawn from its seed, so this can be made again at any time; written down, others can use it.

Paper: Appendix "Metrics, communication, and artifact", the three-way split assignments.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from fedsrc.audit.cell import DEAL, SPLIT, Parts, dealt, split
from fedsrc.audit.study import Boundary, Printed, Setting, Study
from fedsrc.audit.study_records import records_of
from fedsrc.records.units import Records, Units

DECIDES = {
    "population", "unit", "size", "thresholds_from", "development_share", "heldout_share", "partition", "beta", "sigma",
    "sites",
}  # fmt: skip
UNUSED = "unused"


def assignments(study: Study, tables: Path) -> pl.DataFrame:
    """Return one row per split and record: its place in the population, its source, its part, its site (from 1).

    Settings with the same split share rows, under the number of the first; laws without records have none.
    """
    parts, seen = [], set[str]()
    for index, setting in enumerate(study.settings):
        population = study.by_name[setting.population]
        key = setting.model_dump_json(include=DECIDES)
        if isinstance(population, Boundary | Printed) or key in seen:
            continue
        seen.add(key)
        records = records_of(population, tables)
        made = split(records, setting, np.random.default_rng([study.seed, SPLIT]))
        parts.append(_rows(records, made, setting, study.seed).select(pl.lit(index).alias("setting"), pl.all()))
    return pl.concat(parts) if parts else pl.DataFrame()


def _rows(records: Records, parts: Parts, setting: Setting, seed: int) -> pl.DataFrame:
    n = len(records)
    part, site = np.full(n, UNUSED, dtype=object), np.zeros(n, dtype=np.int64)
    for name in ("development", "calibration", "heldout"):
        part[_places(getattr(parts, name))] = name
    for k, positions in enumerate(dealt(parts, setting, np.random.default_rng([seed, DEAL]))):
        site[_places(parts.calibration.take(positions))] = k + 1
    named = records.source is not None
    source = [records.source_names[code] for code in records.source] if records.source is not None else [None] * n
    return pl.DataFrame({
        "population": [setting.population] * n, "row": np.arange(n),
        "source": pl.Series(source, dtype=pl.String if named else pl.Null).cast(pl.String),
        "part": part.astype(str), "site": pl.Series(np.where(site > 0, site, -1)).replace(-1, None),
    })  # fmt: skip


def _places(units: Units) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the rows of the table that these units own."""
    return np.zeros(0, dtype=np.int64) if units.rows is None else units.rows
