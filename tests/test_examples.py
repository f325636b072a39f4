"""The scripts in examples/ are run as their README says, in a copy of the folder.

Whether a run certifies depends on its noise, but these do by a wide margin: in 1,000 simulated runs of each table none
needed more than a third of its records.

Mutants killed: a script that fails or prints other words, one that is not in the README, one that grew long.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.test_docs import ROOT, Reader, steps, warm

EXAMPLES = ROOT / "examples"


def test_examples_do_what_their_readme_says(tmp_path: Path) -> None:
    reader, found = Reader(tmp_path), list(steps(EXAMPLES / "README.md"))
    for script in EXAMPLES.glob("*.py"):
        shutil.copy(script, reader.work)
        assert any(script.name in step.command for step in found), f"{script.name} is not run"
    with warm(reader):
        for step in found:
            reader.run(step)


def test_examples_are_short() -> None:
    for script in EXAMPLES.glob("*.py"):
        assert len(script.read_text(encoding="utf-8").splitlines()) <= 60, script.name
