"""Options that several commands share are declared once, with the defaults and choices of the library.

Mutants killed: a command that declares a shared option again, a default in a help text that is not the library's, a
choice that the protocol does not have, a value by site that is split in the wrong place.
"""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import click
import pytest

import fedsrc.cli.options
from fedsrc.cli.main import cli
from fedsrc.cli.options import CHOICES
from fedsrc.cli.types import COUNTS, NAMES, NUMBERS, QUOTED, SHARE, TEXTS, Parsed, many
from fedsrc.monitor.monitor import MonitorChoices
from fedsrc.planning.register import Choices
from fedsrc.protocol.registration import Schedule
from tests.support import ROOT

ROOM = Path(fedsrc.cli.options.__file__).parent
FLAG = re.compile(r'click\.option\(\s*(?:"-\w", )?"(--[a-z-]+)"')
OTHER = {  # the same word for something else, or needed where it is not elsewhere
    ("allow", "--ledger"), ("monitor", "--ledger"), ("server", "--key"), ("gate", "--claim"), ("gate", "--target"),
    ("forecast", "--risk"), ("forecast", "--adjacency"), ("server", "--certificate"), ("monitor", "--certificate"),
    ("audit", "--looks"),
    ("view", "--format"), ("audit", "--output"), ("fit", "--output"), ("keys", "--host"),
}  # fmt: skip


def flags(name: str) -> set[str]:
    return set(FLAG.findall((ROOM / f"{name}.py").read_text()))


def test_no_command_declares_a_shared_option_again() -> None:
    shared = flags("options") | {f"--{name.replace('_', '-')}" for name in CHOICES} | {"--target"}
    commands = [path.stem for path in ROOM.glob("*.py") if path.stem != "options"]
    again = {(name, flag) for name in commands for flag in flags(name) & shared}
    assert again == OTHER


@pytest.mark.parametrize(
    ("command", "kind"), [("certify", Choices), ("register", Choices), ("monitor", MonitorChoices)]
)
def test_choices_are_those_of_the_library(command: str, kind: type[Any]) -> None:
    found = cli.get_command(None, command)  # type: ignore[arg-type]
    assert found is not None
    params = {each.name: each for each in found.params if isinstance(each, click.Option)}
    for field in fields(kind):
        if command == "certify" and field.name == "policy":
            assert "[default: enough; first where" in (params["policy"].help or "")
        elif field.name in CHOICES and isinstance(field.default, str | float) and not isinstance(field.default, bool):
            assert f"[default: {field.default}]" in (params[field.name].help or "")
    read = {"column", "scale", "group_column"}  # off the table
    asked = {field.name for field in fields(kind)} - {"independent", "exact_thresholds"} - read
    assert asked <= params.keys()
    assert all(params[name].default is None for name in asked)  # so that the library decides
    if kind is Choices:
        policy = params["policy"].type
        assert isinstance(policy, click.Choice)
        assert tuple(policy.choices) == get_args(Schedule.model_fields["policy"].annotation)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (NUMBERS, "a=0.25, b=b=0.75", {"a": 0.25, "b=b": 0.75}),
        (TEXTS, "a=k=v,b = w", {"a": "k=v", "b": "w"}),
        (COUNTS, "a=12", {"a": 12}),
        (NAMES, "north, south", ("north", "south")),
        (QUOTED, 'a, b ,"a,b", c "d"', ("a", "b", "a,b", 'c "d"')),
        (QUOTED, "", ("",)),
        (many(SHARE), "0.1,0.2", (0.1, 0.2)),
    ],
)
def test_values_are_split(kind: Parsed, text: str, value: object) -> None:
    assert kind.convert(text, None, None) == value
    assert kind.convert(value, None, None) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [(NUMBERS, "a=x"), (NUMBERS, "a"), (TEXTS, "a="), (COUNTS, "a=-1"), (COUNTS, "a=1.5"), (SHARE, "1")],
)
def test_other_values_are_refused(kind: Parsed, text: str) -> None:
    with pytest.raises(click.BadParameter):
        kind.convert(text, None, None)


def test_library_errors_name_arguments_and_no_flags() -> None:
    """An error outside the command line says `epsilon=`; the command line says --epsilon (`streams.in_flags`).

    A command that is quoted whole, and flags of other programs, stay. Mutants killed: a hint that says --key.
    """
    flags = re.compile(r"(?<![\w`-])--[a-z]")
    others = re.compile(r"`fedsrc [^`]*`|vLLM[^)]*\)?|--no-enable-prefix-caching")
    wrong = [
        f"{path.relative_to(ROOT)}:{text.lineno}: {text.value}"
        for path in sorted((ROOT / "src" / "fedsrc").rglob("*.py"))
        if "cli" not in path.relative_to(ROOT).parts
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id.endswith("Error")
        for text in ast.walk(call)
        if isinstance(text, ast.Constant) and isinstance(text.value, str) and flags.search(others.sub("", text.value))
    ]
    assert wrong == []
