"""What the default certifies with each score, every source used once: a section of docs/results/scores.md.

Run by: python -m research.benchmarks.scores TABLES_FOLDER [DATA_FOLDER]. Split by split in
research/results/scores_once.parquet. Splits and methods are those of `research.studies.sources_once`.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from functools import partial
from multiprocessing import get_context

import numpy as np
import polars as pl

from research.pages import FIGURES, markdown, words
from research.studies.honest import OLD, PAPER, default_at
from research.studies.sources_once import EPSILONS, SCHEMA, VARIANTS, Cell, Method, Table, cell, split
from research.studies.sources_once import OLD as BEFORE

RECORDS = FIGURES / "scores_once.parquet"
SCORES = {"probe": "probe", "window": "window lift", "familiarity": "novelty alone", "lift": "lift"}
TARGETS, SPLITS, JOBS = ("0.3", "0.2", "0.1"), 40, 2
DEFAULT, FIRST = "default", "probe"
TITLE = "### (d) Every source once, by the default"
Cells = dict[tuple[object, ...], Cell]


def tables(frame: pl.DataFrame) -> dict[str, Table]:
    """Every score's table, sources in order with all their answers."""
    rows = frame.sort("source", maintain_order=True)
    starts = np.unique(rows["source"].to_numpy(), return_index=True)[1]
    return {name: Table(rows[name].to_numpy(), rows["loss"].to_numpy().astype(np.float64), starts) for name in SCORES}


def cells(score: str) -> Iterator[tuple[str, float, str, Method]]:
    """Which method is shown at which target and epsilon; those before plans for the best score only."""
    for target in TARGETS:
        for epsilon in EPSILONS:
            yield target, epsilon, DEFAULT, VARIANTS[default_at(epsilon)]
            yield from ((target, epsilon, name, each) for name, each in BEFORE.items() if score == FIRST)


def trials(found: dict[str, Table], task: tuple[str, int]) -> pl.DataFrame:
    """Play one split of one score's table."""
    score, number = task
    data = split(found[score], number)
    rows = [
        (score, target, epsilon, label, number, *method(data, Fraction(target), epsilon))
        for target, epsilon, label, method in cells(score)
    ]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row").rename({"detector": "score"})


def run(frame: pl.DataFrame) -> pl.DataFrame:
    """Play all splits, and keep what each gave."""
    tasks = [(score, number) for score in SCORES for number in range(SPLITS)]
    with ProcessPoolExecutor(JOBS, mp_context=get_context("spawn")) as pool:
        found = pl.concat(pool.map(partial(trials, tables(frame)), tasks, chunksize=5))
    found.write_parquet(RECORDS, compression="zstd", compression_level=19)
    return found


def summed(frame: pl.DataFrame) -> Cells:
    """Every method at every score, target and epsilon over all splits."""
    groups = frame.group_by(["score", "target", "epsilon", "method"], maintain_order=True)
    return {key: cell(part, float(str(key[1]))) for key, part in groups}


def headline(frame: pl.DataFrame) -> str:
    """What leads the page."""
    found = summed(frame)
    each = ";\n".join(
        f"{', '.join(found[FIRST, target, epsilon, DEFAULT].percent for epsilon in EPSILONS)} at target {target}"
        for target in TARGETS
    )
    return f"""\
With every source used once and whole sources protected, the default certifies with the probe's scores, in percent of
{frame["split"].n_unique()} splits at epsilon {", ".join(map(words, EPSILONS))}:
{each}."""


def page(frame: pl.DataFrame) -> list[str]:
    """Return the section, from the outcomes of all splits."""
    found = summed(frame)
    head = ["target risk", "epsilon", *(f"default: {name}" for name in SCORES.values())]
    head += [f"{name}: {SCORES[FIRST]}" for name in (OLD, PAPER)]
    return [about(frame, found), markdown(head, list(_rows(found)))]


def _rows(found: Cells) -> Iterator[list[str]]:
    for target in TARGETS:
        for epsilon in EPSILONS:
            columns = [(score, DEFAULT) for score in SCORES] + [(FIRST, name) for name in (OLD, PAPER)]
            mine = (found[score, target, epsilon, method] for score, method in columns)
            yield [target, words(epsilon), *(" / ".join(each.words) if each.certified else "0" for each in mine)]


def about(frame: pl.DataFrame, found: Cells) -> str:
    mine = [each for key, each in found.items() if key[3] == DEFAULT]
    certified, above = sum(each.certified for each in mine), sum(each.above for each in mine)
    never = sum(not each.certified for each in mine)
    shown = [(each, float(str(key[1]))) for key, each in found.items() if key[3] == DEFAULT]
    beyond = sum((each.risk or 0.0) > target for each, target in shown)
    return f"""\
{TITLE}

The same sources with the answers of all four generators, as [elsewhere](sources-once.md): in each of
{frame["split"].n_unique()} splits a fifth of the sources plans, three fifths calibrate once, a fifth is held out. One
holder; epsilon is for replacing a source with all its answers, where (a) to (c) have it for zero-out. The default is
sealed and planned on one noised release with privacy, open with second moments without. A cell reads *percent of splits
certified / mean acceptance, none counting as 0 / held-out risk of what was certified*, or 0. Of {len(mine)}
combinations of score, target and epsilon {never} were never certified; of {certified:,} certificates {above} have a
held-out risk above target, and pooled over splits {beyond} combinations have. What every split gave is in
`research/results/scores_once.parquet`."""
