"""Types of option values that click does not have: shares, epsilons, keys, and values by site."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from fedsrc.common.values import printable

FilePath = click.Path(path_type=Path, dir_okay=False)
FolderPath = click.Path(path_type=Path, file_okay=False)
AnyPath = click.Path(path_type=Path)


class Word(click.types.StringParamType):
    """A text that may hold spaces; in the environment, several are separated by commas."""

    envvar_list_splitter = ","


class Parsed(click.ParamType):
    """A value that a function parses; its ValueError is the message."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name, self.parse = name, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self.parse(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _number(text: str, example: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number; give {example}") from None


def _share(text: str) -> float:
    number = _number(text, "a share such as 0.2")
    if not 0 < number < 1:
        raise ValueError(f"{text} is not between 0 and 1; give a share such as 0.2 for 20%")
    return number


def _epsilon(text: str) -> float:
    number = _number(text, "one such as 4, or inf for no privacy")
    if not number > 0:
        raise ValueError(f"{text} is not positive; smaller is more private, inf is none")
    return number


def _digits(text: str) -> str:
    found = text.strip().lower()
    if not re.fullmatch(r"[0-9a-f]{64}", found):
        raise ValueError(f"{text!r} is not 64 hexadecimal digits")
    return found


def _jobs(text: str) -> int:
    if not re.fullmatch(r"-?\d+", text):
        raise ValueError(f"{text!r} is not a whole number")
    if int(text) == 0:
        raise ValueError("0 blocks at once would never end; -1 is one per core")
    return int(text)


def _by_site(kind: Callable[[str], Any], example: str) -> Callable[[str], dict[str, Any]]:
    """Return a parser of NAME=VALUE,NAME=VALUE, whose values `kind` reads; a text may hold further equals signs."""

    def parse(text: str) -> dict[str, Any]:
        pairs = [part.partition("=") if kind is str else part.rpartition("=") for part in text.split(",")]
        try:
            if all(name.strip() and value.strip() for name, _, value in pairs):
                return {name.strip(): kind(value.strip()) for name, _, value in pairs}
        except ValueError:
            pass
        raise ValueError(f"{text!r} is not of the form {example}: each value with the name of its site")

    return parse


def _count(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(text)
    return int(text)


def _name(text: str) -> str:
    if not text.strip():
        raise ValueError("a name is not empty")
    return printable(text)


SHARE = Parsed("number", _share)
EPSILON = Parsed("number", _epsilon)
DIGITS = Parsed("64 hex digits", _digits)
JOBS_AT_ONCE = Parsed("integer", _jobs)
NUMBERS = Parsed("name=number,...", _by_site(float, "north=0.5,south=0.5"))
COUNTS = Parsed("name=count,...", _by_site(_count, "north=1200,south=900"))
TEXTS = Parsed("name=text,...", _by_site(str, "north=...,south=..."))


def many(inner: Parsed) -> Parsed:
    """Return the type of a comma-separated list of another type."""
    return Parsed(f"{inner.name},...", lambda text: tuple(inner.parse(part.strip()) for part in text.split(",")))


def _quoted(text: str) -> tuple[str, ...]:
    """Split at commas that are not in quotes."""
    if "\n" in text or "\r" in text:
        raise ValueError("names are in one line, separated by commas")
    try:
        found = next(csv.reader([text], skipinitialspace=True, strict=True))
        return tuple(each.strip() for each in found or [""])
    except csv.Error as error:
        raise ValueError(f"{text!r} is no comma-separated list: {error}") from error


NAME = Parsed("name", _name)
NAMES = many(Parsed("name", str))
QUOTED = Parsed("name,...", _quoted)
