"""How long a round's decision, all reported bounds, a release and its decoding take, and how they grow with m.

Writes docs/results/speed.md and, repetition by repetition, research/results/speed.parquet.
Run: OPENBLAS_NUM_THREADS=1 python -m research.benchmarks.speed
"""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl
import scipy
from scipy.optimize import brentq
from scipy.special import logsumexp, ndtr, ndtri

from fedsrc.common.clock import utc_now
from fedsrc.maths.arrays import Floats, Ints
from fedsrc.planning.register import Choices, development_part, register
from fedsrc.protocol.judgements import Betting
from fedsrc.protocol.messages import Link, Release, Request
from fedsrc.protocol.registration import Registration
from fedsrc.records.masses import histogram
from fedsrc.records.units import Units, units_of
from fedsrc.server.bounds import BettingPlan, Bounds, Look, Sample, betting_plan, look, report
from fedsrc.server.tally import masses
from fedsrc.simulate.trials import discrete_gaussian
from fedsrc.site.release import make_release
from research.pages import FIGURES, markdown, publish, records_of

THRESHOLDS, GROWTH = 20, (10, 20, 50, 100, 1_000, 10_000)
RECORDS, RELEASES, SLOTS = 1_000, 5, 200
DECISION, BOUNDS = "decision", "all bounds"
KEPT = FIGURES / "speed.parquet"
DECISION_LIMIT, BOUNDS_LIMIT = 1.0, 10.0  # milliseconds, at 20 thresholds


@dataclass(frozen=True)
class Case:
    """A registration with m thresholds, one round of five noised releases, and a request for a sixth."""

    registration: Registration
    sums: Ints
    sample: Sample
    request: Request
    units: Units


@dataclass(frozen=True)
class Timing:
    """Milliseconds."""

    median: float
    high: float

    def __str__(self) -> str:
        return f"{digits(self.median)} / {digits(self.high)}"


def digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def timed(work: Callable[[], object], seconds: float = 1.0, least: int = 5, most: int = 5_000) -> list[int]:
    """Nanoseconds of repetitions for about that many seconds, after one to warm up."""
    work()
    taken = list[int]()
    end = time.perf_counter() + seconds
    while len(taken) < least or (time.perf_counter() < end and len(taken) < most):
        start = time.perf_counter_ns()
        work()
        taken.append(time.perf_counter_ns() - start)
    return taken


def timing(frame: pl.DataFrame, table: str, what: str, thresholds: int = THRESHOLDS) -> Timing:
    """Median and 95th percentile of the repetitions that were kept."""
    here = (pl.col("table") == table) & (pl.col("what") == what) & (pl.col("thresholds") == thresholds)
    taken = frame.filter(here)["nanoseconds"].to_numpy() / 1e6
    return Timing(float(np.median(taken)), float(np.quantile(taken, 0.95)))


def case(thresholds: int) -> Case:
    """The default preset at epsilon 4 on records drawn as in population L, enough for the quantiles."""
    rng = np.random.default_rng(0)
    count = 20 * thresholds + RECORDS
    loss = (rng.random(count) < 0.41).astype(np.float64)
    score = ndtr(rng.standard_normal(count) + np.sqrt(2.0) * ndtri(0.74) * (1.0 - loss))
    table = records_of(score, loss, np.zeros(count, np.int64), ("a site",))
    registration = register(
        Choices(0.2, 4.0, thresholds=thresholds, public_development=True), table, development_part(table, "record", 1.0)
    )
    rule, units = registration.mechanism, units_of(table, "a site", "record")
    exact = rule.basis.encode(histogram(registration, units.take(np.arange(RECORDS))))
    noise = (discrete_gaussian(rng, rule.scale, exact.shape) for _ in range(RELEASES))
    sums = sum(noise, start=exact)
    request = Request(registration=registration.digest, number=1, round=1, site="a site", slots=SLOTS, scale=rule.scale)
    seen = Sample(masses(registration, sums, RELEASES), RECORDS, 0.0)
    return Case(registration, sums, seen, request, units.take(np.arange(SLOTS)))


def plan_of(registration: Registration) -> tuple[Betting, BettingPlan]:
    method, claim = registration.certificate, registration.claim
    assert isinstance(method, Betting)
    weights = registration.thresholds.weights
    return method, betting_plan(method, claim.target_risk, claim.min_acceptance, weights)


def peer(registration: Registration, seen: Sample, log_sum: Callable[[Floats], Floats]) -> tuple[Floats, Floats]:
    """The same decision, threshold by threshold: risk and acceptance bounds from wealth and a bracketed root."""
    method, plan = plan_of(registration)
    rungs, bets, m = plan.rungs, plan.centres, seen.masses
    x, y = np.log1p(-rungs.theta * (1.0 - rungs.r[:, None])), np.log1p(rungs.theta * rungs.r[:, None])
    up, down = np.log1p(bets.theta * (1.0 - bets.c)), np.log1p(-bets.theta * bets.c)
    risk, acceptance = np.ones(m.accepted.size), np.zeros(m.accepted.size)
    for j, (U, S, v) in enumerate(zip(m.unsupported, m.supported, m.noise.uu, strict=True)):
        wealth = log_sum(x * U + y * S - (x * x + y * y) * v / 2.0 + np.log(rungs.p))
        open_ = np.flatnonzero(~(wealth >= -math.log(method.risk_budget * plan.weights[j])))
        first = 0 if open_.size == 0 else int(open_[-1]) + 1
        risk[j] = np.append(rungs.r, 1.0)[first]
        base = up * (U + S) + down * (seen.N - U - S) - (up - down) ** 2 * v + bets.theta * seen.N * bets.c
        line = -math.log(method.acceptance_budget * plan.weights[j])
        acceptance[j] = max(0.0, _root(base + np.log(bets.p), bets.theta * seen.N, line, log_sum))
    return risk, acceptance


def _root(base: Floats, slope: Floats, line: float, log_sum: Callable[[Floats], Floats]) -> float:
    return float(brentq(lambda a: float(log_sum((base - slope * a)[None])[0]) - line, -2.0, 2.0, xtol=1e-12))


def plain(terms: Floats) -> Floats:
    """log sum exp of every row, in plain Python."""
    sums = []
    for row in terms.tolist():
        top = max(row)
        sums.append(top + math.log(math.fsum(math.exp(value - top) for value in row)))
    return np.asarray(sums)


def by_scipy(terms: Floats) -> Floats:
    return np.asarray(logsumexp(terms, axis=-1), dtype=np.float64)


PEERS = {"scipy.special.logsumexp per threshold": by_scipy, "plain Python sums": plain}


def all_bounds(registration: Registration, seen: Sample) -> Bounds:
    return report(registration, seen, look(registration, seen))


def agrees(decided: Look, other: tuple[Floats, Floats]) -> bool:
    """Whether a peer reaches the same bounds: the same rungs, and acceptance to 1e-8."""
    same = np.array_equal(decided.risk_upper, other[0])
    return bool(same and np.allclose(decided.acceptance_lower, other[1], rtol=0, atol=1e-8))


def decision_times(each: Case) -> Iterator[tuple[str, list[int]]]:
    """The decision, all bounds, and the peers."""
    registration, seen = each.registration, each.sample
    decided = look(registration, seen)
    yield DECISION, timed(partial(look, registration, seen))
    yield BOUNDS, timed(partial(all_bounds, registration, seen))
    for name, log_sum in PEERS.items():
        if not agrees(decided, peer(registration, seen, log_sum)):
            raise SystemExit(f"error: the peer {name!r} reaches another decision")
        yield name, timed(partial(peer, registration, seen, log_sum))


def decision_rows(frame: pl.DataFrame) -> Iterator[list[str]]:
    own, bounds = timing(frame, "one round", DECISION), timing(frame, "one round", BOUNDS)
    yield ["one round's decision", str(own), "1", verdict(own, DECISION_LIMIT)]
    yield ["all reported bounds", str(bounds), f"{bounds.median / own.median:.1f}", verdict(bounds, BOUNDS_LIMIT)]
    for name in PEERS:
        taken = timing(frame, "one round", name)
        yield [f"the same decision, {name}", str(taken), f"{taken.median / own.median:.0f}", ""]


def verdict(taken: Timing, limit: float) -> str:
    """Whether the 95th percentile is under the limit."""
    return f"under {limit:g} ms: {'yes' if taken.high < limit else 'no'}"


def release(reg: Registration, request: Request, units: Units) -> Release:
    """Histogram, encoding, noise."""
    return make_release(reg, request, histogram(reg, units), Link(), order="shuffled", time=utc_now())


def growth_times(thresholds: int) -> Iterator[tuple[str, list[int]]]:
    """Decision, all bounds, release and decoding for so many thresholds."""
    each = case(thresholds)
    reg, seen = each.registration, each.sample
    yield DECISION, timed(partial(look, reg, seen))
    yield BOUNDS, timed(partial(all_bounds, reg, seen))
    yield "release", timed(partial(release, reg, each.request, each.units))
    yield "decoding", timed(partial(masses, reg, each.sums, RELEASES))


def growth_rows(frame: pl.DataFrame) -> Iterator[list[str]]:
    found = {m: [timing(frame, "growth", what, m) for what in GROWTH_HEADER[1:]] for m in GROWTH}
    for thresholds, timings in found.items():
        yield [f"{thresholds:,}", *(digits(one.median) for one in timings)]
    for low, high in ((20, 1_000), (1_000, 10_000)):
        pairs = zip(found[low], found[high], strict=True)
        powers = (math.log(b.median / a.median) / math.log(high / low) for a, b in pairs)
        yield [f"power of m, {low:,} to {high:,}", *(f"{power:.2f}" for power in powers)]


def times() -> pl.DataFrame:
    """Time everything: a row per repetition, with the machine."""
    found = [("one round", what, THRESHOLDS, taken) for what, taken in decision_times(case(THRESHOLDS))]
    found += [("growth", what, m, taken) for m in GROWTH for what, taken in growth_times(m)]
    facts = {
        "machine": platform.machine(), "cores": str(os.cpu_count()), "python": platform.python_version(),
        "numpy": np.__version__, "scipy": scipy.__version__,
        "threads": os.environ.get("OPENBLAS_NUM_THREADS", "default"),
    }  # fmt: skip
    rows = [(*setting, i, value) for *setting, taken in found for i, value in enumerate(taken)]
    columns = ("table", "what", "thresholds", "repetition", "nanoseconds")
    return pl.DataFrame(rows, schema=columns, orient="row").with_columns(
        pl.lit(value).alias(name) for name, value in facts.items()
    )


def page(frame: pl.DataFrame) -> list[str]:
    """Return the page's parts, from the times of all repetitions."""
    on = frame.row(0, named=True)
    machine = f"""\
Times are of one machine ({on["machine"]}, {on["cores"]} cores, Python {on["python"]},
numpy {on["numpy"]}, scipy {on["scipy"]}, BLAS threads: {on["threads"]}) and will differ on another; ratios and
powers carry over better. One BLAS thread is asked for because the matrices are too small to gain from more.
Nothing in the tests depends on a clock. The time of every repetition is in `research/results/speed.parquet`."""
    decisions, growth = markdown(DECISION_HEADER, decision_rows(frame)), markdown(GROWTH_HEADER, growth_rows(frame))
    return [HEAD, machine, DECISION_HEAD, decisions, PEER_READING, GROWTH_HEAD, growth, GROWTH_READING]


def main() -> None:
    frame = times()
    frame.write_parquet(KEPT, compression="zstd", compression_level=19)
    publish("speed.md", page(frame))


DECISION_HEADER = ("what", "ms, median / 95th percentile", "times the decision", "requirement")
GROWTH_HEADER = ("thresholds m", DECISION, BOUNDS, "release", "decoding")

HEAD = """\
# Speed: the decision, the bounds, a release, and their growth with the number of thresholds

Made by

    OPENBLAS_NUM_THREADS=1 python -m research.benchmarks.speed"""

DECISION_HEAD = f"""\
## One round at {THRESHOLDS} thresholds

The old default (open, without a plan): {THRESHOLDS} thresholds, 50 rungs of the risk ladder, 12 bets each, 40
acceptance bets, epsilon 4, after {RECORDS:,} records in {RELEASES} releases. The decision is what happens after
every round; all reported bounds adds contrast bounds with and without noise, widths and log-wealth. A requirement
is met when the 95th percentile is under it."""

PEER_READING = """\
The peers are written for this comparison: the same formulas, one threshold at a time, with a bracketed root
(`scipy.optimize.brentq`) for the acceptance bound. The script stops if a peer's bounds differ."""

GROWTH_HEAD = f"""\
## Growth with the number of thresholds

Milliseconds, median. A release is histogram, encoding, and exact discrete noise for {SLOTS} units, with its digest;
decoding turns noised sums into suffix masses with their noise variance. What is computed once per registration
(the public matrix, bets) is not counted."""

GROWTH_READING = """\
A power near 1 is linear growth, near 2 quadratic. The decision and the bounds look at every threshold by itself. In
a release the noise is drawn coordinate by coordinate; encoding and decoding in the suffix basis are a fast transform
above 256 thresholds."""


if __name__ == "__main__":
    main()
