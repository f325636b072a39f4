"""Betting certificates at the boundary: 100,000 trials, beside what may fail and rules that do.

Writes docs/results/boundary.md, and every trial of the rules that leave a step out to
research/results/boundary_controls.parquet. Run: python -m research.benchmarks.boundary [FOLDER]
(FOLDER keeps the per-trial records, and a stopped run goes on from them). The other trials are those of the study that
`python -m research boundary` publishes.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
from itertools import product
from pathlib import Path

import polars as pl

from fedsrc.audit.engine import Progress, run_study
from fedsrc.audit.study import Boundary, Study
from fedsrc.audit.study_folder import read_trials
from fedsrc.audit.summary import summarise
from fedsrc.maths.binomial import clopper_pearson
from research.pages import FIGURES, markdown, publish
from research.studies.catalogue import path_of

RECORDS = FIGURES / "boundary_controls.parquet"
TABLE = FIGURES / "studies" / "boundary.csv"  # of the study itself, without controls
PLACE = ("release", "population", "case", "epsilon", "method")
STUDY = path_of("boundary")
CONTROLS = ("betting-noise-ignored", "betting-shift-ignored")
PAPERS = ("fed-src-c-noise-ignored", "fed-src-va-noise-ignored")  # on the paper's release
NOT_CHARGED = "withheld"  # the paper's release has no budget to charge withheld releases with
UNCHARGED = """
[[cases]]
population = "withheld"
case = "uncharged"
withheld = 0.2
charged = false
weights = "as calibrated"
"""
CONTROL_TRIALS, RISK_BUDGET = 500, 0.045
HEAD = [
    "setting", "epsilon", "false certificates", "95% interval", "one target", f"noise ignored, of {CONTROL_TRIALS}",
    f"shift ignored, of {CONTROL_TRIALS}", f"uncharged, of {CONTROL_TRIALS}",
    f"paper's Fed-SRC-C, noise ignored, of {CONTROL_TRIALS}", f"paper's Fed-SRC-VA, noise ignored, of {CONTROL_TRIALS}",
]  # fmt: skip


def controls_text() -> str:
    """The same study with rules that leave a step out, on fewer trials."""
    return with_methods(*CONTROLS, "betting-ladder") + UNCHARGED


def papers_text() -> str:
    """The same, with the paper's release and its own rules without their noise term; nothing is withheld."""
    text = with_methods(*PAPERS).replace('release = "default"', 'release = "paper"')
    return "\n\n".join(part for part in text.split("\n\n") if f'"{NOT_CHARGED}"' not in part)


def with_methods(*wanted: str) -> str:
    """The study with other methods, on fewer trials."""
    text = STUDY.read_text(encoding="utf-8")
    study = Study.from_toml(text)
    named, others = (", ".join(f'"{name}"' for name in names) for names in (study.methods, wanted))
    return text.replace(named, others).replace(f"trials = {study.trials}", f"trials = {CONTROL_TRIALS}")


def ran(path: Path, folder: Path) -> Path:
    """Run a study, and return the folder of its trials."""

    def tell(seen: Progress) -> None:
        print(f"\r{path.stem}: {seen.done} of {seen.of} blocks", end="", file=sys.stderr, flush=True)

    run_study(path, folder, progress=tell)
    print(file=sys.stderr)
    return folder


def trials_of(folder: Path) -> pl.DataFrame:
    """Whether every trial of a study ended in a certificate, and whether it was a false one."""
    study, frame = read_trials(folder)
    facts = [(i, each.release, each.population, each.case, each.epsilon) for i, each in enumerate(study.settings)]
    kinds = {"setting": pl.Int32, **dict.fromkeys(PLACE[:3], pl.String), "epsilon": pl.Float64}
    named = pl.DataFrame(facts, schema=kinds, orient="row")
    joined = frame.with_columns(pl.col("setting").cast(pl.Int32)).join(named, on="setting", maintain_order="left")
    return joined.select(*PLACE, pl.col("trial").cast(pl.Int32), "fired", "at_boundary")


def counted(trials: pl.DataFrame, release: str) -> pl.DataFrame:
    """Certificates and false ones, of each setting and method under a release."""
    mine = trials.filter(pl.col("release") == release).group_by(*PLACE, maintain_order=True)
    return mine.agg(pl.col("fired").sum(), pl.col("at_boundary").sum().alias("boundary_certificates"), trials=pl.len())


def counts(table: pl.DataFrame, name: str, epsilon: float, method: str, case: str = "") -> tuple[int, int]:
    here = (pl.col("population") == name) & (pl.col("method") == method) & (pl.col("epsilon") == epsilon)
    if "case" in table.columns:
        here &= pl.col("case") == case
    row = table.filter(here).row(0, named=True)
    assert row["boundary_certificates"] == row["fired"]  # every certificate here is false
    return row["fired"], row["trials"]


def share(found: tuple[int, int]) -> list[str]:
    low, high = clopper_pearson(*found)
    return [f"{found[0]:,} of {found[1]:,}", f"[{low:.5f}, {high:.5f}]"]


def paper_says(false: dict[tuple[float, str], int], trials: int) -> str:
    """The paper's ablation at the boundary, where its noise term can be seen to matter."""
    at = {
        epsilon: " and ".join(f"{false[epsilon, name]:,}" for name in PAPERS)
        for epsilon in sorted({e for e, _ in false})
    }
    said = "; ".join(f"{each} at epsilon {epsilon:g}" for epsilon, each in at.items())
    return (
        "The paper's rules Fed-SRC-C and Fed-SRC-VA on the paper's release, without their noise term, issued this many"
        f" false certificates in {trials:,} trials: {said}. The paper's own ablation (it does not name its epsilon)"
        " counts few or none, and its caption says that this does not show that a step is unnecessary: these counts"
        " agree with it."
    )


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def page(controls: pl.DataFrame, table: pl.DataFrame | None = None) -> list[str]:
    """Return the page that the trials of controls make beside the study's table; without it, the published one."""
    study, table = Study.read(STUDY), pl.read_csv(TABLE) if table is None else table
    broken, papers = counted(controls, "default"), counted(controls, "paper")
    cases = [each for each in study.populations if isinstance(each, Boundary)]
    rows, total, worst = [], dict.fromkeys(("betting-ladder", "betting"), 0), 0.0
    false = {(epsilon, name): 0 for epsilon in study.sweep["epsilon"] for name in PAPERS}
    for case, epsilon in product(cases, study.sweep["epsilon"]):
        found = {name: counts(table, case.name, epsilon, name) for name in total}
        for name, (fired, _) in found.items():
            total[name] += fired
        worst = max(worst, found["betting-ladder"][0] / study.trials)
        silent = (
            counts(broken, case.name, epsilon, "betting-ladder", "uncharged")[0] if case.name == "withheld" else None
        )
        ours = {} if case.name == NOT_CHARGED else {n: counts(papers, case.name, epsilon, n)[0] for n in PAPERS}
        for name, fired in ours.items():
            false[epsilon, name] += fired
        rows.append([
            f"{case.name}: {case.about}", f"{epsilon:g}", *share(found["betting-ladder"]), f"{found['betting'][0]:,}",
            *(f"{counts(broken, case.name, epsilon, name)[0]:,}" for name in CONTROLS),
            "" if silent is None else f"{silent:,}", *(f"{ours[name]:,}" if ours else "" for name in PAPERS),
        ])  # fmt: skip
    trials = study.trials * len(rows)
    rows.append(["all", "", *share((total["betting-ladder"], trials)), f"{total['betting']:,}", *[""] * 5])
    return [
        "# False certificates at the boundary",
        f"In {trials:,} trials the risk of every threshold equalled the target: had it been the least bit higher, every"
        f" certificate would have been false. Here they may be issued with probability {RISK_BUDGET} at most. There"
        f" were {total['betting-ladder']:,}; in the worst setting in {worst:.2%} of the trials. The last columns are"
        " rules with a step left out: they show what the settings do to a rule that is wrong.",
        paper_says(false, CONTROL_TRIALS * (len(cases) - 1)),
        markdown(HEAD, rows),
        f"Target {study.settings[0].target_risk}, the old default (open, without a plan) on its release, 20 thresholds,"
        " 5 sites, a look after each round."
        " 'False certificates' is the certificate decided through the ladder of targets, as in a run; its acceptance"
        " budget holds what a run keeps for refusals, and no release is refused. 'One target' bets on the registered"
        " target only. 'Uncharged' leaves the charge for withheld releases out, of the mixture as calibrated (a"
        " declared mixture would pay eta for the missing releases). The paper's rules read the paper's release, which"
        " has no charge for withheld releases. Intervals are exact (Clopper-Pearson). Planned certificates, sealed"
        " ones, have [a page of their own](sealed-validity.md).",
    ]  # fmt: skip


def controls_in(folder: Path) -> pl.DataFrame:
    """Run the rules that leave a step out, and return their trials."""
    texts = {"controls": controls_text(), "papers": papers_text()}
    return pl.concat(
        trials_of(ran(written(folder / f"{name}.toml", text), folder / name)) for name, text in texts.items()
    )


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp())
    study, tables = summarise(ran(STUDY, folder / "boundary"), STUDY.parent)
    seconds = json.loads((folder / "boundary" / "manifest.json").read_text(encoding="utf-8"))["cost"]["wall_seconds"]
    controls = controls_in(folder)
    controls.write_parquet(RECORDS, compression="zstd", compression_level=19)
    trials = study.trials * len(study.settings)
    publish("boundary.md", [
        *page(controls, tables.methods),
        f"Made by `python -m research.benchmarks.boundary` in {seconds:.0f} s for the {trials:,} trials, on"
        f" {os.cpu_count()} cores ({platform.machine()}); the study is `research/studies/boundary.toml`.",
    ])  # fmt: skip


if __name__ == "__main__":
    main()
