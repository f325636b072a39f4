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
    """Return a permutation of range(count) that the seed alone decides, on every machine and numpy version."""
    return np.argsort(key_stream(seed)(count), kind="stable").astype(np.int64)


def key_stream(seed: int) -> Callable[[int], Keys]:
    """Return a function that gives the keys of the next rows, so many with every call.

    numpy promises stable raw bit streams, not stable permutations, so the raw stream is sorted.
    """
    raw = np.random.PCG64(seed).random_raw
    return lambda count: np.asarray(raw(count), dtype=np.uint64)


def public_seed(purpose: str) -> int:
    """Return a fixed seed per purpose. If it depended on the table, changing one unit would move all the others."""
    return int(hashlib.sha256(f"fedsrc: {purpose}".encode()).hexdigest()[:15], 16)
