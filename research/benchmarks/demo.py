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

from fedsrc.maths.arrays import Floats
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
    shown = 100 * found["acceptance_lower"].drop_nulls().to_numpy()
    return [
        "# The demo, again and again",
        f"In {found.height} runs of `fedsrc demo`, each with its own `-o`, {_certified(found)}; acceptance was at least"
        f" {shown.min():.1f} to {shown.max():.1f}%, each on {_one(found, 'records')} records in"
        f" {_one(found, 'rounds')} round. Order and noise come from the operating system: other runs give other"
        " figures. Made by `python -m research.benchmarks.demo`.",
        markdown(("acceptance at least, %", "runs"), _counts(shown)),
    ]


def _certified(found: pl.DataFrame) -> str:
    issued = found.filter(status="CERTIFIED")
    thresholds = " or ".join(f"{each:g}" for each in sorted(issued["threshold"].unique()))
    return f"{issued.height} certified, at threshold {thresholds}"


def _one(found: pl.DataFrame, name: str) -> str:
    return " or ".join(f"{each:,}" for each in sorted(found[name].unique()))


def _counts(shown: Floats) -> list[tuple[str, str]]:
    each = [f"{value:.1f}" for value in sorted(shown)]
    return [(value, str(each.count(value))) for value in dict.fromkeys(each)]


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        found = pl.DataFrame([{"run": i, **run(Path(place, str(i)))} for i in range(RUNS)])
    found.write_parquet(RECORDS)
    publish("demo.md", page(found))


if __name__ == "__main__":
    main()
