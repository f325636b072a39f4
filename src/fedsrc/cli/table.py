"""The table of a command: where its ledger is, how it is read, and what is said before anything is spent."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import click
import polars as pl
from click.core import ParameterSource as Source

from fedsrc.cli.settings import FILE
from fedsrc.cli.streams import command, say
from fedsrc.common.places import ledger_beside
from fedsrc.common.words import count, plain
from fedsrc.errors import UndecidedError
from fedsrc.planning.labels import Labels
from fedsrc.planning.register import Choices
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.scale import Scale
from fedsrc.records.columns import ORDER, UNIT, Columns
from fedsrc.records.guess import PERCENT
from fedsrc.records.rows import Rows, tidy
from fedsrc.records.stream import Table
from fedsrc.records.table import read_records
from fedsrc.records.units import LOCAL_SITE, Names, Records, Unit
from fedsrc.site.ledger import Ledger
from fedsrc.site.site import note_used

T = TypeVar("T")
COMMAND_LINE, ENVIRONMENT = "given", "from the environment"
SAID = (COMMAND_LINE, ENVIRONMENT)  # with this command, and not for all tables of a folder
ENDS = {"unsupported": 1.0, "supported": 0.0}
MOST = 12  # columns or sites that one line names


def uses(table: Records, present: Sequence[str], unit: Unit, *, registered: bool = False, grouped: bool = True) -> str:
    """Say which columns are used and for what, how they are read, how records are counted, and what is not used: that
    of groups only where some are listed (`grouped`)."""
    used, rest, sites = table.columns.used(present), table.columns.unused(present), table.site_names
    if not grouped and "group" in used:
        unused = used.pop("group")
        rest = [name for name in present if name in (*rest, unused)]
    named = [
        (what if what == name else f"{what}={plain(name)}") + _how(table, what, name, registered=registered)
        for what, name in used.items()
    ]
    named += [f"further score={plain(name)}{f' ({scale})' * (scale != UNIT)}" for name, scale in table.columns.others]
    each = "every record counts as independent" if unit == "record" else "every source is one unit"
    where = count(len(sites), "site") if "site" in used else f"one site, {LOCAL_SITE!r}"
    line = f"Uses {', '.join(named)}; {each}; {where}."
    if not rest:
        return line
    options = " or ".join(f"--{what}-column" for what in ("id", "source", "site") if what not in used)
    return f"{line} Not used: {listed(rest)}{f' (if one is that, name it: {options})' if options else ''}."


def _how(table: Records, what: str, name: str, *, registered: bool) -> str:
    """Say who named a column, if not its own word, and how it is read, if not as usual."""
    columns, found = table.columns, "registered" if registered and what == "score" else "found by its name"
    said = [said_by(f"{what}_column") or (found if name != what else "")]
    if what == "score" and columns.scale not in (None, UNIT):
        guessed = "by its values" if columns.scale == PERCENT else "as you said"
        said += [f"{columns.scale}", said_by("score_scale") or ("registered" if registered else guessed)]
    if what == "loss" and table.words:
        words = {end: [plain(word) for word, loss in table.words if loss == value] for end, value in ENDS.items()}
        said += [f"{end}: {', '.join(found)}" for end, found in words.items() if found]
    elif what == "loss" and columns.one_is == "supported":
        said.append("1 is supported")
    told = ", ".join(part for part in said if part not in ("", COMMAND_LINE))
    return f" ({told})" if told else ""


def said_by(option: str) -> str:
    """Say where the value of an option comes from; nothing if nobody gave one."""
    context = click.get_current_context(silent=True)
    source = context and context.get_parameter_source(option)
    known = {
        Source.COMMANDLINE: COMMAND_LINE,
        Source.ENVIRONMENT: ENVIRONMENT,
        Source.DEFAULT_MAP: f"from {FILE}",
    }
    return known.get(source, "") if source else ""


def development_words(units: int, unit: Unit, labels: Labels, thresholds: int, whose: str = "people") -> list[str]:
    """Say what the development part shows to its owner: how many, and how bad."""
    lines = [f"Of the development answers, {labels.unsupported:.1%} count as unsupported."]
    if whose == "judge":
        lines = [f"Of the development answers, {labels.unsupported:.1%} are unsupported by the judge's verdict."]
    if whose == "none":
        lines = ["Labels come on demand: thresholds and plan come from scores alone."]
    if units < thresholds:
        lines.append(
            f"Thresholds from {count(units, unit)} are rough; more records, or --grid, which takes evenly"
            " spaced ones, may accept more."
        )
    return lines


def fallback_words(registration: Registration, picked: Choices) -> list[str]:
    """Say why thresholds are evenly spaced although nobody asked for that."""
    if picked.grid or registration.thresholds.origin != "grid":
        return []
    return ["Noise would leave nothing of so few development units: thresholds are evenly spaced, as with --grid."]


def mixture_words(registration: Registration) -> list[str]:
    """Say what the claim is about when several sites have no declared weights."""
    if registration.weights is not None or len(registration.sites) == 1:
        return []
    names = [site.name for site in registration.sites]
    shares = ",".join([*(f"{plain(name)}=SHARE" for name in names[:3]), *(["..."] if len(names) > 3 else [])])
    return [
        f"No --weights: the claim is about these {len(names)} sites mixed as they calibrate (equal batches, while they"
        f" last); declare another mixture with --weights {shares}"
    ]


def table_options(settings: Mapping[str, Any]) -> list[str]:
    """Return the options under which a table was read, to read it so again."""
    named = [(f"--{name}-column", settings[f"{name}_column"]) for name in ORDER]
    named += [("--score-scale", settings["score_scale"])]
    named += [(f"--{end}", word) for end in ENDS for word in settings[end]]
    named += [("--missing", settings["missing"] if settings["missing"] != "refuse" else None)]
    return [str(part) for option, value in named if value is not None for part in (option, value)]


def to_label(records: Path, ledger: Path | None, settings: Mapping[str, Any], *more: object) -> str:
    """Return the command that labels a table, read as it was."""
    book = [] if ledger is None else ["--ledger", ledger]
    return command("fedsrc", "label", records, *book, *table_options(settings), *more)


def listed(names: Sequence[str]) -> str:
    """List the first few names."""
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return ", ".join(map(plain, names[:MOST])) + more


def note_used_up(file: Path, ledger: Path | None, sha256: str, answers: pl.DataFrame, rows: Rows | None = None) -> None:
    """Note in the ledger that these answers were used without noise: they cannot calibrate any more."""
    ids = tidy(answers["id"]).to_list() if "id" in answers.columns else None
    known = ((rows.digests,), rows.width) if rows is not None else ()
    names = Names(ids, tidy(answers["source"]).unique().to_list(), *known)
    with closing(Ledger(ledger or ledger_beside(file))) as book:
        note_used(sha256, answers.height, names, book)


def table_at(path: Path, settings: Mapping[str, Any]) -> Table:
    """Return the table, not yet read, under the user's column names."""
    return Table(path, columns_of(settings), settings["missing"])


def columns_of(settings: Mapping[str, Any]) -> Columns:
    """Return what the options say of a table's columns."""
    named = {name: settings[f"{name}_column"] for name in ORDER}
    others = settings.get("also_scores") or ()
    return Columns(**named, scale=settings["score_scale"], others=others, **{end: settings[end] for end in ENDS})


def unlabelled(settings: Mapping[str, Any], columns: Columns) -> dict[str, Any]:
    """Read the table of unlabelled records, if there is one, as the labelled ones were read; with its ledger."""
    path = settings["unlabelled"]
    if path is None:
        return {}
    found = read_records(path, columns=columns, missing=settings["missing"], labels="none")
    return {"unlabelled": found, "unlabelled_ledger": settings["ledger"] or ledger_beside(path)}


def read_table(path: Path, settings: Mapping[str, Any], registered: Registration | None = None) -> Records:
    """Read the table into memory, as its registration says if there is one."""
    table = table_at(path, settings)
    return (table if registered is None else table.under(registered)).whole(labels=settings.get("labels") or "there")


def asking(act: Callable[[dict[str, Any]], T], settings: dict[str, Any]) -> T:
    """Do something with the settings; what only the user can know is asked on a terminal, and refused elsewhere."""
    while True:
        try:
            return act(dict(settings))
        except UndecidedError as question:
            if not (sys.stdin.isatty() and sys.stderr.isatty()):
                raise
            say(str(question.where and f"{question.where}: ") + question.what)
            answers = list(question.answers.items())
            for number, (words, _) in enumerate(answers, start=1):
                say(f"  {number}: {words}")
            choice = click.prompt("Which", type=click.IntRange(1, len(answers)), err=True)
            value = as_option(question.argument, answers[choice - 1][1])
            if question.argument in ENDS:
                value = (*settings[question.argument], value)  # beside the words that were said
            settings[question.argument] = value


def as_option(argument: str, value: str) -> object:
    """Return a value as the option has it."""
    if argument == "score_scale":
        return Scale.of(value)
    return value
