"""Do two tables share rows, or do their values only repeat? The rule by which a ledger without ids decides.

Rows in common are no proof: a score of three digits and a loss of 0 or 1 repeat by chance. So the rows of both tables
are thought of as one pool, each row dealt to one of the tables by a coin weighted by their sizes. A row value that
stands c times in the pool is then in both tables with probability 1 - p^c - (1-p)^c, independently of the others. For
honest tables of the same traffic that is how values fall; a copied row is in both for certain. A new table is refused
or asked about when

* more values are in both tables than this explains: the Chernoff bound on that chance is at most CHANCE. Honest
  tables of the same traffic are asked about by this rule at most so often;
* some value stands once in each table, and none twice in one of them alone: such rows are as good as names. Two honest
  tables get there with probability 1/4 at most (x pairs are expected across and as many within at least, and
  (1 - exp(-x)) exp(-x) is at most 1/4), and practically never where rows hold an id, a time, a text or a score with
  all its digits;
* fewer than half of its rows are in no earlier table: then it is a copy in the main, or its rows repeat so much that
  nobody could tell.

What may slip through are a few copies among rows whose values repeat anyway, fewer than chance varies by.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

CHANCE = 0.25
TILTS = np.geomspace(1e-4, 50, 200)  # every one of them gives a bound; the best is taken
HALF = 32  # bits of a count
Stands = tuple[int, int]  # how often a row value occurs in earlier tables, and in the new one


@dataclass(frozen=True)
class Overlap:
    """What a new table has in common with earlier ones, and how likely chance alone would do that."""

    rows: int
    seen: int  # of its rows, those that occur in an earlier table, each counted as often as there
    unseen: int  # of its rows, those whose value occurs in no earlier table
    across: int  # values that occur once here and once there
    within: int  # values that occur twice in one of them, and not in the other
    log_chance: float  # of as many values in common, at most

    @property
    def doubtful(self) -> bool:
        """Whether a person must say that the rows are other units."""
        by_name = self.across > 0 and self.within == 0
        return by_name or 2 * self.unseen < self.rows or self.log_chance <= math.log(CHANCE)


def overlap(counts: Mapping[Stands, int]) -> Overlap:
    """Sum up how often row values occur in the new table and in earlier ones."""
    return Overlap(
        rows=sum(new * many for (_, new), many in counts.items()),
        seen=sum(min(stands) * many for stands, many in counts.items()),
        unseen=sum(new * many for (known, new), many in counts.items() if not known),
        across=counts.get((1, 1), 0),
        within=counts.get((2, 0), 0) + counts.get((0, 2), 0),
        log_chance=_log_chance(counts),
    )


def tally(known: Iterable[bytes], new: Iterable[bytes]) -> Counter[Stands]:
    """Count row values by how often each occurs in earlier tables and in the new one, from their digests."""
    parts = [np.frombuffer(b"".join(each), dtype="<u8").reshape(-1, 2) for each in (known, new)]
    pool = np.concatenate(parts)
    if not len(pool):
        return Counter()
    order = np.argsort(pool[:, 0])  # half of a digest: two rows that differ in the other half alone do not occur
    pool, is_new = pool[order], order >= len(parts[0])
    first = np.flatnonzero(np.concatenate([[True], (pool[1:] != pool[:-1]).any(axis=1)]))
    mine = np.add.reduceat(is_new.astype(np.int64), first)
    theirs = np.diff(np.append(first, len(pool))) - mine
    stands, many = np.unique(theirs << HALF | mine, return_counts=True)
    found = zip(stands.tolist(), many.tolist(), strict=True)
    return Counter({(both >> HALF, both & (1 << HALF) - 1): count for both, count in found})


def _log_chance(counts: Mapping[Stands, int]) -> float:
    """Return Chernoff's bound on the log probability that as many values are dealt to both tables."""
    total = np.asarray([known + new for known, new in counts], dtype=np.float64)
    many = np.asarray(list(counts.values()), dtype=np.float64)
    common = sum(count for (known, new), count in counts.items() if known and new)
    share = sum(new * count for (_, new), count in counts.items()) / float(total @ many)
    both = 1 - share**total - (1 - share) ** total
    if common <= both @ many:
        return 0.0
    return float(np.min(many @ np.log1p(np.outer(both, np.expm1(TILTS))) - TILTS * common))
