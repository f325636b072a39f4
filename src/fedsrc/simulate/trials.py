"""Many independent runs at once, on the same rules as a real run: same recruiter, same bounds, seeded noise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np

from fedsrc.maths.arrays import Floats, Ints
from fedsrc.protocol.registration import Registration
from fedsrc.server.bounds import Look, Sample, look
from fedsrc.server.recruiter import next_slots
from fedsrc.server.tally import Tally, empty, masses, transfer
from fedsrc.simulate.pool import Pool, at_once
from fedsrc.simulate.population import Support

Draw = Literal["with replacement", "once"]
COARSE = 1e5  # from here on a table of the distribution function would be large, and rounding is as good


@dataclass(frozen=True)
class Trials:
    """Per trial: whether a threshold was certified, which, after how many records and rounds, and its bounds."""

    certified: np.ndarray[tuple[int], np.dtype[np.bool_]]
    threshold: np.ndarray[tuple[int], np.dtype[np.int64]]
    records: np.ndarray[tuple[int], np.dtype[np.int64]]
    rounds: np.ndarray[tuple[int], np.dtype[np.int64]]
    slots: np.ndarray[tuple[int, int], np.dtype[np.int64]]
    acceptance_lower: np.ndarray[tuple[int], np.dtype[np.float64]]


def streams(
    registration: Registration, sites: Sequence[Support], *, trials: int, seed: int, draw: Draw = "with replacement"
) -> Iterator[tuple[Tally, Ints]]:
    """Yield after each round the public tally and the exact cumulative masses of all trials, on the real schedule.

    Noise is not in them, so that several methods and privacy levels can be compared on the same events.
    """
    rng = np.random.default_rng([seed, 1])
    pools = [Pool(site, trials, rng, at_once, _order(site, draw, trials, rng)) for site in sites]
    tally = empty(registration)
    total = np.zeros((trials, *sites[0].masses.shape[1:]), dtype=np.int64)
    for _ in range(registration.schedule.rounds):
        slots = next_slots(registration, tally, [int(pool.left[0]) for pool in pools])
        if not any(slots):
            return
        total = sum((pool.take(np.full(trials, n)) for pool, n in zip(pools, slots, strict=True)), start=total)
        grown = tuple(a + b for a, b in zip(tally.slots, slots, strict=True))
        tally = replace(tally, slots=grown, releases=tally.releases + sum(n > 0 for n in slots))
        yield tally, total


def _order(site: Support, draw: Draw, trials: int, rng: np.random.Generator) -> Ints | None:
    return np.argsort(rng.random((trials, site.law.size)), axis=1) if draw == "once" else None


def simulate(
    registration: Registration, sites: Sequence[Support], *, trials: int, seed: int, draw: Draw = "with replacement"
) -> Trials:
    """Run every trial to its first certificate, or to the end of the schedule (only there under policy `final`)."""
    rule = registration.mechanism
    rng = np.random.default_rng([seed, 2])
    outcome = _Outcome(trials, len(registration.sites))
    noise = np.zeros((trials, 2, rule.basis.p), dtype=np.int64)
    before: Look | None = None
    last = empty(registration)
    final = registration.schedule.policy == "final"
    for tally, total in streams(registration, sites, trials=trials, seed=seed, draw=draw):
        for _ in range(tally.releases - last.releases):
            noise = noise + discrete_gaussian(rng, rule.scale, noise.shape)
        seen = masses(registration, rule.basis.encode(total) + noise, tally.releases)
        before = look(registration, Sample(seen, tally.total, transfer(registration, tally)), before)
        last = tally
        outcome.rounds_seen += 1
        if not final and outcome.note(before, tally) == trials:
            break
    if final and before is not None:
        outcome.note(before, last)
    return outcome.trials(last)


def discrete_gaussian(rng: np.random.Generator, scale: float, shape: tuple[int, ...]) -> Ints:
    """Draw seeded discrete Gaussians by inversion of the exact distribution function (audits only).

    Above COARSE a rounded normal stands in: its total variation from the discrete Gaussian is about 0.02 / scale^2.
    """
    if scale == 0:
        return np.zeros(shape, dtype=np.int64)
    if scale > COARSE:
        return np.rint(scale * rng.standard_normal(shape)).astype(np.int64)
    edges = _edges(scale)
    return np.asarray(np.searchsorted(edges, rng.random(shape), side="right") - edges.size // 2, dtype=np.int64)


@lru_cache(maxsize=16)
def _edges(scale: float) -> Floats:
    """Distribution function of the discrete Gaussian at -reach, ..., reach - 1."""
    reach = int(np.ceil(12 * scale)) + 1
    support = np.arange(-reach, reach + 1)
    weight = np.exp(-(support**2) / (2 * scale**2))
    return np.asarray(np.cumsum(weight)[:-1] / weight.sum())


class _Outcome:
    def __init__(self, trials: int, sites: int) -> None:
        self.threshold = np.full(trials, -1, dtype=np.int64)
        self.records = np.zeros(trials, dtype=np.int64)
        self.rounds = np.zeros(trials, dtype=np.int64)
        self.slots = np.zeros((trials, sites), dtype=np.int64)
        self.acceptance = np.zeros(trials)
        self.rounds_seen = 0

    def note(self, now: Look, tally: Tally) -> int:
        """Record first certificates; return how many trials have one."""
        best = np.argmax(np.where(now.certified, now.acceptance_lower, -1.0), axis=-1)
        fresh = (self.threshold < 0) & now.certified.any(axis=-1)
        self.threshold[fresh] = best[fresh]
        self.records[fresh], self.rounds[fresh], self.slots[fresh] = tally.arrived, self.rounds_seen, tally.slots
        self.acceptance[fresh] = np.take_along_axis(now.acceptance_lower, best[:, None], -1)[fresh, 0]
        return int((self.threshold >= 0).sum())

    def trials(self, last: Tally) -> Trials:
        open_ = self.threshold < 0
        self.records[open_], self.slots[open_], self.rounds[open_] = last.arrived, last.slots, self.rounds_seen
        return Trials(~open_, self.threshold, self.records, self.rounds, self.slots, self.acceptance)
