"""What it costs to protect the units that choose thresholds: noised quantiles beside exact ones and a public grid.

Writes docs/results/development.md and, trial by trial, research/results/development.parquet.
Run: python -m research.benchmarks.development_cost DATA_FOLDER (or set FEDSRC_DATA)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
from scipy.special import ndtr, ndtri

from fedsrc.maths.arrays import Floats
from fedsrc.maths.basis import Basis
from fedsrc.maths.quantiles import noised_quantiles, score_grid
from fedsrc.planning.register import Choices, development_part, draft, register
from fedsrc.planning.thresholds import quantile_thresholds
from fedsrc.protocol.mechanism import development_mechanism
from fedsrc.protocol.protection import Noised, Privacy
from fedsrc.protocol.registration import Registration
from fedsrc.records.units import Records, units_of
from fedsrc.simulate.population import truth, uniform
from fedsrc.simulate.trials import discrete_gaussian, simulate
from fedsrc.site.develop import development_masses, over_grid
from research.benchmarks import population_l, ragtruth
from research.pages import FIGURES, markdown, publish, records_of

TRIALS, CAP, LAST, BATCH = 200, 30_000, 10_000, 200  # each trial has a development part of its own
EPSILONS = (4.0, 1.0)
Way = Literal["exact", "noised", "grid"]
WAYS: tuple[Way, ...] = ("exact", "noised", "grid")
Found = tuple[Records, Records]  # development and calibration records
GRIDS = ("even, 19 points", "even, 99", "even, 999", "ours, unmixed", "ours", "exact quantiles", "no record")
RECORDS = FIGURES / "development.parquet"
KEYS = ("table", "population", "units", "target", "epsilon", "way", "trial")
SCHEMA = {
    "table": pl.String(), "population": pl.String(), "units": pl.Int32(), "target": pl.Float64(),
    "epsilon": pl.Float64(), "way": pl.String(), "trial": pl.Int32(), "thresholds": pl.Int16(), "records": pl.Int32(),
    "accepted": pl.Float64(), "risk": pl.Float64(), "step": pl.Float64(),
}  # fmt: skip  # the first table's trials, and the second's with the step of acceptance alone


@dataclass(frozen=True)
class Population:
    """A named population: for every number a development part, and the records that calibrate."""

    name: str
    units: int
    target: float
    draw: Callable[[int], Found]


@dataclass(frozen=True)
class Run:
    """One trial: its thresholds, records until its first certificate, and what it accepts once LAST are used."""

    thresholds: int
    records: int | None  # None: it abstains
    accepted: float  # true share; 0 where it abstains
    risk: float  # of the certified threshold; 0 where it abstains


def synthetic(units: int, target: float) -> Population:
    """Population L: its own calibration records, and so many fresh draws of its law that choose thresholds."""
    calibration = population_l.population(0).calibration
    return Population("L", units, target, lambda number: (drawn(units, number), calibration))


def drawn(units: int, number: int) -> Records:
    """Fresh draws of the law of population L."""
    rng = np.random.default_rng([7, units, number])
    loss = (rng.random(units) < 0.41).astype(np.float64)
    score = ndtr(rng.standard_normal(units) + np.sqrt(2.0) * ndtri(0.74) * (1.0 - loss))
    return records_of(score, loss, np.zeros(units, np.int64), ("all",))


def real(folder: Path, target: float) -> Population:
    """RAGTruth's test split, responses as units, another fifth of the sources for every number."""
    table = ragtruth.read(folder)

    def draw(number: int) -> Found:
        split = ragtruth.split(table, number, "record")
        return split.development, split.calibration

    return Population("RAGTruth", len(draw(0)[0]), target, draw)


def registered(way: Way, found: Found, target: float, epsilon: float, number: int) -> Registration:
    """A registration from development records in one of three ways."""
    records, names = found[0], found[1].site_names
    choices = Choices(
        target, epsilon, independent=True, batch=BATCH, rounds=CAP // (BATCH * len(names)), grid=way == "grid",
        exact_thresholds=True, public_development=way == "exact", adjacency="zero-out",
    )  # fmt: skip
    part = development_part(records, "record", 1.0)
    release = None
    if way == "noised":
        release = seeded(draft(choices, records, part, sites=names), records, number)
    return register(choices, records, part, sites=names, release=release)


def seeded(made: Registration, records: Records, number: int) -> Noised:
    """A development release with noise that can be drawn again, for a study."""
    grid, part = over_grid(made), development_part(records, "record", 1.0)
    rule = grid.mechanism
    exact = rule.basis.encode(development_masses(grid, records, part))
    noise = discrete_gaussian(np.random.default_rng([11, number]), rule.scale, exact.shape)
    first, second = (exact + noise).tolist()
    points = grid.thresholds.values
    return Noised(privacy=made.privacy, units=len(records), grid=points, scale=rule.scale, first=first, second=second)


def trial(population: Population, way: Way, epsilon: float, number: int) -> Run:
    """Thresholds in one way; a run to its first certificate, and one that decides after LAST records."""
    found = population.draw(number)
    registration = registered(way, found, population.target, epsilon, number)
    sites = uniform(registration, [units_of(found[1], name, "record") for name in found[1].site_names])
    first = simulate(registration, sites, trials=1, seed=number)
    schedule = registration.schedule.model_copy(update={"policy": "final", "rounds": LAST // (BATCH * len(sites))})
    last = simulate(registration.model_copy(update={"schedule": schedule}), sites, trials=1, seed=number)
    exact, chosen = truth(registration, sites, [1 / len(sites)] * len(sites)), int(last.threshold[0])
    accepted, risk = (exact.acceptance[chosen], exact.risk[chosen]) if last.certified[0] else (0.0, 0.0)
    records = int(first.records[0]) if first.certified[0] else None
    return Run(len(registration.thresholds.values), records, float(accepted), float(risk))


def cost_trials(populations: Sequence[Population]) -> Iterator[tuple[object, ...]]:
    """Run the trials of the first table."""
    for each in populations:
        for epsilon in EPSILONS:
            for way in WAYS:
                for number in range(TRIALS):
                    setting = ("cost", each.name, each.units, each.target, epsilon, way, number)
                    yield (*setting, *astuple(trial(each, way, epsilon, number)), None)


def cost_rows(frame: pl.DataFrame) -> Iterator[list[str]]:
    """One row for each population, epsilon and way."""
    cells = frame.filter(pl.col("table") == "cost").group_by(KEYS[1:-1], maintain_order=True)
    for (name, units, target, epsilon, way), part in cells:
        thresholds, used, accepted = (part[each].to_numpy() for each in ("thresholds", "used", "accepted"))
        yield [
            str(name), f"{units}", f"{target:g}", f"{epsilon:g}", str(way), f"{thresholds.mean():.0f}",
            f"{part.height - part['records'].null_count()}", f"{used.mean():,.0f}", f"{np.median(used):,.0f}",
            f"{(accepted > 0).sum()}", f"{accepted.mean():.3f}", f"{(part['risk'] > part['target']).sum()}",
        ]  # fmt: skip


def step(score: Floats, thresholds: Sequence[float]) -> float:
    """The mean step of acceptance around a random answer: 1/21 for 20 perfect quantiles, 1 for no threshold at all."""
    shares = [1.0, *((score >= x).mean() for x in thresholds), 0.0]
    return float(sum((a - b) ** 2 for a, b in pairwise(shares)))


def spread(score: Floats, x: Floats, units: int, epsilon: float, *, mixed: bool) -> list[float]:
    """The steps of noised quantiles over a grid, in draws of so many units; without mixing, or with."""
    rng, rule = np.random.default_rng(5), development_mechanism(Privacy(epsilon=epsilon, adjacency="zero-out"), x.size)
    basis: Basis = rule.basis
    v = 2 * rule.unit_variance * float(basis.variance_factor().max())
    found = []
    for _ in range(100):
        counts = np.bincount(np.searchsorted(x, rng.choice(score, units), side="right"), minlength=x.size + 1)
        noise = rule.scale * rng.standard_normal((2, x.size)).sum(axis=0)
        A = basis.decode(basis.encode(counts) + noise)
        found.append(step(score, noised_quantiles(x, A, units, v if mixed else 0.0, 20)))
    return found


def exact_spread(score: Floats, units: int) -> list[float]:
    rng = np.random.default_rng(5)
    return [step(score, quantile_thresholds(rng.choice(score, units), 20)) for _ in range(100)]


def grid_steps(score: Floats, units: int, epsilon: float) -> list[list[float]]:
    """Return the steps of every draw for each of GRIDS; one where no record is read."""
    ours, grids = np.asarray(score_grid()), [np.arange(1, n) / n for n in (20, 100, 1000)]
    even = [spread(score, x, units, epsilon, mixed=True) for x in grids]
    own = [spread(score, ours, units, epsilon, mixed=mixed) for mixed in (False, True)]
    return [*even, *own, exact_spread(score, units), [step(score, [j / 21 for j in range(1, 21)])]]


def grid_trials(scores: dict[str, Floats]) -> Iterator[tuple[object, ...]]:
    """Draw what the second table shows."""
    for name, score in scores.items():
        for units in (100, 500):
            for epsilon in EPSILONS:
                for way, steps in zip(GRIDS, grid_steps(score, units, epsilon), strict=True):
                    for number, each in enumerate(steps):
                        yield ("grid", name, units, None, epsilon, way, number, *(None,) * 4, each)


def grid_rows(frame: pl.DataFrame) -> Iterator[list[str]]:
    """One row for each table of scores, number of units and epsilon."""
    cells = frame.filter(pl.col("table") == "grid").group_by("population", "units", "epsilon", maintain_order=True)
    for (name, units, epsilon), part in cells:
        means = [part.filter(pl.col("way") == way)["step"].to_numpy().mean() for way in GRIDS]
        yield [str(name), f"{units}", f"{epsilon:g}", *(f"{x:.3f}" for x in means)]


def page(frame: pl.DataFrame) -> list[str]:
    """Return the page's parts, from the outcomes of all trials."""
    counted = frame.with_columns(used=pl.col("records").fill_null(CAP))
    costs, grids = markdown(COST_HEADER, cost_rows(counted)), markdown(GRID_HEADER, grid_rows(frame))
    return [HEAD, costs, READING, grids, GRID_READING]


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("FEDSRC_DATA", "data"))
    populations = [synthetic(125, 0.2), synthetic(500, 0.2), real(folder, 0.2), real(folder, 0.1)]
    scores = {"L": drawn(20_000, 0).score, "RAGTruth": ragtruth.read(folder).score}
    rows = [*cost_trials(populations), *grid_trials(scores)]
    frame = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    frame.write_parquet(RECORDS, compression="zstd", compression_level=19)
    publish("development.md", page(frame))


COST_HEADER = (
    "population", "development units", "target risk", "epsilon", "thresholds", "how many", "certified",
    "records, mean", "median", f"certified after {LAST:,}", "acceptance then", "risk above target",
)  # fmt: skip
GRID_HEADER = ("scores", "units", "epsilon", *GRIDS)

HEAD = f"""\
# What protecting the development part costs

Made by

    python -m research.benchmarks.development_cost DATA_FOLDER

where DATA_FOLDER holds `{ragtruth.FILE.as_posix()}`, the scores of published detectors on RAGTruth. What every trial
gave is in `research/results/development.parquet`. Here epsilon is for zero-out.

Thresholds come from development units. *Exact* quantiles of them, published, tell about single units. *Noised* ones
follow from one release of these units with the noise of the same epsilon, so that the whole table is protected
([how](../theory/05-units.md#v-the-whole-table)). *Grid*: 20 evenly spaced thresholds, from no record.

Population L as on [its page](population-l.md), with 125 or 500 fresh draws of its law to choose thresholds; RAGTruth
as [there](ragtruth.md), responses as units, a fifth of the sources to choose thresholds. Each row is {TRIALS} trials,
each with its own development units and noise, at failure probability 0.05; events are drawn with replacement, {BATCH}
per site and round from five sites. *Certified*, and *records*: runs that stop at their first certificate, within
{CAP:,} records; one that abstains counts as {CAP:,}. *Certified after {LAST:,}*, and *acceptance then*: the same
registration decided once, after {LAST:,} records; the true acceptance of the certified threshold, 0 where there is
none, averaged over all trials. The last column counts certified thresholds of these whose true risk is above target."""

READING = """\
Records come in steps of one round, 1,000. *How many* thresholds there are, after ties are merged, is a mean. Noised
quantiles do as well as exact ones but for few units at epsilon 1, where they cost a few percent more records. Even
thresholds do as well where scores spread, and hardly ever certify a low risk where they crowd at the ends.

## The grid, and how noise is held back

A development release counts units over a public grid of scores, and thresholds are points of it. The table shows the
mean step of acceptance from one threshold to the next around a random answer: 0.048 for 20 perfect quantiles, 1 for no
threshold at all. Means of 100 draws of development units and noise, for even grids of several sizes and for ours, 111
points: hundredths, and denser near 0 and 1. In *ours, unmixed* the noised shares are only made falling; in the others
they are mixed with the grid's own, by twice the noise's standard deviation over the number of units."""

GRID_READING = """\
Even points are too coarse where a detector's scores crowd at 0 and 1 (RAGTruth), unless there are so many that noise
grows with them. Mixing costs little where there are many units, and helps where there are few."""


if __name__ == "__main__":
    main()
