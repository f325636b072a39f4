"""Rules as they were when attacks succeeded: controls, on which a measurement must fail."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsrc.protocol.protection import Development
from fedsrc.records import units
from fedsrc.records.keys import name_keys, row_keys
from fedsrc.records.order import Positions, public_seed, shuffled
from fedsrc.records.units import Records, UnitNames


@contextmanager
def instead(module: ModuleType | type, name: str, rule: Any) -> Iterator[None]:
    """Another rule in the place of one of the package."""
    real = getattr(module, name)
    setattr(module, name, rule)
    try:
        yield
    finally:
        setattr(module, name, real)


def by_row_number(records: Records, rows: Positions, max_answers: int, **_: bool) -> tuple[Positions, Positions]:
    """The old cap: answers picked by their row's number in the whole table."""
    source = units._source_codes(records)[rows]
    blind = np.random.PCG64(public_seed("answers kept")).random_raw(len(records))[rows]
    order = np.lexsort((blind, source))
    rows, source = rows[order], source[order]
    first = np.flatnonzero(np.concatenate([[True], source[1:] != source[:-1]])) if rows.size else np.zeros(0, np.int64)
    rank = np.arange(rows.size) - np.repeat(first, np.diff(np.append(first, rows.size)))
    kept = rank < max_answers
    sizes = np.add.reduceat(kept.astype(np.int64), first) if rows.size else np.zeros(0, np.int64)
    return rows[kept], np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def first_by_rank(part: Development, names: UnitNames) -> NDArray[np.bool_]:
    """The old development part: so many of the units, by their rank in the alphabet (of sources) or their row."""
    chosen = np.zeros(len(names), dtype=np.bool_)
    chosen[shuffled(len(names), part.seed)[: int(len(names) * part.share)]] = True
    return chosen


def first_by_key(part: Development, names: UnitNames) -> NDArray[np.bool_]:
    """So many units, those with the smallest keys: one that comes in pushes another out."""
    purpose = f"development part {part.seed}"
    keys = row_keys(purpose, names) if isinstance(names, range) else name_keys(purpose, names)
    chosen = np.zeros(len(names), dtype=np.bool_)
    chosen[np.argsort(keys)[: int(len(names) * part.share)]] = True
    return chosen
