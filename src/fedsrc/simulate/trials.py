"""Many independent runs at once, on the same rules as a real run: same recruiter, same bounds, seeded noise."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedsrc.maths.arrays import Bools, Floats, Ints
from fedsrc.maths.levels import LevelCode
from fedsrc.maths.moments import MomentCode
from fedsrc.protocol.judgements import Sealed
from fedsrc.protocol.registration import Registration
from fedsrc.records.masses import contrasts
from fedsrc.server import sealed
from fedsrc.server.bounds import Look, Sample, look
from fedsrc.server.panel import several
from fedsrc.server.recruiter import next_slots, noises
from fedsrc.server.stopping import gains_little
from fedsrc.server.tally import Tally, empty, masses, transfer
from fedsrc.simulate.pool import Pool, at_once
from fedsrc.simulate.population import Support

Draw = Literal["with replacement", "once"]
COARSE = 1e5  # from here on a table of the distribution function would be large, and rounding is as good


@dataclass(frozen=True)
class Trials:
    """Per trial: whether a threshold was certified, which, after how many records and rounds, and its bounds. Of groups
    with claims of their own, whether all of them were; `rows` has what each picked, -1 for nothing."""

    certified: np.ndarray[tuple[int], np.dtype[np.bool_]]
    threshold: np.ndarray[tuple[int], np.dtype[np.int64]]
    records: np.ndarray[tuple[int], np.dtype[np.int64]]
    rounds: np.ndarray[tuple[int], np.dtype[np.int64]]
    slots: np.ndarray[tuple[int, int], np.dtype[np.int64]]
    acceptance_lower: np.ndarray[tuple[int], np.dtype[np.float64]]
    rows: np.ndarray[tuple[int, int], np.dtype[np.int64]]


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
    outcome = _Outcome(registration, trials)
    noise = np.zeros((trials, *rule.shape), dtype=np.int64)
    now: Look | None = None
    last, going = empty(registration), np.arange(trials)
    units, accepted = list[int](), list[Floats]()
    for tally, total in streams(registration, sites, trials=trials, seed=seed, draw=draw):
        noise = noise + _added(rng, registration, tally.noises - last.noises, noise.shape)
        seen = masses(registration, rule.basis.encode(total[going]) + noise[going], tally.noises)
        now = look(registration, Sample(seen, tally.total, transfer(registration, tally)), now)
        last, outcome.rounds_seen = tally, outcome.rounds_seen + 1
        rows, shown = picked(registration, now)
        units, accepted = [*units, tally.arrived], [*accepted, shown]
        may: Bools = np.full(going.size, policy != "final")
        if policy == "enough":
            may = np.asarray(gains_little(units, accepted).all(axis=-1))
        on = ~outcome.note(rows, shown, tally, going, may & (rows >= 0).all(axis=-1))
        if not on.any():
            return outcome.trials(last)
        if not on.all():
            going, now, accepted = going[on], _only(now, on), [each[on] for each in accepted]
    if now is not None:
        rows, shown = picked(registration, now)
        outcome.note(rows, shown, last, going, np.asarray((rows >= 0).any(axis=-1)))
    return outcome.trials(last)


def _simulate_sealed(
    registration: Registration, sites: Sequence[Support], *, trials: int, seed: int, draw: Draw
) -> Trials:
    """Do the same for a sealed registration, whose looks are registered."""
    rng, outcome, rule = np.random.default_rng([seed, 2]), _Outcome(registration, trials), registration.mechanism
    encoded = [replace(site, masses=contrasts(rule.contrasts, site.masses)) for site in sites]
    played = list(streams(registration, encoded, trials=trials, seed=seed, draw=draw))
    noise, looks, last = np.zeros((trials, *rule.shape), dtype=np.int64), [], empty(registration)
    for number, (tally, total) in enumerate(played, start=1):
        noise = noise + _added(rng, registration, tally.noises - last.noises, noise.shape)
        before, last, outcome.rounds_seen = last.noises, tally, number
        share = sealed.due(registration, number, over=number == len(played))
        if share is None:
            continue
        looks.append(sealed.see(registration, replace(tally, sums=total + noise), before, share))
        if number == len(played) or registration.schedule.policy != "final":
            rows, shown = picked(registration, sealed.decide(registration, looks))
            done = (rows >= 0).any(axis=-1) if number == len(played) else (rows >= 0).all(axis=-1)
            outcome.note(rows, shown, tally, np.arange(trials), done & ~outcome.stopped)
        if outcome.stopped.all():
            break
    return outcome.trials(last)


def picked(registration: Registration, now: Look) -> tuple[Ints, Floats]:
    """Return per trial the certified row with the largest acceptance bound, of every group with a claim of its own (-1
    for none), and that bound (0)."""
    blocks = len(registration.cuts) if several(registration.claims) else 1
    certified, bound = (each.reshape(*each.shape[:-1], blocks, -1) for each in (now.certified, now.acceptance_lower))
    best = np.where(certified, bound, -1.0).argmax(axis=-1)
    shown = np.take_along_axis(bound, best[..., None], -1)[..., 0]
    there, first = certified.any(axis=-1), np.arange(blocks) * certified.shape[-1]
    return np.where(there, best + first, -1), np.where(there, shown, 0.0)


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
    def __init__(self, registration: Registration, trials: int) -> None:
        members = len(registration.cuts) if several(registration.claims) else 1
        self.rows = np.full((trials, members), -1, dtype=np.int64)
        self.stopped = np.zeros(trials, dtype=np.bool_)
        self.records = np.zeros(trials, dtype=np.int64)
        self.rounds = np.zeros(trials, dtype=np.int64)
        self.slots = np.zeros((trials, len(registration.sites)), dtype=np.int64)
        self.acceptance = np.zeros(trials)
        self.rounds_seen = 0

    def note(self, rows: Ints, shown: Floats, tally: Tally, going: Ints, stop: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Record the certificates of those trials under way that stop here; return which these are."""
        where = going[stop]
        self.rows[where], self.acceptance[where], self.stopped[where] = rows[stop], shown[stop].sum(axis=-1), True
        self.records[where], self.rounds[where], self.slots[where] = tally.arrived, self.rounds_seen, tally.slots
        return stop

    def trials(self, last: Tally) -> Trials:
        open_ = (self.rows < 0).any(axis=1)
        self.records[open_], self.slots[open_], self.rounds[open_] = last.arrived, last.slots, self.rounds_seen
        first = self.rows[:, 0]
        return Trials(np.asarray(~open_), first, self.records, self.rounds, self.slots, self.acceptance, self.rows)
