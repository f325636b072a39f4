"""From a command's options to a registration, with a part of the table set apart where none is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedsrc.cli.streams import say
from fedsrc.cli.table import SAID, development_words, fallback_words, mixture_words, said_by
from fedsrc.common.words import count
from fedsrc.errors import FedsrcError
from fedsrc.face import DEVELOPMENT_SHARE, chosen
from fedsrc.federation.local import plan_table
from fedsrc.planning.inspect import copies_words
from fedsrc.planning.labels import as_developed, development_labels
from fedsrc.planning.plan import Wish, evidence, plan
from fedsrc.planning.register import Choices, development_part, draft, held_together, origin_of, register
from fedsrc.protocol.protection import Development
from fedsrc.protocol.registration import Registration
from fedsrc.records.development import calibrating, development_count
from fedsrc.records.units import Records, unit_count
from fedsrc.server.wording_2 import thresholds_words


def new_registration(
    table: Records, picked: Choices, where: Path, ledger: Path, wish: Wish, *, said: bool, in_order: bool = False,
    fresh: bool = False,
    unlabelled: Records | None = None, unlabelled_ledger: Path | None = None,
) -> Registration:  # fmt: skip
    """Register from a part of the table itself, planned on it, and say so."""
    picked = held_together(picked, table)
    development = set_apart(table, picked, where, said=said)
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


def draft_registration(
    table: Records, picked: Choices, wish: Wish, where: Path, *, said: bool
) -> tuple[Registration, list[str]]:
    """Draft the same registration, with stand-ins for thresholds that a development release gives, and say what it may
    come to, by the exact development part; spend nothing."""
    picked = held_together(picked, table)
    development = set_apart(table, picked, where, said=said)
    registration = draft(picked, table, development)
    origin = origin_of(picked, registration, table, development)
    for line in (*(fallback_words(registration, picked) if origin == "grid" else ()), *mixture_words(registration)):
        say(line)
    return registration, _outlook(table, picked, wish, development)


def _outlook(table: Records, picked: Choices, wish: Wish, development: Development) -> list[str]:
    """Say what a plan expects of the units left to calibrate, where there is one."""
    if wish.certificate == "plain" or picked.grid:
        return []
    try:
        seen, part = as_developed(picked, table, development)
        base = register(replace(picked, public_development=True), seen, part)
        known = evidence(base, seen, part)
        if known is None:
            return []
        units = {name: len(each) for name, each in calibrating(base, seen).items()}
        answers = min(len(table) / unit_count(table, picked.unit), base.privacy.max_answers)
        return ["By its development part, without noise, for its owner's eyes:", *plan(base, known, units, wish,
                answers=answers).lines()]  # fmt: skip
    except FedsrcError as error:
        return [f"What it may come to cannot be told: {error.what}."]


def set_apart(table: Records, picked: Choices, where: Path, *, said: bool) -> Development:
    """Choose the part of a table that chooses thresholds; say how large it is, and what its owner sees in it."""
    development = development_part(table, picked.unit, DEVELOPMENT_SHARE)
    for line in copies_words(table):
        say(f"warning: {line}")
    units = development_count(table, development, picked.unit)
    one, apart, share = units == 1, count(units, picked.unit), units / unit_count(table, picked.unit)
    why = f", though --grid takes nothing from {'it' if one else 'them'}" if picked.grid else " to choose thresholds"
    say(
        f"No registration given: {apart} ({share:.0%}) {'is' if one else 'are'} set apart{why};"
        f" {'it does' if one else 'they do'} not calibrate."
    )
    say_development(table, development, picked, where, said=said)
    return development


def say_development(table: Records, development: Development, picked: Choices, where: Path, *, said: bool) -> None:
    """Say what a development part shows to whoever has the table, before anything is spent. Scores that seem to be the
    wrong way round are refused, unless it was `said` which are good."""
    wanted = 0 if picked.grid else picked.thresholds
    units = development_count(table, development, picked.unit)
    seen, part = as_developed(picked, table, development)
    labels = development_labels(seen, development, picked.unit)
    for line in development_words(units, picked.unit, labels, wanted, part.labels):
        say(line)
    if (warning := labels.check(table, str(where), said=said)) is not None:
        say(f"warning: {warning}")


def choices_of(settings: Mapping[str, Any], table: Records | None, path: Path) -> Choices:
    """Return the user's choices, over the preset's. A column of groups that is kept for all tables of a folder asks for
    none."""
    if settings.get("groups") is None and said_by("group_column") not in SAID:
        settings = {**settings, "group_column": None}
    return chosen(table, str(path), settings.get("target_risk"), settings.get("epsilon"), settings)
