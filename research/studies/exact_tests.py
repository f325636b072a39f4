"""Without privacy: records at 80% power, planned certificates beside exact Learn-then-Test.

Writes docs/results/exact-tests.md and, how many trials had certified at how many records,
research/results/exact_tests.parquet.
Run: python -m research.studies.exact_tests DATA_FOLDER; the folder has ragtruth/detector_scores.csv.gz

Population L (ten draws) and each detector with one answer per source. A fifth (of population L: 125) plans; the rest is
the law from which units are drawn with replacement. The open certificate may be looked at after every round and shows
every target; the sealed one and the exact tests see a number of records that is fixed beforehand, at one target. The
sealed one tests few thresholds of its plan by exact counts, and passes weights on.
Bonferroni: any of the same 20 thresholds at 0.05 / 20. Fixed sequence: the plan's heaviest threshold at 0.05.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from fedsrc.audit.methods import ltt
from fedsrc.maths.arrays import Bools, Floats, Ints
from fedsrc.planning.aim import Aim
from fedsrc.planning.open_plan import plan_open
from fedsrc.planning.sealed_plan import Totals, plan_sealed
from fedsrc.records.masses import above
from fedsrc.simulate.posterior import from_answers
from research.pages import FIGURES, markdown, publish
from research.studies import label_cost, sources_once

TARGET, ALPHA, THRESHOLDS, CAP, TRIALS, POWER = Fraction(1, 5), 0.05, 20, 30_000, 400, 0.8
R = float(TARGET)
OURS, EXACT = ("sealed", "open"), ("Bonferroni", "fixed sequence")
RECORDS = FIGURES / "exact_tests.parquet"
SCHEMA = {"population": pl.String(), "test": pl.String(), "records": pl.Int32(), "certified": pl.Int16()}
Power = tuple[str, int, int]  # a test, records, and how many trials had certified by then


class Population(NamedTuple):
    """Development masses (units, thresholds), and the law of kinds of answers: bins of supported, then unsupported."""

    unsupported: Floats
    supported: Floats
    law: Floats


def population(score: Floats, loss: Floats, development: Ints) -> Population:
    known = np.isin(np.arange(score.size), development)
    thresholds = np.quantile(score[known], np.arange(1, THRESHOLDS + 1) / (THRESHOLDS + 1))
    accepted = (score[known][:, None] >= thresholds).astype(np.float64)
    kinds = np.searchsorted(thresholds, score[~known], side="right") + (THRESHOLDS + 1) * loss[~known].astype(np.int64)
    law = np.bincount(kinds, minlength=2 * THRESHOLDS + 2) / kinds.size
    return Population(accepted * loss[known][:, None], accepted * (1 - loss[known])[:, None], law)


def counted(counts: Ints) -> tuple[Ints, Ints]:
    """Unsupported and accepted counts at or above each threshold."""
    supported, unsupported = (above(each) for each in np.split(counts, 2, axis=-1))
    return unsupported, supported + unsupported


def ours(where: Population, rng: np.random.Generator) -> tuple[list[Power], int]:
    """Return how many runs of the open certificate had certified by then, and the plan's heaviest threshold."""
    known = from_answers(where.unsupported, where.supported, rng)
    plan, _ = plan_open(known, Aim(TARGET, CAP, objective="records"), rng)
    counts = np.stack([rng.multinomial(n, where.law, TRIALS) for n in plan.sizes], axis=1).cumsum(axis=1)
    bad, accepted = (each[..., list(plan.kept)].astype(np.float64) for each in counted(counts))
    shown: Bools = np.any(plan.decide(bad, accepted - bad), axis=-1)
    by = np.logical_or.accumulate(shown, axis=1).sum(axis=0)
    powers = [("open", int(n), int(sure)) for n, sure in zip(np.cumsum(plan.sizes), by, strict=True)]
    return powers, plan.kept[int(np.argmax(plan.weights))]


SIZES = np.unique(np.geomspace(20, CAP, 90).astype(int)).tolist()


def sealed(where: Population, rng: np.random.Generator) -> Iterator[Power]:
    """Return how many runs of the sealed certificate that is planned for so many records certify, until 80% do."""
    known = from_answers(where.unsupported, where.supported, rng)
    for n in SIZES:
        plan, _ = plan_sealed(known, Aim(TARGET, n, objective="rounds", exact=True), rng)
        bad, accepted = (
            x[:, None, list(plan.kept)].astype(np.float64) for x in counted(rng.multinomial(n, where.law, TRIALS))
        )
        sure = int(plan.decide(Totals(R * accepted - bad, 0.0 * bad, accepted)).any(axis=(1, 2)).sum())
        yield "sealed", n, sure
        if sure >= POWER * TRIALS:
            return


def exact(where: Population, first: int, rng: np.random.Generator) -> Iterator[Power]:
    """Return how many runs of each exact test certify: Bonferroni, fixed sequence."""
    for n in SIZES:
        bad, accepted = (each.astype(np.float64) for each in counted(rng.multinomial(n, where.law, TRIALS)))
        p = ltt.exact(bad, accepted, R)
        for test, sure in zip(EXACT, (ltt.bonferroni(p, ALPHA), ltt.sequence_from(p, ALPHA, first)), strict=True):
            yield test, n, int(sure.any(axis=1).sum())


def populations(folder: Path) -> Iterator[tuple[str, Population]]:
    for seed in range(label_cost.DRAWS):
        rng = np.random.default_rng(seed)
        score, loss = label_cost.answers(rng)
        yield f"L, draw {seed}", population(score, loss.astype(np.float64), np.arange(label_cost.DEVELOPMENT))
    for name, table in sources_once.read(folder).items():
        rng = np.random.default_rng(19)
        sizes = np.diff(table.starts, append=table.score.size)
        pick = table.starts + rng.integers(0, sizes)
        part = rng.permutation(pick.size)[: pick.size // 5]
        yield name, population(table.score[pick], table.loss[pick], part)


def powers(number: int, name: str, where: Population) -> pl.DataFrame:
    """Play all tests on one population."""
    rng = np.random.default_rng([19, number])
    mine, first = ours(where, rng)
    found = [*mine, *sealed(where, rng), *exact(where, first, rng)]
    return pl.DataFrame([(name, *each) for each in found], schema=SCHEMA, orient="row")


def fewest(part: pl.DataFrame, test: str) -> float:
    """The fewest records at which 80% of the runs of a test have certified."""
    enough = part.filter((pl.col("test") == test) & (pl.col("certified") >= POWER * TRIALS))
    return min(enough["records"].to_list(), default=math.inf)


def compared(part: pl.DataFrame) -> tuple[list[str], tuple[float, ...]]:
    """One population, and how many times the records of the two exact tests planned certificates take."""
    both, others = ([fewest(part, test) for test in tests] for tests in (OURS, EXACT))
    over = tuple(one / other for one in both for other in others)
    return [*(f"{each:,.0f}" for each in (*both, *others)), *(f"{each:.2f}" for each in over)], over


def page(frame: pl.DataFrame) -> list[str]:
    """Return the page's parts, from how many trials had certified at how many records."""
    found = [(str(name), *compared(part)) for (name,), part in frame.group_by("population", maintain_order=True)]
    means = np.exp(np.log([over for *_, over in found]).mean(axis=0))
    head = ["population", *OURS, *(f"exact, {each}" for each in EXACT)]
    head += [f"{kind} / {each}" for kind in OURS for each in EXACT]
    rows = [
        *([name, *line] for name, line, _ in found),
        ["geometric mean", "", "", "", "", *(f"{each:.2f}" for each in means)],
    ]
    return [HEAD, markdown(head, rows)]


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("error: no folder is given\nhint: python -m research.studies.exact_tests DATA_FOLDER")
    jobs = [(number, *each) for number, each in enumerate(populations(Path(sys.argv[1])))]
    with ProcessPoolExecutor() as pool:
        frame = pl.concat(pool.map(powers, *zip(*jobs, strict=True)))
    frame.write_parquet(RECORDS, compression="zstd", compression_level=19)
    publish("exact-tests.md", page(frame))


HEAD = f"""\
# Without privacy: records at 80% power

Made by

    python -m research.studies.exact_tests FOLDER

with the folder of RAGTruth's scores. How many of {TRIALS} trials had certified at how many records is in
`research/results/exact_tests.parquet`.

Records by which 80% of the runs have certified at target {R:g}. The open certificate may be looked at after every round
and shows every target; the sealed one and the exact tests see one number of records, fixed beforehand, at one
target."""


if __name__ == "__main__":
    main()
