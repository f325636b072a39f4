"""The command line's manners: JSON everywhere, one meaning of every exit status, grouped help, completion.

Mutants killed: a command without --format json, one that prints something else beside its object or on the wrong
stream, an exit status 1 where nothing abstained or rang, a help that does not say what 1 means, a command in no group,
a completion that imports a command.

Chance of a false alarm: none; nothing here has noise.
"""

from __future__ import annotations

import json
import os
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

import fedsrc.cli
from fedsrc.cli.main import COMMANDS, GROUPS, cli
from fedsrc.common.signing import load, public_hex
from tests.support.gate_certificates import Terminal

ENDS_IN_ONE = (
    "attest", "certify", "collect", "demo", "check", "monitor", "request", "server", "status", "verify", "view",
)  # fmt: skip


def every_command() -> Iterator[click.Command]:
    """Every command that does something, those below others too."""
    for found in pkgutil.iter_modules(fedsrc.cli.__path__):
        for each in vars(import_module(f"fedsrc.cli.{found.name}")).values():
            if isinstance(each, click.Command) and not isinstance(each, click.Group):
                yield each


ALL = sorted({str(each.name): each for each in every_command()}.items())


def test_the_walk_sees_commands_below_others() -> None:
    names = {name for name, _ in ALL}
    assert {"check", "serve", "succeed"} <= names
    assert set(COMMANDS) - {"gate"} <= names


@pytest.mark.parametrize(("name", "command"), ALL, ids=[name for name, _ in ALL])
def test_every_command_has_json(name: str, command: click.Command) -> None:
    """Without an exception: what serves or waits prints where it listens."""
    found = [each for each in command.params if "--format" in each.opts]
    assert len(found) == 1, name
    assert isinstance(found[0].type, click.Choice)
    assert {"text", "json"} <= set(found[0].type.choices)


@pytest.mark.parametrize(("name", "command"), ALL, ids=[name for name, _ in ALL])
def test_help_says_what_exit_status_1_means(name: str, command: click.Command) -> None:
    said = "xit status" in " ".join((command.help or "").split())
    assert said == (name in ENDS_IN_ONE)


def test_help_is_grouped_and_says_the_exit_statuses() -> None:
    shown = CliRunner().invoke(cli, ["--help"]).output
    assert [line[:-1] for line in shown.splitlines() if line[:1].strip() and line.endswith(":")] == ["Options", *GROUPS]
    assert "Exit status 0: did what was asked" in " ".join(shown.split())
    assert (
        "Exit status of check: 0 accepted, 1 abstained, 2 error" in CliRunner().invoke(cli, ["gate", "--help"]).output
    )


# ---------------------------------------------------------------- a run by files, in JSON


SITES = ("north", "old town/2")


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    """Call a command with --format json; return its exit status and its object, the only thing on stdout."""
    monkeypatch.chdir(tmp_path)
    terminal = Terminal(monkeypatch, capsys)

    def ask(*args: object) -> tuple[int, dict[str, Any]]:
        done = terminal(*map(str, args), "--format", "json")
        assert done.status != 2, done.err
        found = json.loads(done.out)
        assert isinstance(found, dict)
        return done.status, found

    return ask


def write_table(path: Path, name: str, rows: int, bad: int) -> None:
    """Every so manieth answer is unsupported, and scores do not tell."""
    lines = [f"{name}{i},{(i * 37 % 100) / 100},{int(i % bad == 0)}" for i in range(rows)]
    path.write_text("\n".join(["id,score,loss", *lines, ""]))


def a_run_by_files(call: Any, target: float) -> tuple[int, dict[str, Any]]:
    """From keys to the end; return how the last step ended."""
    assert call("keys", "server.key")[1]["public"] == public_hex(load(Path("server.key")))
    keys = {site: call("keys", f"{i}.key")[1]["public"] for i, site in enumerate(SITES)}
    register = (
        "register", "--grid", "--thresholds", 3, "--sites", ",".join(SITES), "--target", target, "--epsilon", "inf",
        "--batch", 200, "--rounds", 2, "--policy", "final", "-o", "r.toml",
        "--server-key", public_hex(load(Path("server.key"))),
        "--site-keys", ",".join(f"{site}={key}" for site, key in keys.items()),
        "--capacities", ",".join(f"{site}=450" for site in SITES),
    )  # fmt: skip
    assert call(*register)[0] == 0
    for i, site in enumerate(SITES):
        write_table(Path(f"{i}.csv"), f"s{i}-", 450, 10)
        asked = ("allow", "r.toml", "--site", site, "--ledger", f"{i}.csv.ledger")
        assert call(*asked, "--show")[1]["status"] == "shown"
        assert not Path(f"{i}.csv.ledger").exists()
        told = call(*asked)[1]
        assert (told["status"], told["usual_request"], told["largest_request"], told["capacity"]) == (
            "allowed", 200, 300, 450,
        )  # fmt: skip
    status, done = call("request", "r.toml", "--key", "server.key")
    assert (status, done["status"]) == (0, "OPEN"), "still open, and nothing failed"
    most = 0
    while done["status"] == "OPEN":
        assert call("status", "run")[0] == 0
        releases = []
        for i, place in enumerate(done["waiting"]):
            assert place.endswith(f"-{('north', 'old_town_2')[i]}.request.json")
            most = max(most, json.loads(Path(place).read_text())["request"]["slots"])
            given = call("release", place, f"{i}.csv", "--key", f"{i}.key")[1]
            assert given["status"] == "RELEASED"
            releases.append(given["file"])
        status, done = call("collect", "run", *releases, "--key", "server.key")
    assert most == 250, "more than a batch, and not more than the sites were told"
    return status, done


def test_a_run_by_files_that_certifies(call: Any) -> None:
    status, done = a_run_by_files(call, 0.3)
    assert (status, done["status"]) == (0, "CERTIFIED")
    for args in (("status", "run"), ("verify", "run"), ("view", "run")):
        assert call(*args)[0] == 0
    sites = call("site-status", "0.csv.ledger")[1]["sites"]
    table = sites["north"]["tables"][0]
    assert (table["spent"], table["left"], table["locked"]) == (450, 0, False)
    assert sites["north"]["allowed"][0]["spent"] == 450
    trusted = public_hex(load(Path("server.key")))
    assert call("gate", "check", "run", "--trust", trusted, "--score", "1")[0] == 0
    assert call("gate", "check", "run", "--trust", trusted, "--score", "-1")[0] == 1
    assert call("revoke", "run", "--reason", "a test", "--key", "server.key")[0] == 0, "it did what was asked"
    for args in (("status", "run"), ("verify", "run"), ("view", "run")):
        assert call(*args)[0] == 1


def test_a_run_by_files_that_abstains(call: Any, capsys: pytest.CaptureFixture[str]) -> None:
    status, done = a_run_by_files(call, 0.02)
    assert (status, done["status"]) == (1, "ABSTAIN")
    assert [call(*args)[0] for args in (("status", "run"), ("view", "run"))] == [1, 1]
    assert call("verify", "run", "--registration", "r.toml")[0] == 0
    assert call("verify", "run", "--registration", done["registration"])[0] == 0
    assert CliRunner().invoke(cli, ["verify", "run", "--registration", "ab" * 32]).exit_code != 0
    assert call("verify", "run")[0] == 0, "a sound abstention verifies"
    shown = CliRunner().invoke(cli, ["verify", "run"])
    assert "It is a sound abstention" in shown.stdout
    for i in range(2):
        assert call("allow", "r.toml", "--site", SITES[i], "--ledger", f"{i}.csv.ledger", "--withdraw")[0] == 0


# ---------------------------------------------------------------- words at the right moment


def test_register_says_what_it_locks_before_it_does_and_the_site_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    terminal = Terminal(monkeypatch, capsys)
    write_table(Path("t.csv"), "t", 500, 4)
    done = terminal("register", "t.csv", "--target", "0.3", "--epsilon", "4")
    assert done.status == 0
    first = done.err.splitlines()[1]  # after what the labels show, which may end it
    assert first.startswith("These 500 records choose thresholds and can no longer calibrate")
    assert "fedsrc certify t.csv sets about 100 of them apart by itself, and calibrates on the other 400" in first
    told = terminal("site-status", "t.csv.ledger")
    assert "locked: its 500 units chose thresholds or a score, and can no longer calibrate" in told.out
    sites = json.loads(terminal("site-status", "t.csv.ledger", "--format", "json").out)["sites"]
    assert [table["locked"] for each in sites.values() for table in each["tables"]] == [True]
    grid = terminal("register", "t.csv", "--grid", "--target", "0.3", "--epsilon", "4", "-o", "g.toml")
    assert "can no longer calibrate" not in grid.err


# ---------------------------------------------------------------- completion


def completed(words: str, kind: str = "bash_complete") -> tuple[list[str], set[str]]:
    """What the shell is offered for the last word, and which heavy libraries that took."""
    code = (
        "import atexit, sys; sys.argv = ['fedsrc']\n"
        "atexit.register(lambda: print(*({'polars', 'numpy', 'pydantic'} & sys.modules.keys()), file=sys.stderr))\n"
        "from fedsrc.cli.main import main; main()"
    )
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1), "_FEDSRC_COMPLETE": kind}
    how: dict[str, Any] = {"capture_output": True, "text": True, "env": {**os.environ, **asked}}
    done = subprocess.run([sys.executable, "-c", code], check=True, **how)
    return done.stdout.splitlines(), set(done.stderr.split())


def test_names_complete_without_importing_a_command() -> None:
    found, heavy = completed("fedsrc ")
    assert found == [f"plain,{name}" for name in COMMANDS]
    assert heavy == set()
    assert completed("fedsrc site") == (["plain,site", "plain,site-status"], set())


def test_options_and_commands_below_complete() -> None:
    shell = ShellComplete(cli, {}, "fedsrc", "_FEDSRC_COMPLETE")
    found = [each.value for each in shell.get_completions(["gate", "check"], "--moni")]
    assert found == ["--monitor", "--monitor-days"]
    assert [each.value for each in shell.get_completions(["gate"], "se")] == ["serve"]


def test_the_shell_is_told_how() -> None:
    assert "_FEDSRC_COMPLETE=bash_complete" in "\n".join(completed("", "bash_source")[0])


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_that_another_thread_gets_ends_a_page_too(name: str) -> None:
    """The system picks the thread; one that waits for a lock is not woken by another's signal."""
    code = f"""
import signal, threading, time
from fedsrc.cli.streams import stopped
wait = stopped()
def get():
    time.sleep(0.5)
    signal.pthread_kill(threading.get_ident(), signal.{name})
    time.sleep(600)
threading.Thread(target=get, daemon=True).start()
wait()
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=120, check=False).returncode == 0
