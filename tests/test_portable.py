"""What Windows lacks is not needed to verify a run and to use a gate; what it is needed for is refused beforehand.

Here a process is stripped of it: locks of files, rights by handle, flags and signals. So far the code goes; that a
system itself behaves is for the workflow that runs there.

Mutants killed: `fcntl` imported by what verifies or decides, a flag of Linux alone, a table that is taken in where no
transcript can be held.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fedsrc.common.signing import Key, public_hex
from fedsrc.federation.local import certify_table
from tests.support.helpers import registration, table

KEY = Key.from_private_bytes(b"w" * 32)
STRIPPED = """
import os, runpy, signal, sys
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None
for name in ("O_NONBLOCK", "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "fchmod", "mkfifo", "getuid"):
    delattr(os, name)
for name in ("SIGUSR1", "SIGUSR2", "SIGHUP"):
    delattr(signal, name)
sys.argv[0] = "fedsrc"
from fedsrc.cli.main import main
main()
"""


def stripped(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process without what Windows lacks."""
    return subprocess.run([sys.executable, "-c", STRIPPED, *command], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, records = tmp_path_factory.mktemp("run"), table(2000)
    certify_table(registration(records, batch=400, epsilon=8.0), records, folder / "run", folder / "ledger", KEY)
    return folder / "run"


def test_a_run_is_verified(run: Path) -> None:
    found = stripped("verify", str(run), "--trust", public_hex(KEY), "--format", "json")
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["status"] == "CERTIFIED"
    (run.parent / "other").mkdir()
    for each in run.iterdir():
        if each.is_file():
            (run.parent / "other" / each.name).write_bytes(each.read_bytes().replace(b'"round":1', b'"round":2'))
    assert stripped("verify", str(run.parent / "other")).returncode == 1


def test_a_gate_decides(run: Path) -> None:
    for score, status in (("0.99", 0), ("0.01", 1)):
        found = stripped("gate", "check", str(run), "--trust", public_hex(KEY), "--score", score)
        assert found.returncode == status, found.stderr
    assert stripped("view", str(run), "--format", "markdown").returncode == 0


def test_what_needs_locks_is_refused_before_a_table_is_taken_in(tmp_path: Path) -> None:
    records = table(60)
    rows = (f"u{i},{score},{loss}" for i, (score, loss) in enumerate(zip(records.score, records.loss, strict=True)))
    (tmp_path / "table.csv").write_text("\n".join(["id,score,loss", *rows]))
    found = stripped(
        "certify", str(tmp_path / "table.csv"), "--target", "0.2", "--epsilon", "4", "-o", str(tmp_path / "run")
    )
    assert found.returncode == 2
    assert "no locks" in found.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["table.csv"]
