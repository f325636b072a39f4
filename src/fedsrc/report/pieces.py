"""What a card is made of: answers, tables and the parts that hold them, whatever form they are shown in."""

from __future__ import annotations

from typing import NamedTuple

Cells = list[list[str]]


class Fact(NamedTuple):
    """An answer under its question: our words, somebody else's, ours again, and a command or a digest."""

    id: str
    name: str
    words: str = ""
    said: str = ""
    then: str = ""
    command: str = ""


class Table(NamedTuple):
    """Rows under names; `outside` are the columns in somebody else's words, `chosen` the row that counts, `said` what
    the table is of, in such words too."""

    id: str
    title: str
    names: list[str]
    rows: Cells
    note: str = ""
    outside: tuple[int, ...] = ()
    chosen: int | None = None
    said: str = ""


class Part(NamedTuple):
    """A section of the card. Items are lines, each with how it is known, or ""."""

    id: str
    title: str
    lines: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()
    items: tuple[tuple[str, str], ...] = ()
    tables: tuple[Table, ...] = ()

    @property
    def empty(self) -> bool:
        return not (self.lines or self.facts or self.items or any(table.rows for table in self.tables))
