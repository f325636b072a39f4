"""The page of attacks, from the sections' records."""

from __future__ import annotations

from pathlib import Path

from research.attacks import decisions, faults, ledger, membership, server, service, units
from research.attacks.sections import RECORDS, Section, kept, table

PAGE = "attacks.md"
SECTIONS = [each.SECTION for each in (units, membership, ledger, server, decisions, service, faults)]
HEAD = """\
# Attacks, then and now

Attacks that once succeeded against fedsrc, run again at full size, beside what always held. Made by

    OPENBLAS_NUM_THREADS=1 python -m research.attacks

which takes most of an hour on two cores; `--only NAME` measures one section again
({names}), and the page is
written from the records in `research/results/attacks`. Small versions of all of them are tests, in `tests/attacks`.

*Before* is the version of commit 2336f9e. A figure marked *control* comes out of the same run, in which the old rule
stands in the place of the new one, so the measurement can fail; one marked *record* is from the record of the attack on
that version, and nothing here reproduces it."""


def page(folder: Path = RECORDS) -> str:
    """The page, from the records in a folder."""
    names = ", ".join(f"`{section.name}`" for section in SECTIONS)
    parts = [HEAD.format(names=names)]
    for section in SECTIONS:
        parts += shown(section, folder)
    return "\n\n".join(parts) + "\n"


def shown(section: Section, folder: Path) -> list[str]:
    """A section: its table, and what it has beside it."""
    record = kept(section.name, folder)
    rows = table(("attack", "before", "now", "what the figure means"), section.rows(record))
    return [f"## {section.title}", rows, *section.more(record)]
