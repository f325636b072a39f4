"""The populations that evidence leaves possible, drawn from their posterior: plans and forecasts are made in them.

Exact units are reweighed (Bayesian bootstrap), noised sums are freed of fresh noise, made falling and drawn as answers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import block_diag
from scipy.optimize import isotonic_regression
from scipy.special import ndtr, ndtri

from fedsrc.maths.arrays import Floats, Ints
from fedsrc.maths.basis import Basis
from fedsrc.protocol.protection import IN_SUFFIXES, Noised
from fedsrc.protocol.registration import Registration
from fedsrc.server.tally import Tally, masses
from fedsrc.simulate.population import Support, from_cells

DRAWS = 200
RATE, SLOPE = (0.15, 0.65), (0.2, 2.0)  # where nobody has labelled: how many are unsupported, how well scores tell
UNSEEN = 0.25  # what a kind of answer counts before any was seen


@dataclass(frozen=True)
class Populations:
    """Kinds of units with their masses at or above each threshold (kinds, thresholds), and in every drawn population
    how common each kind is (draws, kinds)."""

    unsupported: Floats
    supported: Floats
    laws: Floats

    @cached_property
    def accepted(self) -> Floats:
        """Acceptance at each threshold in every population."""
        return self.laws @ (self.unsupported + self.supported)

    def samples(self, sizes: Sequence[int], rng: np.random.Generator) -> Ints:
        """Draw how many units of each kind arrive in rounds of these sizes: (draws, rounds, kinds)."""
        return np.stack([rng.multinomial(size, self.laws) for size in sizes], axis=1)


def from_units(
    unsupported: ArrayLike, supported: ArrayLike, rng: np.random.Generator, draws: int = DRAWS
) -> Populations:
    """Draw populations from exact development units, (units, thresholds) masses of at most one: the Bayesian bootstrap
    (Rubin 1981), which keeps every unit whole, so that its second moments are there.

    An unsupported answer above every threshold counts as seen a little: where few are accepted, none may have been.
    """
    u, s = (np.asarray(each, dtype=np.float64) for each in (unsupported, supported))
    laws = rng.dirichlet([*np.ones(len(u)), UNSEEN], draws)
    return Populations(np.vstack([u, np.ones_like(u[:1])]), np.vstack([s, np.zeros_like(s[:1])]), laws)


def from_answers(
    unsupported: ArrayLike, supported: ArrayLike, rng: np.random.Generator, draws: int = DRAWS
) -> Populations:
    """Draw populations from development units of one answer each: their counts in bins, as a Dirichlet."""
    above = np.stack([np.sum(supported, axis=0), np.sum(unsupported, axis=0)]).astype(np.float64)
    return _of_bins(np.broadcast_to(above, (draws, *above.shape)), len(np.asarray(unsupported)), rng)


def from_scores(accepted: ArrayLike, units: int, rng: np.random.Generator, draws: int = DRAWS) -> Populations:
    """Draw populations that scores alone leave possible: how many are accepted at each threshold is known, or drawn
    (draws, thresholds), and risk falls with the score by a law that is drawn widely.

    An answer at the q-th quantile of scores is unsupported with chance Phi(c - k Phi^-1(q)): of `RATE` of all answers,
    told apart from poorly to well (`SLOPE`).
    """
    above = np.broadcast_to(np.asarray(accepted, dtype=np.float64), (draws, np.shape(accepted)[-1]))
    bins = -np.diff(above, append=0.0)
    rate, slope = rng.uniform(*RATE, (draws, 1)), rng.uniform(*SLOPE, (draws, 1))
    place = np.clip(1.0 - (above - bins / 2.0) / units, 0.5 / units, 1.0 - 0.5 / units)
    risk = ndtr(ndtri(rate) * np.sqrt(1.0 + slope**2) - slope * ndtri(place))
    split = np.stack([bins * (1.0 - risk), bins * risk], axis=1)
    return _of_bins(split[..., ::-1].cumsum(axis=-1)[..., ::-1], units, rng)


def from_release(
    release: Noised, thresholds: Sequence[float], rng: np.random.Generator, draws: int = DRAWS
) -> Populations:
    """Draw populations from a noised development release, at thresholds of its grid.

    Fresh noise is taken off the release, the rest is made falling, and answers in each bin are drawn as a Dirichlet.
    Every unit counts as one answer: the release has no second moments, and shared masses have smaller ones.
    """
    basis, g = Basis("suffix", len(release.grid), IN_SUFFIXES.basis_bits), release.privacy.mass_grid
    y = np.array([release.first, release.second], dtype=np.float64)
    noised = basis.decode((y - rng.normal(0.0, release.scale, (draws, *y.shape))) / g)
    at = np.searchsorted(release.grid, thresholds)
    if release.labels == "none":
        return from_scores(falling(noised[:, 1])[..., at], release.units, rng, draws)
    return _of_bins(falling(noised)[..., at], release.units, rng)


def either(one: Populations, other: Populations) -> Populations:
    """Return the populations of both."""
    unsupported = np.vstack([one.unsupported, other.unsupported])
    return Populations(unsupported, np.vstack([one.supported, other.supported]), block_diag(one.laws, other.laws))


def from_samples(registration: Registration, sites: Sequence[Support], draws: int, seed: int) -> list[Support]:
    """Draw laws of sites from their samples, as `from_units` does; sites that share a sample share its draws."""
    rng, worst, drawn = np.random.default_rng([seed, 3]), _cells(registration)[-1:], dict[int, Support]()
    for name, site in {id(site): site for site in sites}.items():
        kinds, often = np.unique(site.masses, axis=0, return_counts=True)  # equal units are drawn at once
        drawn[name] = Support(np.concatenate([kinds, worst]), rng.dirichlet([*often, UNSEEN], draws))
    return [drawn[id(site)] for site in sites]


def from_tally(registration: Registration, tally: Tally, draws: int, seed: int) -> Support:
    """Draw laws from the noised sums of a run, as `from_release` does."""
    rng, m, shape = np.random.default_rng([seed, 3]), len(registration.thresholds.values), (draws, *tally.sums.shape)
    noise = rng.normal(0.0, registration.mechanism.scale * math.sqrt(tally.noises), shape)
    seen = masses(registration, tally.sums - noise, tally.noises)
    found = _of_bins(falling(np.stack([seen.supported, seen.unsupported], axis=1)), tally.arrived, rng)
    kinds = [m + 1, *range(1, m + 1), *range(m + 2, 2 * m + 2)]  # what nothing accepts is unsupported, in bin 0
    return Support(_cells(registration)[kinds], found.laws)


def _cells(registration: Registration) -> Ints:
    """Return what a unit of each bin adds: supported answers in bins 0..m, then unsupported ones."""
    bins = np.ones(len(registration.thresholds.values) + 1)
    return from_cells(registration, bins, bins).masses


def _of_bins(above: Floats, units: int, rng: np.random.Generator) -> Populations:
    """Populations of one-answer units from masses (draws, 2, thresholds) at or above thresholds, supported first."""
    m = above.shape[-1]
    bins = -np.diff(above, append=0.0).reshape(len(above), 2 * m)
    none = np.maximum(units - bins.sum(axis=1, keepdims=True), 0.0)
    chances = rng.standard_gamma(np.hstack([none, bins]) + UNSEEN)
    suffix, zero = np.tril(np.ones((m, m))), np.zeros((1, m))
    supported, unsupported = np.vstack([zero, suffix, 0 * suffix]), np.vstack([zero, 0 * suffix, suffix])
    return Populations(unsupported, supported, chances / chances.sum(axis=1, keepdims=True))


def falling(noised: Floats) -> Floats:
    """Return the masses nearest to noised ones (..., thresholds) that fall with the threshold, and are not negative."""
    return np.apply_along_axis(lambda each: np.maximum(isotonic_regression(each, increasing=False).x, 0.0), -1, noised)
