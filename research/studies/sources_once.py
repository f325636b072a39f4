"""RAGTruth test, each source once: sealed certificates beside the old default, the paper's rule and exact counts.

Run: python -m research.studies.sources_once DATA_FOLDER [SPLITS [JOBS]]; the folder has
ragtruth/detector_scores.csv.gz. Writes docs/results/sources-once.md and, split by split,
research/results/sources_once.parquet.

A split gives a fifth of the sources to development, three fifths to calibration and a fifth to held-out risk. Epsilon
is for replacement of a source with all its answers. Every method sees the same splits.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from fedsrc.audit.methods import METHODS, ltt, unit_betting
from fedsrc.audit.methods.setting import Aim as Claim
from fedsrc.audit.methods.setting import gather
from fedsrc.maths import basis, betting, moments, privacy, quantiles
from fedsrc.maths.arrays import Bools, Floats, Ints
from fedsrc.planning.aim import Aim, reaches_floor
from fedsrc.planning.open_plan import OpenPlan, plan_open
from fedsrc.planning.sealed_plan import SealedPlan, plan_sealed, totals
from fedsrc.protocol.mechanism import development_mechanism, mechanism
from fedsrc.protocol.protection import Histograms, Moments, Noised, Privacy
from fedsrc.simulate.posterior import from_release, from_units
from research.pages import FIGURES, markdown, publish, words

FILE = Path("ragtruth", "detector_scores.csv.gz")
TARGETS, EPSILONS = ("0.3", "0.2", "0.15", "0.1"), (math.inf, 8.0, 4.0, 2.0, 1.0)
SPLITS, THRESHOLDS, ANSWERS, DELTA = 100, 20, 6, 1e-6
GRID = math.lcm(*range(1, ANSWERS + 1))
RISK_BUDGET = 0.045
RECORDS = FIGURES / "sources_once.parquet"
EVERYWHERE = ONE_LOOK, PROTECTED, OPEN = "one look", "protected development", "open, second moments"  # at every target
SCHEMA = {
    "detector": pl.String, "target": pl.String, "epsilon": pl.Float64, "method": pl.String, "split": pl.Int64,
    "certified": pl.Boolean, "acceptance": pl.Float64, "held_out": pl.Float64, "held_out_unsupported": pl.Float64,
}  # fmt: skip


class Table(NamedTuple):
    """Answers in the order of their sources: score, loss, and where each source begins."""

    score: Floats
    loss: Floats
    starts: Ints

    def shares(self, values: Floats) -> Floats:
        """Means within sources: (answers, ...) to (sources, ...)."""
        sizes = np.diff(self.starts, append=self.score.size)
        return np.add.reduceat(values, self.starts, axis=0) / sizes.reshape(-1, *(1,) * (values.ndim - 1))

    def masses(self, thresholds: Floats) -> tuple[Floats, Floats]:
        """Unsupported and supported masses at or above each threshold, (sources, thresholds)."""
        above = (self.score[:, None] >= thresholds).astype(np.float64)
        return self.shares(above * self.loss[:, None]), self.shares(above * (1.0 - self.loss)[:, None])


@dataclass(frozen=True, eq=False)
class Split:
    """One split with its exact quantile thresholds: masses of the development, calibration and held-out sources."""

    number: int
    table: Table
    parts: tuple[Ints, Ints, Ints]
    unsupported: Floats
    supported: Floats

    def __getitem__(self, part: int) -> tuple[Floats, Floats]:
        return self.unsupported[self.parts[part]], self.supported[self.parts[part]]

    def at(self, thresholds: Floats) -> Split:
        """Return the same split at other thresholds."""
        return Split(self.number, self.table, self.parts, *self.table.masses(thresholds))


class Outcome(NamedTuple):
    """One split: whether it certified, the acceptance of its calibration sources, and held-out masses."""

    certified: bool
    acceptance: float
    held_out: float
    held_out_unsupported: float


Method = Callable[[Split, Fraction, float], Outcome]


@cache
def read(folder: Path) -> dict[str, Table]:
    """Every detector's scores of the test split."""
    if not (folder / FILE).is_file():
        sys.exit(f"error: there is no {folder / FILE}\nhint: give the folder that holds {FILE.as_posix()}")
    frame = pl.read_csv(folder / FILE).filter(pl.col("split") == "test").sort("source_id", maintain_order=True)
    return {
        name: Table(
            1.0 - part["hallucination_score"].to_numpy().astype(np.float64),
            part["unsupported"].to_numpy().astype(np.float64),
            np.unique(part["source_id"].to_numpy(), return_index=True)[1],
        )
        for (name,), part in frame.group_by("system", maintain_order=True)
    }  # fmt: skip


def split(table: Table, number: int) -> Split:
    order = np.random.default_rng([19, number]).permutation(table.starts.size)
    first, second = order.size // 5, order.size // 5 + order.size * 3 // 5
    parts = (order[:first], order[first:second], order[second:])
    rows = np.isin(np.repeat(np.arange(order.size), np.diff(table.starts, append=table.score.size)), parts[0])
    levels = np.arange(1, THRESHOLDS + 1) / (THRESHOLDS + 1)
    return Split(number, table, parts, *table.masses(np.quantile(table.score[rows], levels)))


def outcome(data: Split, certified: Bools) -> Outcome:
    """The lowest certified threshold is used."""
    if not certified.any():
        return Outcome(False, 0.0, 0.0, 0.0)
    lowest = int(certified.argmax())
    (u, s), (U, S) = data[1], data[2]
    return Outcome(True, float((u + s)[:, lowest].mean()), float((U + S)[:, lowest].sum()), float(U[:, lowest].sum()))


def noise(epsilon: float) -> float:
    """The noise scale over the diameter."""
    return 0.0 if math.isinf(epsilon) else math.sqrt(1.0 / (2.0 * privacy.rho_tight(epsilon, DELTA)))


def settings(epsilon: float, paper: bool = False) -> Privacy:
    return Privacy(
        unit="source", epsilon=epsilon, delta=DELTA, adjacency="replacement", max_answers=ANSWERS,
        conversion="paper" if paper else "tight",
    )  # fmt: skip


def sealed(looks: int = 1, releases: int = 1, *, protected: bool = False) -> Method:
    """The sealed certificate, planned on the development part, exact or as one noised release."""

    def method(data: Split, target: Fraction, epsilon: float) -> Outcome:
        rng = np.random.default_rng([data.number, looks, releases])
        protect = protected and not math.isinf(epsilon)
        if protect:
            release = development(data, epsilon, rng)
            data = data.at(np.array(release.thresholds(THRESHOLDS)))
            known = from_release(release, release.thresholds(THRESHOLDS), rng)
        else:
            known = from_units(*data[0], rng)
        aim = Aim(target, len(data.parts[1]), noise(epsilon), releases=releases, looks=looks, mass_grid=GRID)
        plan, _ = plan_sealed(known, aim, rng)
        return outcome(data, run(plan, data, rng))

    return method


def run(plan: SealedPlan, data: Split, rng: np.random.Generator) -> Bools:
    """Play a plan on the calibration sources: which of all thresholds it certifies at its last look."""
    u, s = data[1]
    counts = np.zeros((len(plan.units), len(u)), dtype=np.int64)
    counts[np.repeat(np.arange(len(plan.units)), plan.units), np.arange(len(u))] = 1
    seen = totals(u, s, counts, plan.aim.target_risk).at(plan.kept)
    normals = rng.standard_normal((len(plan.units), sum(plan.encoding.lengths)))
    found = np.zeros(u.shape[1], dtype=np.bool_)
    found[list(plan.kept)] = plan.decide(seen.plus(plan.noise(normals)))[-1]
    return found


def open_plan(data: Split, target: Fraction, epsilon: float, rng: np.random.Generator) -> OpenPlan:
    """The open plan for one release of all calibration sources."""
    aim = Aim(target, len(data.parts[1]), noise(epsilon), mass_grid=GRID)
    return plan_open(from_units(*data[0], rng), aim, rng)[0]


def open_totals(data: Split, target: Fraction, epsilon: float) -> Outcome:
    """The open certificate on totals, planned: all sources in one release."""
    rng = np.random.default_rng([data.number, 5])
    plan = open_plan(data, target, epsilon, rng)
    u, s = (each[:, list(plan.kept)].sum(axis=0, keepdims=True) for each in data[1])
    normals = rng.standard_normal((2, *u.shape))
    found = np.zeros(THRESHOLDS, dtype=np.bool_)
    found[list(plan.kept)] = plan.decide(u + plan.noise(normals[0]), s + plan.noise(normals[1]))[-1]
    return outcome(data, found)


def open_moments(data: Split, target: Fraction, epsilon: float) -> Outcome:
    """The same plan with second moments, as `plan` registers it for sources."""
    rng = np.random.default_rng([data.number, 5])
    plan = open_plan(data, target, epsilon, rng)
    u, s = (each[:, list(plan.kept)] for each in data[1])
    rule, w = mechanism(settings(epsilon), Moments(), len(plan.kept)), np.array(plan.weights)
    exact = np.stack([s, u, u * u / 2, moments.CROSS * u * s / 2, s * s / 2]).sum(axis=1)
    seen = exact + rule.basis.decode(rule.scale * rng.standard_normal(exact.shape)) / rule.grid
    v, rungs = rule.unit_variance * rule.basis.variance_factor(), betting.ladder([float(target)], priors=plan.priors)
    bets = moments.data(seen[1], seen[0], moments.seconds(seen[2:]), v, len(u), 0.0)
    wealth = betting.log_mixture(bets, moments.weights(rungs), rungs.p)[:, 0]
    enough = reaches_floor(plan.aim, seen[0] + seen[1], np.array(len(u)), 2 * v, w)
    found = np.zeros(THRESHOLDS, dtype=np.bool_)
    found[list(plan.kept)] = (wealth >= -np.log(plan.aim.risk_budget * w)) & enough
    return outcome(data, found)


def development(data: Split, epsilon: float, rng: np.random.Generator) -> Noised:
    """One noised release of the development sources over the public grid, with seeded noise."""
    grid, privacy_of = quantiles.score_grid(), settings(epsilon)
    rule = development_mechanism(privacy_of, len(grid))
    masses = [each[data.parts[0]].sum(axis=0) for each in data.table.masses(np.array(grid))]
    bins = [np.rint(GRID * -np.diff(each, append=0.0)) for each in reversed(masses)]  # supported first
    exact = rule.basis.encode(np.array([[0, *each] for each in bins], dtype=np.int64))
    first, second = np.rint(exact + rng.normal(0.0, rule.scale, exact.shape)).astype(np.int64).tolist()
    return Noised(privacy=privacy_of, units=len(data.parts[0]), grid=grid, scale=rule.scale, first=first, second=second)


def before(name: str, kind: Histograms, *, paper: bool) -> Method:
    """A rule on two noised histograms over all thresholds, as they were released before there were plans."""

    def method(data: Split, target: Fraction, epsilon: float) -> Outcome:
        rule, (u, s) = mechanism(settings(epsilon, paper), kind, THRESHOLDS), data[1]
        rng = np.random.default_rng([data.number, 7])
        first, second = rule.basis.decode(rng.normal(0.0, 1.0, (2, rule.basis.p)) * rule.scale / rule.grid)
        U = u.sum(axis=0) + second
        A = (u + s).sum(axis=0) + (first if paper else first + second)
        v = rule.unit_variance * rule.basis.variance_factor()
        evidence = gather(
            A[None], U[None], len(u), noise=basis.covariance(kind.kind, v), unit=rule.unit_variance or 1.0, binary=False
        )
        return outcome(data, METHODS[name].judge(evidence, Claim(float(target))).certified[0])

    return method


def in_sequence(*, betting: bool) -> Method:
    """Without privacy, from the threshold that development favours downwards at the full level: Learn-then-Test, or
    bets on one source after the other."""

    def method(data: Split, target: Fraction, _: float) -> Outcome:
        r, first = float(target), favoured(data, target)
        known, fresh = (r * s - (1.0 - r) * u for u, s in (data[0], data[1]))
        if betting:
            p = unit_betting.p_value(unit_betting.log_wealth(known, fresh, r).max(axis=0))
        else:
            p = ltt.of_contrasts(fresh.sum(axis=0), np.full(THRESHOLDS, float(len(fresh))), r)
        return outcome(data, ltt.sequence_from(p, RISK_BUDGET, first))

    return method


@cache
def favoured(data: Split, target: Fraction) -> int:
    """The highest threshold of the plan without privacy."""
    rng = np.random.default_rng([data.number, 1, 1])
    return plan_sealed(from_units(*data[0], rng), Aim(target, len(data.parts[1]), mass_grid=GRID), rng)[0].kept[-1]


SEALED = sealed()
OLD = {
    "old default": before("betting-ladder", Histograms(), paper=False),
    "paper's rule": before("fed-src-c", Histograms(kind="paired", basis="bins"), paper=True),
}
EXACT = {"fixed sequence": in_sequence(betting=False), "per-unit betting": in_sequence(betting=True)}
VARIANTS = {
    ONE_LOOK: SEALED, "two looks": sealed(2), "four looks": sealed(4), "three sites, own noise": sealed(releases=3),
    PROTECTED: sealed(protected=True), "open, totals": open_totals,
    OPEN: open_moments,
}  # fmt: skip


def trials(folder: Path, task: tuple[str, int]) -> pl.DataFrame:
    """Play one split of a detector's table by every method that is shown."""
    name, number = task
    data = split(read(folder)[name], number)
    found = [
        (name, target, epsilon, label, number, *method(data, Fraction(target), epsilon))
        for target, epsilon, label, method in cells()
    ]
    return pl.DataFrame(found, schema=SCHEMA, orient="row")


def cells() -> Iterator[tuple[str, float, str, Method]]:
    """Which method is shown at which target and epsilon."""
    for epsilon in EPSILONS:
        for target in TARGETS:
            yield from ((target, epsilon, label, VARIANTS[label]) for label in EVERYWHERE)
            yield from ((target, epsilon, label, method) for label, method in OLD.items())
            yield from ((target, epsilon, label, method) for label, method in EXACT.items() if math.isinf(epsilon))
        others = {label: method for label, method in VARIANTS.items() if label not in EVERYWHERE}
        yield from (("0.2", epsilon, label, method) for label, method in others.items())


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit("error: no data folder\nhint: the first argument is the folder that holds ragtruth/")
    folder, (count, jobs) = Path(sys.argv[1]), (*map(int, sys.argv[2:4]), *(SPLITS, 2)[len(sys.argv) - 2 :])[:2]
    tasks = [(name, number) for name in read(folder) for number in range(count)]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        frame = pl.concat(pool.map(partial(trials, folder), tasks, chunksize=5))
    frame.write_parquet(RECORDS, compression="zstd", compression_level=19)
    publish("sources-once.md", page(frame))


def page(frame: pl.DataFrame) -> list[str]:
    """Return the page's parts, from the outcomes of all splits."""
    detectors = shown_detectors(frame)
    head = ["detector", "target", "epsilon", "sealed", "acceptance", "held-out risk"]
    head += [f"{name}{what}" for name in OLD for what in ("", ": acceptance")]
    head += [f"{name}{what}" for name in EXACT for what in ("", ": acceptance", ": held-out risk")]
    variants = markdown(
        ["detector", "epsilon", *VARIANTS], [row for each in detectors for row in _variants(frame, each)]
    )
    return [
        ABOUT.format(splits=frame["split"].n_unique()), FIRST, variants, SECOND,
        markdown(head, [row for each in detectors for row in _beside(frame, each)]),
    ]  # fmt: skip


def shown_detectors(frame: pl.DataFrame) -> list[str]:
    """Return the detectors of the records in the order of the file, which has the best last; best first."""
    return list(reversed(frame["detector"].unique(maintain_order=True).to_list()))


class Cell(NamedTuple):
    """One method at one detector, target and epsilon, over all splits; `above` counts held-out risks above target."""

    splits: int
    certified: int
    acceptance: float
    risk: float | None
    above: int

    @property
    def mostly(self) -> bool:
        return 2 * self.certified > self.splits

    @property
    def percent(self) -> str:
        return f"{100 * self.certified / self.splits:.0f}"

    @property
    def words(self) -> list[str]:
        """Percent certified, mean acceptance, held-out risk, as tables show them."""
        return [self.percent, f"{self.acceptance:.2f}", "–" if self.risk is None else f"{self.risk:.3f}"]


def cell(frame: pl.DataFrame, target: float) -> Cell:
    """Sum up the splits of one method."""
    certified = frame.filter(pl.col("certified"))
    accepted, bad = (certified[name].to_numpy() for name in ("held_out", "held_out_unsupported"))
    total = float(accepted.sum())
    return Cell(
        frame.height, certified.height, float(frame["acceptance"].to_numpy().mean()),
        float(bad.sum()) / total if total else None, int((bad > target * accepted + 1e-9).sum()),
    )  # fmt: skip


def shown(frame: pl.DataFrame, detector: str, method: str, target: str, epsilon: float) -> list[str]:
    """Certified splits in percent, mean acceptance (none counts as zero), held-out risk of what was certified; nothing
    where that method was not run."""
    here = (pl.col("detector") == detector) & (pl.col("method") == method) & (pl.col("target") == target)
    part = frame.filter(here & (pl.col("epsilon") == epsilon))
    if part.is_empty():
        return [""] * 3
    return cell(part, float(target)).words


def _beside(frame: pl.DataFrame, detector: str) -> Iterator[list[str]]:
    for target in TARGETS:
        for epsilon in EPSILONS:
            row = shown(frame, detector, ONE_LOOK, target, epsilon)
            row += [each for name in OLD for each in shown(frame, detector, name, target, epsilon)[:2]]
            row += [each for name in EXACT for each in shown(frame, detector, name, target, epsilon)]
            yield [detector, target, words(epsilon), *row]


def _variants(frame: pl.DataFrame, detector: str) -> Iterator[list[str]]:
    for epsilon in EPSILONS:
        found = [" / ".join(shown(frame, detector, name, "0.2", epsilon)) for name in VARIANTS]
        yield [detector, words(epsilon), *found]


ABOUT = """# RAGTruth, each source once

Every source of the RAGTruth test set is used once: a fifth plans, three fifths calibrate, a fifth is held out. {splits}
fresh splits, one holder, epsilon for replacement of a source with all its answers, noise by zCDP. Every method sees the
same splits. Made by `python -m research.studies.sources_once FOLDER`, where FOLDER holds
`ragtruth/detector_scores.csv.gz`; the outcome of every split is in `research/results/sources_once.parquet`."""
FIRST = "Target 0.2, percent certified / mean acceptance / held-out risk of what was certified:"
SECOND = """Sealed with one look beside the old default (20 thresholds, histograms, no plan), the paper's rule, and,
without privacy, Learn-then-Test with a fixed sequence from the same development part and bets on one source after the
other. The last two are not asked to show the acceptance floor."""


if __name__ == "__main__":
    main()
