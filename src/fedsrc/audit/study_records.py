"""The records of a study's population: a table's, an embedded table's, or drawn from a surrogate."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
from scipy.special import ndtr, ndtri

from fedsrc.audit.study import Binormal, Demo, StudyTable
from fedsrc.data.embedded import SCORED, TASKS, score_table
from fedsrc.errors import FedsrcError
from fedsrc.records.columns import UNIT, Columns
from fedsrc.records.scan import scan
from fedsrc.records.table import read_records
from fedsrc.records.units import Records
from fedsrc.scores.catalogue import SCORES


def records_of(population: StudyTable | Demo | Binormal, folder: Path) -> Records:
    """Return all records of a population, before any split."""
    if isinstance(population, StudyTable):
        return _table(population, folder / population.table)
    if isinstance(population, Binormal):
        return binormal(population)
    return _embedded(population)


def _embedded(population: Demo) -> Records:
    embedded = (*TASKS, *SCORED)
    tasks = list(TASKS) if population.demo == "all" else [task for task in embedded if task == population.demo]
    if not tasks:
        hint = f"tables: {', '.join(embedded)}, or all"
        raise FedsrcError(f"there is no embedded table {population.demo!r}", hint=hint)
    frames = [score_table(task).with_columns(source=task + ":" + pl.col("source").cast(pl.String)) for task in tasks]
    frame = pl.concat(frames, how="diagonal_relaxed")
    if population.score not in frame.columns:
        raise FedsrcError(f"the embedded tables have no score {population.score!r}")
    names, source = np.unique(frame["source"].to_numpy().astype(str), return_inverse=True)
    score, loss = (frame[name].to_numpy().astype(np.float64) for name in (population.score, "loss"))
    site = np.repeat(np.arange(len(tasks)), [each.height for each in frames])
    return Records(
        "", score, loss, site, tuple(tasks), source.astype(np.int64), tuple(names.tolist()), None, site, tuple(tasks)
    )


def _table(population: StudyTable, path: Path) -> Records:
    named = {word: name for word in ("site", "group") if (name := getattr(population, word)) != word}
    drawn = population.score.rstrip("0123456789").removesuffix("-")  # "semantic-entropy-10": of ten responses
    scale = UNIT if drawn in SCORES else None  # `fedsrc score` writes 1 for the best, whatever the name
    records = read_records(path, columns=Columns(score=population.score, scale=scale, **named))  # others may be absent
    if not population.where:
        return records
    frame = scan(path)[0].collect()
    if strange := set(population.where) - set(frame.columns):
        raise FedsrcError(f"there is no column {min(strange)!r}", where=str(path))
    kept = np.flatnonzero(
        frame.select(pl.all_horizontal(pl.col(k).cast(pl.String) == v for k, v in population.where.items()))
    )
    if kept.size == 0:
        raise FedsrcError(f"population {population.name!r}: no row is left", where=str(path))
    source, group = (None if each is None else each[kept] for each in (records.source, records.group))
    return replace(
        records, score=records.score[kept], loss=records.loss[kept], site=records.site[kept], source=source,
        group=group, ids=None,
    )  # fmt: skip


def binormal(population: Binormal) -> Records:
    """Draw scores Phi(Z + sqrt(2) Phi^-1(auc) (1 - loss)), and exactly the stated share unsupported, rounded."""
    rng = np.random.default_rng([population.seed])
    loss = np.zeros(population.records)
    loss[: round(population.unsupported * population.records)] = 1.0
    score = ndtr(rng.standard_normal(loss.size) + np.sqrt(2.0) * ndtri(population.auc) * (1.0 - loss))
    return Records("", score, loss, np.zeros(loss.size, dtype=np.int64), ("all",), None, (), None)
