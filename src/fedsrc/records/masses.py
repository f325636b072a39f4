"""From units to masses: the two histograms that a release encodes, in multiples of the mass grid."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats, Ints
from fedsrc.maths.basis import Basis
from fedsrc.maths.contrasts import ContrastCode
from fedsrc.protocol.panels import Groups, Scores
from fedsrc.protocol.registration import Registration
from fedsrc.records.units import Units

BLOCK = 20_000  # units whose masses are held at a time


def histogram(registration: Registration, units: Units) -> Ints:
    """Return the two mass vectors of some units, in multiples of 1/grid: shape (2, m+1), of a panel for every block.

    Theory: (i) complementary masses, (v) sources share their mass among their answers.
    """
    found, length, blocks = _answers(registration, units), _bins(registration), registration.mechanism.blocks
    place = found.block * length + found.bin
    sums = [np.bincount(place, weights=mass, minlength=blocks * length) for mass in (found.first, found.second)]
    whole = np.rint(sums).astype(np.int64).reshape(2, blocks, length)  # floats hold these integers exactly
    return whole[:, 0] if registration.panel is None else np.moveaxis(whole, 0, 1)


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
    """Encode the masses (..., 2, m+1) of units as a sealed release does: (..., p)."""
    supported, unsupported = np.moveaxis(above(masses), -2, 0)
    return code.encode(unsupported, supported)


def above(masses: Ints) -> Ints:
    """Return masses (..., m) at or above each threshold from masses (..., m+1) per bin."""
    return masses[..., ::-1].cumsum(axis=-1)[..., ::-1][..., 1:]


def unit_masses(registration: Registration, units: Units) -> Ints:
    """Return the same per unit: shape (units, 2, m+1), of a panel (units, blocks, 2, m+1)."""
    found, blocks = _answers(registration, units), registration.mechanism.blocks
    masses = np.zeros((len(units), blocks, 2, _bins(registration)), dtype=np.int64)
    np.add.at(masses[:, :, 0], (found.owner, found.block, found.bin), found.first)
    np.add.at(masses[:, :, 1], (found.owner, found.block, found.bin), found.second)
    return masses[:, 0] if registration.panel is None else masses


def grid_losses(loss: np.ndarray[tuple[int], np.dtype[np.float64]], grid: int) -> Ints:
    """Return losses as multiples of 1/grid, rounded up (the bound then holds for the larger loss).

    A loss that is the nearest double to some k/grid is that k: 0.07 on a grid of 100 is 7, not 8.
    """
    nearest = np.rint(loss * grid)
    return np.where(nearest / grid == loss, nearest, np.ceil(loss * grid)).astype(np.int64)


def accepted_somewhere(registration: Registration, units: Units) -> NDArray[np.bool_]:
    """Return which answers some threshold accepts: of their group, or of any score. The threshold that shows a group's
    total needs no labels: what it alone accepts counts as unsupported. Theory: (xviii) Scores."""
    total = registration.groups is not None and registration.groups.floor == "group"
    least = np.array([each.values[total and len(each.values) > 1] for each in registration.cuts])
    if registration.groups is not None:
        group = group_of(registration.groups, units)
        return (group >= 0) & (units.score >= least[group])
    found = units.score >= least[0]
    if isinstance(registration.claims, Scores):
        found |= (least[1:] <= _others(registration.claims, units).T).any(axis=1)
    return np.asarray(found)


class Answers(NamedTuple):
    """Per answer and block it counts in: the block, the bin, the unit, and what it adds to the two mass vectors."""

    block: Ints
    bin: Ints
    owner: Ints
    first: Ints
    second: Ints


def _bins(registration: Registration) -> int:
    return len(registration.thresholds.values) + 1


def _answers(registration: Registration, units: Units) -> Answers:
    settings, groups = registration.privacy, registration.groups
    owner = np.repeat(np.arange(len(units)), np.diff(units.start))
    block, score, loss = np.zeros(owner.size, dtype=np.int64), units.score, units.loss
    if groups is not None:
        block = group_of(groups, units)
        there = np.flatnonzero(block >= 0)
        together = _together(groups, units, owner, block)[there]
        block, owner, score, loss = block[there], owner[there], score[there], loss[there]
        if groups.floor == "group":  # an answer without a score is in its group's total, and never a good one
            absent = score < 0
            score, loss = np.where(absent, 0.0, score), np.where(absent, 1.0, loss)
    else:
        together = np.diff(units.start)[owner]
    mass = settings.mass_grid // (together if settings.answer_weight == "source" else settings.max_answers)
    mass = np.broadcast_to(mass, owner.shape)
    bad = mass // settings.loss_grid * grid_losses(loss, settings.loss_grid)
    first = mass if registration.encoding.kind == "paired" else mass - bad
    if not isinstance(registration.claims, Scores):
        return Answers(block, _binned(registration, block, score), owner, first, bad)
    scores = [score, *_others(registration.claims, units)]
    count = len(scores)
    block, score = np.repeat(np.arange(count), owner.size), np.concatenate(scores)
    return Answers(
        block, _binned(registration, block, score), *(np.tile(each, count) for each in (owner, first, bad))
    )  # fmt: skip


def _binned(registration: Registration, block: Ints, score: Floats) -> Ints:
    """Return the bin of each score among the thresholds of its block."""
    found = np.zeros(score.size, dtype=np.int64)
    for i, each in enumerate(registration.cuts):
        mine = slice(None) if registration.panel is None else block == i
        found[mine] = np.searchsorted(np.asarray(each.values), score[mine], side="right")
    return found


def _others(claims: Scores, units: Units) -> Floats:
    if not claims.others:
        return np.zeros((0, units.score.size))
    if units.others is None or units.others.shape[1] != len(claims.others):
        raise FedsrcError("the table was read without the further scores that are registered")
    return units.others.T


def check_columns(registration: Registration, units: Units) -> None:
    """Refuse units of a table that was read without a column that a panel counts by, before any are spent."""
    if registration.groups is not None:
        group_of(registration.groups, units)
    if isinstance(registration.claims, Scores):
        _others(registration.claims, units)


def group_of(groups: Groups, units: Units) -> Ints:
    """Return the listed group of every answer, or -1."""
    if units.group is None:
        raise FedsrcError(f"the table has no column {groups.column!r}, which says the group of an answer")
    places = {name: i for i, name in enumerate(groups.names)}
    known = np.array([places.get(name, -1) for name in units.group_names], dtype=np.int64)
    return known[units.group]


def _together(groups: Groups, units: Units, owner: Ints, block: Ints) -> Ints:
    """Return among how many answers each one's unit shares its mass: all of them, or those of the same group.

    Theory: (xviii) Sources that span groups.
    """
    sizes = np.diff(units.start)
    if groups.span == "shares":
        return sizes[owner]
    key = owner * (len(groups.names) + 1) + block + 1
    _, which, counts = np.unique(key, return_inverse=True, return_counts=True)
    return np.asarray(counts[which], dtype=np.int64)
