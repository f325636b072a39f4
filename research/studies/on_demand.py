"""RAGTruth test, each source once and protected whole: labels on demand, planned on one noised release.

Run: python -m research.studies.on_demand DATA_FOLDER [TRIALS [JOBS]]; the folder has ragtruth/detector_scores.csv.gz.
Writes, trial by trial, research/results/on_demand.parquet, which the page of what can be certified today reads.

Splits are those of `sources_once`, the plan is for few labels as in `labels_needed`; here it sees no more of the
development sources than the default does.
"""

from __future__ import annotations

import math
import sys
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import polars as pl

from fedsrc.simulate.posterior import from_release, from_units
from research.pages import FIGURES
from research.studies import sources_once
from research.studies.labels_needed import WAYS, Outcome, played
from research.studies.sources_once import EPSILONS, TARGETS, THRESHOLDS, Split

TRIALS, WAY = 100, WAYS["on demand"]
RECORDS = FIGURES / "on_demand.parquet"
SCHEMA = {
    "detector": pl.String, "target": pl.String, "epsilon": pl.Float64, "split": pl.Int64, "every": pl.Int64,
    "certified": pl.Boolean, "labels": pl.Int64, "development": pl.Int64, "acceptance": pl.Float64,
    "held_out": pl.Float64, "held_out_unsupported": pl.Float64,
}  # fmt: skip


def play(data: Split, target: Fraction, epsilon: float) -> Outcome:
    """Plan on the development part as the default does, and label round by round up to the first certificate."""
    rng = np.random.default_rng([data.number, 22])
    if math.isinf(epsilon):
        return played(data, from_units(*data[0], rng), WAY, target, epsilon, rng)
    release = sources_once.development(data, epsilon, rng)
    thresholds = release.thresholds(THRESHOLDS)
    known = from_release(release, thresholds, rng)
    return played(data.at(np.array(thresholds)), known, WAY, target, epsilon, rng)


def trials(folder: Path, task: tuple[str, int]) -> pl.DataFrame:
    """Play one split of a detector's table at every target and epsilon; `every` counts answers if all are labelled."""
    name, number = task
    data = sources_once.split(sources_once.read(folder)[name], number)
    sizes = np.diff(data.table.starts, append=data.table.score.size)
    every = int(sizes[np.concatenate(data.parts[:2])].sum())
    found = [
        (name, target, epsilon, number, every, *play(data, Fraction(target), epsilon))
        for target in TARGETS
        for epsilon in EPSILONS
    ]
    return pl.DataFrame(found, schema=SCHEMA, orient="row")


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit("error: no data folder\nhint: the first argument is the folder that holds ragtruth/")
    folder, (count, jobs) = Path(sys.argv[1]), (*map(int, sys.argv[2:4]), *(TRIALS, 2)[len(sys.argv) - 2 :])[:2]
    tasks = [(name, number) for name in sources_once.read(folder) for number in range(count)]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        frame = pl.concat(pool.map(partial(trials, folder), tasks, chunksize=2))
    frame.write_parquet(RECORDS, compression="zstd", compression_level=19)


if __name__ == "__main__":
    main()
