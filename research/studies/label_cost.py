"""Population L: how many times the limit planned certificates take, open and sealed, beside the old default.

Writes docs/results/label-cost.md and, trial by trial, research/results/label_cost.parquet.
Run: python -m research.studies.label_cost

586 answers a draw, loss ~ Bernoulli(0.41), score = Phi(Z + sqrt(2) Phi^-1(0.74) (1 - loss)); the first 125 give 20
thresholds and the plan, which sees no others; the rest are dealt to five sites. Events are drawn with replacement; a
trial stops at its first certificate, and without one counts 30,000. A figure is the geometric mean over draws of mean
records over the limit log(1/0.05) / max_j a_j kl(R_j, r); draws whose limit is above 30,000 are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import polars as pl
from scipy.special import ndtr, ndtri

from fedsrc.maths import betting, limits, privacy
from fedsrc.maths.arrays import Bools, Floats, Ints
from fedsrc.maths.basis import Basis, sensitivity_squared
from fedsrc.maths.half_line import acceptance_lower, acceptance_upper
from fedsrc.maths.kinds import Adjacency
from fedsrc.maths.quantiles import score_grid
from fedsrc.planning.aim import Aim
from fedsrc.planning.open_plan import OpenPlan, plan_open
from fedsrc.planning.plan import MANY
from fedsrc.planning.sealed_plan import Totals, plan_sealed
from fedsrc.simulate.posterior import from_answers
from research.pages import FIGURES, markdown, publish, words

DRAWS, TRIALS, SITES, CAP = 10, 100, 5, 30_000
UNSEEN = 30  # the first of ten draws that nobody had looked at when the plans' constants were chosen
DEVELOPMENT, ANSWERS, THRESHOLDS = 125, 586, 20
TARGET, FLOOR, DELTA = Fraction(1, 5), 0.05, 1e-6
R = float(TARGET)
UNLABELLED = 10_000  # records without labels
RECORDS = FIGURES / "label_cost.parquet"


class Draw(NamedTuple):
    """One draw: development masses at the thresholds, the law of each site over kinds of answers, and the limit."""

    unsupported: Floats
    supported: Floats
    laws: Floats
    above: Floats
    acceptance: Floats
    limit: float


def answers(rng: np.random.Generator) -> tuple[Floats, Ints]:
    """Scores and losses of one draw."""
    loss = (rng.random(ANSWERS) < 0.41).astype(np.int64)
    return ndtr(rng.normal(size=ANSWERS) + math.sqrt(2.0) * ndtri(0.74) * (1 - loss)), loss


def drawn(seed: int) -> Draw:
    score, loss = answers(np.random.default_rng(seed))
    thresholds = np.quantile(score[:DEVELOPMENT], np.arange(1, THRESHOLDS + 1) / (THRESHOLDS + 1))
    above = (score[:, None] >= thresholds).astype(np.float64)
    u, s = above * loss[:, None], above * (1 - loss)[:, None]
    kinds = np.searchsorted(thresholds, score, side="right") + (THRESHOLDS + 1) * loss
    dealt = np.array_split(np.random.default_rng(7).permutation(np.arange(DEVELOPMENT, ANSWERS)), SITES)
    laws = np.array([np.bincount(kinds[part], minlength=2 * THRESHOLDS + 2) / part.size for part in dealt])
    a, z = above[DEVELOPMENT:].mean(axis=0), u[DEVELOPMENT:].mean(axis=0)
    enough = a > FLOOR
    limit = limits.records_best(a[enough], (z / a)[enough], R, 0.05)
    suffix = np.vstack([np.zeros(THRESHOLDS), np.tril(np.ones((THRESHOLDS, THRESHOLDS)))])
    return Draw(u[:DEVELOPMENT], s[:DEVELOPMENT], laws, suffix, a, limit)


def events(draw: Draw, sizes: Sequence[int], trials: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Unsupported and supported masses after each round, (trials, rounds, thresholds), from all sites."""
    counts = np.stack([sum(rng.multinomial(n, law, trials) for law in draw.laws) for n in sizes], axis=1).cumsum(axis=1)
    supported, unsupported = np.split(counts, 2, axis=-1)
    return unsupported @ draw.above, supported @ draw.above


def noise(epsilon: float) -> float:
    """The noise scale over the sensitivity."""
    return 0.0 if math.isinf(epsilon) else math.sqrt(1.0 / (2.0 * privacy.rho_tight(epsilon, DELTA)))


Play = Callable[[Draw, Aim, int, np.random.Generator], tuple[Bools, Sequence[int]]]


def open_planned(draw: Draw, aim: Aim, trials: int, rng: np.random.Generator) -> tuple[Bools, Sequence[int]]:
    """The open certificate as planned."""
    return played(draw, plan_open(from_answers(draw.unsupported, draw.supported, rng), aim, rng)[0], trials, rng)


def open_default(draw: Draw, aim: Aim, trials: int, rng: np.random.Generator) -> tuple[Bools, Sequence[int]]:
    """The old default: 20 thresholds and 12 bets, all alike, 200 units per site and round."""
    even, bets = 1.0 / THRESHOLDS, len(betting.ladder([R]).p)
    plan = OpenPlan(
        aim, tuple(range(THRESHOLDS)), (even,) * THRESHOLDS, ((1.0 / bets,) * bets,) * THRESHOLDS, 200, 1.0, 30
    )  # fmt: skip
    return played(draw, plan, trials, rng)


def played(draw: Draw, plan: OpenPlan, trials: int, rng: np.random.Generator) -> tuple[Bools, Sequence[int]]:
    kept = list(plan.kept)
    u, s = (each[..., kept] for each in events(draw, plan.sizes, trials, rng))
    normals = rng.standard_normal((2, *u.shape))
    return plan.decide(u + plan.noise(normals[0]), s + plan.noise(normals[1])), plan.sizes


def sealed(draw: Draw, aim: Aim, trials: int, rng: np.random.Generator) -> tuple[Bools, Sequence[int]]:
    """The sealed certificate as planned, with unlabelled records: contrasts alone are released, and the best bet is
    free. In every trial acceptance is bounded by a release of its own, and where it is too low nothing is certified.
    """
    known = bounds(draw.acceptance, aim, trials, rng)
    usual = tuple(zip(*(np.median(each, axis=0).tolist() for each in known), strict=True))
    plan, _ = plan_sealed(
        from_answers(draw.unsupported, draw.supported, rng), replace(aim, looks=MANY, acceptance=usual), rng
    )
    kept, sizes = list(plan.kept), [round(n / SITES) for n in plan.units]
    u, s = (each[..., kept] for each in events(draw, sizes, trials, rng))
    noise = plan.noise(rng.standard_normal((trials, len(sizes), sum(plan.encoding.lengths))))
    D, done = R * s - (1.0 - R) * u + noise.d, np.zeros(u.shape, dtype=np.bool_)
    for trial, each in enumerate(zip(*(known[i].tolist() for i in (0, 1)), strict=True)):
        mine = replace(plan, aim=replace(plan.aim, acceptance=tuple(zip(*each, strict=True))))
        done[trial] = mine.decide(Totals(D[trial], 0.0 * D[trial], (u + s)[trial]))
    return done, sizes


def bounds(a: Floats, aim: Aim, trials: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Bounds on acceptance, (trials, thresholds), as a look has them from a release over the public grid."""
    basis = Basis("suffix", len(score_grid()))
    per_noise = sensitivity_squared(basis, "complementary", aim.adjacency) * float(basis.variance_factor().max())
    v = aim.noise**2 * aim.releases * per_noise
    seen = rng.binomial(UNLABELLED, a, (trials, a.size)) + rng.normal(size=(trials, a.size)) * math.sqrt(v)
    level = aim.acceptance_budget / (2 * 2 * len(score_grid()))  # sites are mixed as registered, at every look
    return acceptance_lower(seen, v, UNLABELLED, level), acceptance_upper(seen, v, UNLABELLED, level)


ROWS: tuple[tuple[str, Play, Adjacency], ...] = (
    ("old default", open_default, "zero-out"), ("open, planned", open_planned, "zero-out"),
    ("sealed", sealed, "zero-out"), ("sealed", sealed, "replacement"),
)  # fmt: skip
PLAYS = {name: play for name, play, _ in ROWS}


class Setting(NamedTuple):
    """A certificate, what its epsilon is for, and how many releases a round has noise of: each site's, or one's."""

    certificate: str
    adjacency: Adjacency
    epsilon: float
    releases: int
    draw: int


SETTING = {
    "certificate": pl.String(), "adjacency": pl.String(), "epsilon": pl.Float64(), "releases": pl.Int8(),
    "draw": pl.Int16(),
}  # fmt: skip
SCHEMA = {**SETTING, "limit": pl.Float64(), "trial": pl.Int16(), "records": pl.Int32()}  # records: if it certified


def settings() -> Iterator[Setting]:
    """Every certificate at every epsilon, on draws that were looked at and on draws that were not."""
    for first in (0, UNSEEN):
        for name, play, adjacency in ROWS:
            for epsilon in (4.0, 1.0) if play is sealed else (math.inf, 4.0, 1.0):
                for releases in (SITES, 1):
                    yield from (Setting(name, adjacency, epsilon, releases, first + i) for i in range(DRAWS))


def outcomes(setting: Setting) -> pl.DataFrame:
    """Play the trials of one setting, a row each."""
    draw = drawn(setting.draw)
    aim = Aim(
        TARGET, CAP, noise(setting.epsilon), SITES, setting.releases, objective="records", adjacency=setting.adjacency
    )
    done, sizes = PLAYS[setting.certificate](draw, aim, TRIALS, np.random.default_rng([19, setting.draw]))
    shown = np.asarray(done.any(axis=-1))
    used = SITES * np.cumsum(sizes)[shown.argmax(axis=1)]
    rows = [(*setting, draw.limit, trial, int(used[trial]) if each.any() else None) for trial, each in enumerate(shown)]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def times_limit(part: pl.DataFrame) -> float:
    """Geometric mean over draws of mean records over the limit; a trial without a certificate counts the cap."""
    means = part.group_by("draw").agg(pl.col("records").fill_null(CAP).mean(), pl.col("limit").first()).sort("draw")
    return math.exp(float(np.mean(np.log((means["records"] / means["limit"]).to_numpy()))))


def figures(part: pl.DataFrame) -> list[str]:
    """What own noise and one holder take, and the share of trials that certified."""
    ways = [part.filter(pl.col("releases") == releases) for releases in (SITES, 1)]
    certified = [1.0 - each["records"].null_count() / each.height for each in ways]
    return [f"{x:.2f}" for x in (*map(times_limit, ways), *certified)]


def table(frame: pl.DataFrame) -> str:
    cells = frame.group_by("certificate", "adjacency", "epsilon", maintain_order=True)
    return markdown(HEADER, ([str(c), str(a), words(float(str(e))), *figures(part)] for (c, a, e), part in cells))


def reading(frame: pl.DataFrame) -> str:
    """Say of which draw the second table has no figures, and what became of its trials."""
    hard = frame.filter(pl.col("limit") > CAP)
    (limit,) = hard["limit"].unique()
    sure = hard.height - hard["records"].null_count()
    return f"""\
The plans' constants were chosen on other draws and, in part, on these. Below, ten draws that nobody had looked at then,
less one: its limit, {limit:,.0f}, is above the {CAP:,} records that a trial has, and {sure} of its {hard.height:,}
trials certified."""


def page(frame: pl.DataFrame) -> list[str]:
    """Return the page's parts, from the outcomes of all trials."""
    within = frame.filter(pl.col("limit") <= CAP)
    seen, unseen = (within.filter((pl.col("draw") >= UNSEEN) == new) for new in (False, True))
    return [HEAD, table(seen), reading(frame), table(unseen)]


def main() -> None:
    with ProcessPoolExecutor() as pool:
        frame = pl.concat(pool.map(outcomes, settings()))
    frame.write_parquet(RECORDS, compression="zstd", compression_level=19)
    publish("label-cost.md", page(frame))


HEADER = (
    "certificate", "epsilon for", "epsilon", "own noise", "one holder", "certified", "one holder, certified",
)  # fmt: skip

HEAD = f"""\
# Population L: records over the limit

Made by

    python -m research.studies.label_cost

What every trial gave is in `research/results/label_cost.parquet`.

Geometric mean over ten draws of mean records to the first certificate, over the limit log(1/0.05) / max_j a_j kl(R_j,
r): five sites, target {R:g}, {TRIALS} trials, plans that see the {DEVELOPMENT} development draws only, {CAP:,} for a
trial that does not certify. Sealed certificates have {UNLABELLED:,} unlabelled records, from which acceptance is
released once, and are planned as `fedsrc plan --objective records --unlabelled` does."""


if __name__ == "__main__":
    main()
