"""The tally of a run: noised masses, their noise variance and the slots per site, folded from the transcript."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from fedsrc.maths.arrays import Floats, Ints
from fedsrc.maths.basis import covariance
from fedsrc.maths.betting import Covariance
from fedsrc.maths.transfer import eta
from fedsrc.protocol.mechanism import Mechanism
from fedsrc.protocol.messages import Release
from fedsrc.protocol.registration import Registration


@dataclass(frozen=True)
class Charge:
    """What releases that never arrived are charged with, per threshold: the worst that passes for honest."""

    unsupported: Floats
    supported: Floats
    accepted: Floats


@dataclass(frozen=True)
class Tally:
    """Everything the bounds need. Sums are exact integers on the public lattice."""

    slots: tuple[int, ...]
    missing: tuple[int, ...]
    releases: int
    sums: Ints
    charge: Charge

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
    """Noised suffix masses per threshold, and the covariance proxy of the noise on (unsupported, supported)."""

    unsupported: Floats
    supported: Floats
    accepted: Floats
    noise: Covariance

    def plus(self, charge: Charge) -> Masses:
        """Add the charge for missing releases, each mass at its own worst."""
        return Masses(
            self.unsupported + charge.unsupported,
            self.supported + charge.supported,
            self.accepted + charge.accepted,
            self.noise,
        )


def empty(registration: Registration) -> Tally:
    """Return the tally before anything has arrived."""
    rule = registration.mechanism
    none, nothing = (0,) * len(registration.sites), np.zeros(rule.basis.m)
    return Tally(none, none, 0, np.zeros((2, rule.basis.p), dtype=np.int64), Charge(nothing, nothing, nothing))


def add(tally: Tally, releases: Sequence[tuple[int, Release]]) -> Tally:
    """Fold accepted releases, each with its site's index. Sums are exact, so their order does not matter."""
    slots, sums = list(tally.slots), tally.sums.copy()
    for site, release in releases:
        slots[site] += release.slots
        sums += np.asarray([release.first, release.second], dtype=np.int64)
    return replace(tally, slots=tuple(slots), releases=tally.releases + len(releases), sums=sums)


def lose(registration: Registration, tally: Tally, site: int, slots: int, number: int) -> Tally:
    """Charge a site for request `number`, whose release never arrived: whatever it held, it was no worse than this.

    Off the refusal event an honest release has masses above -low and accepted mass below slots + high.

    Theory: (iv), Dropout.
    """
    margin = plausible_margins(registration, number)
    worst = Charge(
        tally.charge.unsupported + slots + margin.high + margin.low_supported,
        tally.charge.supported - margin.low_supported,
        tally.charge.accepted - margin.low_unsupported - margin.low_supported,
    )
    missing = list(tally.missing)
    missing[site] += slots
    return replace(tally, missing=tuple(missing), releases=tally.releases + 1, charge=worst)


def masses(registration: Registration, sums: Ints | Floats, releases: float | Floats) -> Masses:
    """Decode lattice sums (..., 2, p) of that many releases (per sum: (..., 1)) into suffix masses and their noise."""
    rule = registration.mechanism
    first, second = np.moveaxis(rule.basis.decode(sums.astype(np.float64)) / rule.grid, -2, 0)
    paired = registration.encoding.kind == "paired"
    noise = covariance(registration.encoding.kind, suffix_variance(rule) * releases)
    return Masses(second, first - second if paired else first, first if paired else first + second, noise)


@lru_cache(maxsize=64)
def suffix_variance(rule: Mechanism) -> Floats:
    """Return the noise variance that one release adds to each suffix mass."""
    found = rule.unit_variance * rule.basis.variance_factor()
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
    """How far the noise of one honest release may reach, per threshold."""

    low_unsupported: Floats
    low_supported: Floats
    high: Floats


def plausible_margins(registration: Registration, number: int) -> Margins:
    """Return the registered plausibility margins of request `number`.

    Theory: Refusal, sqrt(2 v log(3m/q_s)) with q_s = 6 alpha_f / (pi^2 s^2).
    """
    rule, budget = registration.mechanism, registration.judgement.refusal_budget
    log_term = math.log(3 * rule.basis.m * math.pi**2 * number**2 / (6 * budget))
    noise = covariance(registration.encoding.kind, suffix_variance(rule))
    return Margins(*(np.sqrt(2 * v * log_term) + 1e-9 for v in (noise.uu, noise.ss, noise.of(1.0, 1.0))))


def implausible(registration: Registration, release: Release, number: int) -> str | None:
    """Return why the release of request `number` is refused, or None. An honest one ever is with probability alpha_f.

    Theory: Refusal.
    """
    if registration.judgement.refusal_budget == 0:
        return None
    seen = masses(registration, np.asarray([release.first, release.second]), 1)
    margin = plausible_margins(registration, number)
    if (seen.unsupported < -margin.low_unsupported).any() or (seen.supported < -margin.low_supported).any():
        return "its masses are more negative than the noise explains"
    return "it holds more mass than its slots" if (seen.accepted > release.slots + margin.high).any() else None
