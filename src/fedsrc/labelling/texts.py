"""What people see of an answer: its question, its evidence and its response, found by its name."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import polars as pl

from fedsrc.common.canonical import digest
from fedsrc.errors import FedsrcError
from fedsrc.records.scan import readable, scan

SHOWN = ("question", "evidence", "response")


@dataclass(frozen=True)
class Text:
    """The texts of an answer, as they are shown."""

    question: str
    evidence: str
    response: str

    @cached_property
    def digest(self) -> str:
        """Return what a label says was shown."""
        return digest(asdict(self))


def table_texts(path: Path, names: Sequence[str], wanted: Collection[str]) -> dict[str, Text]:
    """Read the texts of some answers from the columns of their table, whose rows have these names."""
    wanted = set(wanted)
    rows = [i for i, name in enumerate(names) if name in wanted]
    with readable(path):
        table, _ = scan(path)
        there = table.collect_schema().names()
        missing = [column for column in ("evidence", "response") if column not in there]
        if missing:
            what = f"there is no column {missing[0]!r}, so there is nothing to show"
            raise FedsrcError(what, where=str(path), hint="name a file that has the texts by id with `answers=`")
        shown = [pl.col(column).cast(pl.String).fill_null("") for column in SHOWN if column in there]
        found = table.select(shown).collect()
    if found.height != len(names):
        raise FedsrcError("the table changed while it was read", where=str(path), hint="leave the file alone")
    texts = found[rows].to_dicts()
    return {names[i]: Text(**{"question": "", **text}) for i, text in zip(rows, texts, strict=True)}
