"""The table of a command: where its ledger is, how it is read, and what is said before anything is spent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl

from fedsrc.cli.options import COLUMNS
from fedsrc.cli.streams import command
from fedsrc.common.places import ledger_beside
from fedsrc.common.words import count, plain
from fedsrc.planning.labels import Labels
from fedsrc.planning.register import Choices
from fedsrc.protocol.registration import Registration
from fedsrc.records.rows import Rows, tidy
from fedsrc.records.stream import Table
from fedsrc.records.table import Columns, read_records
from fedsrc.records.units import LOCAL_SITE, Names, Records, Unit
from fedsrc.site.ledger import Ledger
from fedsrc.site.site import note_used

MOST = 12  # columns or sites that one line names


def uses(table: Table, unit: Unit, sites: Sequence[str]) -> str:
    """Say which columns are used and for what, how records are counted, and which columns are not used."""
    used, rest = table.columns.used(table.present), table.columns.unused(table.present)
    named = [what if what == name else f"{what}={plain(name)}" for what, name in used.items()]
    each = "every record counts as independent" if unit == "record" else "every source is one unit"
    where = count(len(sites), "site") if "site" in used else f"one site, {LOCAL_SITE!r}"
    line = f"Uses {', '.join(named)}; {each}; {where}."
    if not rest:
        return line
    options = " or ".join(f"--{what}-column" for what in ("id", "source", "site") if what not in used)
    return f"{line} Not used: {listed(rest)}{f' (if one is that, name it: {options})' if options else ''}."


def development_words(units: int, unit: Unit, labels: Labels, thresholds: int, whose: str = "people") -> list[str]:
    """Say what the development part shows to its owner: how many, how bad, and whether the wrong way round."""
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
    return lines if labels.warning is None else [*lines, f"warning: {labels.warning}"]


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
    columns = [(f"--{name}-column", settings[f"{name}_column"]) for name in COLUMNS]
    missing = ["--missing", settings["missing"]] if settings["missing"] != "refuse" else []
    return [part for option, name in columns if name is not None for part in (option, name)] + missing


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
    return Table(path, _columns(settings), settings["missing"])


def _columns(settings: Mapping[str, Any]) -> Columns:
    return Columns(**{name: settings[f"{name}_column"] for name in COLUMNS})


def unlabelled(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Read the table of unlabelled records, if there is one, under the same column names; with its ledger."""
    path = settings["unlabelled"]
    if path is None:
        return {}
    found = read_records(path, columns=_columns(settings), missing=settings["missing"], labels="none")
    return {"unlabelled": found, "unlabelled_ledger": settings["ledger"] or ledger_beside(path)}


def read_table(path: Path, settings: Mapping[str, Any]) -> Records:
    """Read the table into memory."""
    return table_at(path, settings).whole(labels=settings.get("labels") or "there")
