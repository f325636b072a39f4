"""Dealing the units of one calibration part to sites.

Each function returns one sorted array of positions per site; together they hold every unit once, and no site is empty.

Units are never sorted by score, and no function here is given scores. Dealing score ranks round-robin gives every site
nearly the same scores: it balances them, and cannot be called heterogeneity of scores.

Paper: Appendix "Federated partitions".
"""

from __future__ import annotations

import math

import numpy as np

from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats
from fedsrc.records.order import Positions

TRIES = 1000


def natural(codes: Positions) -> list[Positions]:
    """Make one site per distinct code (a domain or a task), in ascending order; unused codes make no site.

    Paper: Appendix "Federated partitions", natural domain/task partition.
    """
    if codes.size == 0:
        raise FedsrcError("there are no units to deal")
    return [np.flatnonzero(codes == code).astype(np.int64) for code in np.unique(codes)]


def iid(n: int, sites: int, rng: np.random.Generator) -> list[Positions]:
    """Deal at random into sites of equal size, up to one unit: no heterogeneity but chance.

    Paper: Appendix "Federated partitions", IID client baseline.
    """
    _check_sites(n, sites)
    return _deal(n, apportioned(n, np.full(sites, 1.0 / sites)), rng)


def dirichlet(labels: Positions, sites: int, beta: float, rng: np.random.Generator) -> list[Positions]:
    """Cut each label class, in random order, in proportions drawn from Dirichlet(beta, ..., beta), one per site.

    Small beta gives sites of few labels and unequal sizes. All classes are drawn again until no site is empty, so the
    law is the one given that none is.

    Paper: Appendix "Federated partitions", Dirichlet label allocation.
    """
    _check_sites(labels.size, sites)
    if not 0 < beta < math.inf:
        raise FedsrcError(f"the Dirichlet concentration {beta} is not positive and finite")
    classes = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    for _ in range(TRIES):
        owner = np.empty(labels.size, dtype=np.int64)
        for members in classes:
            owner[rng.permutation(members)] = np.repeat(np.arange(sites), _cut(members.size, sites, beta, rng))
        if np.unique(owner).size == sites:
            return natural(owner)
    raise FedsrcError(
        f"in {TRIES} draws with concentration {beta:g}, some of the {sites} sites got no unit",
        hint="use fewer sites or a larger concentration",
    )


def log_normal(n: int, sites: int, sigma: float, rng: np.random.Generator) -> list[Positions]:
    """Deal at random to sites of unequal size, proportional to exp(sigma Z) with Z standard normal per site.

    Only sizes differ: the law of units is the same at every site, but for chance.

    Paper: Appendix "Federated partitions", log-normal client-size imbalance.
    """
    _check_sites(n, sites)
    if not 0 <= sigma < math.inf:
        raise FedsrcError(f"the spread {sigma} of log sizes is not finite, or negative")
    exponent = sigma * rng.standard_normal(sites)
    shares = np.exp(exponent - exponent.max())
    return _deal(n, apportioned(n, shares / shares.sum()), rng)


def apportioned(n: int, shares: Floats) -> Positions:
    """Divide n units by largest remainders, then take one unit from the largest site for every empty one."""
    _check_sites(n, shares.size)
    if not (shares >= 0).all() or not abs(shares.sum() - 1) <= 1e-9:
        raise FedsrcError("shares must be zero or more and sum to one")
    quota = n * shares
    sizes = np.floor(quota).astype(np.int64)
    sizes[np.argsort(sizes - quota, kind="stable")[: n - sizes.sum()]] += 1
    for empty in np.flatnonzero(sizes == 0):
        sizes[np.argmax(sizes)] -= 1
        sizes[empty] = 1
    return sizes


def _cut(size: int, sites: int, beta: float, rng: np.random.Generator) -> Positions:
    """Return how many of a class's units each site gets: random proportions, with cumulative counts rounded."""
    ends = np.rint(np.cumsum(rng.dirichlet(np.full(sites, beta))) * size).astype(np.int64)
    ends[-1] = size
    return np.diff(ends, prepend=0)


def _deal(n: int, sizes: Positions, rng: np.random.Generator) -> list[Positions]:
    return [np.sort(part) for part in np.split(rng.permutation(n), np.cumsum(sizes)[:-1])]


def _check_sites(n: int, sites: int) -> None:
    if sites < 1:
        raise FedsrcError(f"{sites} sites cannot hold units")
    if n < sites:
        raise FedsrcError(f"{n} units are too few for {sites} sites", hint="every site needs at least one unit")
