"""A reader of pages: the commands of a Markdown page, run in order, and what they print compared with the page.

In a page, a ```python block is a script to run, and a ```console block holds commands ("$ ...", continued by "> ...")
with what they print. A command ends with status 0 unless it says "# exit status N". Every line shown must be in the
real output, in that order, up to numbers, digests and repetition; "..." stands for whatever was left out.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from tests.support import ROOT
from tests.support.warm import warm_command

BLOCK = re.compile(r"^ *```(console|python)\n(.*?)^ *```$", flags=re.MULTILINE | re.DOTALL)
STATUS = re.compile(r"# exit status (\d+)$")
NUMBER = re.compile(r"[0-9a-f]{16,}|\d+(?:[.,]\d+)*")


@dataclass(frozen=True)
class Step:
    """One command of a page, what the page says it prints, and its exit status."""

    command: str
    shown: tuple[str, ...] = ()
    status: int = 0


def steps(page: Path) -> Iterator[Step]:
    """The commands of a page, in order."""
    for kind, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if kind == "python":
            yield Step(f"python - <<'END'\n{text}END")
        else:
            yield from console(text)


def console(text: str) -> Iterator[Step]:
    """The commands of a console block."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        first, *lines = part.splitlines()
        more = [line for line in lines if line.startswith("> ")]
        command = "\n".join([first, *(line.removeprefix("> ") for line in more)])
        found = STATUS.search(command)
        yield Step(command, tuple(lines[len(more) :]), int(found[1]) if found else 0)


def masked(text: str) -> list[str]:
    """Lines with numbers and digests blanked, without empty lines and repetition."""
    plain = text.replace("no bound yet", "risk at most 0")
    for word in ("round", "release", "threshold"):  # one or several: that may depend on the noise
        plain = plain.replace(f"{word}s", word)
    lines = [" ".join(NUMBER.sub("#", line).split()) for line in plain.splitlines()]
    return [line for line, _ in groupby(filter(None, lines))]


def missing(output: str, shown: tuple[str, ...]) -> str | None:
    """The first shown line that the output lacks, or None."""
    rest = iter(masked(output))
    for line in masked("\n".join(shown)):
        pattern = ".*".join(map(re.escape, re.split(r" ?\.\.\. ?", line)))
        if line != "..." and not any(re.fullmatch(pattern, each) for each in rest):
            return line
    return None


class Reader:
    """A reader at a terminal: an empty folder, an empty home, and the commands of this Python."""

    def __init__(self, folder: Path, seconds: float = 120.0) -> None:
        self.seconds = seconds
        self.work, self.home, self.bin = (folder / name for name in ("work", "home", "bin"))
        for each in (self.work, self.home, self.bin):
            each.mkdir()
        shutil.copy(ROOT / "examples" / "make_tables.py", self.work)  # pages begin with it

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FEDSRC_")}
        path = [str(self.bin), str(Path(sys.executable).parent), kept.get("PATH", "")]
        own = dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"), str(self.home))
        return {**kept, **own, "PATH": os.pathsep.join(path)}

    def run(self, step: Step) -> str:
        """Run one command, compare it with what the page says, and return what it printed."""
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", step.command],
            cwd=self.work, env=self.environment(), text=True, timeout=self.seconds, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert done.returncode == step.status, f"{step.command}\n{done.stdout}"
        lost = missing(done.stdout, step.shown)
        assert lost is None, f"{step.command}\ndoes not print: {lost}\n{done.stdout}"
        return done.stdout


def warm(reader: Reader) -> AbstractContextManager[None]:
    """Give a reader a `fedsrc` that starts at once."""
    return warm_command(reader.bin / "fedsrc", reader.environment())
