"""How often "at most X in 9 of 10 runs" holds, over development splits of real tables, by `fedsrc forecast` as it is.

Each split sets some records of a table apart, forecasts from them alone, and plays runs on the rest of the table, drawn
with replacement. A forecast without a number claims nothing. Beside it, the same forecast with the development records
taken for the truth, as it would be without the posterior.

Prints a table. Run: python -m research.forecast_coverage DATA_FOLDER [SPLITS] (or set FEDSRC_DATA)
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from fedsrc.data.embedded import TASKS, score_table
from fedsrc.maths.arrays import Floats
from fedsrc.planning.forecast import HORIZON, Forecast, forecast, from_development
from fedsrc.planning.register import Choices, development_part, register
from fedsrc.protocol.registration import Registration
from fedsrc.records.units import Records, units_of
from fedsrc.simulate.population import uniform
from fedsrc.simulate.trials import simulate
from research.benchmarks.ragtruth import FILE
from research.pages import markdown, records_of

SPLITS, RUNS = 200, 10
SETTINGS = tuple(
    product((50, 100, 200, 400), (0.3, 0.2, 0.15, 0.1), (math.inf, 4.0))
)  # development records, target, epsilon
SCORES = ("lift", "lexical", "shortness", "probability")


@dataclass(frozen=True)
class Table:
    """A labelled table: one record for each score and loss."""

    name: str
    score: Floats
    loss: Floats


class Held(NamedTuple):
    """Of one split, the share of runs within the forecast's 9 of 10; None where it gave no number."""

    table: str
    posterior: float | None
    sample: float | None


def tables(folder: Path) -> Iterator[Table]:
    """RAGTruth's test split by detector, and the HaluEval scores that come with the package."""
    path = folder / FILE
    if not path.is_file():
        sys.exit(f"error: there is no {path}\nhint: give the folder that holds {FILE} as argument or in FEDSRC_DATA")
    whole = pl.read_csv(path).filter(pl.col("split") == "test")
    for (name,), part in sorted(whole.group_by("system"), key=lambda each: str(each[0])):
        scores = 1.0 - part["hallucination_score"].to_numpy().astype(np.float64)
        yield Table(f"RAGTruth, {name}", scores, part["unsupported"].to_numpy().astype(np.float64))
    for task, score in product(TASKS, SCORES):
        frame = score_table(task)
        yield Table(
            f"HaluEval {task}, {score}", *(frame[each].to_numpy().astype(np.float64) for each in (score, "loss"))
        )


def held(table: Table, split: int) -> Held:
    """Forecast from one development split, and compare with runs on the rest of the table."""
    rng = np.random.default_rng([split, 17])
    size, target, epsilon = SETTINGS[split % len(SETTINGS)]
    order = rng.permutation(table.score.size)
    development, rest = (_records(table, rows) for rows in (order[:size], order[size:]))
    choices = Choices(target, epsilon, public_development=True)
    registration = register(choices, development, development_part(development, "record", 1.0))
    laws = from_development(registration, development)
    told = [forecast(registration, laws, target, epsilon, seed=split, sampled=sampled) for sampled in (True, False)]
    if all(each.records_90 is None for each in told):
        return Held(table.name, None, None)
    needed = runs(registration, rest, split)
    return Held(table.name, *(_within(each, needed) for each in told))


def runs(registration: Registration, rest: Records, seed: int) -> Floats:
    """Return how many records runs on the rest of a table take, infinity where the horizon was not enough."""
    fields = registration.model_dump()
    fields["schedule"]["rounds"] *= HORIZON
    longer = Registration.model_validate(fields)
    found = simulate(longer, uniform(longer, [units_of(rest, "all", "record")]), trials=RUNS, seed=seed)
    return np.where(found.certified, found.records, np.inf)


def _within(told: Forecast, needed: Floats) -> float | None:
    return None if told.records_90 is None else float(np.mean(needed <= told.records_90))


def _records(table: Table, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Records:
    return records_of(table.score[rows], table.loss[rows], np.zeros(rows.size, np.int64), ["all"])


def row(name: str, found: list[Held]) -> list[str]:
    """Say of how many splits there is a number, and how often it held."""
    cells = [name, str(len(found))]
    for values in ([each.posterior for each in found], [each.sample for each in found]):
        given = [each for each in values if each is not None]
        cells += [str(len(given)), f"{100 * np.mean(given):.0f}%" if given else "–"]
    return cells


def main() -> None:
    named = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("FEDSRC_DATA", "")
    splits, known = int(sys.argv[2]) if len(sys.argv) > 2 else SPLITS, list(tables(Path(named)))
    jobs = [(table, split) for table in known for split in range(splits)]
    with ProcessPoolExecutor() as pool:
        found = list(pool.map(held, *zip(*jobs, strict=True), chunksize=8))
    rows = [row(table.name, [each for each in found if each.table == table.name]) for table in known]
    names = ["table", "splits", "with a number", "9 of 10 holds", "sample as truth: with a number", "9 of 10 holds"]
    print(markdown(names, [*rows, row("all", found)]))


if __name__ == "__main__":
    main()
