"""Options that commands share: kinds of values and paths, the choices of a registration, of a table, of a model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import click

from fedsrc.common import places
from fedsrc.records.table import Columns
from fedsrc.scores.models.backends import DTYPES

FilePath = click.Path(path_type=Path, dir_okay=False)
FolderPath = click.Path(path_type=Path, file_okay=False)
FORMAT = click.option("--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True)
JOBS = click.option(
    "--jobs", type=int, default=-1, show_default=True, callback=lambda _context, _option, value: _jobs(value),
    help="Blocks of trials at once; -1: one per core.",
)  # fmt: skip
REVISION = click.option("--revision", help="Revision of the model.")
DEVICE = click.option("--device", default="auto", show_default=True, help="cpu, cuda, or auto.")
DTYPE = click.option("--dtype", type=click.Choice(["auto", *DTYPES]), default="auto", show_default=True)
BATCH_TOKENS = click.option(
    "--batch-tokens", type=click.IntRange(1), help="Tokens of one forward pass.  [default: by device]"
)
MODEL_CHOICES = ("revision", "device", "dtype", "batch_tokens")  # what open_model takes of them


def _jobs(value: int) -> int:
    if value == 0:
        raise click.BadParameter("0 blocks at once would never end; -1 is one per core")
    return value


def named(pairs: Iterable[str]) -> dict[str, str] | None:
    """NAME=VALUE, each once, as a dictionary; None for none."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals and value) or name in found:
            raise click.BadParameter(f"{pair!r} is not of the form NAME=VALUE, each name once")
        found[name] = value
    return found or None


Command = TypeVar("Command", bound=Callable[..., Any])
NAMES = tuple(field.name for field in fields(Columns))
COLUMNS = [
    click.option(f"--{name}-column", f"{name}_column", help=f"Name of the {name} column  [default: {name}]")
    for name in NAMES
]
TABLE_OPTIONS = [
    *COLUMNS,
    click.option(
        "--missing",
        type=click.Choice(["refuse", "keep"]),
        default="refuse",
        show_default=True,
        help="keep: a missing score is never accepted, a missing loss counts as unsupported.",
    ),
]
FRESH = click.option(
    "--fresh", is_flag=True, help="Assert that no unit was in an earlier table, where the ledger cannot tell."
)
LEDGER = click.option("--ledger", type=FilePath, help="The site's ledger  [default: beside the records]")


def options(many: list[Callable[[Command], Command]]) -> Callable[[Command], Command]:
    """Apply a list of click options."""

    def apply(command: Command) -> Command:
        for option in reversed(many):
            command = option(command)
        return command

    return apply


class Level(click.ParamType):
    """A number strictly between 0 and 1."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except (TypeError, ValueError):
            self.fail(f"{value!r} is not a number; give a share such as 0.2", param, ctx)
        if not 0 < number < 1:
            self.fail(f"{value} is not between 0 and 1; give a share such as 0.2 for 20%", param, ctx)
        return number


class Epsilon(click.ParamType):
    """A positive number, or `inf` for no privacy."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except (TypeError, ValueError):
            self.fail(f"{value!r} is not a number; give one such as 4, or inf for no privacy", param, ctx)
        if not number > 0:
            self.fail(f"{value} is not positive; smaller is more private, inf is none", param, ctx)
        return number


class Digits(click.ParamType):
    """64 hexadecimal digits: a public key or a digest."""

    name = "64 hex digits"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value).strip().lower()
        if not re.fullmatch(r"[0-9a-f]{64}", text):
            self.fail(f"{value!r} is not 64 hexadecimal digits", param, ctx)
        return text


class PerSite(click.ParamType):
    """name=number,name=number"""

    name = "name=number,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, float]:
        if isinstance(value, dict):
            return value
        try:
            pairs = [part.rsplit("=", 1) for part in str(value).split(",")]
            return {name.strip(): float(number) for name, number in pairs}
        except ValueError:
            self.fail(f"{value!r} is not of the form north=0.5,south=0.5", param, ctx)


class PerSiteText(click.ParamType):
    """name=text,name=text"""

    name = "name=text,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, str]:
        if isinstance(value, dict):
            return value
        pairs = [part.partition("=") for part in str(value).split(",")]
        if not all(name and equals and text for name, equals, text in pairs):
            self.fail(f"{value!r} is not of the form north=...,south=...", param, ctx)
        return {name.strip(): text.strip() for name, _, text in pairs}


class PerSiteCount(PerSiteText):
    """name=integer,name=integer"""

    name = "name=count,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if not all(str(each).isdecimal() for each in found.values()):
            self.fail(f"{value!r} is not of the form north=1200,south=900", param, ctx)
        return {name: int(each) for name, each in found.items()}


class Many(click.ParamType):
    """A comma-separated list of another type."""

    def __init__(self, inner: click.ParamType) -> None:
        self.inner = inner
        self.name = f"{inner.name},..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        if isinstance(value, tuple):
            return value
        return tuple(self.inner.convert(part.strip(), param, ctx) for part in str(value).split(","))


CHOICES = [
    click.option("--target", "target_risk", type=Level(), help="Largest tolerated share of unsupported answers."),
    click.option("--epsilon", type=Epsilon(), help="Privacy loss per unit; smaller is more private; inf for none."),
    click.option("--preset", type=click.Choice(["default", "paper"]), help="Method and release  [default: default]"),
    click.option(
        "--method",
        type=click.Choice(["contrast", "variance-adaptive", "ratio"]),
        help="Which of the paper's certificates, with --preset paper.",
    ),
    click.option("--unit", type=click.Choice(["record", "source"]), help="What is protected and independent."),
    click.option("--thresholds", type=click.IntRange(1, 10_000), help="How many candidates  [default: 20]"),
    click.option("--grid", is_flag=True, default=None, help="Public evenly spaced thresholds, not quantiles."),
    click.option(
        "--public-development",
        is_flag=True,
        default=None,
        help="The records that choose thresholds are public: take exact quantiles of them, unprotected.",
    ),
    click.option("--min-acceptance", type=Level(), help="Least useful share of accepted answers  [default: 0.05]"),
    click.option("--failure-probability", type=Level(), help="[default: 0.05]"),
    click.option("--delta", type=Level(), help="[default: 1e-6]"),
    click.option("--batch", type=click.IntRange(1), help="Units per site and round  [default: 200]"),
    click.option("--rounds", type=click.IntRange(1), help="Most rounds  [default: 30]"),
    click.option("--policy", type=click.Choice(["first", "final", "recruit"]), help="[default: first]"),
    click.option("--dropout", type=click.Choice(["independent", "adversarial"]), help="[default: independent]"),
    click.option("--max-answers", type=click.IntRange(1, 20), help="Answers kept per source."),
    click.option(
        "--answer-weight",
        type=click.Choice(["source", "answer"]),
        help="What counts as one: a source with its answers, or each answer  [default: source]",
    ),
    click.option("--loss-grid", type=click.IntRange(1), help="Graded losses are rounded up to multiples of 1/N."),
    click.option(
        "--weights", type=PerSite(), help="Deployment weights of the sites: shares of records, or of sources."
    ),
    click.option("--drift", type=PerSite(), help="Declared drift (total variation) of sites."),
    click.option(
        "--claim",
        multiple=True,
        callback=lambda _context, _option, pairs: named(pairs),
        help="NAME=TEXT: what the score, the loss and the population are, in words; repeatable.",
    ),
    click.option("--validity-days", type=click.IntRange(1), help="[default: 365]"),
    click.option("--server-key", help="Public key of the server that may ask and sign."),
    click.option("--site-keys", type=PerSiteText(), help="Public keys of the sites: releases must be signed."),
    click.option("--capacities", type=PerSiteCount(), help="Most units each site will give."),
]
KEY = click.option(
    "--key", type=FilePath, help="Signing key (PEM), made on first use  [default: the one that `fedsrc keys` shows]"
)


def server_key(path: Path | None) -> Path:
    """Where the server's key lies: the file named, or its own."""
    return path or places.server_key()


SUCCESSION = click.option(
    "--succession",
    "successions",
    type=FilePath,
    multiple=True,
    help="Statement of a key's succession; repeatable.",
)
LIFE = [
    SUCCESSION,
    click.option(
        "--revocations",
        type=click.Path(path_type=Path),
        help="Where notices lie besides CERTIFICATE's file + .revoked: a file, or a folder of them.",
    ),
]
CA = click.option("--ca", type=FilePath, help="Certificate of the authority that both ends trust: connections use TLS.")
INSECURE = click.option("--insecure", is_flag=True, help="Talk to another machine without encryption.")
