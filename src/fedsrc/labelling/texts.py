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

SHOWN = {  # and what Ragas, DeepEval, Phoenix and LangSmith call them in the tables that they export
    "question": ("question", "user_input", "input", "query"),
    "evidence": ("evidence", "retrieved_contexts", "retrieval_context", "contexts", "context"),
    "response": ("response", "actual_output", "answer", "output"),
}


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
        shown = _shown(table.collect_schema(), str(path))
        found = table.select(shown).collect()
    if found.height != len(names):
        raise FedsrcError("the table changed while it was read", where=str(path), hint="leave the file alone")
    texts = found[rows].to_dicts()
    return {names[i]: Text(**{"question": "", **text}) for i, text in zip(rows, texts, strict=True)}


def _shown(there: pl.Schema, where: str) -> list[pl.Expr]:
    """Return question, evidence and response as text: under their own names, or under the only other one there."""
    shown = list[pl.Expr]()
    for what, names in SHOWN.items():
        found = [what] if what in there else [name for name in names if name in there]
        if len(found) != 1 and (found or what != "question"):
            told = (
                f"{' and '.join(map(repr, found))} may each be the {what}" if found else f"there is no column {what!r}"
            )
            hint = f"call one column {what!r}, or name a file that has the texts by id with `answers=`"
            raise FedsrcError(f"{told}, so there is nothing to show", where=where, hint=hint)
        for name in found:
            column = pl.col(name).list.join("\n\n") if isinstance(there[name], pl.List) else pl.col(name)
            shown.append(column.cast(pl.String).fill_null("").alias(what))
    return shown
