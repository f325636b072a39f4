"""The card as Markdown, for a ticket or a repository. Text from outside is written so that no Markdown can be in it."""

from __future__ import annotations

import re

from fedsrc.common.words import plain
from fedsrc.report.parts import Fact, Part, Table, identity, parts, statistics
from fedsrc.report.standing import Status, statuses
from fedsrc.report.view import View

SPECIAL = re.compile(r"(?<![a-zA-Z0-9])-|-(?![a-zA-Z0-9])|[!-,./:-@\[-`{-~]")
ICONS = {"CERTIFIED": "✔", "ABSTAIN": "⊖", "OPEN": "◌", "REVOKED": "✖", "EXPIRED": "⧖", "ALARM": "⚠"}


def card_markdown(view: View) -> str:
    """Write the whole card."""
    said = [_status(each) for each in statuses(view)]
    claim = f"~~{view['struck']}~~ (no longer stands)" if view["struck"] else view["sentence"]
    found = [part for part in (*parts(view), statistics(view)) if not part.empty]
    blocks = [*said, "\n".join(_facts(identity(view))), f"# {claim}", *("\n".join(_part(part)) for part in found)]
    return "\n\n".join(blocks) + "\n"


def inert(text: str) -> str:
    """Write every mark of outside text that Markdown could read as a character reference."""
    return SPECIAL.sub(lambda found: f"&#{ord(found[0])};", plain(text))


def _status(status: Status) -> str:
    said = [f"{name}: {inert(words)}" for name, words in status.said]
    return "\n\n".join([f"**{ICONS[status.word]} {status.word}**: {status.words}", *said])


def _facts(facts: tuple[Fact, ...]) -> list[str]:
    said = [(fact, " ".join(filter(None, (fact.words, inert(fact.said))))) for fact in facts]
    return [f"- **{fact.name}**: {words}{fact.then} {inert(fact.command)}".rstrip() for fact, words in said]


def _part(part: Part) -> list[str]:
    lines = [f"## {part.title}", "", *part.lines, *([""] if part.lines else []), *_facts(part.facts)]
    lines += [f"- *{how}*: {what}" if how else f"- {what}" for how, what in part.items]
    for table in part.tables:
        lines += _table(table) if table.rows else []
    return lines


def _table(table: Table) -> list[str]:
    cells = [[inert(cell) if i in table.outside else cell for i, cell in enumerate(row)] for row in table.rows]
    rows = [f"| {' | '.join(row)} |" for row in (table.names, ["---"] * len(table.names), *cells)]
    return ["", f"{table.title}:", "", *rows, *(["", table.note] if table.note else [])]
