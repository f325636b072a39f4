"""The walk-throughs do what they say: their commands are run in order, in a folder of their own.

In a page, a ```python block is a script to run, and a ```console block holds commands ("$ ...", continued by "> ...")
with what they print. A command ends with status 0 unless it says "# exit status N". Every line shown must be in the
real output, in that order, up to numbers, digests and repetition; "..." stands for whatever was left out.

Mutants killed: a command or an option that was renamed, a message that a page still quotes in its old words, a step
left out of a page, an exit status that changed.

Whether a run certifies depends on its noise, but these do by a wide margin: in the air-gapped page log-wealth is more
than 5 standard deviations above its line, and in 2,000 simulated runs of each table of the other page, none needed more
than 60% of its records. The monitor of its page rang in the first of the third week's five rounds in each of 1,800
simulated runs (300 at each of six thresholds around the certified one), and in none of them before.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^ *```(console|python)\n(.*?)^ *```$", flags=re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("examples/*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("paper/*.md")]
STATUS = re.compile(r"# exit status (\d+)$")
NUMBER = re.compile(r"[0-9a-f]{16,}|\d+(?:[.,]\d+)*")

# Python takes most of a second to import fedsrc, and a page has dozens of commands. So one process imports it and
# forks for every command; the `fedsrc` that a page finds on its PATH hands over its arguments, folder and streams.
SERVER = """
import json, os, signal, socket, sys
from fedsrc.cli.main import COMMANDS, cli, main

for name in COMMANDS:  # commands are loaded when they are called: here once for all
    cli.get_command(None, name)

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("ready", flush=True)
while True:
    caller = listener.accept()[0]
    data, streams, _, _ = socket.recv_fds(caller, 1 << 20, 3)
    if os.fork() == 0:
        sys.argv, folder = json.loads(data)
        os.chdir(folder)
        for place, stream in enumerate(streams):
            os.dup2(stream, place)
        status = 0
        try:
            main()
        except SystemExit as end:
            status = end.code or 0
        sys.stdout.flush()
        caller.send(bytes([status]))
        os._exit(0)
    for handle in (*streams, caller.detach()):
        os.close(handle)
"""
CLIENT = """#!{python} -IS
import json, os, socket, sys

server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
socket.send_fds(server, [json.dumps([["fedsrc", *sys.argv[1:]], os.getcwd()]).encode()], [0, 1, 2])
answer = server.recv(1)
sys.exit(answer[0] if answer else 70)
"""


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
    plain = text.replace("no bound yet", "risk at most 0").replace("rounds", "round").replace("releases", "release")
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

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FEDSRC_")}
        path = [str(self.bin), str(Path(sys.executable).parent), kept.get("PATH", "")]
        return {**kept, "PATH": os.pathsep.join(path), "HOME": str(self.home), "XDG_CONFIG_HOME": str(self.home)}

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


@contextmanager
def warm(reader: Reader) -> Iterator[None]:
    """Give a reader a `fedsrc` that starts at once."""
    with tempfile.TemporaryDirectory() as place:  # a socket's path must be short
        address = f"{place}/s"
        command = [sys.executable, "-c", SERVER, address]
        server = subprocess.Popen(command, env=reader.environment(), stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        with server.stdout as started:
            assert started.readline() == "ready\n"
        client = reader.bin / "fedsrc"
        client.write_text(CLIENT.format(python=sys.executable, address=address))
        client.chmod(0o755)
        try:
            yield
        finally:
            server.kill()
            server.wait()


@pytest.mark.parametrize("name", ["air-gapped", "card", "choosing", "monitor", "your-own-table", "scores"])
def test_a_reader_can_follow(name: str, tmp_path: Path) -> None:
    reader, found = Reader(tmp_path), list(steps(ROOT / "docs" / f"{name}.md"))
    assert any("fedsrc " in step.command for step in found)
    with warm(reader):
        for step in found:
            reader.run(step)


def test_an_auditor_can_follow(tmp_path: Path) -> None:
    """With the command that is installed: the audit starts processes of its own."""
    reader, found = Reader(tmp_path), list(steps(ROOT / "docs" / "audit.md"))
    assert len(found) > 2
    for step in found:
        reader.run(step)


def test_a_gate_can_be_run(tmp_path: Path) -> None:
    """With the command that is installed: the service is a process of its own, here at a port that is free."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    reader, found = Reader(tmp_path), list(steps(ROOT / "docs" / "gate.md"))
    assert any("gate serve" in step.command for step in found)
    try:
        for step in found:
            serve = f"fedsrc gate serve --port {port}"
            reader.run(replace(step, command=step.command.replace("8321", port).replace("fedsrc gate serve", serve)))
    finally:
        for pid in reader.work.glob("gate.pid"):
            with suppress(ProcessLookupError):
                os.kill(int(pid.read_text()), signal.SIGKILL)


def test_figures_of_the_theory(tmp_path: Path) -> None:
    reader, found = Reader(tmp_path), list(steps(ROOT / "docs" / "theory.md"))
    assert len(found) == 3
    for step in found:
        assert reader.run(step).splitlines() == list(step.shown)


def test_the_readme(tmp_path: Path) -> None:
    """Its demo and its Python, with the command that is installed."""
    reader = Reader(tmp_path)
    reader.run(next(steps(ROOT / "docs" / "your-own-table.md")))  # makes table.csv
    found = list(steps(ROOT / "README.md"))
    assert len(found) > 1
    for step in found:
        reader.run(step)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for name, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        if not name.startswith("https://"):
            target = page.parent / name if name else page
            assert target.exists(), name
            assert not anchor or anchor in anchors(target), f"{name}#{anchor}"


def test_the_comparison_can_fail() -> None:
    output = "Site a\n  200 spent in 1 releases\nround 1 no bound yet\nround 2 risk at most 0.2\nend 0123456789abcdef\n"
    assert missing(output, ("Site a", "...", "end fedcba9876543210")) is None
    assert missing(output, ("  7 spent ... releases", "round 9 risk at most 0.3")) is None
    assert missing(output, ("Site b",)) == "Site b"
    assert missing(output, ("end ...", "Site a")) == "Site a"
    text = "$ one  # exit status 2\nerror: x\n$ two \\\n>   three\nfour\n"
    assert list(console(text)) == [
        Step("one  # exit status 2", ("error: x",), 2),
        Step("two \\\n  three", ("four",)),
    ]
