"""The files of deploy/, parsed: the image's instructions, services as Compose resolves them, and systemd units."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import click
import yaml  # type: ignore[import-untyped]

from fedsrc.cli.main import COMMANDS, cli
from tests.support import ROOT

DEPLOY = ROOT / "deploy"
VARIABLE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")
SECRETS = PurePosixPath("/run/secrets")


class Instruction(NamedTuple):
    """One instruction of a Dockerfile, its lines joined."""

    name: str
    text: str

    @property
    def exec_form(self) -> list[str]:
        """The words of an instruction that no shell reads."""
        return [str(word) for word in json.loads(self.text)]


def stages(text: str) -> list[list[Instruction]]:
    """The stages of a Dockerfile, each from its FROM on; what comes before the first is stage 0."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    found: list[list[Instruction]] = [[]]
    for line in filter(None, map(str.strip, joined.splitlines())):
        name, _, rest = line.partition(" ")
        if name == "FROM":
            found.append([])
        found[-1].append(Instruction(name, rest.strip()))
    return found


def dockerfile() -> list[list[Instruction]]:
    return stages((DEPLOY / "Dockerfile").read_text(encoding="utf-8"))


class Mount(NamedTuple):
    """What lies at a path of a container: a volume by its name, or a file from outside."""

    source: str
    target: PurePosixPath
    writable: bool


@dataclass(frozen=True)
class Service:
    """One service of compose.yaml, its variables resolved."""

    name: str
    said: Mapping[str, Any]
    files: Mapping[str, str]  # of secrets, by name

    @property
    def words(self) -> list[str]:
        """The command, with its program."""
        return [*self.said.get("entrypoint", ["fedsrc"]), *self.said["command"]]

    @property
    def ids(self) -> tuple[int, int]:
        user, _, group = str(self.said["user"]).partition(":")
        return int(user), int(group)

    @property
    def volumes(self) -> list[Mount]:
        parts = [each.split(":") for each in self.said.get("volumes", [])]
        return [Mount(source, PurePosixPath(target), rest != ["ro"]) for source, target, *rest in parts]

    @property
    def secrets(self) -> list[Mount]:
        given = self.said.get("secrets", [])
        return [Mount(self.files[each["source"]], SECRETS / each["target"], False) for each in given]

    @property
    def tmpfs(self) -> list[PurePosixPath]:
        return [PurePosixPath(each.partition(":")[0]) for each in self.said.get("tmpfs", [])]

    def writable(self, path: PurePosixPath) -> bool:
        """Whether a process can write a file there: on a volume, or in memory."""
        places = [each.target for each in self.volumes if each.writable] + self.tmpfs
        return any(path.is_relative_to(place) for place in places)

    def readable(self, path: PurePosixPath) -> bool:
        """Whether something lies there that does not come with the image."""
        inside = any(path.is_relative_to(each.target) for each in self.volumes)
        return inside or any(path == each.target for each in self.secrets)


@dataclass
class Compose:
    """compose.yaml with its variables resolved."""

    said: dict[str, Any]
    used: set[str] = field(default_factory=set)

    @property
    def services(self) -> dict[str, Service]:
        files = {name: each["file"] for name, each in self.said["secrets"].items()}
        return {name: Service(name, each, files) for name, each in self.said["services"].items()}


def compose(environment: Mapping[str, str]) -> Compose:
    """Read compose.yaml as Compose does: merge keys, and variables `${NAME}`, `${NAME:-else}` and `${NAME:?why}`."""
    said = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    used = set[str]()
    return Compose(_resolved(said, environment, used), used)


def _resolved(value: Any, environment: Mapping[str, str], used: set[str]) -> Any:
    if isinstance(value, dict):
        return {name: _resolved(each, environment, used) for name, each in value.items()}
    if isinstance(value, list):
        return [_resolved(each, environment, used) for each in value]

    def found(match: re.Match[str]) -> str:
        name, kind, rest = match.groups()
        used.add(name)
        if environment.get(name):
            return environment[name]
        if kind == "-":
            return str(rest)
        raise KeyError(f"{name}: {rest or 'is not set'}")

    return VARIABLE.sub(found, value) if isinstance(value, str) else value


@dataclass(frozen=True)
class Unit:
    """A systemd unit: what it says, by name; a name may be there several times."""

    name: str
    said: Mapping[str, list[str]]

    @classmethod
    def read(cls, path: Path) -> Unit:
        text = re.sub(r"\\\n\s*", " ", path.read_text(encoding="utf-8"))
        found: dict[str, list[str]] = {}
        for line in text.splitlines():
            if line and line[0] not in "#;[":
                name, _, value = line.partition("=")
                found.setdefault(name, []).append(value)
        return cls(path.name, found)

    def one(self, name: str) -> str:
        (value,) = self.said[name]
        return value

    def words(self, environment: Mapping[str, str]) -> list[str]:
        """The command as systemd splits it: `${NAME}` stays in its word, `$NAME` becomes words."""
        found = list[str]()
        for word in shlex.split(self.one("ExecStart")):
            if word.startswith("$") and word[1:].isidentifier():
                found += environment[word[1:]].split()
            else:
                found.append(VARIABLE.sub(lambda match: environment[match[1]], word))
        return found


def units() -> dict[str, Unit]:
    return {path.stem: Unit.read(path) for path in sorted((DEPLOY / "systemd").glob("*.service"))}


def parsed(words: list[str]) -> dict[str, Any]:
    """Parse a command line with the parser of the command itself, which refuses what it does not know; run nothing."""
    command: click.Command = cli
    context = command.make_context("fedsrc", list(words))
    while isinstance(command, click.Group):
        name, command, rest = _resolve(command, context)
        context = command.make_context(name, rest, parent=context)
    return dict(context.params)


def _resolve(group: click.Group, context: click.Context) -> tuple[str, click.Command, list[str]]:
    name, command, rest = group.resolve_command(context, [*context._protected_args, *context.args])
    assert name is not None
    assert command is not None
    return name, command, rest


def commands(text: str) -> Iterator[list[str]]:
    """The fedsrc commands that a page shows between backquotes, alone or after the words that run them."""
    for shown in re.findall(r"`([^`\n]+)`", text):
        said = re.search(r"(?:^| )fedsrc (.*)", shown)
        if said is not None and (words := shlex.split(said[1]))[0] in COMMANDS:
            yield words
