"""The tally of a run: noised masses, their noise variance and the slots per site, folded from the transcript."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fedsrc.maths.arrays import Floats, Ints
from fedsrc.maths.basis import covariance
from fedsrc.maths.betting import Covariance
from fedsrc.maths.contrasts import ContrastCode
from fedsrc.maths.levels import LevelCode
from fedsrc.maths.moments import MomentCode, Seconds, noise_of_seconds, seconds
from fedsrc.maths.transfer import eta
from fedsrc.protocol.mechanism import Mechanism
from fedsrc.protocol.registration import Registration

Parts = Sequence[tuple[int, int]]  # the slots of a release: of which site, by its index, and how many


class Given(NamedTuple):
    """What a release, or the sum of a cohort's, gives the tally: integers, and their noise variance in that of one
    release."""

    parts: Parts
    numbers: tuple[int, ...]
    noise: float = 1.0

    @property
    def slots(self) -> int:
        return sum(each for _, each in self.parts)


class Lost(NamedTuple):
    """A request whose missing answer is charged: its slots, its number, and the noise it would have had."""

    slots: int
    number: int
    noise: float = 1.0


@dataclass(frozen=True)
class Charge:
    """What releases that never arrived are charged with, per threshold: the worst that passes for honest."""

    unsupported: Floats
    supported: Floats
    accepted: Floats
    second: Seconds | None = None
    levels: Floats | None = None


@dataclass(frozen=True)
class Tally:
    """Everything the bounds need. Sums are exact integers on the public lattice."""

    slots: tuple[int, ...]
    missing: tuple[int, ...]
    noises: float  # noise variance, in that of one release: so many releases, where sites add their own
    sums: Ints
    charge: Charge
    lost: tuple[Lost, ...] = ()

    @property
    def arrived(self) -> int:
        """Slots of the releases that arrived: the records used."""
        return sum(self.slots)

    @property
    def total(self) -> int:
        """N: slots that arrived, and missing ones that are charged."""
        return self.arrived + sum(self.missing)


@dataclass(frozen=True)
class Masses:
    """Noised suffix masses per threshold, the covariance proxy of the noise on (unsupported, supported), and second
    moments, or masses by level, where they are released."""

    unsupported: Floats
    supported: Floats
    accepted: Floats
    noise: Covariance
    second: Seconds | None = None
    levels: Floats | None = None

    def plus(self, charge: Charge) -> Masses:
        """Add the charge for missing releases, each mass at its own worst."""
        return Masses(
            self.unsupported + charge.unsupported,
            self.supported + charge.supported,
            self.accepted + charge.accepted,
            self.noise,
            self.second if charge.second is None or self.second is None else self.second.plus(charge.second),
            self.levels if charge.levels is None or self.levels is None else self.levels + charge.levels,
        )


def empty(registration: Registration) -> Tally:
    """Return the tally before anything has arrived."""
    rule = registration.mechanism
    none, nothing = (0,) * len(registration.sites), np.zeros(len(registration.row_weights))
    second = Seconds(*[nothing] * 6) if isinstance(rule.code, MomentCode) else None
    sums = np.zeros(rule.shape, dtype=np.int64)
    levels = np.zeros(sums.shape) if isinstance(rule.code, LevelCode) else None
    return Tally(none, none, 0, sums, Charge(nothing, nothing, nothing, second, levels))


def add(tally: Tally, given: Sequence[Given]) -> Tally:
    """Fold accepted releases and sums. Sums are exact, so their order does not matter.

    Theory: (v), One holder.
    """
    slots, sums = list(tally.slots), tally.sums.copy()
    for each in given:
        for site, number in each.parts:
            slots[site] += number
        sums += np.asarray(each.numbers, dtype=np.int64).reshape(sums.shape)
    return replace(tally, slots=tuple(slots), noises=tally.noises + math.fsum(each.noise for each in given), sums=sums)


def lose(registration: Registration, tally: Tally, parts: Parts, number: int, noise: float = 1.0) -> Tally:
    """Charge sites for request `number`, whose answer never arrived: whatever it held, it was no worse than this.

    Off the refusal event an honest release has masses above -low and accepted mass below slots + high.

    Theory: (iv), Dropout; (xiv) Dropout; (xiv) Levels.
    """
    missing, worst, slots = list(tally.missing), tally.charge, sum(each for _, each in parts)
    for site, each in parts:
        missing[site] += each
    code = registration.mechanism.code
    if isinstance(code, LevelCode) and worst.levels is not None:
        margin = plausible_margins(registration, number, noise)
        levels = np.tile(-margin.low_supported, (code.rows, 1))
        levels[-1] = slots + margin.high + code.g * margin.low_supported
        more, unlikely = code.losses @ levels, -code.rows * margin.low_supported
        worst = Charge(
            worst.unsupported + more, worst.supported + levels.sum(axis=0) - more, worst.accepted + unlikely,
            None, worst.levels + levels,
        )  # fmt: skip
    elif not isinstance(code, ContrastCode):
        margin, none = plausible_margins(registration, number, noise), np.zeros_like(worst.accepted)
        worst = Charge(
            worst.unsupported + slots + margin.high + margin.low_supported,
            worst.supported - margin.low_supported,
            worst.accepted - margin.low_unsupported - margin.low_supported,
            worst.second
            and worst.second.plus(Seconds(none, none, none, slots + margin.total, margin.cross, margin.square)),
        )
    lost = (*tally.lost, Lost(slots, number, noise))
    return replace(tally, missing=tuple(missing), noises=tally.noises + noise, charge=worst, lost=lost)


def masses(registration: Registration, sums: Ints | Floats, noises: float | Floats) -> Masses:
    """Decode lattice sums (..., rows, p), a panel's (..., blocks, rows, p), with so many times the noise of one release
    (per sum: (..., 1)) into suffix masses, with noise; those of a panel follow block after block."""
    rule = registration.mechanism
    suffix = rule.basis.decode(sums.astype(np.float64)) / rule.grid
    if rule.layout is not None:
        suffix = np.moveaxis(suffix, -3, -2).reshape(*suffix.shape[:-3], suffix.shape[-2], -1)
    if isinstance(rule.code, LevelCode):
        accepted, bad = suffix.sum(axis=-2), np.moveaxis(suffix, -2, -1) @ rule.code.losses
        return Masses(bad, accepted - bad, accepted, rule.code.covariance(suffix_variance(rule) * noises), None, suffix)
    first, second = suffix[..., 0, :], suffix[..., 1, :]
    paired = registration.histograms.kind == "paired"
    noise = covariance(registration.histograms.kind, suffix_variance(rule) * noises)
    return Masses(
        second, first - second if paired else first, first if paired else first + second, noise,
        seconds(suffix[..., 2:, :]) if isinstance(rule.code, MomentCode) else None,
    )  # fmt: skip


@lru_cache(maxsize=64)
def suffix_variance(rule: Mechanism) -> Floats:
    """Return the noise variance that one release adds to each suffix mass, block after block."""
    found = np.tile(rule.unit_variance * rule.basis.variance_factor(), rule.blocks)
    found.setflags(write=False)
    return found


def transfer(registration: Registration, tally: Tally) -> float:
    """Return eta: the distance of the calibrated from the declared mixture, plus declared drift. Charged slots count
    as drawn."""
    if tally.total == 0:
        return 1.0
    counts = np.asarray(tally.slots, dtype=np.float64) + np.asarray(tally.missing)
    declared = registration.weights
    weights = counts / tally.total if declared is None else np.asarray(declared)
    return eta(weights, counts, np.asarray([site.drift for site in registration.sites]))


@dataclass(frozen=True)
class Margins:
    """How far the noise of one honest release may reach, per threshold: in unsupported, supported (or any level's) and
    accepted mass; in squares, products and the total of second moments."""

    low_unsupported: Floats
    low_supported: Floats
    high: Floats
    square: Floats
    cross: Floats
    total: Floats


def plausible_margins(registration: Registration, number: int, noise: float = 1.0) -> Margins:
    """Return the registered plausibility margins of request `number`, of so many times the noise of one release.

    Theory: Refusal, sqrt(2 v log(3m/q_s)) with q_s = 6 alpha_f / (pi^2 s^2); (xiv) Refusal, 7m events; (xiv) Levels;
    (xviii) Refusal, m in every block.
    """
    rule, budget = registration.mechanism, registration.judgement.refusal_budget
    v, events = suffix_variance(rule) * noise, 7 if isinstance(rule.code, MomentCode) else 3
    each = covariance(registration.histograms.kind, v)
    high = each.of(1.0, 1.0)
    if isinstance(rule.code, LevelCode):
        events, high = rule.code.rows + 1, rule.code.rows * v
    log_term = math.log(events * v.size * math.pi**2 * number**2 / (6 * budget))
    reached = (each.uu, each.ss, high, *noise_of_seconds(v))
    return Margins(*(np.sqrt(2 * v * log_term) + 1e-9 for v in reached))


def implausible(registration: Registration, given: Given, number: int) -> str | None:
    """Return why the answer to request `number` is refused, or None. An honest one ever is with probability alpha_f.

    Theory: Refusal.
    """
    if registration.judgement.refusal_budget == 0:
        return None
    sums = np.asarray(given.numbers).reshape(registration.mechanism.shape)
    seen, margin = masses(registration, sums, given.noise), plausible_margins(registration, number, given.noise)
    n = given.slots
    below = [seen.unsupported < -margin.low_unsupported, seen.supported < -margin.low_supported]
    if seen.levels is not None:
        below = [each < -margin.low_supported for each in seen.levels]
    above = [seen.accepted > n + margin.high]
    if (two := seen.second) is not None:
        below += [two.uu < -margin.square, two.us < -margin.cross, two.ss < -margin.square]
        above += [two.uu + 2 * two.us + two.ss > n + margin.total]
    if np.any(below):
        return "its masses are more negative than the noise explains"
    return "it holds more mass than its slots" if np.any(above) else None
