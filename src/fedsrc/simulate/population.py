"""Frozen populations: at each site a finite support of units with known laws, so that risk can be enumerated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedsrc.maths.arrays import Floats, Ints
from fedsrc.maths.limits import k_inf
from fedsrc.protocol.registration import Registration
from fedsrc.records.masses import unit_masses
from fedsrc.records.units import Units


@dataclass(frozen=True)
class Support:
    """One site's units: what each adds to a release (n, 2, m+1), and its probability (n,), or that of every trial
    (trials, n)."""

    masses: Ints
    law: Floats


@dataclass(frozen=True)
class Truth:
    """Exact acceptance and risk per threshold under a mixture of sites."""

    acceptance: Floats
    risk: Floats


def uniform(registration: Registration, sites: Sequence[Units]) -> list[Support]:
    """Return the uniform law on each site's units.

    Paper: Appendix "Finite-population theorem audit".
    """
    return [Support(unit_masses(registration, units), np.full(len(units), 1.0 / len(units))) for units in sites]


def from_cells(registration: Registration, supported: Floats, unsupported: Floats) -> Support:
    """Make a law from probabilities per bin 0..m of supported and unsupported answers."""
    bins, whole = supported.size, registration.privacy.mass_grid * np.eye(supported.size, dtype=np.int64)
    masses = np.zeros((2 * bins, 2, bins), dtype=np.int64)
    masses[:bins, 0] = masses[bins:, 1] = whole
    if registration.encoding.kind == "paired":
        masses[bins:, 0] = whole
    law = np.concatenate([supported, unsupported])
    return Support(masses, law / law.sum())


def deployment_weights(registration: Registration) -> Floats:
    """Return the declared weights of the sites, or equal ones."""
    count = len(registration.sites)
    return np.asarray(registration.weights or (1.0 / count,) * count)


def suffix_masses(registration: Registration, masses: Floats | Ints) -> tuple[Floats, Floats]:
    """Return accepted and unsupported mass (..., m) at every threshold of masses (..., 2, m+1) in grid units."""
    per_bin = masses / registration.privacy.mass_grid
    first, unsupported = np.moveaxis(np.cumsum(per_bin[..., :0:-1], axis=-1)[..., ::-1], -2, 0)
    return first if registration.encoding.kind == "paired" else first + unsupported, unsupported


def truth(registration: Registration, sites: Sequence[Support], weights: Sequence[float]) -> Truth:
    """Enumerate acceptance a_j and risk R_j of a mixture; risk is 0 where nothing is accepted."""
    parts = [w * np.tensordot(site.law, site.masses, 1) for w, site in zip(weights, sites, strict=True)]
    accepted, unsupported = suffix_masses(registration, np.sum(parts, axis=0))
    return Truth(accepted, np.divide(unsupported, accepted, out=np.zeros_like(accepted), where=accepted > 0))


def information_limit(registration: Registration, sites: Sequence[Support], weights: Sequence[float]) -> float:
    """Fewest units, on average and without privacy, for a method that is told the best threshold with enough
    acceptance: log(1/alpha) over the largest growth of any bet. Infinite when no such threshold is below target.

    For draws of the mixture: a method that uses which site each unit is from may need fewer.
    See docs/theory.md, (viii) Known sites.
    """
    claim = registration.claim
    exact = truth(registration, sites, weights)
    law = np.concatenate([w * site.law for w, site in zip(weights, sites, strict=True)])
    accepted, unsupported = suffix_masses(registration, np.concatenate([site.masses for site in sites]))
    contrast = unsupported - claim.target_risk * accepted
    able = (exact.risk < claim.target_risk) & (exact.acceptance > claim.min_acceptance)
    growth = max((k_inf(contrast[:, j], claim.target_risk, law) for j in np.flatnonzero(able)), default=0.0)
    return math.log(1 / claim.failure_probability) / growth if growth > 0 else math.inf
