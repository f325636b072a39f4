"""What happens in a block of trials before any noise: who is asked, who answers, and with which units.

The schedule is the real one. Events depend on the study's seed and on the block, not on methods, privacy
or targets: those are compared on the same events.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from fedsrc.audit.cell import Cell
from fedsrc.audit.study import Setting
from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Bools, Floats, Ints
from fedsrc.protocol.registration import Registration
from fedsrc.server.recruiter import asked
from fedsrc.simulate.pool import Pool, one_by_one
from fedsrc.simulate.population import Support

DRAWS, COINS, ORDER = 1, 3, 5  # streams of a block's seed; noise has the second and fourth


@dataclass(frozen=True)
class Events:
    """Per trial and look, cumulative: masses (B, T, 2, m+1), of groups (B, T, groups, 2, m+1), per site (B, T, K, ...)
    where asked for, slots that arrived (B, T, K), slots that were withheld (B, T, K). Per round (B, T, K): who
    answered, who withheld, who dropped out. Distinct units touched (B, T), zero where units have no identity. Where
    methods read them: sums of registered releases before noise (B, T, ...), and for every look the units that came
    with it, in order (B, n), -1 for none."""

    masses: Ints
    by_site: Ints | None
    slots: Ints
    missing: Ints
    answered: Bools
    withheld: Bools
    dropped: Bools
    touched: Ints
    released: Ints | None = None
    units: tuple[Ints, ...] = ()

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
        return cell.played
    sites = tuple(site.model_copy(update={"weight": None}) for site in cell.played.sites)
    return cell.played.model_copy(update={"sites": sites})


def happen(
    cell: Cell, *, trials: int, seed: tuple[int, ...], per_site: bool = False, reads: Collection[str] = ()
) -> Events:
    """Draw a block of trials to the end of the schedule, with what methods read beside sums."""
    setting, plan = cell.setting, scheduling(cell)
    draws, coins = np.random.default_rng([*seed, DRAWS]), np.random.default_rng([*seed, COINS])
    pools = [Pool(site, trials, draws, one_by_one, _order(site, setting, trials, draws)) for site in cell.sites]
    more = _Units(cell, np.random.default_rng([*seed, ORDER]), reads)
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
        more.note([np.where(out[:, None], 0, pool.last) for pool, out in zip(pools, withheld.T, strict=True)])
        log.note(slots, drawn, withheld, (wanted > slots) | withheld, np.sum([pool.touched for pool in pools], axis=0))
    return replace(log.events(), released=more.released, units=tuple(more.units))


def arrivals(rng: np.random.Generator, rate: float, asked: Ints) -> Bools:
    """Say which requests (trials, sites) are answered: each is dropped with probability `rate`, by its own coin.

    Every site has a coin in every round, asked or not, so no coin depends on a record, a release or the schedule. A
    site that is not asked does not answer.

    Paper: Appendix "Federated partitions", dropout.
    """
    if not 0 <= rate <= 1:
        raise FedsrcError(f"dropout rate {rate} is not a probability")
    dropped = rng.random(asked.shape) < rate
    return ~dropped & (asked > 0)


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
    flat = np.tile(weights.ravel(), len(registration.cuts))
    contrast = site.masses.reshape(site.law.size, -1) @ flat
    mean = float(site.law @ contrast)
    z = float(ndtri(1.0 - setting.withheld)) if setting.withheld else np.inf
    return Limit(flat, mean, float(np.sqrt(site.law @ (contrast - mean) ** 2)), z)


class _Units:
    """What methods read of single units: what they add to registered releases, and which come after which."""

    def __init__(self, cell: Cell, rng: np.random.Generator, reads: Collection[str]) -> None:
        self.rng, self.ordered = rng, "exact units and development" in reads
        self.units: list[Ints] = []
        self.totals: list[Ints] = []
        self.encoded = [cell.encoded(site) for site in cell.sites] if "registered releases" in reads else None

    def note(self, counts: list[Ints]) -> None:
        """Note a round in which units came so often, per site (trials, units)."""
        if self.encoded is not None:
            added = [
                np.rint(n @ each.reshape(len(each), -1).astype(np.float64)).astype(np.int64)
                for n, each in zip(counts, self.encoded, strict=True)
            ]
            self.totals.append(np.sum(added, axis=0).reshape(-1, *self.encoded[0].shape[1:]))
        if self.ordered:
            every = np.concatenate(counts, axis=1)
            came = np.full((len(every), int(every.sum(axis=1).max())), -1)
            for row, n in zip(came, every, strict=True):
                row[: n.sum()] = self.rng.permutation(np.repeat(np.arange(n.size), n))
            self.units.append(came)

    @property
    def released(self) -> Ints | None:
        return None if self.encoded is None else np.cumsum(np.stack(self.totals, axis=1), axis=1)


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
        keep = (arrived > 0).reshape(*arrived.shape, *[1] * (self.total.ndim - 2))
        self.total = self.total + np.where(keep, np.stack(drawn, axis=1), 0)
        self.rows.append((
            self.total.sum(axis=1), self.total if self.per_site else None, self.slots, self.missing, arrived > 0,
            withheld, dropped, touched if self.items else np.zeros_like(touched),
        ))  # fmt: skip

    def events(self) -> Events:
        masses, by_site, *others = zip(*self.rows, strict=True)
        sites = np.stack(by_site, axis=1) if self.per_site else None
        slots, missing, answered, withheld, dropped, touched = (np.stack(each, axis=1) for each in others)
        return Events(np.stack(masses, axis=1), sites, slots, missing, answered, withheld, dropped, touched)
