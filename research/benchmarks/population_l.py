"""Population L: records to certification under both presets, beside the information limit.

Writes docs/results/population-l.md and, trial by trial, research/results/population_l.parquet.
Run: python -m research.benchmarks.population_l
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl
from scipy.special import ndtr, ndtri

from fedsrc.maths.limits import records_any, records_best
from fedsrc.planning.register import Choices, Preset, development_part, register
from fedsrc.protocol.registration import Registration
from fedsrc.records.units import Records, units_of
from fedsrc.simulate.population import Support, Truth, truth, uniform
from fedsrc.simulate.trials import simulate
from research.pages import FIGURES, markdown, publish, records_of, words

DRAWS, DEVELOPMENT, SITES = 586, 125, 5
TRIALS, SEED, CAP, ALPHA = 200, 1, 30_000, 0.05
TARGETS, EPSILONS, BATCHES = (0.2, 0.3), (math.inf, 4.0, 1.0), (200, 50, 10)
WIDE = BATCHES[0]
OTHER_DRAWS = range(1, 10)
PRESETS: tuple[Preset, Preset] = ("default", "paper")
NAMES = tuple(f"site {i + 1}" for i in range(SITES))
RECORDS = FIGURES / "population_l.parquet"
SCHEMA = {
    "draw": pl.Int64, "target": pl.Float64, "epsilon": pl.Float64, "batch": pl.Int64, "preset": pl.String,
    "trial": pl.Int64, "certified": pl.Boolean, "records": pl.Int64, "risk": pl.Float64,
    "any": pl.Float64, "known": pl.Float64, "union": pl.Float64, "risky": pl.Int64,
}  # fmt: skip  # risk: true, of the certified threshold; the last four are the setting's limits and risky thresholds


@dataclass(frozen=True)
class Population:
    """Development records, which give the thresholds, and calibration records dealt to the sites."""

    development: Records
    calibration: Records


@dataclass(frozen=True)
class Cell:
    """The trials of one preset at one target, epsilon and batch."""

    trials: pl.DataFrame

    @property
    def certified(self) -> int:
        return int(self.trials["certified"].sum())

    @property
    def used(self) -> float:
        """Mean records over all trials; one that abstains counts as the cap, so this is then a lower bound."""
        counted = pl.when(pl.col("certified")).then(pl.col("records")).otherwise(CAP)
        return float(self.trials.select(counted).to_series().to_numpy().mean())

    @property
    def violations(self) -> int:
        """Trials whose certified threshold has a true risk above target."""
        return self.trials.filter(pl.col("certified") & (pl.col("risk") > pl.col("target"))).height

    def records(self) -> str:
        """Mean and median records among certified trials."""
        taken = self.trials.filter(pl.col("certified"))["records"].to_numpy()
        return f"{taken.mean():,.0f} / {np.median(taken):,.0f}" if taken.size else "never"

    def fact(self, name: str) -> float:
        """Return what is the same in every trial of the cell: a limit, or how many thresholds are too risky."""
        (value,) = self.trials[name].unique()
        return float(value)


def population(seed: int) -> Population:
    """Draw population L: loss first, then the normal part of the score."""
    rng = np.random.default_rng(seed)
    loss = (rng.random(DRAWS) < 0.41).astype(np.float64)
    score = ndtr(rng.standard_normal(DRAWS) + np.sqrt(2.0) * ndtri(0.74) * (1.0 - loss))
    site, cut = np.arange(DRAWS) % SITES, DEVELOPMENT
    return Population(
        records_of(score[:cut], loss[:cut], site[:cut], NAMES), records_of(score[cut:], loss[cut:], site[cut:], NAMES)
    )


def sites_of(people: Population, registration: Registration) -> list[Support]:
    return uniform(registration, [units_of(people.calibration, name, "record") for name in NAMES])


def cell(draw: int, target: float, epsilon: float, batch: int, preset: Preset) -> pl.DataFrame:
    """Run the trials of one cell, a row each; every batch size has the same cap on records."""
    people = population(draw)
    choices = Choices(
        target,
        epsilon,
        preset=preset,
        failure_probability=ALPHA,
        batch=batch,
        rounds=CAP // (batch * SITES),
        exact_thresholds=True,
        public_development=True,
        adjacency="zero-out",
    )
    registration = register(choices, people.development, development_part(people.development, "record", 1.0))
    sites = sites_of(people, registration)
    exact = truth(registration, sites, [1.0 / SITES] * SITES)
    found = simulate(registration, sites, trials=TRIALS, seed=SEED)
    setting = (draw, target, epsilon, batch, preset)
    facts = (*limits(exact, target), int((exact.risk > target).sum()))
    return pl.DataFrame(
        [
            (*setting, trial, bool(sure), int(records), float(exact.risk[j]) if sure else None, *facts)
            for trial, (sure, records, j) in enumerate(
                zip(found.certified, found.records, found.threshold, strict=True)
            )
        ],
        schema=SCHEMA,
        orient="row",
    )


def limits(exact: Truth, target: float) -> tuple[float, float, float]:
    """Fewest records without privacy: any certificate, one known threshold, and a union over all thresholds."""
    a, R = np.append(exact.acceptance, 0.0), np.append(exact.acceptance * exact.risk, 0.0)
    mass = np.asarray([x - y for x, y in pairwise(a)])
    errors = np.asarray([x - y for x, y in pairwise(R)]) / np.where(mass > 0, mass, 1.0)
    any_certificate = records_any(mass, errors, target, ALPHA)
    known, union = (
        records_best(exact.acceptance, exact.risk, target, ALPHA, w=w) for w in (1.0, 1.0 / exact.risk.size)
    )
    return any_certificate, known, union


def settings() -> Iterator[tuple[int, float, float, int]]:
    """Which draw, target, epsilon and batch are shown, each once."""
    yield from ((0, target, epsilon, WIDE) for target in TARGETS for epsilon in EPSILONS)
    yield from ((0, target, math.inf, batch) for target in TARGETS for batch in BATCHES if batch != WIDE)
    yield from ((draw, 0.2, math.inf, WIDE) for draw in OTHER_DRAWS)


def pair(frame: pl.DataFrame, target: float, epsilon: float, *, draw: int = 0, batch: int = WIDE) -> tuple[Cell, Cell]:
    """Both presets on the same events."""
    here = (pl.col("draw") == draw) & (pl.col("target") == target)
    part = frame.filter(here & (pl.col("epsilon") == epsilon) & (pl.col("batch") == batch))
    default, paper = (Cell(part.filter(pl.col("preset") == preset)) for preset in PRESETS)
    return default, paper


def ratio(paper: Cell, default: Cell) -> str:
    """How many times more records the paper's rule takes; a lower bound where it abstains in some trials."""
    sign = "" if paper.certified == paper.trials.height else "at least "
    return f"{sign}{paper.used / default.used:.1f}"


def main_rows(frame: pl.DataFrame) -> Iterator[list[str]]:
    for target in TARGETS:
        for epsilon in EPSILONS:
            default, paper = pair(frame, target, epsilon)
            yield [
                f"{target:g}", words(epsilon), f"{default.certified}", default.records(), f"{paper.certified}",
                paper.records(), ratio(paper, default), f"{default.fact('known'):,.0f} / {default.fact('union'):,.0f}",
                f"{default.violations} / {paper.violations}",
            ]  # fmt: skip


def batch_rows(frame: pl.DataFrame) -> Iterator[list[str]]:
    for target in TARGETS:
        for batch in BATCHES:
            default, paper = pair(frame, target, math.inf, batch=batch)
            yield [
                f"{target:g}", f"{batch}", default.records(), paper.records(), ratio(paper, default),
                f"{default.fact('any'):,.0f}", f"{default.fact('known'):,.0f}",
                f"{default.used / default.fact('known'):.1f}", f"{default.violations} / {paper.violations}",
            ]  # fmt: skip


def draw_rows(frame: pl.DataFrame) -> Iterator[list[str]]:
    for draw in OTHER_DRAWS:
        default, paper = pair(frame, 0.2, math.inf, draw=draw)
        yield [
            f"{draw}", f"{default.fact('known'):,.0f}", f"{default.certified}", default.records(),
            f"{paper.certified}", paper.records(), ratio(paper, default),
            f"{default.violations} / {paper.violations}",
        ]  # fmt: skip


def verdict(frame: pl.DataFrame) -> str:
    """The sentence on violations, with how many thresholds could have given one."""
    certified, violations = Cell(frame).certified, Cell(frame).violations
    bad = [int(pair(frame, target, math.inf)[0].fact("risky")) for target in TARGETS]
    return f"""\
## Violations

Over all three tables {certified:,} of {frame.height:,} trials certified a threshold, and {violations} of those
thresholds have a true risk above target. There was room for error: of the 20 thresholds of population L,
{bad[0]} have a true risk above {TARGETS[0]:g} and {bad[1]} above {TARGETS[1]:g}. The bounds hold at every round and
threshold at once, so fewer violations than the failure probability allows are expected."""


def page(frame: pl.DataFrame) -> list[str]:
    """Return the page's parts, from the outcomes of all trials."""
    tables = [
        markdown(MAIN_HEADER, main_rows(frame)),
        markdown(BATCH_HEADER, batch_rows(frame)),
        markdown(DRAW_HEADER, draw_rows(frame)),
    ]
    return [HEAD, tables[0], READING, tables[1], BATCH_READING, tables[2], DRAW_READING, verdict(frame)]


def main() -> None:
    frame = pl.concat(cell(*setting, preset) for setting in settings() for preset in PRESETS)
    frame.write_parquet(RECORDS, compression="zstd", compression_level=19)
    publish("population-l.md", page(frame))


MAIN_HEADER = (
    "target risk", "epsilon", "old default: certified", "old default: records, mean / median", "paper: certified",
    "paper: records, mean / median", "paper : old default", "limit, known threshold / union",
    "violations, old default / paper",
)  # fmt: skip
BATCH_HEADER = (
    "target risk", "batch", "old default: records, mean / median", "paper: records, mean / median",
    "paper : old default", "limit, any certificate", "limit, known threshold", "old default : known threshold",
    "violations, old default / paper",
)  # fmt: skip
DRAW_HEADER = (
    "draw", "limit, known threshold", "old default: certified", "old default: records, mean / median",
    "paper: certified", "paper: records, mean / median", "paper : old default", "violations, old default / paper",
)  # fmt: skip

HEAD = f"""\
# Population L: how many labelled records a certificate takes

Made by

    python -m research.benchmarks.population_l

What every trial gave is in `research/results/population_l.parquet`.

Population L is a synthetic population for label-cost figures: {DRAWS} draws with seed 0,
loss ~ Bernoulli(0.41), score = Phi(Z + sqrt(2) Phi^-1(0.74) (1 - loss)). The first {DEVELOPMENT} give 20 thresholds at
their j/21 quantiles; the rest are dealt to {SITES} sites. Events are drawn from the sites with replacement, 200 per
site and round (1,000 a round), at most {CAP:,} in all. Each row is {TRIALS} trials with failure probability {ALPHA:g};
both rules see the same events. The *old default* is an open certificate without a plan (`--certificate plain`); what
the default, which is planned, takes of such populations is [beside the limit](label-cost.md). Epsilon is for zero-out.
A trial stops at its first certificate. The truth is known by enumeration,
so a *violation* (a certified threshold whose true risk is above target) can be counted. An epsilon of `none`
means no noise."""

READING = f"""\
Records are counted among certified trials, in steps of one round, 1,000. `paper : old default` is the ratio of
mean records over all {TRIALS} trials, where a trial that abstains counts as {CAP:,} records; the ratio is then a lower
bound.

The limits bound the *mean* number of records at failure probability {ALPHA:g} **without** privacy, from the exact
acceptance a_j and risk R_j: log(1/alpha) / max_j a_j kl(R_j, r) for one threshold known beforehand, and the same
with alpha/20, which is what testing all 20 thresholds costs to first order.

## Smaller batches

Without privacy. A certificate is decided after a round, so a batch of 200 per site rounds every result up to the
next 1,000 records; smaller batches, with the same {CAP:,} records at most, show what the rules themselves need."""

BATCH_READING = """\
*Any certificate* is the limit for a method that may certify whichever threshold it likes; it is lower than the
limit for one known threshold, because evidence at several thresholds can be used at once. With noise, small
batches are not free: every release carries its own noise.

## Other draws of the same population

Population L is one draw, and how hard a target is depends on the draw. The same at target 0.2 with batches of 200
and without privacy, for other seeds:"""

DRAW_READING = """\
The figures of the first table are thus those of one population, not a law: what carries over is the order of magnitude
of the ratios to the limit and to the paper's rule."""


if __name__ == "__main__":
    main()
