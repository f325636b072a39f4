"""docs/live.md does what it says: its commands are run in order, with real processes."""

from __future__ import annotations

from pathlib import Path

from tests.support import ROOT
from tests.support.reader import Reader, steps


def test_a_reader_can_follow(tmp_path: Path) -> None:
    reader, found = Reader(tmp_path, seconds=600.0), list(steps(ROOT / "docs" / "live.md"))
    assert sum("fedsrc server " in step.command or "demo --live" in step.command for step in found) == 2
    for step in found:
        reader.run(step)
