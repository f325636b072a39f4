"""The scripts in examples/ are run as their README says, in a copy of the folder.

Whether a run certifies depends on its noise, but these do by a wide margin: in 1,000 simulated runs of each table none
needed more than a third of its records.

Mutants killed: a script that fails or prints other words, one that is not in the README, one that grew long, one that
ends in a traceback when it is called wrongly.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.support import ROOT
from tests.support.reader import Reader, steps, warm

EXAMPLES = ROOT / "examples"


def test_examples_do_what_their_readme_says(tmp_path: Path) -> None:
    reader, found = Reader(tmp_path), list(steps(EXAMPLES / "README.md"))
    for script in EXAMPLES.glob("*.py"):
        shutil.copy(script, reader.work)
        assert any(script.name in step.command for step in found), f"{script.name} is not run"
    with warm(reader):
        for step in found:
            reader.run(step)


def test_examples_say_what_they_need(tmp_path: Path) -> None:
    """Without arguments, and with a table that is none: words and status 2, not a traceback."""
    (tmp_path / "bad.csv").write_text("loss,score\n1,7\n")
    takes = [path.name for path in EXAMPLES.glob("*.py") if "arguments" in path.read_text(encoding="utf-8")]
    assert len(takes) == len(list(EXAMPLES.glob("*.py"))) - 2  # make_tables.py and notebook.py need none
    calls = [[name] for name in takes] + [["certify_csv.py", "bad.csv", "run"], ["forecast_costs.py", "bad.csv"]]
    calls.append(["use_gate.py", "nowhere", "0" * 64])
    for name, *arguments in calls:
        command = [sys.executable, str(EXAMPLES / name), *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 2, done.stderr
        assert "Traceback" not in done.stderr
        assert "error: " in done.stderr
    assert not (tmp_path / "run").exists()


def test_examples_are_short() -> None:
    for script in EXAMPLES.glob("*.py"):
        assert len(script.read_text(encoding="utf-8").splitlines()) <= 60, script.name
