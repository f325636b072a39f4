"""A sealed plan: thresholds, weights, one bet each, encoding and looks, chosen on development evidence alone.

Candidates are judged in populations drawn from the posterior of that evidence, with the true noise. Whatever is chosen
is valid: a bad plan certifies less. Weights and bets have two digits, because a plan is public.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from fedsrc.maths.arrays import Bools, Floats, Ints
from fedsrc.maths.binomial import log_surprise
from fedsrc.maths.contrasts import ContrastCode
from fedsrc.maths.half_line import half_line
from fedsrc.maths.kinds import Adjacency
from fedsrc.maths.panels import Layout
from fedsrc.maths.sealed import bet, passed_on, recycled, recycled_looks
from fedsrc.maths.tail import critical_near
from fedsrc.planning.aim import Aim, Expected, judged, reaches_floor, two_digits
from fedsrc.planning.open_plan import KEPT as MOST
from fedsrc.planning.open_plan import fewer, weighed
from fedsrc.planning.sealing import encoding_of
from fedsrc.protocol.mechanism import sensitivity_of
from fedsrc.simulate.posterior import Populations

KEPT, APART = (1, 2, 3, 4, 5), (1, 2, 3, 4)  # how many thresholds, and how far apart
TOPS, FINALISTS = (30, 70), 5  # percent of the weight on the highest threshold, tried beside 50 on the best candidates
BETS, HALVINGS = 14, 6
LIKELY = 0.9  # where few labels are less likely to do, one look at the end is tried too
FIRST, GROWTH = 0.75, 1.3  # the first round over that of an open plan, and how much rounds grow at most
FEW_LOOKS = (1, 2, 3, 4, 6, 8)  # tried where labels are to be few
SLACK = 1.3  # a threshold that accepts less than this times the floor is no candidate


class Totals(NamedTuple):
    """Contrasts, second moments and accepted masses after each round, (..., looks, thresholds)."""

    d: Floats
    q: Floats
    a: Floats

    def at(self, kept: tuple[int, ...]) -> Totals:
        """Return those of some thresholds."""
        return Totals(*(each[..., list(kept)] for each in self))

    def plus(self, noise: Totals) -> Totals:
        """Add noise."""
        return Totals(*(one + other for one, other in zip(self, noise, strict=True)))


@dataclass(frozen=True)
class SealedPlan:
    """Thresholds by index, increasing, each with its weight and bet (which counts for nothing where the best is free);
    units that arrive in each round, after which a look spends its share of the budgets; and, from these, what a release
    counts and how a look decides."""

    aim: Aim
    kept: tuple[int, ...]
    weights: tuple[float, ...]
    bets: tuple[float, ...]
    units: tuple[int, ...]
    shares: tuple[float, ...]
    growth: float = 1.0

    @cached_property
    def encoding(self) -> ContrastCode:
        aim = self.aim
        targets = ((aim.target_risk, 1.0),)
        return encoding_of(
            aim.mass_grid, self.weights, targets, free=aim.free, unlabelled=aim.acceptance is not None
        )  # fmt: skip

    @property
    def scale(self) -> float:
        """The noise of one release, in lattice units."""
        return self.aim.noise * math.sqrt(_sensitivity_squared(self.encoding, self.aim.adjacency, self.aim.layout))

    @property
    def variances(self) -> Totals:
        """Noise variances at every look, (looks, thresholds)."""
        releases = self.scale**2 * self.aim.releases * np.arange(1, len(self.units) + 1)[:, None]
        code = self.encoding
        return Totals(*(releases * each for each in (
            (code.inverse**2).sum(axis=1), code.second_unit**2, code.accepted_unit**2
        )))  # fmt: skip

    def noise(self, normals: Floats) -> Totals:
        """Return the noise at every look from standard normals (..., looks, at least as many as a release holds)."""
        size = self.scale * math.sqrt(self.aim.releases)
        return Totals(*self.encoding.decode(size * normals[..., : sum(self.encoding.lengths)].cumsum(axis=-2)))

    def decide(self, totals: Totals) -> Bools:
        """Return which thresholds are certified after each look, (..., looks, thresholds), from noised totals."""
        slots, v, shares = np.cumsum(self.units), self.variances, np.array(self.shares)
        L, lines = (self._free if self.aim.free else self._bets)(totals, slots, v)
        if self.aim.moving:
            rejected = np.stack([recycled(L[..., t, :], c) for t, c in enumerate(lines)], axis=-2)
        else:
            rejected = recycled_looks(L, lines)
        if self.aim.acceptance is not None:
            return rejected & (self._acceptance[:, 0] >= self.aim.min_acceptance)
        shares = shares[:, None] * np.array(self.weights)
        return rejected & reaches_floor(self.aim, totals.a, slots[:, None], v.a, shares)

    @property
    def _acceptance(self) -> Floats:
        """Bounds on acceptance at the thresholds kept, (thresholds, 2)."""
        return np.array(self.aim.acceptance)[list(self.kept)]

    def _bets(self, totals: Totals, slots: Ints, v: Totals) -> tuple[Floats, Floats]:
        """Log e-values and the lines (looks, 2^m, m) that they must reach."""
        bets = [bet(float(self.aim.target_risk), theta) for theta in self.bets]
        a, b = np.array([each.a for each in bets]), np.array([each.b for each in bets])
        L = a * totals.d - b * totals.q - np.multiply.outer(slots * self.aim.drift, self.bets)
        w, alpha = self._levels()
        nu = (a**2 * v.d + b**2 * v.q)[:, None, :]
        return L, np.where(w > 0, critical_near(alpha, nu, within=self.aim.within), np.inf)

    def _free(self, totals: Totals, slots: Ints, v: Totals) -> tuple[Floats, Floats]:
        """The same for contrasts that are tested by themselves: contrasts, or log surprises of exact counts."""
        (w, alpha), r = self._levels(), float(self.aim.target_risk)
        if self.aim.acceptance is None:
            surprise = log_surprise(np.rint(r * totals.a - totals.d), np.rint(totals.a), r)
            return surprise, np.where(w > 0, np.log(1.0 / alpha), np.inf)
        each, which = np.unique(np.where(w > 0, w, 1.0), return_inverse=True)  # few, and a line is a minimum over bets
        levels = np.multiply.outer(self.aim.risk_budget * np.array(self.shares), each)[..., None]
        line = half_line(
            levels, r, slots[:, None, None], self._acceptance[:, 1], v.d[:, None, :], eta=self.aim.drift,
            within=self.aim.within,
        )  # fmt: skip
        return totals.d, np.where(w > 0, line[:, which.reshape(w.shape), np.arange(w.shape[1])], np.inf)

    def _levels(self) -> tuple[Floats, Floats]:
        """Weights (2^m, m) for each set of thresholds certified so far, and levels (looks, 2^m, m)."""
        w = _passed_on(self.weights)
        alpha = np.multiply.outer(self.aim.risk_budget * np.array(self.shares), w)
        return w, np.where(w > 0, alpha, 0.5)


def totals(unsupported: Floats, supported: Floats, counts: Ints, target: Fraction) -> Totals:
    """Return totals after each round, from how many units of each kind arrive in it: counts (..., rounds, kinds)."""
    r = float(target)
    d = r * supported - (1.0 - r) * unsupported
    seen = counts.cumsum(axis=-2)
    return Totals(seen @ d, seen @ (d * d + (1.0 - 2.0 * r) * d), seen @ (unsupported + supported))


def plan_sealed(populations: Populations, aim: Aim, rng: np.random.Generator) -> tuple[SealedPlan, Expected]:
    """Return the plan that does best by the aim's objective in these populations, and what to expect of it there.

    For most acceptance, the thresholds to go down to are searched for. Where a certificate is to come soon that would
    trust few development units too much: thresholds are weighed by how often each is best.
    """
    found: list[Judged] = []
    if aim.objective != "acceptance":
        aim = replace(aim, looks=1) if aim.objective == "rounds" else aim
        mixed = aim.acceptance is not None and aim.sites > 1  # how sites mix must not follow what bounds the mixture
        sizes = HALVINGS if aim.looks == 1 and aim.objective != "rounds" and not mixed else 1
        tried = [
            _spread(populations, aim, n, without)
            for n in {aim.units >> k for k in range(sizes)} - {0}
            for without in fewer(aim, populations)
        ]
        found += [_played(populations, aim, plan.units, rng)(plan) for plan in tried]
        if aim.objective == "labels" and not mixed:
            found += _for_labels(populations, aim, rng)
    if not found or (aim.objective == "labels" and max(found, key=_score)[1].certified < LIKELY):
        found += _searched(populations, aim if aim.objective == "acceptance" else replace(aim, looks=1), rng)
    _, forecast, plan = max(found, key=_score)
    return plan, forecast


Judged = tuple[float, Expected, SealedPlan]


def _score(found: Judged) -> float:
    return found[0]


def _searched(populations: Populations, aim: Aim, rng: np.random.Generator) -> list[Judged]:
    """Search for the thresholds to go down to, and how much weight the highest has."""
    units, shares = _even(aim)
    play = _played(populations, aim, units, rng)
    found = [play(plan) for plan in _candidates(populations, aim, units, shares)]
    best = sorted(found, key=_score, reverse=True)[:FINALISTS]
    tops = [replace(plan, weights=_weights(len(plan.kept), top)) for _, _, plan in best for top in TOPS]
    return found + list(map(play, tops))


def _played(
    populations: Populations, aim: Aim, units: tuple[int, ...], rng: np.random.Generator
) -> Callable[[SealedPlan], Judged]:
    """Return how to play plans of one schedule, all in the same draws."""
    counts = populations.samples(units, rng)
    data = totals(populations.unsupported, populations.supported, counts, aim.target_risk)
    most = max(KEPT) if aim.objective == "acceptance" else MOST
    normals = rng.standard_normal((len(counts), len(units), 3 * most))

    def play(plan: SealedPlan) -> Judged:
        done = plan.decide(data.at(plan.kept).plus(plan.noise(normals)))
        first = done.any(axis=-1).argmax(axis=-1)
        done[:, -1] = done[np.arange(len(done)), first]  # a sealed run ends at its first certificate
        return *judged(aim, done, populations.accepted[:, list(plan.kept)], np.cumsum(plan.units)), plan

    return play


def _spread(populations: Populations, aim: Aim, size: int, without: int) -> SealedPlan:
    """A plan for an early certificate: thresholds weighed as in an open plan, and rounds that grow from about its first
    one to all units; earlier looks get larger shares."""
    free = weighed(populations, aim, without)
    looks, growth = _rounds(size / min(size, FIRST * free.batch * aim.sites), min(aim.looks, size))
    grown = np.cumsum([growth**t for t in range(looks)])
    ends = sorted({max(1, int(size * each / grown[-1])) for each in grown})
    units, shares = tuple(int(n) for n in np.diff(ends, prepend=0)), 1.0 / np.arange(1, len(ends) + 1)
    plan = SealedPlan(aim, free.kept, free.weights, (), units, tuple((shares / shares.sum()).tolist()), growth)
    bets = _best(populations, replace(plan, bets=(0.0,) * len(free.kept)))[1]
    return replace(plan, bets=tuple(bets[j] for j in free.kept))


def _for_labels(populations: Populations, aim: Aim, rng: np.random.Generator) -> Iterator[Judged]:
    """Plans for few labels: one threshold, because what is below the lowest needs none, and equal rounds and shares."""
    for looks in sorted({min(each, aim.looks, aim.units) for each in FEW_LOOKS}):
        units = tuple(np.diff([aim.units * t // looks for t in range(looks + 1)]).tolist())
        first = SealedPlan(aim, (0,), (1.0,), (0.0,), units, (1.0 / looks,) * looks)
        play, bets = _played(populations, aim, units, rng), _best(populations, first)[1]
        for j, theta in enumerate(bets):
            yield play(replace(first, kept=(j,), bets=(theta,)))


def _rounds(times: float, most: int) -> tuple[int, float]:
    """How many rounds hold so many times the first, and their growth, down to three digits: about `GROWTH`, or what
    `most` rounds need."""
    looks = min(most, math.ceil(math.log1p(times * (GROWTH - 1.0)) / math.log(GROWTH) - 1e-9))
    low, high = 1.0, 1.0 + times
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if sum(middle**t for t in range(looks)) < times else (low, middle)
    return max(looks, 1), max(1.0, math.floor(1000.0 * high) / 1000.0)


@lru_cache(maxsize=1024)
def _sensitivity_squared(code: ContrastCode, adjacency: Adjacency, layout: Layout | None) -> int:
    return sensitivity_of(code, code.g, adjacency, layout)


@lru_cache(maxsize=1024)
def _passed_on(weights: tuple[float, ...]) -> Floats:
    return passed_on(weights)


def _even(aim: Aim) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Equal rounds, with half of the budget for the last look."""
    T = min(aim.looks, aim.units)
    units = np.diff([aim.units * (t + 1) // T for t in range(T)], prepend=0)
    return tuple(units.tolist()), (1.0,) if T == 1 else (*[0.5 / (T - 1)] * (T - 1), 0.5)


def _candidates(
    populations: Populations, aim: Aim, units: tuple[int, ...], shares: tuple[float, ...]
) -> Iterator[SealedPlan]:
    """Every set of thresholds from near the best one downwards, with the bets of its size."""
    m = populations.supported.shape[1]
    for count in aim.counts or KEPT[:m]:
        first = SealedPlan(aim, (0,) * count, _weights(count, 50), (0.0,) * count, units, shares)
        best, bets = _best(populations, first)
        for top in sorted({max(best - 1, 0), best, min(best + 1, m - 1)}):
            for apart in APART if count > 1 else (1,):
                kept = tuple(range(top - apart * (count - 1), top + 1, apart))
                if kept[0] >= 0:
                    yield replace(first, kept=kept, bets=tuple(bets[j] for j in kept))
        if aim.counts and best < count - 1:  # so many must be kept, and fewer lie below the best
            yield replace(first, kept=tuple(range(count)), bets=tuple(bets[:count]))


def _weights(count: int, top: int) -> tuple[float, ...]:
    """Hundredths that sum to one: about `top` of them for the highest threshold, the rest shared equally."""
    each = (100 - top) // max(count - 1, 1)
    return (*((each / 100,) * (count - 1)), (100 - each * (count - 1)) / 100)


def bets_for(populations: Populations, plan: SealedPlan) -> tuple[float, ...]:
    """Return the best bets of other populations at the thresholds of a plan."""
    found = _best(populations, plan)[1]
    return tuple(found[j] for j in plan.kept)


def _best(populations: Populations, plan: SealedPlan) -> tuple[int, list[float]]:
    """Return the threshold that is most often surest to be certified, and for each threshold the median best bet."""
    aim, u, s = plan.aim, populations.unsupported, populations.supported
    r = float(aim.target_risk)
    look = -1 if aim.objective in ("acceptance", "rounds") else len(plan.units) // 2
    slots, v = int(np.cumsum(plan.units)[look]), plan.variances
    thetas = np.array([two_digits(x) for x in np.geomspace(0.08, 0.97 / (1.0 - r), BETS)])
    bets = [bet(r, theta) for theta in thetas]
    a, b = np.array([each.a for each in bets]), np.array([each.b for each in bets])
    nu = a**2 * v.d[look].max() + b**2 * v.q[look].max()
    line = critical_near(aim.risk_budget * plan.shares[look] / len(plan.weights), nu, within=aim.within)
    d = r * s - (1.0 - r) * u
    mean, square = populations.laws @ d, populations.laws @ (d * d)
    growth = slots * (thetas * (mean - aim.drift)[..., None] - b * square[..., None])
    spread = np.sqrt(slots * thetas**2 * np.maximum(square - mean**2, 1e-6)[..., None] + nu)
    surety = (growth - line) / spread
    surety[populations.accepted < SLACK * aim.min_acceptance] = -9.0
    wins = np.bincount(surety.max(axis=-1).argmax(axis=-1), minlength=u.shape[1])
    chosen = np.median(surety.argmax(axis=-1), axis=0).astype(int)
    return int(np.convolve(wins, [0.25, 0.5, 0.25])[1:-1].argmax()), thetas[chosen].tolist()
