"""Records to a certificate by what a release holds: totals, second moments, or levels of a graded loss.

Writes docs/results/finer.md and, trial by trial, research/results/finer.parquet.
Run: python -m research.benchmarks.finer
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from scipy.stats import betabinom

from fedsrc.maths.arrays import Ints
from fedsrc.planning.register import Choices, Counted, register_grid
from fedsrc.simulate.population import Support
from fedsrc.simulate.trials import simulate
from research.pages import FIGURES, markdown, publish, words

TARGET, THRESHOLDS, TRIALS = 0.2, 6, 100
BATCHES = {math.inf: (20, 300), 4.0: (100, 100), 1.0: (400, 60)}  # units and rounds, by epsilon
MEANS = (0.05, 0.10, 0.13)  # loss of the best scores
SHARED = (0.5, 2.0, 20.0)  # how alike losses are: mostly all or nothing, spread out, mostly near the mean
ANSWERS = 6  # of a source
KINDS: dict[Counted, str] = {"histograms": "totals", "moments": "moments", "levels": "levels"}
RECORDS = FIGURES / "finer.parquet"
SETTING = {
    "grades": pl.Int8(), "mean": pl.Float64(), "alike": pl.Float64(), "epsilon": pl.Float64(), "encoding": pl.String(),
}  # fmt: skip
SCHEMA = {**SETTING, "trial": pl.Int16(), "certified": pl.Boolean(), "records": pl.Int32()}


class Setting(NamedTuple):
    """Records whose loss is a multiple of 1/grades, or sources where that is 0; a privacy loss; what is released."""

    grades: int
    mean: float
    alike: float
    epsilon: float
    encoding: Counted


def graded(g: int, mean: float, alike: float) -> Support:
    """Records with one answer whose loss is a multiple of 1/g."""
    bins, masses, law = THRESHOLDS + 1, [], []
    for place in range(bins):
        at = mean * (1 + 0.5 * (THRESHOLDS - place) / THRESHOLDS)
        for bad, chance in enumerate(betabinom.pmf(np.arange(g + 1), g, alike * at, alike * (1 - at))):
            masses.append(_unit([(place, bad, g - bad)]))
            law.append(chance / bins)
    return Support(np.stack(masses), np.asarray(law) / np.sum(law))


def sources(answers: int, g: int, mean: float, alike: float) -> Support:
    """Sources of so many answers, supported or not, that share how likely they are unsupported; 2,000 drawn."""
    rng, masses = np.random.default_rng(7), []
    for chance in rng.beta(alike * mean, alike * (1 - mean), 2000):
        share, places = g // answers, rng.integers(0, THRESHOLDS + 1, answers)
        wrong = rng.random(answers) < chance * (1 + 0.5 * (THRESHOLDS - places) / THRESHOLDS)
        masses.append(_unit([(p, share * bool(w), share * (not w)) for p, w in zip(places, wrong, strict=True)]))
    return Support(np.stack(masses), np.full(2000, 1 / 2000))


def _unit(answers: list[tuple[int, int, int]]) -> Ints:
    found = np.zeros((2, THRESHOLDS + 1), dtype=np.int64)
    for place, unsupported, supported in answers:
        found[:, place] += supported, unsupported
    return found


def settings() -> Iterator[Setting]:
    """Every population at every epsilon, with what its releases can hold: levels are of graded losses."""
    for g in (2, 4, 10, 0):
        for mean in MEANS:
            for alike in SHARED:
                kinds = [kind for kind in KINDS if g or kind != "levels"]
                yield from (Setting(g, mean, alike, epsilon, kind) for epsilon in BATCHES for kind in kinds)


def trials(setting: Setting) -> pl.DataFrame:
    """Run the trials of one setting, a row each."""
    g, mean, alike, epsilon, kind = setting
    batch, rounds = BATCHES[epsilon]
    choices: dict[str, Any] = {"loss_grid": g} if g else {"unit": "source", "max_answers": ANSWERS}
    given = Choices(
        TARGET, epsilon, encoding=kind, grid=True, thresholds=THRESHOLDS, batch=batch, rounds=rounds, **choices
    )
    site = graded(g, mean, alike) if g else sources(ANSWERS, 10 * ANSWERS, mean, alike)
    found = simulate(register_grid(given, ["a"]), [site], trials=TRIALS, seed=1)
    rows = [
        (*setting, trial, bool(sure), int(n))
        for trial, (sure, n) in enumerate(zip(found.certified, found.records, strict=True))
    ]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def mean_records(part: pl.DataFrame) -> str:
    """Mean records of a run, and in how many there was a certificate if not in all; nothing without runs."""
    if part.is_empty():
        return "–"
    sure = part["certified"].to_numpy()
    some = "" if sure.all() else f" ({sure.mean():.0%} certified)"
    return f"{part['records'].to_numpy().mean():,.0f}{some}"


def rows(frame: pl.DataFrame) -> Iterator[list[str]]:
    """One row for each population and epsilon."""
    for (g, mean, alike, epsilon), part in frame.group_by("grades", "mean", "alike", "epsilon", maintain_order=True):
        name = f"records of {int(str(g)) + 1} levels" if g else f"sources of {ANSWERS} answers"
        cells = [mean_records(part.filter(pl.col("encoding") == kind)) for kind in KINDS]
        yield [name, f"{mean:g}", f"{alike:g}", words(float(str(epsilon))), *cells]


def page(frame: pl.DataFrame) -> list[str]:
    """Return the page's parts, from the outcomes of all trials."""
    return [HEAD, markdown(("units", "mean loss", "alike", "epsilon", *KINDS.values()), rows(frame))]


def main() -> None:
    with ProcessPoolExecutor() as pool:
        frame = pl.concat(pool.map(trials, settings(), chunksize=3))
    frame.write_parquet(RECORDS, compression="zstd", compression_level=19)
    publish("finer.md", page(frame))


HEAD = f"""\
# Records to an open certificate: totals, second moments, levels

Made by

    python -m research.benchmarks.finer

What every trial gave is in `research/results/finer.parquet`.

Mean records to a certificate, one site, target {TARGET:g}, {THRESHOLDS} thresholds, {TRIALS} trials; scores are as
likely in every bin, and the mean loss, told for the best scores, grows by half towards the lowest. *Alike* says how
losses spread: mostly all or nothing where it is {SHARED[0]:g}, mostly near the mean where it is {SHARED[-1]:g}."""


if __name__ == "__main__":
    main()
