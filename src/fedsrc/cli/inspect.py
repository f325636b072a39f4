"""`fedsrc inspect`: what a table is, and the command that certifies it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import tomli_w

from fedsrc.cli.options import FORMAT, TABLE_OPTIONS, options
from fedsrc.cli.output import show
from fedsrc.cli.settings import FILE
from fedsrc.cli.streams import command, flag, in_flags
from fedsrc.cli.table import columns_of, listed
from fedsrc.cli.types import FilePath
from fedsrc.common.durable import write_whole
from fedsrc.common.words import count
from fedsrc.errors import FedsrcError
from fedsrc.planning.inspect import Inspection, inspect


@click.command("inspect")
@click.argument("records", type=FilePath)
@click.option("--save", is_flag=True, help="Write how the table is read to fedsrc.toml, which commands here then use.")
@options(TABLE_OPTIONS)
@FORMAT
def inspect_command(records: Path, save: bool, output: str, **given: Any) -> None:
    """Look at a table: how it is written and read, what is odd, and the command that certifies it.

    Nothing is spent. It shows exact numbers of the table, without noise: for its owner's eyes. Scores are held against
    labels on the fifth that `fedsrc certify` sets apart, and nowhere else.
    """
    found = inspect(records, columns_of(given), given["missing"])
    commands = [command(*parts) for parts in _commands(records, found)]
    if save:
        if FILE.exists():
            raise FedsrcError("exists already", where=str(FILE), hint="change or delete it")
        write_whole(FILE, tomli_w.dumps(_saved(found)).encode())
    told = asdict(found) | {"commands": commands, "saved": str(FILE) if save else None}
    run = ["", "Run:", *(f"  {each}" for each in commands)] if commands else []
    kept = [f"Wrote {FILE}: commands in this folder read tables so."] if save else []
    show(output, told, *_lines(records, found), *run, *kept)


def _saved(found: Inspection) -> dict[str, Any]:
    return {name: value for name, value in found.settings.items() if value is not None}


def _lines(records: Path, found: Inspection) -> list[str]:
    """Say all of it, a line for each thing."""
    used = ", ".join(what if what == name else f"{what}={name}" for what, name in found.columns.items())
    lines = [
        f"{records}: {found.written}; {count(found.rows, 'row')}",
        f"Columns: {used or 'none that fedsrc knows'}. Not used: {listed(found.unused) or 'none'}",
    ]
    if found.labels:
        lines.append(f"Labels: {', '.join(f'{label} {rows:,}' for label, rows in found.labels.items())}")
    if found.unsupported is not None and not any(each["argument"] == "unsupported" for each in found.open):
        lines.append(f"Unsupported: {found.unsupported:.1%} of all answers")
    if found.scores is not None:
        lines.append(f"Scores: {found.scores[0]:g} to {found.scores[1]:g}, on the scale {found.scale}")
    lines += [
        f"Sources: {name} has {number:,} values for {found.rows:,} rows" for name, number in found.sources.items()
    ]
    lines += [f"Missing: {what} in {count(rows, 'row')}" for what, rows in found.missing.items()]
    lines += [f"Odd: {in_flags(each)}" for each in found.odd]
    for each in found.open:
        answers = "; ".join(f"{flag(each['argument'])} {value} if {words}" for words, value in each["answers"].items())
        lines.append(f"You decide: {each['what']}: {answers}")
    return lines


def _commands(records: Path, found: Inspection) -> list[list[object]]:
    """Return the command that certifies the table: one for each answer, where something is left to its owner."""
    said: list[object] = [
        part
        for name, value in _saved(found).items()
        for word in (value if isinstance(value, list) else [value])
        for part in (flag(name), word)
    ]
    if found.scale is None:
        return []  # it cannot be read yet
    base: list[object] = ["fedsrc", "certify", records, *said]
    every = [base]
    for each in found.open:
        every = [[*line, flag(each["argument"]), value] for line in every for value in each["answers"].values()]
    return [[*line, "--target", "0.2", "--epsilon", "4"] for line in every]
