"""The table of a command: where its ledger is, how it is read, and what is said before anything is spent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsrc.cli.options import NAMES
from fedsrc.common.words import count, plain
from fedsrc.errors import FedsrcError
from fedsrc.planning.labels import Labels
from fedsrc.planning.register import Choices
from fedsrc.protocol.registration import Registration
from fedsrc.records.stream import Table
from fedsrc.records.table import Columns
from fedsrc.records.units import LOCAL_SITE, Records, Unit

MOST = 12  # columns or sites that one line names


def uses(table: Table, unit: Unit, sites: Sequence[str]) -> str:
    """Which columns are used and for what, how records are counted, and which columns are not used."""
    used, rest = table.columns.used(table.present), table.columns.unused(table.present)
    named = [what if what == name else f"{what}={plain(name)}" for what, name in used.items()]
    each = "every record counts as independent" if unit == "record" else "every source is one unit"
    where = count(len(sites), "site") if "site" in used else f"one site, {LOCAL_SITE!r}"
    line = f"Uses {', '.join(named)}; {each}; {where}."
    if not rest:
        return line
    options = " or ".join(f"--{what}-column" for what in ("id", "source", "site") if what not in used)
    return f"{line} Not used: {listed(rest)}{f' (if one is that, name it: {options})' if options else ''}."


def development_words(units: int, unit: Unit, labels: Labels, thresholds: int) -> list[str]:
    """What the development part shows to its owner: how many, how bad, and whether the wrong way round."""
    lines = [f"Of the development answers, {labels.unsupported:.1%} count as unsupported."]
    if units < thresholds:
        lines.append(
            f"Thresholds from {count(units, unit)} are rough; more records, or --grid, which takes evenly"
            " spaced ones, may accept more."
        )
    if labels.wrong_way:
        lines.append(
            f"warning: more answers with high scores are unsupported ({labels.upper:.0%} above the middle score) than"
            f" with low ones ({labels.lower:.0%}): is the loss the right way round (1 = unsupported), and the score"
            " (higher = better supported)?"
        )
    return lines


def fallback_words(registration: Registration, picked: Choices) -> list[str]:
    """Why thresholds are evenly spaced although nobody asked for that."""
    if picked.grid or registration.thresholds.origin != "grid":
        return []
    return ["Noise would leave nothing of so few development units: thresholds are evenly spaced, as with --grid."]


def mixture_words(registration: Registration) -> list[str]:
    """Several sites without declared weights: what the claim is then about."""
    if registration.weights is not None or len(registration.sites) == 1:
        return []
    names = [site.name for site in registration.sites]
    shares = ",".join([*(f"{plain(name)}=SHARE" for name in names[:3]), *(["..."] if len(names) > 3 else [])])
    return [
        f"No --weights: the claim is about these {len(names)} sites mixed as they calibrate (equal batches, while they"
        f" last); declare another mixture with --weights {shares}"
    ]


def table_options(settings: Mapping[str, Any]) -> list[str]:
    """The options under which a table was read, to read it so again."""
    columns = [(f"--{name}-column", settings[f"{name}_column"]) for name in NAMES]
    missing = ["--missing", settings["missing"]] if settings["missing"] != "refuse" else []
    return [part for option, name in columns if name is not None for part in (option, name)] + missing


def listed(names: Sequence[str]) -> str:
    """Names in a row, the first few of them."""
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return ", ".join(map(plain, names[:MOST])) + more


def ledger_of(records: Path) -> Path:
    """A ledger lies beside its records: beside the file itself, whatever links lead to it."""
    try:
        linked, names = records.is_symlink(), records.stat().st_nlink
    except OSError:
        linked, names = False, 1  # whoever reads the table says what is wrong with it
    if names > 1:
        raise FedsrcError(
            f"this file has {names} names (hard links), and under each of them it would have a ledger of its own",
            where=str(records),
            hint="name one ledger for all of them with --ledger, or keep one name",
        )
    beside = records.with_name(records.name + ".ledger")
    if not linked:
        return beside
    place = records.resolve()
    if beside.exists():
        raise FedsrcError(
            f"there is a ledger beside this link, and records have theirs beside the file itself, {place}",
            where=str(beside),
            hint="name the one that knows what was released with --ledger; if both do, pass new records only",
        )
    return place.with_name(place.name + ".ledger")


def table_at(path: Path, settings: Mapping[str, Any]) -> Table:
    """The table, not yet read, under the user's column names."""
    return Table(path, Columns(**{name: settings[f"{name}_column"] for name in NAMES}), settings["missing"])


def read_table(path: Path, settings: Mapping[str, Any]) -> Records:
    """The table in memory."""
    return table_at(path, settings).whole()
