"""Acceptance from unlabelled records: what the registered releases of every site say of the units that calibrate.

Bounds hold at every point of the public grid at once, so they hold at thresholds that were chosen by looking at them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fedsrc.maths import half_line
from fedsrc.maths.arrays import Floats
from fedsrc.maths.basis import Basis
from fedsrc.protocol.judgements import Sealed
from fedsrc.protocol.protection import IN_SUFFIXES, Noised
from fedsrc.protocol.registration import Registration
from fedsrc.server.tally import Tally


class Acceptance(NamedTuple):
    """Mean accepted mass per threshold: at least, at most, and as it was seen."""

    lower: Floats
    upper: Floats
    middle: Floats


def acceptance(registration: Registration, tally: Tally, share: float) -> Acceptance:
    """Bound the acceptance of the sites as they are mixed in a tally. Half of the acceptance budget is for the mixture
    that is registered, or an equal one: it is one event at all looks. Any other mixture has a look's share of the rest.

    Theory: (xiii) Unlabelled records.
    """
    method, releases = registration.judgement, registration.unlabelled
    assert isinstance(method, Sealed)
    assert releases is not None  # whoever asks has them
    counts, sites = tuple(map(sum, zip(tally.slots, tally.missing, strict=True))), len(registration.sites)
    usual = np.asarray(registration.weights or [1.0 / sites] * sites)
    same = bool(np.allclose(np.asarray(counts) / max(tally.total, 1), usual, rtol=0, atol=1e-12))
    part = 1.0 if sites == 1 else 0.5 if same else 0.5 * share
    return bounded(releases, registration.thresholds.values, counts, method.acceptance_budget * part)


@lru_cache(maxsize=256)
def bounded(
    releases: tuple[Noised, ...], thresholds: tuple[float, ...], units: Sequence[int], budget: float
) -> Acceptance:
    """Bound acceptance at thresholds where so many units of each site are mixed; both bounds, but for `budget`.

    Theory: (xiii) Unlabelled records.
    """
    total, grid = max(sum(units), 1), np.asarray(releases[0].grid)
    X, v, fewest = np.zeros(grid.size), np.zeros(grid.size), np.inf
    for release, number in zip(releases, units, strict=True):
        if number:
            per_unit = number / total / release.units  # w_k / M_k
            seen, noise = _decoded(release)
            X, v, fewest = X + per_unit * seen, v + per_unit**2 * noise, min(fewest, 1.0 / per_unit)
    if not np.isfinite(fewest):
        return Acceptance(*(np.full(len(thresholds), each) for each in (0.0, 1.0, 0.0)))
    each = budget / (2 * grid.size)
    A, noise = fewest * X, fewest**2 * v
    lower, upper = (bound(A, noise, fewest, each) for bound in (half_line.acceptance_lower, half_line.acceptance_upper))
    below = np.searchsorted(grid, thresholds, side="right")  # one more than the highest point at or below
    above = np.searchsorted(grid, thresholds, side="left")  # the lowest point at or above
    padded = np.append(lower, 0.0)[above], np.append(1.0, upper)[below], np.append(X, 0.0)[above]
    return Acceptance(*(np.minimum(each, 1.0) for each in padded))


@lru_cache(maxsize=256)
def _decoded(release: Noised) -> tuple[Floats, Floats]:
    """Return noised accepted mass at or above each point of the grid, and its noise variance."""
    basis, g = Basis("suffix", len(release.grid), IN_SUFFIXES.basis_bits), release.privacy.mass_grid
    seen = basis.decode(np.asarray(release.second, dtype=np.float64) / g)
    return seen, (release.scale / g) ** 2 * basis.variance_factor()
