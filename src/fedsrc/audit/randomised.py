"""What records say of themselves by randomised response, with seeded coins.

Only counts are needed: of records of one category, those that keep it are binomial, and the others' answers are
multinomial over all categories.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedsrc.audit.cell import Cell
from fedsrc.audit.events import Events
from fedsrc.audit.evidence import exact
from fedsrc.audit.methods import nprr
from fedsrc.audit.methods.setting import Answers, Evidence
from fedsrc.maths.arrays import Ints
from fedsrc.maths.kinds import Adjacency

COINS = 6  # stream of a block's seed


def randomised(cell: Cell, events: Events, *, seed: tuple[int, ...]) -> Evidence:
    """Return exact sums, and what records say of themselves: epsilon against any other record."""
    return _answered(cell, events, seed, "replacement")


def randomised_as_registered(cell: Cell, events: Events, *, seed: tuple[int, ...]) -> Evidence:
    """Return the same with epsilon against the registered neighbours."""
    return _answered(cell, events, seed, cell.registration.privacy.adjacency)


def _answered(cell: Cell, events: Events, seed: tuple[int, ...], adjacency: Adjacency) -> Evidence:
    """Return exact sums with answers; without answers, where a unit is not one record of loss 0 or 1."""
    seen = exact(cell, events, seed=seed)
    if not cell.binary:
        return seen
    first, wrong = np.moveaxis(np.diff(events.masses, axis=1, prepend=0), -2, 0)
    right = first - wrong if cell.registration.encoding.kind == "paired" else first
    eps = cell.registration.privacy.epsilon
    size = nprr.planned_size(eps, seen.thresholds, adjacency)
    kept = nprr.kept(eps, 2 * size + 1, adjacency)
    rng = np.random.default_rng([*seed, COINS])
    return replace(seen, answers=answers_of(rng, np.stack([right, wrong], axis=-2), size, kept))


def answers_of(rng: np.random.Generator, own: Ints, size: int, kept: float) -> Answers:
    """Draw cumulative answers of records (..., T, 2, m+1) by loss and bin, each asked of `size` thresholds, every
    (m/size)-th one."""
    m = own.shape[-1] - 1
    parts = m // size
    asked, right, wrong = (np.zeros((*own.shape[:-2], m), dtype=np.float64) for _ in range(3))
    dealt = np.moveaxis(rng.multinomial(own, np.full(parts, 1.0 / parts)), -1, 0)
    for part, records in enumerate(dealt):
        mine = slice(part, None, parts)
        told = answered(rng, categories(records, np.arange(m)[mine]), kept)
        asked[..., mine] = told.sum(axis=-1, keepdims=True)
        right[..., mine], wrong[..., mine] = (suffix(each) for each in np.split(told[..., 1:], 2, axis=-1))
    asked, right, wrong = (np.cumsum(each, axis=-2) for each in (asked, right, wrong))
    return Answers(right + wrong, wrong, asked, size, kept)


def categories(records: Ints, thresholds: Ints) -> Ints:
    """Count records (..., 2, m+1) by what those thresholds tell apart: rejected, then right and wrong by bin."""
    bins = np.add.reduceat(records, [0, *(thresholds + 1)], axis=-1)
    return np.concatenate([bins[..., 0].sum(axis=-1, keepdims=True), bins[..., 0, 1:], bins[..., 1, 1:]], axis=-1)


def answered(rng: np.random.Generator, own: Ints, kept: float) -> Ints:
    """Draw how often each category (..., k) is answered by records that are so often of each."""
    told = rng.binomial(own, kept)
    k = own.shape[-1]
    return np.asarray(told + rng.multinomial((own - told).sum(axis=-1), np.full(k, 1.0 / k)))


def suffix(counts: Ints) -> Ints:
    """Sum over a bin and those above it."""
    return np.asarray(np.cumsum(counts[..., ::-1], axis=-1)[..., ::-1])
