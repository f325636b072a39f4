"""Whether some threshold keeps a target, as far as rates are known: yes, no, or too few units to tell.

At a threshold with acceptance a and risk R the contrast a (R - target) is below zero where the target is kept. Its
estimate and standard error decide, with the noise of private releases in the error. The error is at least that at the
target itself: of five answers that are all supported the estimated error is small, and they show little. A rule for
advice, not a bound.

How many units it takes is another question, as they grow with the inverse square of the distance: of samples with a
threshold just plainly below the target most have it by luck, and promise too few.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedsrc.maths.arrays import Floats
from fedsrc.protocol.registration import Registration
from fedsrc.server.tally import Masses
from fedsrc.simulate.population import Support, suffix_masses

TELLING = 2.0  # standard errors: a threshold that keeps the target is taken for one that does not once in 40 times
BEST = 3.0  # of the best of 20 thresholds, so that one of them that does not keep it is taken for one once in 40 times
Reach = Literal["in reach", "out of reach", "too few"]


@dataclass(frozen=True)
class Rates:
    """Per threshold: the mean contrast and acceptance of a unit, with their standard errors."""

    contrast: Floats
    contrast_error: Floats
    acceptance: Floats
    acceptance_error: Floats

    def reach(self, min_acceptance: float) -> Reach:
        """In reach where one threshold is plainly below the target; out of reach where each is plainly above it, or
        plainly accepts too little."""
        enough = self.acceptance + TELLING * self.acceptance_error >= min_acceptance
        if (enough & (self.contrast < -BEST * self.contrast_error)).any():
            return "in reach"
        return "out of reach" if (~enough | (self.contrast > TELLING * self.contrast_error)).all() else "too few"


def noised_rates(registration: Registration, seen: Masses, units: int) -> Rates:
    """Estimate rates from noised masses, all sites together; values that only noise can give are clipped."""
    claim = registration.claim
    r, floor = claim.target_risk, claim.min_acceptance
    unsupported, supported = (np.clip(each, 0, units) for each in (seen.unsupported, seen.supported))
    sampling = np.maximum((1 - r) ** 2 * unsupported + r**2 * supported, r * (1 - r) * (unsupported + supported))
    return Rates(
        np.clip(((1 - r) * seen.unsupported - r * seen.supported) / units, -r, 1 - r),
        np.sqrt(sampling + seen.noise.of(1 - r, -r)) / units,
        seen.accepted / units,
        np.sqrt(units * floor * (1 - floor) + seen.noise.of(1.0, 1.0)) / units,
    )


def sampled_rates(registration: Registration, sites: Sequence[Support], weights: Sequence[float]) -> Rates:
    """Estimate rates from samples of the sites' units. Sites may share a sample, and then its error."""
    claim = registration.claim
    r, floor = claim.target_risk, claim.min_acceptance
    zero = np.zeros(len(registration.thresholds.values))
    contrast, contrast_error, acceptance, acceptance_error = zero, zero, zero, 0.0
    samples = {id(site): site for site in sites}
    for name, site in samples.items():
        weight = sum(w for w, each in zip(weights, sites, strict=True) if id(each) == name)
        accepted, unsupported = suffix_masses(registration, site.masses)
        each = unsupported - r * accepted
        spread = np.maximum(site.law @ each**2, r * (1 - r) * (site.law @ accepted**2))
        contrast = contrast + weight * (site.law @ each)
        contrast_error = contrast_error + weight**2 * spread / site.law.size
        acceptance = acceptance + weight * (site.law @ accepted)
        acceptance_error += weight**2 * floor * (1 - floor) / site.law.size
    return Rates(contrast, np.sqrt(contrast_error), acceptance, np.sqrt(zero + acceptance_error))


def known_units(sites: Sequence[Support], weights: Sequence[float]) -> float:
    """Return how many units of the mixture the sites' samples are worth. Sites may share a sample."""
    together = defaultdict[int, float](float)
    for weight, site in zip(weights, sites, strict=True):
        together[id(site)] += weight
    return 1.0 / sum(together[name] ** 2 / size for name, size in {id(site): site.law.size for site in sites}.items())
