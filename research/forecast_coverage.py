"""How often "at most X in 9 of 10 runs" holds, over development splits of real tables, by `fedsrc forecast` as it is.

Each split sets some records of a table apart, forecasts from them alone, and plays runs on the rest of the table, drawn
with replacement. A forecast without a number claims nothing. Beside it, the same forecast with the development records
taken for the truth, as it would be without the posterior.

Writes docs/results/forecast-coverage.md and, split by split, research/results/forecast_coverage.parquet.
Run: python -m research.forecast_coverage DATA_FOLDER [SPLITS] (or set FEDSRC_DATA)
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

import numpy as np
import polars as pl

from fedsrc.data.embedded import TASKS, score_table
from fedsrc.maths.arrays import Floats
from fedsrc.planning.forecast import HORIZON, forecast, from_development
from fedsrc.planning.register import Choices, development_part, register
from fedsrc.protocol.registration import Registration
from fedsrc.records.units import Records, units_of
from fedsrc.simulate.population import uniform
from fedsrc.simulate.trials import simulate
from research.benchmarks.ragtruth import FILE
from research.pages import FIGURES, markdown, publish, records_of

SPLITS, RUNS = 200, 10
SETTINGS = tuple(
    product((50, 100, 200, 400), (0.3, 0.2, 0.15, 0.1), (math.inf, 4.0))
)  # development records, target, epsilon
SCORES = ("lift", "lexical", "shortness", "probability")
RECORDS = FIGURES / "forecast_coverage.parquet"
SCHEMA = {
    "table": pl.String(), "split": pl.Int32(), "development": pl.Int32(), "target": pl.Float64(),
    "epsilon": pl.Float64(), "posterior": pl.Int64(), "sample": pl.Int64(), "runs": pl.List(pl.Int64()),
}  # fmt: skip  # what the two forecasts said of 9 of 10 runs, if they gave a number; records of runs that certified
Row = tuple[str, int, int, float, float, int | None, int | None, list[int | None] | None]


@dataclass(frozen=True)
class Table:
    """A labelled table: one record for each score and loss."""

    name: str
    score: Floats
    loss: Floats


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


def held(table: Table, split: int) -> Row:
    """Forecast from one development split and, where that gave a number, run on the rest of the table."""
    rng = np.random.default_rng([split, 17])
    size, target, epsilon = SETTINGS[split % len(SETTINGS)]
    order = rng.permutation(table.score.size)
    development, rest = (_records(table, rows) for rows in (order[:size], order[size:]))
    choices = Choices(target, epsilon, public_development=True)
    registration = register(choices, development, development_part(development, "record", 1.0))
    laws = from_development(registration, development)
    posterior, sample = (
        forecast(registration, laws, target, epsilon, seed=split, sampled=sampled).records_90
        for sampled in (True, False)
    )
    needed = None if posterior is None and sample is None else runs(registration, rest, split)
    return table.name, split, size, target, epsilon, posterior, sample, needed


def runs(registration: Registration, rest: Records, seed: int) -> list[int | None]:
    """Return how many records runs on the rest of a table take, None where the horizon was not enough."""
    fields = registration.model_dump()
    fields["schedule"]["rounds"] *= HORIZON
    longer = Registration.model_validate(fields)
    found = simulate(longer, uniform(longer, [units_of(rest, "all", "record")]), trials=RUNS, seed=seed)
    return [int(n) if sure else None for sure, n in zip(found.certified, found.records, strict=True)]


def _records(table: Table, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Records:
    return records_of(table.score[rows], table.loss[rows], np.zeros(rows.size, np.int64), ["all"])


def within(part: pl.DataFrame, told: str) -> list[str]:
    """Say of how many splits a forecast gave a number, and how many of their runs took at most that."""
    given = part.drop_nulls(told).explode("runs")
    held = given.select((pl.col("runs") <= pl.col(told)).fill_null(value=False)).to_series()
    return [str(len(given) // RUNS), f"{100 * held.sum() / len(held):.0f}%" if len(held) else "–"]


def row(name: str, part: pl.DataFrame) -> list[str]:
    return [name, str(part.height), *within(part, "posterior"), *within(part, "sample")]


def page(frame: pl.DataFrame) -> list[str]:
    """Return the page's parts, from what every split and its runs gave."""
    rows = [row(str(name), part) for (name,), part in frame.group_by("table", maintain_order=True)]
    head = HEAD.format(splits=frame["split"].n_unique(), tables=len(rows))
    return [head, markdown(HEADER, [*rows, row("all", frame)])]


def main() -> None:
    named = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("FEDSRC_DATA", "")
    splits, known = int(sys.argv[2]) if len(sys.argv) > 2 else SPLITS, list(tables(Path(named)))
    jobs = [(table, split) for table in known for split in range(splits)]
    with ProcessPoolExecutor() as pool:
        found = list(pool.map(held, *zip(*jobs, strict=True), chunksize=8))
    frame = pl.DataFrame(found, schema=SCHEMA, orient="row")
    frame.write_parquet(RECORDS, compression="zstd", compression_level=19)
    publish("forecast-coverage.md", page(frame))


HEADER = ("table", "splits", "with a number", "9 of 10 holds", "sample as truth: with a number", "9 of 10 holds")

HEAD = f"""\
# How often a forecast's "9 of 10" holds

Made by

    python -m research.forecast_coverage FOLDER

What every split gave, and every run on the rest of its table, is in `research/results/forecast_coverage.parquet`.

{{splits}} development splits of each of {{tables}} real tables, {RUNS} runs on the rest of the table for every split
with a number: how often the run took at most what the forecast said for 9 of 10 runs. Splits take turns with 50 to 400
development records, targets from 0.3 to 0.1, and no noise or epsilon 4. Beside it, the sample taken for the truth. A
number is given only where the development records are at least four times the information limit at their own rates. On
tables where certifying is hard, fewer would give numbers to lucky splits alone, and too low ones; now and then a very
lucky split of such a table can still give one. The factor was chosen on other splits of the same tables."""


if __name__ == "__main__":
    main()
