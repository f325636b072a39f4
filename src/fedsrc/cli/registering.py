"""From a command's options to a registration, with a part of the table set apart where none is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from fedsrc.cli.streams import say
from fedsrc.cli.table import development_words, fallback_words, mixture_words
from fedsrc.common.words import count
from fedsrc.errors import FedsrcError
from fedsrc.federation.local import register_table
from fedsrc.planning.labels import development_labels
from fedsrc.planning.register import Choices, development_part, draft, origin_of
from fedsrc.protocol.privacy import Development
from fedsrc.protocol.registration import Registration
from fedsrc.records.development import development_count
from fedsrc.records.units import Records, check_unit, unit_count
from fedsrc.server.wording_2 import thresholds_words

DEVELOPMENT_SHARE = 0.2


def new_registration(
    table: Records, picked: Choices, ledger: Path, *, in_order: bool = False, fresh: bool = False
) -> Registration:
    """Register from a part of the table itself, and say so."""
    development = set_apart(table, picked)
    registration = register_table(picked, table, development, ledger, in_order=in_order, fresh=fresh)
    say(f"Thresholds: {thresholds_words(registration)}.")
    for line in (*fallback_words(registration, picked), *mixture_words(registration)):
        say(line)
    return registration


def draft_registration(table: Records, picked: Choices) -> Registration:
    """The same with thresholds that stand in for those that a development release will give: nothing is spent."""
    development = set_apart(table, picked)
    registration = draft(picked, table, development)
    origin = origin_of(picked, registration, table, development)
    for line in (*(fallback_words(registration, picked) if origin == "grid" else ()), *mixture_words(registration)):
        say(line)
    return registration


def set_apart(table: Records, picked: Choices) -> Development:
    """The part of a table that will choose thresholds; say how large it is, and what its owner sees in it."""
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
    """What a development part shows to whoever has the table, before anything is spent."""
    wanted = 0 if picked.grid else picked.thresholds
    units = development_count(table, development, picked.unit)
    for line in development_words(units, picked.unit, development_labels(table, development, picked.unit), wanted):
        say(line)


def choices_of(settings: Mapping[str, Any], table: Records | None, path: Path) -> Choices:
    """The user's choices over the preset's."""
    for name, flag in (("target_risk", "--target"), ("epsilon", "--epsilon")):
        if settings.get(name) is None:
            raise FedsrcError(
                f"{flag} is needed", hint=f"{flag} {'0.2' if name == 'target_risk' else '4'}, for example"
            )
    if settings.get("method") and settings.get("preset") != "paper":
        raise FedsrcError("--method belongs to --preset paper", hint="the default preset is the betting certificate")
    names = {field.name for field in fields(Choices)}
    given = {name: value for name, value in settings.items() if name in names and value is not None}
    asked = settings.get("unit")
    if table is None:
        return Choices(**{**given, "independent": asked == "record"})
    unit = check_unit(table, asked, str(path))
    return Choices(**{**given, "unit": unit, "independent": asked == "record"})


def given_choices() -> list[str]:
    """Which registration options were given on the command line or in the environment."""
    context = click.get_current_context()
    names = {field.name for field in fields(Choices)}
    return [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name in names
        and context.get_parameter_source(parameter.name or "")
        in (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
    ]
