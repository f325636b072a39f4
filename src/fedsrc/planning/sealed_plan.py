"""A sealed plan: thresholds, weights, one bet each, encoding and looks, chosen on development evidence alone.

Candidates are judged in populations drawn from the posterior of that evidence, with the true noise. Whatever is chosen
is valid: a bad plan certifies less. Weights and bets have two digits, because a plan is public.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from fedsrc.maths.arrays import Bools, Floats, Ints
from fedsrc.maths.contrasts import ContrastCode
from fedsrc.maths.kinds import Adjacency
from fedsrc.maths.sealed import bet, passed_on, recycled, recycled_looks
from fedsrc.maths.tail import critical_near
from fedsrc.planning.aim import Aim, Forecast, judged, reaches_floor, two_digits
from fedsrc.planning.populations import Populations
from fedsrc.planning.sealing import encoding_of

KEPT, APART = (1, 2, 3, 4, 5), (1, 2, 3, 4)  # how many thresholds, and how far apart
TOPS, FINALISTS = (30, 70), 5  # percent of the weight on the highest threshold, tried beside 50 on the best candidates
BETS, HALVINGS, GROWTH = 14, 6, 1.5
SLACK = 1.3  # a threshold that accepts less than this times the floor is no candidate


class Totals(NamedTuple):
    """ContrastCode, second moments and accepted masses after each round, (..., looks, thresholds)."""

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
    """Thresholds by index, increasing, each with its weight and bet; units that arrive in each round, after which a
    look spends its share of the budgets; and, from these, what a release counts and how a look decides."""

    aim: Aim
    kept: tuple[int, ...]
    weights: tuple[float, ...]
    bets: tuple[float, ...]
    units: tuple[int, ...]
    shares: tuple[float, ...]

    @cached_property
    def encoding(self) -> ContrastCode:
        return encoding_of(self.aim.mass_grid, self.weights, ((self.aim.target_risk, 1.0),))

    @property
    def scale(self) -> float:
        """The noise of one release, in lattice units."""
        return self.aim.noise * math.sqrt(_sensitivity_squared(self.encoding, self.aim.adjacency))

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
        bets = [bet(float(self.aim.target_risk), theta) for theta in self.bets]
        a, b = np.array([each.a for each in bets]), np.array([each.b for each in bets])
        slots = np.cumsum(self.units)
        L = a * totals.d - b * totals.q - np.multiply.outer(slots * self.aim.drift, self.bets)
        v, shares = self.variances, np.array(self.shares)
        lines = _lines(self.weights, self.aim.risk_budget * shares, a**2 * v.d + b**2 * v.q)
        if self.aim.moving:
            rejected = np.stack([recycled(L[..., t, :], c) for t, c in enumerate(lines)], axis=-2)
        else:
            rejected = recycled_looks(L, lines)
        shares = shares[:, None] * np.array(self.weights)
        return rejected & reaches_floor(self.aim, totals.a, slots[:, None], v.a, shares)


def totals(unsupported: Floats, supported: Floats, counts: Ints, target: Fraction) -> Totals:
    """Return totals after each round, from how many units of each kind arrive in it: counts (..., rounds, kinds)."""
    r = float(target)
    d = r * supported - (1.0 - r) * unsupported
    seen = counts.cumsum(axis=-2)
    return Totals(seen @ d, seen @ (d * d + (1.0 - 2.0 * r) * d), seen @ (unsupported + supported))


def plan_sealed(populations: Populations, aim: Aim, rng: np.random.Generator) -> tuple[SealedPlan, Forecast]:
    """Return the plan that does best by the aim's objective in these populations, and what to expect of it there."""
    found: list[tuple[float, Forecast, SealedPlan]] = []
    for units, shares in _schedules(aim):
        counts = populations.samples(units, rng)
        data = totals(populations.unsupported, populations.supported, counts, aim.target_risk)
        normals = rng.standard_normal((len(counts), len(units), 3 * max(KEPT)))

        def play(plan: SealedPlan, data: Totals = data, normals: Floats = normals) -> None:
            done = plan.decide(data.at(plan.kept).plus(plan.noise(normals)))
            first = done.any(axis=-1).argmax(axis=-1)
            done[:, -1] = done[np.arange(len(done)), first]  # a sealed run ends at its first certificate
            found.append((*judged(aim, done, populations.accepted[:, list(plan.kept)], np.cumsum(plan.units)), plan))

        for plan in _candidates(populations, aim, units, shares):
            play(plan)
        here = sorted((each for each in found if each[2].units == units), key=lambda each: -each[0])
        for _, _, plan in here[:FINALISTS]:
            for top in TOPS:
                play(replace(plan, weights=_weights(len(plan.kept), top)))
    _, forecast, best = max(found, key=lambda each: each[0])
    return best, forecast


@lru_cache(maxsize=1024)
def _sensitivity_squared(code: ContrastCode, adjacency: Adjacency) -> int:
    return code.sensitivity_squared(adjacency)


def _lines(weights: tuple[float, ...], budgets: Floats, variances: Floats) -> Floats:
    """Critical values (looks, 2^m, m), one row for each set of thresholds certified so far; inf without weight."""
    w = _passed_on(weights)
    alpha = np.multiply.outer(budgets, w)
    return np.where(w > 0, critical_near(np.where(w > 0, alpha, 0.5), variances[:, None, :]), np.inf)


@lru_cache(maxsize=1024)
def _passed_on(weights: tuple[float, ...]) -> Floats:
    return passed_on(weights)


def _schedules(aim: Aim) -> Iterator[tuple[tuple[int, ...], tuple[float, ...]]]:
    """Units of each round and shares of their looks. Where records count, ever fewer, in growing rounds."""
    T = 1 if aim.objective == "rounds" else min(aim.looks, aim.units)
    last, ends = 0.5 if T > 1 else 1.0, [[aim.units * (t + 1) // T for t in range(T)]]
    if aim.objective in ("records", "labels"):
        last = 1.0 / T
        grown = [(GROWTH ** (t + 1) - 1) / (GROWTH**T - 1) for t in range(T)]
        ends += [[*(int((aim.units >> k) * each) for each in grown[:-1]), aim.units >> k] for k in range(HALVINGS)]
    for each in ends:
        units = tuple(int(n) for n in np.diff(each, prepend=0))
        if min(units) > 0:
            yield units, (*((1.0 - last) / (T - 1) for _ in range(T - 1)), last)


def _candidates(
    populations: Populations, aim: Aim, units: tuple[int, ...], shares: tuple[float, ...]
) -> Iterator[SealedPlan]:
    """Every set of thresholds from near the best one downwards, with the bets of its size."""
    m = populations.supported.shape[1]
    for count in KEPT[:m]:
        first = SealedPlan(aim, (0,) * count, _weights(count, 50), (0.0,) * count, units, shares)
        best, bets = _best(populations, first)
        for top in sorted({max(best - 1, 0), best, min(best + 1, m - 1)}):
            for apart in APART if count > 1 else (1,):
                kept = tuple(range(top - apart * (count - 1), top + 1, apart))
                if kept[0] >= 0:
                    yield replace(first, kept=kept, bets=tuple(bets[j] for j in kept))


def _weights(count: int, top: int) -> tuple[float, ...]:
    """Hundredths that sum to one: about `top` of them for the highest threshold, the rest shared equally."""
    each = (100 - top) // max(count - 1, 1)
    return (*((each / 100,) * (count - 1)), (100 - each * (count - 1)) / 100)


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
    line = critical_near(aim.risk_budget * plan.shares[look] / len(plan.weights), nu)
    d = r * s - (1.0 - r) * u
    mean, square = populations.laws @ d, populations.laws @ (d * d)
    growth = slots * (thetas * (mean - aim.drift)[..., None] - b * square[..., None])
    spread = np.sqrt(slots * thetas**2 * np.maximum(square - mean**2, 1e-6)[..., None] + nu)
    surety = (growth - line) / spread
    surety[populations.accepted < SLACK * aim.min_acceptance] = -9.0
    wins = np.bincount(surety.max(axis=-1).argmax(axis=-1), minlength=u.shape[1])
    chosen = np.median(surety.argmax(axis=-1), axis=0).astype(int)
    return int(np.convolve(wins, [0.25, 0.5, 0.25])[1:-1].argmax()), thetas[chosen].tolist()
