"""Ten untidy exports: how many commands, failures and edits by hand it takes a user to come to a certificate.

Writes docs/results/untidy-exports.md. Run: python -m research.benchmarks.untidy_exports BEFORE (five minutes of CPU
time); BEFORE is the `src` folder of an earlier version, for instance of a second checkout.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from research.pages import markdown, publish
from research.untidy_exports import EXPORTS, play


def run(source: Path, arguments: list[str], folder: Path) -> tuple[int, str]:
    """Run a command of the version in `source`, in a home of its own."""
    homes = dict.fromkeys(("XDG_STATE_HOME", "XDG_CONFIG_HOME", "HOME"), str(folder / "home"))
    environment = {**os.environ, **homes, "PYTHONPATH": str(source), "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "-m", "fedsrc.cli", *arguments], cwd=folder, env=environment, capture_output=True, text=True,
        stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    return done.returncode, f"{done.stdout}\n{done.stderr}"


def page(table: str, refusals: list[str]) -> list[str]:
    """Write the page's parts."""
    return [
        "# Ten untidy exports",
        "How many commands it takes from an export as people have it to a certificate: all, those that failed, and"
        " edits of the file by hand in between. The exports hold the same 4,000 answers (one 200,000), of which 35% are"
        " unsupported, each spoilt in its own way by a script.",
        "Made by `python -m research.benchmarks.untidy_exports BEFORE`, where BEFORE is the `src` folder of version"
        " c0f649c. A user is played by rules, the same for both versions: the first command is `fedsrc certify FILE"
        " --target 0.2 --epsilon 4 -o run`; when one fails, its message decides what comes next, an option that it"
        " names, with what is true of that export, or an edit by hand.",
        table,
        "What the present version refused on the way:",
        "\n".join(refusals) or "Nothing.",
    ]


def main() -> None:
    """Play all exports with both versions, and write the page."""
    before, now = Path(sys.argv[1]).resolve(), Path(__file__).parents[2] / "src"
    rows, refusals = list[list[str]](), list[str]()
    with tempfile.TemporaryDirectory() as folder:
        for export in EXPORTS:
            places = ((before, Path(folder) / "before"), (now, Path(folder) / "now"))
            played = [play(export, partial(run, source), place / export.file) for source, place in places]
            rows.append([export.odd, *(f"{t.commands} / {t.failures} / {t.edits}, {t.end}" for t in played)])
            refusals += [f"* {export.odd}: {said}" for said in played[1].refusals]
            print(rows[-1], *played[1].refusals, sep="\n", flush=True)
    head = ["export", "before: commands / failures / edits by hand, end", "now"]
    publish("untidy-exports.md", page(markdown(head, rows), refusals))


if __name__ == "__main__":
    main()
