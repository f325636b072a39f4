"""Laws that fit what is known: one for each simulated run, so that a forecast holds what a sample or noise leaves open.

A Bayesian bootstrap (Rubin 1981): units keep what they add, and weights are drawn. Beside the sample every bin has a
small prior unit, supported and unsupported: without it the best of many thresholds looks better than it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedsrc.maths.arrays import Floats
from fedsrc.protocol.registration import Registration
from fedsrc.server.tally import Masses, Tally, masses
from fedsrc.simulate.population import Support, from_cells
from fedsrc.simulate.trials import discrete_gaussian

PRIOR = 0.1  # of a unit, per bin and loss; `python -m research.forecast_coverage` shows what it does


def from_sample(registration: Registration, sites: Sequence[Support], trials: int, seed: int) -> list[Support]:
    """Draw a law for every trial from each site's sample; sites that share a sample share its draws."""
    rng, drawn = np.random.default_rng([seed, 3]), dict[int, Support]()
    for site in sites:
        if id(site) not in drawn:
            drawn[id(site)] = _resampled(registration, site, trials, rng)
    return [drawn[id(site)] for site in sites]


def _resampled(registration: Registration, site: Support, trials: int, rng: np.random.Generator) -> Support:
    size, *shape = site.masses.shape
    kinds, often = np.unique(site.masses.reshape(size, -1), axis=0, return_counts=True)  # equal units, drawn at once
    prior = _cells(registration).masses
    weights = np.concatenate([often, np.full(len(prior), PRIOR)])
    found = np.concatenate([kinds.reshape(-1, *shape), prior])
    return Support(found, _dirichlet(np.tile(weights, (trials, 1)), rng))


def from_noised(registration: Registration, tally: Tally, trials: int, seed: int) -> Support:
    """Draw a law for every trial from noised sums: first what the noise may have been, then the units."""
    rule, rng = registration.mechanism, np.random.default_rng([seed, 3])
    shape = (trials, *tally.sums.shape)
    noise = sum((discrete_gaussian(rng, rule.scale, shape) for _ in range(tally.releases)), start=np.zeros(shape, int))
    cells = cells_of(masses(registration, tally.sums + noise, tally.releases), tally.arrived)
    return Support(_cells(registration).masses, _dirichlet(cells + PRIOR, rng))


def cells_of(seen: Masses, units: int) -> Floats:
    """Return how many of the units noised masses put into each bin 0..m, supported and then unsupported (..., 2m+2).

    What nothing accepts is in bin 0, as unsupported.
    """
    supported, unsupported = (
        -np.diff(as_falling(each, units), append=0.0) for each in (seen.supported, seen.unsupported)
    )
    rejected = units - supported.sum(axis=-1, keepdims=True) - unsupported.sum(axis=-1, keepdims=True)
    return np.concatenate([np.zeros_like(rejected), supported, np.maximum(0.0, rejected), unsupported], axis=-1)


def as_falling(noised: Floats, units: int) -> Floats:
    """Noised suffix masses as masses that fall with the threshold, between none and all of the units: midway between
    the lowest falling line above them and the highest below. Noise does not add up, as it would bin by bin."""
    above = np.maximum.accumulate(noised[..., ::-1], axis=-1)[..., ::-1]
    return np.asarray(np.clip((above + np.minimum.accumulate(noised, axis=-1)) / 2, 0.0, units))


def _cells(registration: Registration) -> Support:
    """Return a unit of every bin, supported and unsupported."""
    bins = np.ones(len(registration.thresholds.values) + 1)
    return from_cells(registration, bins, bins)


def _dirichlet(weights: Floats, rng: np.random.Generator) -> Floats:
    drawn = rng.standard_gamma(weights)
    return np.asarray(drawn / drawn.sum(axis=-1, keepdims=True))
