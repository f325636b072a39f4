"""The recorded order of units: only a seed decides it, on every machine."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Positions = NDArray[np.int64]
Keys = NDArray[np.uint64]
IN_ORDER = "in order"


def shuffled(count: int, seed: int) -> Positions:
    """A permutation of range(count) that only the seed decides, on every machine and numpy version: rows by key."""
    return np.argsort(key_stream(seed)(count), kind="stable").astype(np.int64)


def key_stream(seed: int) -> Callable[[int], Keys]:
    """The keys of rows 0, 1, 2, ..., so many with every call.

    numpy promises stable raw bit streams, not stable permutations, so the raw stream is sorted.
    """
    raw = np.random.PCG64(seed).random_raw
    return lambda count: np.asarray(raw(count), dtype=np.uint64)


def public_seed(purpose: str) -> int:
    """A fixed seed per purpose. It must not depend on the table: changing one unit would then move all the others."""
    return int(hashlib.sha256(f"fedsrc: {purpose}".encode()).hexdigest()[:15], 16)
