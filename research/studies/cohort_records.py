"""Population L, ten draws: records to a certificate where sites add up before anyone sees.

Writes docs/results/cohorts.md and, how many trials took how many records, research/results/cohorts.parquet.
Run: python -m research.studies.cohort_records

Populations, thresholds and plans are those of `research.studies.label_cost`, at replacement epsilon, with sites alike:
then only the noises of a round tell one way to add up from another. A cohort of n members of whom t may collude opens
a sum with n / (n - t) noises, a site by itself a release with one, one holder has one in all. Every way is planned for
its own noise on the same development units, and played on the same units in the same order, with the same standard
normals.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.stats import t as student

from fedsrc.maths.arrays import Bools, Floats, Ints
from fedsrc.maths.sealed import bet, passed_on, recycled_looks
from fedsrc.maths.tail import critical_near
from fedsrc.planning.aim import Aim, reaches_floor
from fedsrc.planning.open_plan import plan_open
from fedsrc.planning.plan import MANY
from fedsrc.planning.sealed_plan import SealedPlan, Totals, plan_sealed, totals
from fedsrc.simulate.posterior import from_answers
from research.pages import FIGURES, markdown, publish, words
from research.studies.label_cost import CAP, DRAWS, TARGET, THRESHOLDS, Draw, R, drawn, noise

TRIALS, EPSILONS = 400, (4.0, 1.0)
UNITS, ROUNDS, COORDINATES = 2 * CAP, 120, 24  # what is drawn for a trial: more than any plan asks for
MOST = 0.05  # the largest q_1 for which tau is proved
LEAST_SHARE = 2.0  # lattice units
RECORDS = FIGURES / "cohorts.parquet"
SETTING = {
    "certificate": pl.String(), "epsilon": pl.Float64(), "sites": pl.Int16(), "size": pl.Int16(),
    "colluding": pl.Int16(),
}  # fmt: skip
SCHEMA = {
    **SETTING, "draw": pl.Int16(), "limit": pl.Float64(), "records": pl.Int32(), "trials": pl.Int16(),
}  # fmt: skip  # records to the first certificate, none without one, and how many trials took them


def tau(sigma: float, n: int) -> float:
    """How far the sum of n discrete Gaussians of scale sigma is from one: its law is within exp(+-tau) of that of scale
    sqrt(n) sigma, at every point. Infinite where nothing is proved.

    Theory: (xvii) Sum of discrete Gaussians, tau = 5 (q_1 + ... + q_{n-1}), q_k = exp(-2 pi^2 sigma^2 k / (k+1)).
    """
    q = [math.exp(-2.0 * math.pi**2 * sigma**2 * k / (k + 1)) for k in range(1, n)]
    return 5.0 * math.fsum(q) if max(q, default=0.0) <= MOST else math.inf


class Way(NamedTuple):
    """How so many sites add up: cohorts of `size` with `colluding` members (a single site's own noise is a cohort of
    one; one holder has no cohorts at all, size 0)."""

    sites: int
    size: int
    colluding: int = 0

    @property
    def noises(self) -> float:
        """What one round adds, in noises of a release."""
        return self.sites / (self.size - self.colluding) if self.size else 1.0

    @property
    def name(self) -> str:
        if self.size < 2:
            return "own noise" if self.size else "one holder"
        return f"cohorts of {self.size}, {self.colluding} colluding" if self.size < self.sites else (
            f"one cohort, {self.colluding} colluding"
        )  # fmt: skip


WAYS = (
    Way(5, 0), Way(5, 5, 1), Way(5, 1),
    Way(20, 20, 1), Way(20, 20, 5), Way(20, 1),
    Way(100, 20, 1), Way(100, 20, 5), Way(100, 5, 1), Way(100, 1),
    Way(1000, 20, 1), Way(1000, 20, 5), Way(1000, 5, 1), Way(1000, 1),
)  # fmt: skip


class Trials(NamedTuple):
    """Kinds of units in their order, (trials, units), and standard normals, (2, trials, rounds, coordinates)."""

    kinds: NDArray[np.int8]
    normals: Floats

    def counts(self, sizes: Ints) -> Ints:
        """How many units of each kind arrive in each round, (trials, rounds, kinds)."""
        kinds, trials, rounds = 2 * THRESHOLDS + 2, len(self.kinds), len(sizes)
        which = np.repeat(np.arange(rounds), sizes)
        cell = (np.arange(trials)[:, None] * rounds + which) * kinds + self.kinds[:, : which.size]
        return np.bincount(cell.ravel(), minlength=trials * rounds * kinds).reshape(trials, rounds, kinds)


def trials_of(draw: Draw, trials: int, rng: np.random.Generator) -> Trials:
    kinds = rng.choice(draw.laws.shape[1], (trials, UNITS), p=draw.laws.mean(axis=0))
    return Trials(kinds.astype(np.int8), rng.standard_normal((2, trials, ROUNDS, COORDINATES)))


def masses_of(draw: Draw) -> tuple[Floats, Floats]:
    """Unsupported and supported masses of each kind, (kinds, thresholds)."""
    none = np.zeros_like(draw.above)
    return np.vstack([none, draw.above]), np.vstack([draw.above, none])


def open_shown(draw: Draw, aim: Aim, played: Trials, seed: int) -> tuple[Bools, Ints]:
    """Whether the open certificate, as planned, is shown after each round, and the units used."""
    rng = np.random.default_rng([21, seed])
    plan, _ = plan_open(from_answers(draw.unsupported, draw.supported, rng), aim, rng)
    kept, sizes = list(plan.kept), np.array(plan.sizes)
    counts = played.counts(sizes).cumsum(axis=1)
    u, s = (
        counts @ each[:, kept] + plan.noise(normals[:, : sizes.size, : len(kept)])
        for each, normals in zip(masses_of(draw), played.normals, strict=True)
    )
    return np.asarray(plan.decide(u, s).any(axis=-1)), np.cumsum(sizes)


def sealed_shown(draw: Draw, aim: Aim, played: Trials, seed: int, *, within: bool) -> tuple[Bools, Ints]:
    """The same of the sealed certificate, with registered bets."""
    rng = np.random.default_rng([21, seed])
    plan, _ = plan_sealed(from_answers(draw.unsupported, draw.supported, rng), replace(aim, looks=MANY), rng)
    kept, sizes = list(plan.kept), np.array(plan.units)
    u, s = (each[:, kept] for each in masses_of(draw))
    noised = totals(u, s, played.counts(sizes), TARGET).plus(plan.noise(played.normals[0, :, : sizes.size]))
    return np.asarray(decide(plan, noised, within=within).any(axis=-1)), np.cumsum(sizes)


def decide(plan: SealedPlan, seen: Totals, *, within: bool) -> Bools:
    """Which thresholds are certified after each look: as the plan decides, or with the line for noise that may be less.

    Theory: (xiii) Exact tail; (xvii) Validity.
    """
    if not within:
        return plan.decide(seen)
    aim, slots, v, shares = plan.aim, np.cumsum(plan.units), plan.variances, np.array(plan.shares)
    _, a, b = np.array([bet(R, theta) for theta in plan.bets]).T
    w = passed_on(plan.weights)
    alpha = np.where(w > 0, np.multiply.outer(aim.risk_budget * shares, w), 0.5)
    line = np.maximum(critical_near(alpha, (a**2 * v.d + b**2 * v.q)[:, None, :]), -np.log(alpha))
    rejected = recycled_looks(a * seen.d - b * seen.q, np.where(w > 0, line, np.inf))
    return rejected & reaches_floor(aim, seen.a, slots[:, None], v.a, shares[:, None] * np.array(plan.weights))


def settings() -> Iterator[tuple[str, float, Way]]:
    """Every way to add up, of either certificate at either epsilon."""
    for certificate in ("open", "sealed"):
        for epsilon in EPSILONS:
            yield from ((certificate, epsilon, way) for way in WAYS)


def played(seed: int) -> pl.DataFrame:
    """Play every way on the same units and noise of one draw, and count trials by the records they took."""
    draw = drawn(seed)
    trials, found = trials_of(draw, TRIALS, np.random.default_rng([22, seed])), list[tuple[object, ...]]()
    for certificate, epsilon, way in settings():
        aim = Aim(TARGET, CAP, noise(epsilon) * math.sqrt(way.noises), objective="records")
        if certificate == "sealed":
            shown, units = sealed_shown(draw, aim, trials, seed, within=way.size > 1)
        else:
            shown, units = open_shown(draw, aim, trials, seed)
        used = np.where(shown.any(axis=1), units[shown.argmax(axis=1)], 0)
        for n, count in zip(*(each.tolist() for each in np.unique(used, return_counts=True)), strict=True):
            found.append((certificate, epsilon, *way, seed, draw.limit, n or None, count))
    return pl.DataFrame(found, schema=SCHEMA, orient="row")


class Row(NamedTuple):
    """One way: records over the limit, records over those of one holder with a 95% interval, and certified trials."""

    over_limit: float
    over_holder: float
    low: float
    high: float
    certified: float


def log_means(part: pl.DataFrame) -> Floats:
    """Return the logarithm of each draw's mean records; a trial without a certificate counts the cap."""
    used = pl.min_horizontal(pl.col("records").fill_null(CAP), CAP) * pl.col("trials").cast(pl.Int64)
    means = part.group_by("draw").agg(used.sum() / pl.col("trials").cast(pl.Int64).sum()).sort("draw")
    return np.asarray(np.log(means["records"].to_numpy()))


def compared(part: pl.DataFrame, holder: Floats) -> Row:
    """Compare one way with the limit and with one holder, draw by draw."""
    log, limits = log_means(part), part.group_by("draw").agg(pl.col("limit").first()).sort("draw")["limit"]
    ratio, over = log - holder, log - np.log(limits.to_numpy())
    half = student.ppf(0.975, log.size - 1) * ratio.std(ddof=1) / math.sqrt(log.size)
    low, middle, high = np.exp(ratio.mean() + np.array([-half, 0.0, half])).tolist()
    sure, trials = (int(each["trials"].sum()) for each in (part.drop_nulls("records"), part))
    return Row(math.exp(over.mean()), middle, low, high, sure / trials)


def rows(frame: pl.DataFrame) -> Iterator[list[str]]:
    """One row for each way; the first of a certificate and epsilon is one holder."""
    for (certificate, epsilon), cell in frame.group_by("certificate", "epsilon", maintain_order=True):
        holder = log_means(cell.filter(pl.col("size") == 0))
        for facts, part in cell.group_by("sites", "size", "colluding", maintain_order=True):
            way = Way(*(int(str(each)) for each in facts))
            figures, sites = [f"{x:.2f}" for x in compared(part, holder)], f"{way.sites:,}" if way.size else "any"
            yield [
                str(certificate), words(float(str(epsilon))), sites, way.name, f"{way.noises:.4g}", *figures[:2],
                f"[{figures[2]}, {figures[3]}]", figures[4],
            ]  # fmt: skip


def page(frame: pl.DataFrame) -> list[str]:
    """Return the page's parts, from how many trials took how many records."""
    return [HEAD, markdown(HEADER, rows(frame)), TAIL]


def main() -> None:
    with ProcessPoolExecutor() as pool:
        frame = pl.concat(pool.map(played, range(DRAWS)))
    order = {setting: i for i, setting in enumerate((name, epsilon, *way) for name, epsilon, way in settings())}
    frame = pl.DataFrame(sorted(frame.rows(), key=lambda row: order[row[:5]]), schema=SCHEMA, orient="row")
    frame.write_parquet(RECORDS, compression="zstd", compression_level=19)
    publish("cohorts.md", page(frame))


HEADER = (
    "certificate", "epsilon", "sites", "added up by", "noises a round", "records over the limit", "over one holder",
    "95% interval", "certified",
)  # fmt: skip

HEAD = f"""\
# Cohorts: records to a certificate

Made by

    python -m research.studies.cohort_records

How many trials took how many records is in `research/results/cohorts.parquet`.

Population L, {DRAWS} draws, {TRIALS} trials each, target {R:g}, epsilon for replacement: any record could have been any
other. Sites are alike, and asked for equal parts. Every way is planned for its own noise on the same 125 development
draws, and played on the same units in the same order with the same standard normals. Sealed certificates of cohorts
have the line for noise that may be less than stated; own noise and one holder have the exact one. There are no
unlabelled records.

Records over the limit log(1/0.05) / max_j a_j kl(R_j, r) are geometric means over draws of mean records to the first
certificate; a trial without one counts {CAP:,}, so where not all are certified the true figure is larger. The interval
is of the draws."""

TAIL = f"""\
Noise of cohorts is a sum of discrete Gaussians: at a share of {LEAST_SHARE:g} lattice units, the least that is
registered, the sum of 1,000 is within exp({tau(LEAST_SHARE, 1000):.1e}) of one everywhere."""


if __name__ == "__main__":
    main()
