"""From units to masses: the two histograms that a release encodes, in multiples of the mass grid."""

from __future__ import annotations

from functools import partial

import numpy as np

from fedsrc.maths.arrays import Ints
from fedsrc.maths.basis import Basis
from fedsrc.maths.contrasts import ContrastCode
from fedsrc.protocol.registration import Registration
from fedsrc.records.units import Units

BLOCK = 20_000  # units whose masses are held at a time


def histogram(registration: Registration, units: Units) -> Ints:
    """Return the two mass vectors of some units, in multiples of 1/grid: shape (2, m+1).

    Theory: (i) complementary masses, (v) sources share their mass among their answers.
    """
    bins, _, first, second = _answers(registration, units)
    length = len(registration.thresholds.values) + 1
    sums = [np.bincount(bins, weights=mass, minlength=length) for mass in (first, second)]
    return np.rint(sums).astype(np.int64)  # floats hold these integers exactly


def counted(registration: Registration, units: Units) -> Ints:
    """Return what a release counts of some units: their histograms, the bins of second moments or levels, or the sum
    of their encoded contrasts. Only histograms, of integers that floats hold exactly, are counted in floats."""
    code = registration.mechanism.code
    if isinstance(code, Basis):
        return histogram(registration, units)
    blocks = [np.arange(i, min(i + BLOCK, len(units))) for i in range(0, max(1, len(units)), BLOCK)]
    encode = partial(contrasts, code) if isinstance(code, ContrastCode) else code.bins
    return np.asarray(sum(encode(unit_masses(registration, units.take(each))).sum(axis=0) for each in blocks))


def contrasts(code: ContrastCode, masses: Ints) -> Ints:
    """Encode the masses (units, 2, m+1) of units as a sealed release does: (units, p)."""
    supported, unsupported = np.moveaxis(above(masses), -2, 0)
    return code.encode(unsupported, supported)


def above(masses: Ints) -> Ints:
    """Return masses (..., m) at or above each threshold from masses (..., m+1) per bin."""
    return masses[..., ::-1].cumsum(axis=-1)[..., ::-1][..., 1:]


def unit_masses(registration: Registration, units: Units) -> Ints:
    """Return the same per unit: shape (units, 2, m+1)."""
    bins, owner, first, second = _answers(registration, units)
    masses = np.zeros((len(units), 2, len(registration.thresholds.values) + 1), dtype=np.int64)
    np.add.at(masses[:, 0], (owner, bins), first)
    np.add.at(masses[:, 1], (owner, bins), second)
    return masses


def grid_losses(loss: np.ndarray[tuple[int], np.dtype[np.float64]], grid: int) -> Ints:
    """Return losses as multiples of 1/grid, rounded up (the bound then holds for the larger loss).

    A loss that is the nearest double to some k/grid is that k: 0.07 on a grid of 100 is 7, not 8.
    """
    nearest = np.rint(loss * grid)
    return np.where(nearest / grid == loss, nearest, np.ceil(loss * grid)).astype(np.int64)


def _answers(registration: Registration, units: Units) -> tuple[Ints, Ints, Ints, Ints]:
    """Return per answer its bin, its unit, and what it adds to the two mass vectors."""
    settings = registration.privacy
    bins = np.searchsorted(np.asarray(registration.thresholds.values), units.score, side="right")
    sizes = np.diff(units.start)
    owner = np.repeat(np.arange(len(units)), sizes)
    shares = np.full(len(units), settings.max_answers) if settings.answer_weight == "answer" else np.maximum(sizes, 1)
    mass = (settings.mass_grid // shares)[owner]
    bad = mass // settings.loss_grid * grid_losses(units.loss, settings.loss_grid)
    return bins, owner, mass if registration.encoding.kind == "paired" else mass - bad, bad
