"""From events to what methods see: exact sums, and the same sums as released, with seeded noise.

A message's noise depends on the study's seed, on the block and on the mechanism, not on methods or targets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from fedsrc.audit.cell import Cell, together
from fedsrc.audit.events import Events
from fedsrc.audit.methods import unit_betting
from fedsrc.audit.methods.setting import Aim, Evidence, Facts, Sites, Unreleased, gather
from fedsrc.maths import privacy
from fedsrc.maths.arrays import Bools, Floats, Ints
from fedsrc.maths.betting import Covariance
from fedsrc.protocol.mechanism import SCALE_STEP, Mechanism
from fedsrc.protocol.registration import Registration
from fedsrc.server.tally import Masses, masses, plausible_margins
from fedsrc.simulate.population import suffix_masses
from fedsrc.simulate.trials import discrete_gaussian

NOISE, NORMALS = 2, 4  # streams of a block's seed


@dataclass(frozen=True)
class Spent:
    """What one unit's messages cost: the zCDP of each, and all of them together as epsilon at the registered delta."""

    scale: float
    rho: float
    total_rho: float
    epsilon: float


def message(cell: Cell) -> Mechanism:
    """Return the mechanism of one message when each unit is in several: their zCDP adds up to the registered budget.

    Paper: eq. (rho-transcript).
    """
    rule, queries = cell.played.mechanism, cell.setting.queries
    if queries == 1 or rule.scale == 0:
        return rule
    scale = math.ceil(rule.scale * math.sqrt(queries) * SCALE_STEP) / SCALE_STEP
    return replace(rule, scale=scale, rho=rule.sensitivity**2 / (2.0 * scale**2))


def spent(cell: Cell) -> Spent:
    """Return what one unit's messages cost."""
    rule, setting = message(cell), cell.registration.privacy
    total = cell.setting.queries * rule.rho
    epsilon = math.inf if rule.scale == 0 else privacy.epsilon_of(total, setting.delta, setting.conversion)
    return Spent(rule.scale, rule.rho, total, epsilon)


def aim_of(registration: Registration) -> Aim:
    """Return the claim as methods take it."""
    claim = registration.claim
    return Aim(claim.target_risk, claim.min_acceptance, claim.failure_probability)


@dataclass(frozen=True)
class Reading:
    """How the server reads the messages that hold each unit.

    messages    noise draws that enter
    divided     by how much their sum is divided
    fresh       as how many units each one is counted (more than one: a control)
    """

    messages: int
    divided: int
    fresh: int

    @property
    def variance(self) -> float:
        """Noise variance of what is read, in that of one message."""
        return self.messages / self.divided**2


def reading_of(cell: Cell) -> Reading:
    """Return the registered reading."""
    queries = cell.setting.queries
    ways = {"one": (1, 1, 1), "as fresh": (queries, 1, queries), "mean": (queries, queries, 1)}
    return Reading(*ways[cell.setting.reading])


def exact(cell: Cell, events: Events, *, seed: tuple[int, ...]) -> Evidence:
    """Return exact sums of what arrived."""
    sums = exact_sums(cell.registration, events.masses)
    return _gather(cell, events, sums, events.slots, 1, 1.0, seed)


def favoured(cell: Cell, events: Events, *, seed: tuple[int, ...]) -> Evidence:
    """Return exact sums, and the threshold that development units favour."""
    return replace(exact(cell, events, seed=seed), first=cell.favoured)


def bet_on(cell: Cell, events: Events, *, seed: tuple[int, ...]) -> Evidence:
    """Return the same with the wealth of bets on one unit after the other, which begin with development units."""

    def contrasts(counts: Ints) -> Floats:
        accepted, unsupported = suffix_masses(cell.registration, counts)
        return cell.setting.target_risk * accepted - unsupported

    known, units = contrasts(np.asarray(cell.development)), contrasts(np.concatenate([s.masses for s in cell.sites]))
    wealth = unit_betting.wealth_at_looks(known, units, events.units, cell.setting.target_risk)
    return replace(favoured(cell, events, seed=seed), wealth=wealth)


def released(cell: Cell, events: Events, *, seed: tuple[int, ...]) -> Evidence:
    """Return sums as the server reads them; without privacy, the exact ones."""
    own, way = message(cell), reading_of(cell)
    unit = (own.scale / own.grid / own.basis.unit) ** 2 * way.variance
    scaled = way.variance * (own.scale / cell.registration.mechanism.scale) ** 2 if own.scale else 0.0
    lattice = way.fresh * own.basis.encode(events.masses) + noise_of(cell, events, seed, way.messages) / way.divided
    charged = cell.setting.charged and bool(events.withheld.any())
    sent = events.answered | events.withheld if charged else events.answered
    seen = masses(cell.registration, lattice, scaled * np.cumsum(noises(cell, sent).sum(axis=-1), axis=1)[..., None])
    if not charged:
        return _gather(cell, events, seen, events.slots, way.fresh, unit or 1.0, seed)
    seen = _charged(cell.registration, events, seen)
    return replace(_gather(cell, events, seen, events.drawn, way.fresh, unit or 1.0, seed), worst=seen.supported)


def noises(cell: Cell, sent: Bools) -> Bools:
    """Say which noises are added, of what sites sent (B, T, K): each site's own, or in a round one holder's."""
    return np.asarray(sent.any(axis=-1, keepdims=True)) if cell.played.held else sent


def noise_of(cell: Cell, events: Events, seed: tuple[int, ...], messages: int = 1) -> Ints:
    """Draw cumulative lattice noise (B, T, ...): so many messages for every release that arrived."""
    rule, every = message(cell), noises(cell, events.answered)
    total = np.zeros((*every.shape[:2], *rule.shape), dtype=np.int64)
    if rule.scale == 0:
        return total
    rng = np.random.default_rng([*seed, NOISE])
    for t, k in np.ndindex(every.shape[1:]):
        arrived = every[:, t, k]
        if arrived.any():
            shape = (messages, int(arrived.sum()), *total.shape[2:])
            total[arrived, t] += discrete_gaussian(rng, rule.scale, shape).sum(axis=0)
    return np.cumsum(total, axis=1)


def _gather(
    cell: Cell, events: Events, seen: Masses, drawn: Ints, fresh: int, unit: float, seed: tuple[int, ...]
) -> Evidence:
    """Return evidence per look. One before the first record has an empty record of an unknown mixture: eta = 1."""
    records = drawn.sum(axis=-1)
    return gather(
        seen.accepted, seen.unsupported, fresh * np.maximum(1, records), noise=seen.noise, unit=unit,
        eta=np.where(records > 0, transfer(cell.registration, drawn), 1.0), binary=cell.binary,
        declared=cell.registration.fixed_mixture, sites=_sites(cell, events),
        unreleased=_unreleased(cell, events, seed),
    )  # fmt: skip


def _charged(registration: Registration, events: Events, seen: Masses) -> Masses:
    """Charge each withheld release with the worst that passes for honest: `tally.lose`, vectorised.

    Theory: (iv), Dropout.
    """
    slots = events.missing.sum(axis=-1)[..., None]
    requests: Bools = (events.answered | events.withheld).reshape(len(events.answered), -1)
    numbers = np.cumsum(requests, axis=1, dtype=np.int64).reshape(events.withheld.shape)
    known = {int(n): plausible_margins(registration, int(n)) for n in np.unique(numbers[events.withheld])}
    low_u, low_s, high = (
        np.cumsum(_at(numbers, events.withheld, {n: vars(each)[name] for n, each in known.items()}), axis=1)
        for name in ("low_unsupported", "low_supported", "high")
    )
    return Masses(
        seen.unsupported + slots + high + low_s, seen.supported - low_s, seen.accepted - low_u - low_s, seen.noise
    )


def _at(numbers: Ints, withheld: Bools, known: dict[int, Floats]) -> Floats:
    """Sum, per trial and look, what belongs to the numbers of the withheld requests: (B, T, m)."""
    table = np.zeros((int(numbers.max()) + 1, next(iter(known.values())).size))
    for number, value in known.items():
        table[number] = value
    return np.asarray((table[numbers] * withheld[..., None]).sum(axis=2))


def transfer(registration: Registration, slots: Ints) -> Floats:
    """Return eta (...,) of slots (..., K).

    Paper: eq. (eta).
    """
    share = shares(slots)
    drift = np.asarray([site.drift for site in registration.sites])
    weights = share if registration.weights is None else np.asarray(registration.weights)
    return np.asarray(0.5 * np.abs(weights - share).sum(axis=-1) + (weights * drift).sum(axis=-1))


def shares(slots: Ints) -> Floats:
    """Return each site's share of the slots (..., K); equal ones before the first."""
    total = slots.sum(axis=-1, keepdims=True)
    return np.asarray(np.where(total > 0, slots / np.maximum(1, total), 1.0 / slots.shape[-1]))


def facts_of(cell: Cell, events: Events) -> Facts:
    """Return exact acceptance and risk of the declared mixture, or at each look of the one drawn so far."""
    weights = shares(events.drawn) if cell.registration.weights is None else cell.weights
    return cell.facts(weights)


def _sites(cell: Cell, events: Events) -> Sites | None:
    if events.by_site is None:
        return None
    return Sites(*suffix_masses(cell.registration, events.by_site), events.slots.astype(np.float64))


def _unreleased(cell: Cell, events: Events, seed: tuple[int, ...]) -> Unreleased:
    """Return, for methods with a release of their own, exact sums and one normal per release and threshold."""
    rule = message(cell)
    rng, answered = np.random.default_rng([*seed, NORMALS]), noises(cell, events.answered).sum(axis=-1)
    sums = exact_sums(cell.registration, events.masses)
    steps = rng.standard_normal(sums.accepted.shape) * np.sqrt(answered)[..., None]
    releases = np.cumsum(answered, axis=1).astype(np.float64)
    noise = np.cumsum(steps, axis=1)
    batch, adjacency = float(cell.setting.batch), cell.registration.privacy.adjacency
    return Unreleased(sums.accepted, sums.unsupported, noise, releases, rule.rho, batch, adjacency)


def exact_sums(registration: Registration, counts: Ints) -> Masses:
    """Return suffix masses of exact counts, of groups one after the other; those of all groups together, where one
    threshold is for all."""
    found = masses(registration, registration.mechanism.basis.encode(counts), 0.0)
    U, S, A = (together(registration, rows) for rows in (found.unsupported, found.supported, found.accepted))
    return Masses(U, S, A, Covariance(*[np.zeros(1)] * 3))


@lru_cache(maxsize=8)
def payload_bytes(registration: Registration) -> int:
    """Return the bytes of one message: two vectors of 64-bit integers.

    Paper: Appendix "Metrics, communication, and artifact".
    """
    return sum(registration.mechanism.lengths) * 8
