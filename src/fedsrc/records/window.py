"""Which rows of a table stand at given places of a recorded order, decided row by row without storing the order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fedsrc.maths.arrays import Ints
from fedsrc.records.order import IN_ORDER, Keys, key_stream

DIGIT = 16  # bits of a key that one pass decides
KEY = 64  # bits of a key
Mask = NDArray[np.bool_]


class Window:
    """Which rows stand at places first, ..., first + slots - 1 of an order; asked of the rows in table order.

    The order is the table's own, or that of `records.shuffled`: by a key from a seeded stream, ties by row. The
    window's two ends are found by passes over the stream; then each row's key decides, so no order is ever stored.
    """

    def __init__(self, seed: str, rows: int, first: int, slots: int, batch: int) -> None:
        ends = (first, first + slots)
        if seed == IN_ORDER:
            self._keys = _row_numbers()
            self._before_first, self._before_end = (_Before(end, 0) for end in ends)
        else:
            self._keys = key_stream(int(seed))
            self._before_first, self._before_end = (_find(int(seed), rows, end, batch) for end in ends)

    def take(self, rows: int) -> Mask:
        """Return which of the next rows of the table are in the window."""
        keys = self._keys(rows)
        return self._before_end.take(keys) & ~self._before_first.take(keys)


class _Before:
    """Rows before a place in the order by (key, row): those with smaller keys, and the first few that share its key."""

    def __init__(self, key: int, ties: int) -> None:
        self._key, self._ties = np.uint64(key), ties

    def take(self, keys: Keys) -> Mask:
        mask = keys < self._key
        ties = np.flatnonzero(keys == self._key)[: self._ties]
        mask[ties] = True
        self._ties -= ties.size
        return mask


def _find(seed: int, rows: int, place: int, batch: int) -> _Before:
    """Find a place in the order. Keys that fit a batch are sorted; of more, the place's key is found digit by digit:
    each pass counts the next digit of those keys that begin with the digits found."""
    if place <= 0:
        return _Before(0, 0)
    if place >= rows:
        return _Before((1 << KEY) - 1, rows)
    if rows <= batch:
        keys = np.sort(key_stream(seed)(rows))
        return _Before(int(keys[place]), place - int(np.searchsorted(keys, keys[place])))
    key, before = 0, 0
    for digits in range(KEY // DIGIT):
        below = np.cumsum(_digit_counts(seed, rows, key, digits, batch))
        digit = int(np.searchsorted(below, place - before, side="right"))
        before += int(below[digit - 1]) if digit else 0
        key = key << DIGIT | digit
    return _Before(key, place - before)


def _digit_counts(seed: int, rows: int, start: int, digits: int, batch: int) -> Ints:
    """Count the next digits of the keys whose first digits are `start`."""
    counts, keys = np.zeros(1 << DIGIT, dtype=np.int64), key_stream(seed)
    shift, last = np.uint64(KEY - DIGIT * (digits + 1)), np.uint64((1 << DIGIT) - 1)
    for row in range(0, rows, batch):
        heads = keys(min(batch, rows - row)) >> shift
        if digits:
            heads = heads[heads >> np.uint64(DIGIT) == np.uint64(start)]
        counts += np.bincount((heads & last).astype(np.int64), minlength=counts.size)
    return counts


def _row_numbers() -> Callable[[int], Keys]:
    """Return keys that keep the table's order."""
    seen = 0

    def keys(rows: int) -> Keys:
        nonlocal seen
        seen += rows
        return np.arange(seen - rows, seen, dtype=np.uint64)

    return keys
