"""From a command's options to a registration, with a part of the table set apart where none is given."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedsrc.cli.streams import say
from fedsrc.cli.table import development_words, fallback_words, mixture_words
from fedsrc.common.words import count
from fedsrc.face import DEVELOPMENT_SHARE, chosen
from fedsrc.federation.local import plan_table
from fedsrc.planning.labels import as_developed, development_labels
from fedsrc.planning.plan import Wish
from fedsrc.planning.register import Choices, development_part, draft, held_together, origin_of
from fedsrc.protocol.protection import Development
from fedsrc.protocol.registration import Registration
from fedsrc.records.development import development_count
from fedsrc.records.units import Records, unit_count
from fedsrc.server.wording_2 import thresholds_words


def new_registration(
    table: Records, picked: Choices, ledger: Path, wish: Wish, *, in_order: bool = False, fresh: bool = False,
    unlabelled: Records | None = None, unlabelled_ledger: Path | None = None,
) -> Registration:  # fmt: skip
    """Register from a part of the table itself, planned on it, and say so."""
    picked = held_together(picked, table)
    development = set_apart(table, picked)
    registration, planned = plan_table(
        picked, table, development, ledger, wish, unlabelled=unlabelled, unlabelled_ledger=unlabelled_ledger,
        in_order=in_order, fresh=fresh,
    )  # fmt: skip
    say(f"Thresholds: {thresholds_words(registration)}.")
    for line in planned.lines() if planned else ():
        say(line)
    for line in (*fallback_words(registration, picked), *mixture_words(registration)):
        say(line)
    return registration


def draft_registration(table: Records, picked: Choices) -> Registration:
    """Draft the same registration, with stand-ins for thresholds that a development release gives; spend nothing."""
    picked = held_together(picked, table)
    development = set_apart(table, picked)
    registration = draft(picked, table, development)
    origin = origin_of(picked, registration, table, development)
    for line in (*(fallback_words(registration, picked) if origin == "grid" else ()), *mixture_words(registration)):
        say(line)
    return registration


def set_apart(table: Records, picked: Choices) -> Development:
    """Choose the part of a table that chooses thresholds; say how large it is, and what its owner sees in it."""
    development = development_part(table, picked.unit, DEVELOPMENT_SHARE)
    units = development_count(table, development, picked.unit)
    one, apart, share = units == 1, count(units, picked.unit), units / unit_count(table, picked.unit)
    why = f", though --grid takes nothing from {'it' if one else 'them'}" if picked.grid else " to choose thresholds"
    say(
        f"No registration given: {apart} ({share:.0%}) {'is' if one else 'are'} set apart{why};"
        f" {'it does' if one else 'they do'} not calibrate."
    )
    say_development(table, development, picked)
    return development


def say_development(table: Records, development: Development, picked: Choices) -> None:
    """Say what a development part shows to whoever has the table, before anything is spent."""
    wanted = 0 if picked.grid else picked.thresholds
    units = development_count(table, development, picked.unit)
    seen, part = as_developed(picked, table, development)
    labels = development_labels(seen, development, picked.unit)
    for line in development_words(units, picked.unit, labels, wanted, part.labels):
        say(line)


def choices_of(settings: Mapping[str, Any], table: Records | None, path: Path) -> Choices:
    """Return the user's choices, over the preset's."""
    return chosen(table, str(path), settings.get("target_risk"), settings.get("epsilon"), settings)
