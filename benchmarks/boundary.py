"""Betting certificates where every certificate is false: 100,000 trials, beside what may fail and rules that do.

Writes docs/results/boundary.md. Run: python benchmarks/boundary.py [FOLDER]  (FOLDER keeps the per-trial records, and a
stopped run goes on from them)
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import polars as pl
from tables import markdown, publish

import fedsrc
from fedsrc.audit.engine import Progress, run_study
from fedsrc.audit.study import Boundary, Study
from fedsrc.audit.summary import summarise
from fedsrc.maths.binomial import clopper_pearson

STUDY = Path(fedsrc.__file__).parent / "studies" / "boundary.toml"
CONTROLS = ("betting-noise-ignored", "betting-shift-ignored")
CONTROL_TRIALS, RISK_BUDGET = 1000, 0.045
HEAD = ["setting", "false certificates", "95% interval", "one target", "noise ignored", "shift ignored"]


def controls_text() -> str:
    """The same study with rules that leave a step out, on fewer trials."""
    text = STUDY.read_text(encoding="utf-8")
    study = Study.from_toml(text)
    named = ", ".join(f'"{name}"' for name in study.methods)
    wanted = ", ".join(f'"{name}"' for name in CONTROLS)
    return text.replace(named, wanted).replace(f"trials = {study.trials}", f"trials = {CONTROL_TRIALS}")


def ran(path: Path, folder: Path) -> tuple[Study, pl.DataFrame]:
    def tell(seen: Progress) -> None:
        print(f"\r{path.stem}: {seen.done} of {seen.of} blocks", end="", file=sys.stderr, flush=True)

    run_study(path, folder, progress=tell)
    print(file=sys.stderr)
    study, tables = summarise(folder, path.parent)
    return study, tables.methods


def counts(table: pl.DataFrame, name: str, method: str) -> tuple[int, int]:
    row = table.filter((pl.col("population") == name) & (pl.col("method") == method)).row(0, named=True)
    assert row["boundary_certificates"] == row["fired"]  # every certificate here is false
    return row["fired"], row["trials"]


def share(found: tuple[int, int]) -> list[str]:
    low, high = clopper_pearson(*found)
    return [f"{found[0]:,} of {found[1]:,}", f"[{low:.5f}, {high:.5f}]"]


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp())
    study, table = ran(STUDY, folder / "boundary")
    seconds = json.loads((folder / "boundary" / "manifest.json").read_text(encoding="utf-8"))["cost"]["wall_seconds"]
    second = folder / "controls.toml"
    second.write_text(controls_text(), encoding="utf-8")
    _, broken = ran(second, folder / "controls")
    cases = [each for each in study.populations if isinstance(each, Boundary)]
    rows, total = [], dict.fromkeys(study.methods, 0)
    for case in cases:
        found = {name: counts(table, case.name, name) for name in study.methods}
        for name, (fired, _) in found.items():
            total[name] += fired
        rows.append([
            f"{case.name}: {case.about}", *share(found["betting-ladder"]), f"{found['betting'][0]:,}",
            *(f"{counts(broken, case.name, name)[0]:,}" for name in CONTROLS),
        ])  # fmt: skip
    trials = study.trials * len(cases)
    rows.append(["all", *share((total["betting-ladder"], trials)), f"{total['betting']:,}", "", ""])
    worst = max(counts(table, case.name, "betting-ladder")[0] for case in cases) / study.trials
    publish("boundary.md", [
        "# False certificates at the boundary",
        f"In {trials:,} trials the risk of every threshold was exactly the target, so that every certificate was false"
        f" or at its limit. The risk claim may fail with probability {RISK_BUDGET}. It failed in"
        f" {total['betting-ladder']:,} trials; in the worst setting in {worst:.2%} of them.",
        markdown(HEAD, rows),
        f"Target {study.settings[0].target_risk}, epsilon {study.settings[0].epsilon:g} per record or source, the"
        " default release, 20 thresholds, 5 sites, a look after every round. 'False certificates' is the certificate as"
        " shipped, decided through the ladder of targets; 'one target' bets on the registered target only."
        f" 'Noise ignored' and 'shift ignored' leave a step out, on {CONTROL_TRIALS:,} trials each: they show what"
        " these settings do to a rule that is wrong. Intervals are exact (Clopper-Pearson).",
        f"Made by `python benchmarks/boundary.py` in {seconds:.0f} s for the {trials:,} trials on 2 cores; the study is"
        " `src/fedsrc/studies/boundary.toml`.",
    ])  # fmt: skip


if __name__ == "__main__":
    main()
