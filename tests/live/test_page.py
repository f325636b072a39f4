"""docs/live.md does what it says: its commands are run in order, with real processes."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support import ROOT
from tests.support.reader import Reader, steps


def test_a_reader_can_follow() -> None:
    found = list(steps(ROOT / "docs" / "live.md"))
    assert sum("fedsrc server " in step.command or "demo --live" in step.command for step in found) == 2
    with TemporaryDirectory() as place:  # a socket's path must be short
        reader = Reader(Path(place), seconds=600.0)
        for step in found:
            reader.run(step)
