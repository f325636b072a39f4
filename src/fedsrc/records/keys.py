"""Keys of units: 64 bits that a purpose and a unit's own name decide, and nothing else in the table.

A text's key is the first 8 bytes of SHA-256; a row number's is a splitmix64 stream that the purpose starts. Both are
the same on every machine and with every version of every library.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

from fedsrc.records.order import Keys

BITS = 64
STEP, FIRST, SECOND = (np.uint64(x) for x in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def name_keys(purpose: str, names: Iterable[str]) -> Keys:
    """Return a key for each name, from the name alone."""
    head = f"fedsrc: {purpose}: ".encode()
    found = b"".join([hashlib.sha256(head + name.encode()).digest()[:8] for name in names])
    return np.frombuffer(found, dtype=">u8").astype(np.uint64)


def row_keys(purpose: str, rows: range) -> Keys:
    """Return a key for each row number, from the number alone."""
    start = name_keys(purpose, ["row number"])
    return place_keys(start, np.arange(rows.start, rows.stop, dtype=np.uint64))


def place_keys(names: Keys, places: Keys) -> Keys:
    """Return a key for each place under a name whose key is given: splitmix64. No two places share a key."""
    mixed = names + (places + np.uint64(1)) * STEP
    mixed = (mixed ^ (mixed >> np.uint64(30))) * FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * SECOND
    return np.asarray(mixed ^ (mixed >> np.uint64(31)), dtype=np.uint64)
