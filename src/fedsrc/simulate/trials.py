"""Many independent runs at once, on the same rules as a real run: same recruiter, same bounds, seeded noise."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedsrc.maths.arrays import Floats, Ints
from fedsrc.maths.levels import LevelCode
from fedsrc.maths.moments import MomentCode
from fedsrc.protocol.judgements import Sealed
from fedsrc.protocol.registration import Registration
from fedsrc.records.masses import contrasts
from fedsrc.server import sealed
from fedsrc.server.bounds import Look, Sample, look
from fedsrc.server.recruiter import next_slots, noises
from fedsrc.server.stopping import gains_little
from fedsrc.server.tally import Tally, empty, masses, released_shape, transfer
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
    rng, code = np.random.default_rng([seed, 1]), registration.mechanism.code
    if isinstance(code, MomentCode | LevelCode):
        sites = [replace(site, masses=code.bins(site.masses)) for site in sites]
    pools = [Pool(site, trials, rng, at_once, _order(site, draw, trials, rng)) for site in sites]
    tally = empty(registration)
    total = np.zeros((trials, *sites[0].masses.shape[1:]), dtype=np.int64)
    for round in range(1, registration.schedule.rounds + 1):
        slots = next_slots(registration, tally, [int(pool.left[0]) for pool in pools], round=round)
        if not any(slots):
            return
        total = sum((pool.take(np.full(trials, n)) for pool, n in zip(pools, slots, strict=True)), start=total)
        grown = tuple(a + b for a, b in zip(tally.slots, slots, strict=True))
        tally = replace(tally, slots=grown, noises=tally.noises + noises(registration, slots))
        yield tally, total


def _order(site: Support, draw: Draw, trials: int, rng: np.random.Generator) -> Ints | None:
    return np.argsort(rng.random((trials, site.law.size)), axis=1) if draw == "once" else None


def simulate(
    registration: Registration, sites: Sequence[Support], *, trials: int, seed: int, draw: Draw = "with replacement"
) -> Trials:
    """Run every trial until the registered policy stops it: at its first certificate, where it has enough, or at the
    end of the schedule. Only trials that have not stopped are looked at."""
    if isinstance(registration.judgement, Sealed):
        return _simulate_sealed(registration, sites, trials=trials, seed=seed, draw=draw)
    rule, policy = registration.mechanism, registration.schedule.policy
    rng = np.random.default_rng([seed, 2])
    outcome = _Outcome(trials, len(registration.sites))
    noise = np.zeros((trials, *released_shape(rule)), dtype=np.int64)
    now: Look | None = None
    last, going = empty(registration), np.arange(trials)
    units, accepted = list[int](), list[Floats]()
    for tally, total in streams(registration, sites, trials=trials, seed=seed, draw=draw):
        noise = noise + _added(rng, registration, tally.noises - last.noises, noise.shape)
        seen = masses(registration, rule.basis.encode(total[going]) + noise[going], tally.noises)
        now = look(registration, Sample(seen, tally.total, transfer(registration, tally)), now)
        last, outcome.rounds_seen = tally, outcome.rounds_seen + 1
        units, accepted = [*units, tally.arrived], [*accepted, _accepted(now)]
        may = gains_little(units, accepted) if policy == "enough" else np.full(going.size, policy != "final")
        on = ~outcome.note(now, tally, going, may & now.certified.any(axis=-1))
        if not on.any():
            return outcome.trials(last)
        if not on.all():
            going, now, accepted = going[on], _only(now, on), [each[on] for each in accepted]
    if now is not None:
        outcome.note(now, last, going, np.asarray(now.certified.any(axis=-1)))
    return outcome.trials(last)


def _simulate_sealed(
    registration: Registration, sites: Sequence[Support], *, trials: int, seed: int, draw: Draw
) -> Trials:
    """Do the same for a sealed registration, whose looks are registered."""
    rng, outcome, rule = np.random.default_rng([seed, 2]), _Outcome(trials, len(sites)), registration.mechanism
    encoded = [replace(site, masses=contrasts(rule.contrasts, site.masses)) for site in sites]
    played = list(streams(registration, encoded, trials=trials, seed=seed, draw=draw))
    noise, looks, last = np.zeros((trials, sum(rule.lengths)), dtype=np.int64), [], empty(registration)
    for number, (tally, total) in enumerate(played, start=1):
        noise = noise + _added(rng, registration, tally.noises - last.noises, noise.shape)
        before, last, outcome.rounds_seen = last.noises, tally, number
        share = sealed.due(registration, number, over=number == len(played))
        if share is None:
            continue
        looks.append(sealed.see(registration, replace(tally, sums=total + noise), before, share))
        if number == len(played) or registration.schedule.policy != "final":
            now, still = sealed.decide(registration, looks), outcome.threshold < 0
            outcome.note(now, tally, np.arange(trials), now.certified.any(axis=-1) & still)
        if (outcome.threshold >= 0).all():
            break
    return outcome.trials(last)


def _accepted(now: Look) -> Floats:
    """Return the acceptance bound of the certified threshold per trial, 0 where there is none."""
    return np.asarray(np.where(now.certified, now.acceptance_lower, 0.0).max(axis=-1))


def _only(now: Look, on: NDArray[np.bool_]) -> Look:
    """Return a look at some of the trials."""
    parts: dict[str, Any] = {each.name: getattr(now, each.name) for each in fields(now)}
    return replace(now, **{name: value[on] for name, value in parts.items() if value is not None})


def _added(rng: np.random.Generator, registration: Registration, noises: float, shape: tuple[int, ...]) -> Ints:
    """Draw the noise of a round: that of so many releases, or that of its cohorts' sums at once.

    Theory: (xvii) Sum of discrete Gaussians.
    """
    scale = registration.mechanism.scale
    if registration.cohorts is not None:
        return discrete_gaussian(rng, scale * math.sqrt(noises), shape)
    drawn = (discrete_gaussian(rng, scale, shape) for _ in range(round(noises)))
    return sum(drawn, start=np.zeros(shape, dtype=np.int64))


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

    def note(self, now: Look, tally: Tally, going: Ints, stop: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Record the certificates of those trials under way that stop here; return which these are."""
        best, where = np.argmax(np.where(now.certified, now.acceptance_lower, -1.0), axis=-1), going[stop]
        self.threshold[where] = best[stop]
        self.records[where], self.rounds[where], self.slots[where] = tally.arrived, self.rounds_seen, tally.slots
        self.acceptance[where] = np.take_along_axis(now.acceptance_lower, best[:, None], -1)[stop, 0]
        return stop

    def trials(self, last: Tally) -> Trials:
        open_ = self.threshold < 0
        self.records[open_], self.slots[open_], self.rounds[open_] = last.arrived, last.slots, self.rounds_seen
        return Trials(~open_, self.threshold, self.records, self.rounds, self.slots, self.acceptance)
