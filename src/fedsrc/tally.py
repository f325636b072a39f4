"""The tally: cumulative noised masses, their noise variance, slots per site, folded from the transcript."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from fedsrc.maths.basis import Ints, covariance
from fedsrc.maths.betting import Covariance
from fedsrc.maths.boundaries import Floats
from fedsrc.maths.transfer import eta
from fedsrc.registration import Registration
from fedsrc.release import Mechanism, Release, registered_mechanism


@dataclass(frozen=True)
class Tally:
    """Everything the bounds need. Sums are exact integers on the public lattice."""

    slots: tuple[int, ...]
    missing: tuple[int, ...]
    releases: int
    sums: Ints

    @property
    def arrived(self) -> int:
        """Slots of the releases that arrived: the records used."""
        return sum(self.slots)

    @property
    def total(self) -> int:
        """N: slots that arrived, and missing ones that are charged."""
        return self.arrived + self.lost

    @property
    def lost(self) -> int:
        """Slots of charged releases that never arrived."""
        return sum(self.missing)


@dataclass(frozen=True)
class Masses:
    """Noised suffix masses per threshold, and the covariance proxy of their noise."""

    unsupported: Floats
    supported: Floats
    noise: Covariance

    @property
    def accepted(self) -> Floats:
        return self.unsupported + self.supported


def empty(registration: Registration) -> Tally:
    """Nothing has arrived."""
    rule = registered_mechanism(registration)
    none = (0,) * len(registration.sites)
    return Tally(none, none, 0, np.zeros((2, rule.basis.p), dtype=np.int64))


def add(tally: Tally, site: int, release: Release) -> Tally:
    """Fold one accepted release of the site at that index."""
    sums = tally.sums + np.asarray([release.first, release.second], dtype=np.int64)
    return replace(tally, slots=_plus(tally.slots, site, release.slots), releases=tally.releases + 1, sums=sums)


def lose(tally: Tally, site: int, slots: int) -> Tally:
    """Charge a request to that site whose release never arrived (adversarial dropout).

    Theory: (iv), Dropout.
    """
    return replace(tally, missing=_plus(tally.missing, site, slots))


def masses(registration: Registration, sums: Ints, releases: float) -> Masses:
    """Suffix masses and noise from lattice sums (..., 2, p) of that many releases."""
    rule = registered_mechanism(registration)
    first, second = np.moveaxis(rule.basis.decode(sums.astype(np.float64)) / rule.grid, -2, 0)
    paired = registration.privacy.encoding == "paired"
    noise = covariance(registration.privacy.encoding, suffix_variance(rule) * releases)
    return Masses(second, first - second if paired else first, noise)


def suffix_variance(rule: Mechanism) -> Floats:
    """Noise variance that one release adds to each suffix mass."""
    return rule.unit_variance * rule.basis.variance_factor()


def transfer(registration: Registration, tally: Tally) -> float:
    """eta: distance of the calibrated from the declared mixture, plus declared drift. Charged slots count as drawn."""
    if tally.total == 0:
        return 1.0
    counts = np.asarray(tally.slots, dtype=np.float64) + np.asarray(tally.missing)
    declared = registration.weights
    weights = counts / tally.total if declared is None else np.asarray(declared)
    return eta(weights, counts, np.asarray([site.drift for site in registration.sites]))


def implausible(registration: Registration, release: Release, number: int) -> str | None:
    """Why request number `number`'s release is refused, or None. Honest ones ever are with probability alpha_f.

    Theory: Refusal.
    """
    budget = registration.certificate.refusal_budget
    if budget == 0:
        return None
    seen = masses(registration, np.asarray([release.first, release.second]), 1)
    log_term = math.log(3 * len(registration.thresholds.values) * math.pi**2 * number**2 / (6 * budget))
    low_u = seen.unsupported < -np.sqrt(2 * seen.noise.uu * log_term) - 1e-9
    low_s = seen.supported < -np.sqrt(2 * seen.noise.ss * log_term) - 1e-9
    high = seen.accepted > release.slots + np.sqrt(2 * seen.noise.of(1.0, 1.0) * log_term) + 1e-9
    if low_u.any() or low_s.any():
        return "its masses are more negative than the noise explains"
    return "it holds more mass than its slots" if high.any() else None


def _plus(values: tuple[int, ...], index: int, amount: int) -> tuple[int, ...]:
    return (*values[:index], values[index] + amount, *values[index + 1 :])
