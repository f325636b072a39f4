"""What `fedsrc demo` shows from run to run: its order and its noise are drawn afresh.

Run: python -m research.benchmarks.demo. Writes docs/results/demo.md and what every run gave to
research/results/demo.parquet.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import polars as pl

from fedsrc.report.phrases import percent_down
from research.pages import FIGURES, markdown, publish

RUNS = 20
RECORDS = FIGURES / "demo.parquet"
KEPT = ("status", "threshold", "acceptance_lower", "records", "rounds")
COMMAND = Path(sys.executable).with_name("fedsrc")


def run(folder: Path) -> dict[str, object]:
    """Run the demo into a folder of its own and return what it says."""
    told = subprocess.run([COMMAND, "demo", "-o", folder, "--format", "json"], capture_output=True, check=False)
    said = json.loads(told.stdout)
    return {name: said[name] for name in KEPT}


def page(found: pl.DataFrame) -> list[str]:
    """Return the page."""
    issued = found.filter(status="CERTIFIED")
    shown = [percent_down(each) for each in sorted(issued["acceptance_lower"])]
    return [
        "# The demo, again and again",
        f"In {found.height} runs of `fedsrc demo`, each with its own `-o`, {issued.height} certified, at threshold"
        f" {_one(issued, 'threshold')}; acceptance was at least {shown[0].removesuffix('%')} to {shown[-1]}, each on"
        f" {_one(issued, 'records')} records (rounds: {_one(issued, 'rounds')}). Order and noise come from the"
        " operating system: other runs give other figures. Made by `python -m research.benchmarks.demo`.",
        markdown(("acceptance at least", "runs"), _counts(shown)),
    ]


def _one(found: pl.DataFrame, name: str) -> str:
    return " or ".join(f"{each:,}" for each in sorted(found[name].unique()))


def _counts(shown: list[str]) -> list[tuple[str, str]]:
    return [(value, str(shown.count(value))) for value in dict.fromkeys(shown)]


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        found = pl.DataFrame([{"run": i, **run(Path(place, str(i)))} for i in range(RUNS)])
    found.write_parquet(RECORDS)
    publish("demo.md", page(found))


if __name__ == "__main__":
    main()
