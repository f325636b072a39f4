"""One site's supply of units in many trials at once: independent events of its law, or each unit once.

Planning and the audit share it. They draw from their generators in different ways, on which published results depend.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedsrc.maths.arrays import Floats, Ints
from fedsrc.simulate.population import Support

ENDLESS = 1 << 40
Draw = Callable[[np.random.Generator, Floats, Ints], Ints]


def at_once(rng: np.random.Generator, law: Floats, n: Ints) -> Ints:
    """Draw how often each unit is among n[trial] events: (trials, size)."""
    return rng.multinomial(n, law)


def one_by_one(rng: np.random.Generator, law: Floats, n: Ints) -> Ints:
    """Draw from the same law, event by event; trials that need fewer leave their last ones unused."""
    shape = (n.size, int(n.max()))
    if np.ptp(law) == 0:
        return _counts(rng.integers(0, law.size, shape), n, law.size)
    return _counts(np.searchsorted(np.cumsum(law)[:-1], rng.random(shape), side="right"), n, law.size)


class Pool:
    """What a site has left and what of it was used; with an order per trial (trials, size), each unit comes once."""

    def __init__(self, site: Support, trials: int, rng: np.random.Generator, draw: Draw, order: Ints | None) -> None:
        self.law, self.rng, self.draw, self.order = site.law, rng, draw, order
        self.shape = site.masses.shape[1:]
        self.size = site.law.shape[-1]
        self.flat = site.masses.reshape(self.size, -1).astype(np.float64)  # exact: far below 2^53
        self.used = np.zeros(trials, dtype=np.int64)
        self.seen = np.zeros((trials, self.size), dtype=np.bool_)
        self.last = np.zeros((trials, self.size), dtype=np.int64)  # how often each unit was taken last

    @property
    def left(self) -> Ints:
        """Units that can still be asked for, per trial."""
        return np.full(self.used.size, ENDLESS) if self.order is None else self.size - self.used

    @property
    def touched(self) -> Ints:
        """Distinct units used, per trial."""
        return np.asarray(self.seen.sum(axis=1))

    def take(self, n: Ints) -> Ints:
        """Return masses (trials, 2, m+1) of the next n units, n per trial."""
        if not n.any():
            self.last = np.zeros_like(self.last)
            return np.zeros((n.size, *self.shape), dtype=np.int64)
        self.last = counts = self.draw(self.rng, self.law, n) if self.order is None else self._in_order(self.order, n)
        self.used += n
        self.seen |= counts > 0
        return np.rint(counts @ self.flat).astype(np.int64).reshape(n.size, *self.shape)

    def _in_order(self, order: Ints, n: Ints) -> Ints:
        places = np.minimum(self.used[:, None] + np.arange(int(n.max())), self.size - 1)
        return _counts(np.take_along_axis(order, places, axis=1), n, self.size)


def _counts(picked: Ints, n: Ints, size: int) -> Ints:
    """Count how often each unit is among the first n[trial] picked."""
    trials, most = picked.shape
    kept = np.arange(most) < n[:, None]
    where = np.where(kept, picked + size * np.arange(trials)[:, None], trials * size)
    return np.bincount(where.ravel(), minlength=trials * size + 1)[:-1].reshape(trials, size)
