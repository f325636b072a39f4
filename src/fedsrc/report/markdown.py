"""The card as Markdown, for a ticket or a repository. Text from outside is written so that no Markdown can be in it."""

from __future__ import annotations

import re
from collections.abc import Callable

from fedsrc.common.words import plain
from fedsrc.report.parts import identity, parts, statistics
from fedsrc.report.pieces import Fact, Part, Table
from fedsrc.report.standing import Status, statuses
from fedsrc.report.view import View

SPECIAL = re.compile(r"(?<![a-zA-Z0-9])-|-(?![a-zA-Z0-9])|[!-,./:-@\[-`{-~]")
ICONS = {"CERTIFIED": "✔", "ABSTAIN": "⊖", "OPEN": "◌", "REVOKED": "✖", "EXPIRED": "⧖", "ALARM": "⚠"}


def card_markdown(view: View) -> str:
    """Write the whole card."""
    named = inert if view["certificate"].panel is not None else str  # the words of a panel have names from outside
    said = [_status(each, named) for each in statuses(view)]
    claim = f"~~{named(view['struck'])}~~ (no longer stands)" if view["struck"] else named(view["sentence"])
    found = [part for part in (*parts(view), statistics(view)) if not part.empty]
    shown = ("\n".join(part_lines(part, named)) for part in found)
    return "\n\n".join([*said, "\n".join(fact_lines(identity(view))), f"# {claim}", *shown]) + "\n"


def inert(text: str) -> str:
    """Write every mark of outside text that Markdown could read as a character reference."""
    return SPECIAL.sub(lambda found: f"&#{ord(found[0])};", plain(text))


def _status(status: Status, named: Callable[[str], str]) -> str:
    said = [f"{name}: {inert(words)}" for name, words in status.said]
    return "\n\n".join([f"**{ICONS[status.word]} {status.word}**: {named(status.words)}", *said])


def fact_lines(facts: tuple[Fact, ...]) -> list[str]:
    """Write answers as a list."""
    said = [(fact, " ".join(filter(None, (fact.words, inert(fact.said))))) for fact in facts]
    return [f"- **{fact.name}**: {words}{fact.then} {inert(fact.command)}".rstrip() for fact, words in said]


def part_lines(part: Part, named: Callable[[str], str], level: int = 2) -> list[str]:
    """Write a part under its heading; `named` writes words that may have names from outside."""
    lines = [f"{'#' * level} {part.title}", "", *part.lines, *([""] if part.lines else []), *fact_lines(part.facts)]
    lines += [f"- *{how}*: {named(what)}" if how else f"- {named(what)}" for how, what in part.items]
    for table in part.tables:
        lines += _table(table) if table.rows else []
    return lines


def _table(table: Table) -> list[str]:
    cells = [[inert(cell) if i in table.outside else cell for i, cell in enumerate(row)] for row in table.rows]
    rows = [f"| {' | '.join(row)} |" for row in (table.names, ["---"] * len(table.names), *cells)]
    said = f" ({inert(table.said)})" if table.said else ""
    return ["", f"{table.title}{said}:", "", *rows, *(["", table.note] if table.note else [])]
