"""An open plan: threshold weights, a prior over bets for each threshold, and batches, from development evidence alone.

Nothing in the theorem needs equal weights, uniform bets or equal batches (theory.md, (iv)). Weights and priors say how
often a threshold, or a bet, is the best one in populations drawn from the posterior, with the noise in the objective,
and keep a uniform part for what development did not show. They have two digits, because a plan is public.
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedsrc.maths import betting
from fedsrc.maths.arrays import Bools, Floats, Ints
from fedsrc.maths.basis import Basis
from fedsrc.planning.aim import Aim, Expected, judged, reaches_floor, two_digits
from fedsrc.protocol.mechanism import sensitivity_of
from fedsrc.simulate.posterior import Populations

KEPT = 7
EVEN_WEIGHT, EVEN_PRIOR = 0.2, 0.25  # what is shared equally
BATCH, LEAST = 240.0, 10  # units of a first round over the noise of its masses; units of a site
GROWTH, SLOW_GROWTH = 1.1, 1.02  # of batches, with and without noise
SLACK = 1.1  # a threshold that accepts less than this times the floor is no candidate


@dataclass(frozen=True)
class OpenPlan:
    """Thresholds by index, increasing, each with its weight and its prior over the registered bets; units asked of each
    site in the first round, by how much that grows, and for how many rounds."""

    aim: Aim
    kept: tuple[int, ...]
    weights: tuple[float, ...]
    priors: tuple[tuple[float, ...], ...]
    batch: int
    growth: float
    rounds: int

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Units asked of each site, round by round."""
        return _sizes(self.batch, self.growth, self.rounds)

    def noise(self, normals: Floats) -> Floats:
        """Return noise on supported or unsupported masses after each round, from normals (..., rounds, kept)."""
        basis, scale = _mechanism(self.aim, len(self.kept))
        return basis.decode(scale * math.sqrt(self.aim.releases) * normals.cumsum(axis=-2))

    def decide(self, unsupported: Floats, supported: Floats) -> Bools:
        """Return which thresholds are certified after each round, from noised masses (..., rounds, kept) so far."""
        aim, rounds = self.aim, len(self.sizes)
        basis, scale = _mechanism(aim, len(self.kept))
        v = scale**2 * aim.releases * np.arange(1, rounds + 1)[:, None] * basis.variance_factor()
        slots = aim.sites * np.cumsum(self.sizes)[:, None]
        rejected = np.concatenate([
            self._wealth(j, unsupported, supported, v, slots) >= -math.log(aim.risk_budget * w)
            for j, w in enumerate(self.weights)
        ], axis=-1)  # fmt: skip
        found = rejected & reaches_floor(aim, unsupported + supported, slots, 2.0 * v, np.array(self.weights))
        return found if aim.moving else np.logical_or.accumulate(found, axis=-2)  # what was shown stays shown

    def _wealth(self, j: int, unsupported: Floats, supported: Floats, v: Floats, slots: Floats) -> Floats:
        one = slice(j, j + 1)
        noise = betting.Covariance(v[:, one], 0.0 * v[:, one], v[:, one])
        rungs = betting.ladder([float(self.aim.target_risk)])._replace(p=np.array(self.priors[j]))
        found = betting.log_wealth(
            unsupported[..., one], supported[..., one], noise, slots, eta=self.aim.drift, rungs=rungs
        )  # fmt: skip
        return found[..., 0]


def plan_open(populations: Populations, aim: Aim, rng: np.random.Generator) -> tuple[OpenPlan, Expected]:
    """Return weights and priors for batches that suit noise and table, and what to expect in these populations.

    For few labels, plans without their lowest thresholds are tried: what is below the lowest needs none.
    """
    tried = [weighed(populations, aim, without) for without in fewer(aim, populations)]
    found = [(*_forecast(populations, plan, deepcopy(rng)), plan) for plan in tried]  # all in the same draws
    _, forecast, plan = max(found, key=lambda each: each[0])
    return plan, forecast


def fewer(aim: Aim, populations: Populations) -> range:
    """Return how many of the lowest thresholds to leave out, to be tried."""
    return range(min(KEPT, populations.supported.shape[1]) if aim.objective == "labels" else 1)


def _schedule(aim: Aim) -> tuple[int, float, int]:
    """Units asked of each site, growth and rounds: all at once, or where records count as few as noise allows."""
    most = max(1, aim.units // aim.sites)
    basis, scale = _mechanism(aim, KEPT)
    noise = math.sqrt(aim.releases * scale**2 * float(basis.variance_factor().mean()))
    batch = max(LEAST, int(two_digits(BATCH * noise / aim.sites))) if noise else LEAST
    if aim.objective in ("acceptance", "rounds") or batch >= most:
        return most, 1.0, 1
    growth = GROWTH if noise else SLOW_GROWTH
    return batch, growth, math.ceil(math.log1p(most * (growth - 1.0) / batch) / math.log(growth))


def _sizes(batch: int, growth: float, rounds: int) -> tuple[int, ...]:
    return tuple(int(batch * growth**t) for t in range(rounds))


def _mechanism(aim: Aim, m: int) -> tuple[Basis, float]:
    """Return the suffix basis of so many thresholds, and the noise scale on its coordinates."""
    basis = Basis("suffix", m)
    return basis, aim.noise * math.sqrt(sensitivity_of(basis, 1, aim.adjacency, aim.layout))


def weighed(populations: Populations, aim: Aim, without: int = 0) -> OpenPlan:
    """Weigh thresholds and bets by how often they grow fastest, at the noise of the first rounds; leave out so many of
    the lowest thresholds."""
    batch, growth, rounds = _schedule(aim)
    m, r = populations.supported.shape[1], float(aim.target_risk)
    basis, scale = _mechanism(aim, min(KEPT, m))
    per_unit = aim.releases / (aim.sites * float(np.mean(_sizes(batch, growth, rounds)[:4])))
    v = scale**2 * float(basis.variance_factor().mean()) * per_unit
    theta = betting.ladder([r]).theta[0]
    x, y = betting.slopes(r, theta)
    u, s = (populations.laws @ each for each in (populations.unsupported, populations.supported))
    growths = u[..., None] * x + s[..., None] * y - (x * x + y * y) * v / 2.0 - theta * aim.drift
    growths[populations.accepted < SLACK * aim.min_acceptance] = -1.0
    best, bet = growths.max(axis=-1), growths.argmax(axis=-1)
    wins = np.bincount(best.argmax(axis=-1)[best.max(axis=-1) > 0], minlength=m)
    weights = _mixed(wins, (0.25, 0.5, 0.25), EVEN_WEIGHT)
    kept = np.sort(np.argsort(-weights, kind="stable")[:KEPT])[without:]
    priors = [
        _mixed(np.bincount(bet[best[:, j] > 0, j], minlength=theta.size), (0.2, 0.6, 0.2), EVEN_PRIOR) for j in kept
    ]
    return OpenPlan(
        aim, tuple(kept.tolist()), _hundredths(weights[kept]), tuple(map(_hundredths, priors)), batch, growth, rounds
    )  # fmt: skip


def _mixed(wins: Ints, kernel: tuple[float, ...], even: float) -> Floats:
    """Shares of wins, smoothed over neighbours and mixed with equal shares."""
    smooth = np.convolve(wins, kernel)[1:-1]
    smooth = smooth / smooth.sum() if smooth.sum() > 0 else np.full(wins.size, 1.0 / wins.size)
    return np.asarray((1.0 - even) * smooth + even / wins.size)


def _hundredths(shares: Floats) -> tuple[float, ...]:
    """Round to hundredths of at least one that sum to one: the largest takes what rounding leaves."""
    whole = np.maximum(1, np.rint(100.0 * shares / shares.sum()).astype(int))
    whole[whole.argmax()] += 100 - whole.sum()
    return tuple((whole / 100.0).tolist())


def _forecast(populations: Populations, plan: OpenPlan, rng: np.random.Generator) -> tuple[float, Expected]:
    """Play a plan in every population: how well it does, and what to expect of it."""
    aim, kept, draws = plan.aim, list(plan.kept), len(populations.laws)
    counts = populations.samples([aim.sites * n for n in plan.sizes], rng).cumsum(axis=1)
    normals = rng.standard_normal((2, draws, len(plan.sizes), len(kept)))
    done = plan.decide(
        counts @ populations.unsupported[:, kept] + plan.noise(normals[0]),
        counts @ populations.supported[:, kept] + plan.noise(normals[1]),
    )
    return judged(aim, done, populations.accepted[:, kept], aim.sites * np.cumsum(plan.sizes))
