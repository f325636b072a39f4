"""What happens in a block of trials before any noise: who is asked, who answers, and with which units.

The schedule is the real one, vectorised. Events depend on the study's seed and on the block, not on methods, privacy
or targets: those are compared on the same events.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from fedsrc.audit.cell import Cell
from fedsrc.audit.schedule import arrivals, asked
from fedsrc.audit.study import Setting
from fedsrc.maths.arrays import Bools, Floats, Ints
from fedsrc.protocol.registration import Registration
from fedsrc.simulate.pool import Pool, one_by_one
from fedsrc.simulate.population import Support

DRAWS, COINS = 1, 3  # streams of a block's seed; noise has the second


@dataclass(frozen=True)
class Events:
    """Per trial and look, cumulative: masses (B, T, 2, m+1), per site (B, T, K, 2, m+1) where asked for, slots that
    arrived (B, T, K), slots that were withheld (B, T, K). Per round (B, T, K): who answered, who withheld, who dropped
    out. And distinct units touched (B, T), zero where units have no identity."""

    masses: Ints
    by_site: Ints | None
    slots: Ints
    missing: Ints
    answered: Bools
    withheld: Bools
    dropped: Bools
    touched: Ints

    @property
    def records(self) -> Ints:
        """Records of the releases that arrived."""
        return np.asarray(self.slots.sum(axis=-1))

    @property
    def drawn(self) -> Ints:
        """Slots per site that count as drawn: those that arrived and those that are charged."""
        return self.slots + self.missing


def scheduling(cell: Cell) -> Registration:
    """Return the registration the recruiter follows: with moved weights, participation stays equal."""
    if not cell.setting.moved:
        return cell.registration
    sites = tuple(site.model_copy(update={"weight": None}) for site in cell.registration.sites)
    return cell.registration.model_copy(update={"sites": sites})


def happen(cell: Cell, *, trials: int, seed: tuple[int, ...], per_site: bool = False) -> Events:
    """Draw a block of trials to the end of the schedule."""
    setting, plan = cell.setting, scheduling(cell)
    draws, coins = np.random.default_rng([*seed, DRAWS]), np.random.default_rng([*seed, COINS])
    pools = [Pool(site, trials, draws, one_by_one, _order(site, setting, trials, draws)) for site in cell.sites]
    limits = [_limit(site, setting, cell.registration) for site in cell.sites]
    log = _Log(trials, cell, per_site)
    for round in range(1, plan.schedule.rounds + 1):
        left = np.stack([pool.left for pool in pools], axis=1)
        wanted = asked(plan, log.slots + log.missing, left, round=round)
        if not wanted.any():
            break
        slots = np.where(arrivals(coins, setting.dropout, wanted), wanted, 0)
        drawn = [pool.take(n) for pool, n in zip(pools, slots.T, strict=True)]
        withheld = np.zeros(slots.shape, dtype=np.bool_)
        if setting.withheld:
            withheld = np.stack([limit.exceeded(d, n) for limit, d, n in zip(limits, drawn, slots.T, strict=True)], 1)
        log.note(slots, drawn, withheld, (wanted > slots) | withheld, np.sum([pool.touched for pool in pools], axis=0))
    return log.events()


def _order(site: Support, setting: Setting, trials: int, rng: np.random.Generator) -> Ints | None:
    """Draw a fresh order per trial where each unit is drawn once."""
    units = np.tile(np.arange(site.law.size), (trials, 1))
    return rng.permuted(units, axis=1) if setting.draw == "once" else None


@dataclass(frozen=True)
class Limit:
    """Above which contrast, at the lowest threshold, a site withholds a release of n units: mean n + z sd sqrt(n)."""

    weights: Floats
    mean: float
    sd: float
    z: float

    def exceeded(self, drawn: Ints, n: Ints) -> Bools:
        """Say which releases are withheld for what they hold."""
        contrast = drawn.reshape(len(drawn), -1) @ self.weights
        return np.asarray((contrast > n * self.mean + self.z * self.sd * np.sqrt(n)) & (n > 0))


def _limit(site: Support, setting: Setting, registration: Registration) -> Limit:
    """Return the limit that about `withheld` of the releases exceed."""
    r, paired = setting.target_risk, registration.histograms.kind == "paired"
    per_mass = np.array([-r, 1.0 if paired else 1.0 - r]) / registration.privacy.mass_grid
    weights = np.repeat(per_mass[:, None], site.masses.shape[-1], axis=1)
    weights[:, 0] = 0.0
    contrast = site.masses.reshape(site.law.size, -1) @ weights.ravel()
    mean = float(site.law @ contrast)
    z = float(ndtri(1.0 - setting.withheld)) if setting.withheld else np.inf
    return Limit(weights.ravel(), mean, float(np.sqrt(site.law @ (contrast - mean) ** 2)), z)


class _Log:
    def __init__(self, trials: int, cell: Cell, per_site: bool) -> None:
        sites = len(cell.sites)
        self.slots = np.zeros((trials, sites), dtype=np.int64)
        self.missing = np.zeros_like(self.slots)
        self.total = np.zeros((trials, sites, *cell.sites[0].masses.shape[1:]), dtype=np.int64)
        self.per_site, self.items = per_site, cell.items
        self.rows: list[tuple[Ints, Ints | None, Ints, Ints, Bools, Bools, Bools, Ints]] = []

    def note(self, slots: Ints, drawn: list[Ints], withheld: Bools, dropped: Bools, touched: Ints) -> None:
        arrived = np.where(withheld, 0, slots)
        self.slots = self.slots + arrived
        self.missing = self.missing + slots - arrived
        keep = (arrived > 0)[..., None, None]
        self.total = self.total + np.where(keep, np.stack(drawn, axis=1), 0)
        self.rows.append((
            self.total.sum(axis=1), self.total if self.per_site else None, self.slots, self.missing, arrived > 0,
            withheld, dropped, touched if self.items else np.zeros_like(touched),
        ))  # fmt: skip

    def events(self) -> Events:
        masses, by_site, *others = zip(*self.rows, strict=True)
        sites = np.stack(by_site, axis=1) if self.per_site else None
        return Events(np.stack(masses, axis=1), sites, *(np.stack(each, axis=1) for each in others))
