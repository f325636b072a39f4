"""What the registered audit finds, from its trials: the end of docs/results/audit.md, and a sentence of its head."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import fill
from typing import Any

import polars as pl

from fedsrc.audit.study import Study
from research.pages import FIGURES, markdown, words
from research.studies.catalogue import path_of

STUDY = path_of("registered")
TARGETS, ONE_TARGET = "target_risk = [0.10, 0.20]", "target_risk = [0.20]"
RECORDS, TABLE = FIGURES / "studies" / "registered.parquet", FIGURES / "studies" / "registered.csv"
KEPT = ("setting", "method", "trial", "fired", "missed", "records")
CELL_HEADER = ("cell", "what it is", "calibration records", "least risk of a threshold with enough acceptance")
TOTAL_HEADER = ("method", "trials", "violated", "fired", "false certificates")


@dataclass(frozen=True)
class Engine:
    """A study run by the engine: its per-trial records, its table, and the seconds that each took."""

    study: Study
    records: pl.DataFrame
    table: pl.DataFrame
    trials_s: float
    table_s: float
    peak_bytes: int

    @property
    def trials(self) -> int:
        return len(self.study.settings) * self.study.trials

    @property
    def rate(self) -> float:
        return self.trials / self.trials_s


def recorded() -> Engine:
    """The published study at the page's target. Its settings are counted as where there is no other target."""
    text = STUDY.read_text(encoding="utf-8")
    both, one = Study.from_toml(text), Study.from_toml(text.replace(TARGETS, ONE_TARGET))
    places = {i: one.settings.index(each) for i, each in enumerate(both.settings) if each in one.settings}
    trials = pl.read_parquet(RECORDS, columns=list(KEPT)).sort("setting", "method", "trial")
    here, count = pl.col("setting").is_in(list(places)), pl.col("setting").replace_strict(places)
    tables = [each.filter(here).with_columns(count) for each in (trials, pl.read_csv(TABLE))]
    return Engine(one, tables[0], tables[1], trials_s=0, table_s=0, peak_bytes=0)


def findings(made: Engine) -> list[str]:
    """Return that half of the page."""
    methods = [cell for name in made.study.methods for cell in (f"{name}: violations", "fired")]
    return [
        results_head(made),
        markdown(CELL_HEADER, cell_rows(made)),
        results_reading(made),
        markdown(TOTAL_HEADER, total_rows(made)),
        markdown(["cell", "epsilon", "policy", *methods], result_rows(made)),
    ]


def cell_rows(made: Engine) -> Iterator[list[str]]:
    first = made.table.unique("population", keep="first", maintain_order=True)
    for row in first.iter_rows(named=True):
        about = made.study.by_name[row["population"]].about
        yield [label(row), about, f"{row['units']:,}", f"{row['oracle_floor']:.3f}"]


def label(row: dict[str, Any]) -> str:
    """The cell's name; those of surrogates say so themselves."""
    return row["population"] if row["surrogate"] else f"{row['population']} (real)"


def result_rows(made: Engine) -> Iterator[list[str]]:
    """One line per setting: every method's violations with their interval, and how often it fired."""
    for (_,), part in made.table.group_by(["setting"], maintain_order=True):
        methods = list(part.iter_rows(named=True))
        first = methods[0]
        cells = [cell for row in methods for cell in (violations(row), str(row["fired"]))]
        yield [label(first), words(first["epsilon"]), first["policy"], *cells]


def violations(row: dict[str, Any]) -> str:
    return f"{row['violations']} [{row['violations_low']:.3f}, {row['violations_high']:.3f}]"


def total_rows(made: Engine) -> Iterator[list[str]]:
    """Policy `first` alone: the other policies look at the same trials."""
    for name in made.study.methods:
        part = made.table.filter((pl.col("method") == name) & (pl.col("policy") == "first"))
        yield [name, *(f"{int(part[column].sum()):,}" for column in ("trials", "violations", "fired", "failures"))]


def same_trials(made: Engine) -> bool:
    """Whether recruitment ends every trial as `first` does: after as many records, fired or not, missed or not."""
    parts = []
    for policy in ("first", "recruit"):
        here = [index for index, setting in enumerate(made.study.settings) if setting.policy == policy]
        parts.append(made.records.filter(pl.col("setting").is_in(here)).drop("setting"))
    return parts[0].equals(parts[1])


def filled(text: str) -> str:
    """A paragraph in lines of equal length."""
    return fill(" ".join(text.split()), 118, break_long_words=False, break_on_hyphens=False)


def finding(made: Engine) -> str:
    worst, failures = float(made.table["violations_high"].to_numpy().max()), int(made.table["failures"].sum())
    return f"""\
        Bounds may be violated in at most 0.05 of the trials: no method has an exact 95% upper limit above {worst:.3f}
        in any setting. False certificates: {failures:,}."""


def results_head(made: Engine) -> str:
    text = f"""\
        A violation is a trial in which any bound, at any look and threshold, misses the enumerated truth, fired or not.
        The bracket is the exact 95% interval of its probability. Failure probability 0.05, acceptance at least 0.05,
        {made.study.trials} trials per line; *fired* counts trials too. An epsilon of `none` means no noise. Settings
        share the study's random numbers (privacy levels their draws, cells with as many thresholds their noise), so
        lines are not independent of one another."""
    policies = """\
        `final` and `first` are the same trials, looked at once or after every round. Recruitment asks one site a round
        and is matched to them on records and bytes. """
    if same_trials(made):
        policies += """\
            With equal weights it asks the sites in turn and meets the same draws and the same noise, so each of its
            trials ended as under `first`: the three lines of a cell and an epsilon are one set of trials, not three."""
    return f"## What it finds, at target risk 0.20\n\n{filled(text)}\n\n{filled(policies)}"


def results_reading(made: Engine) -> str:
    part = made.table.filter((pl.col("oracle_floor") > 0.2) & (pl.col("policy") == "first"))
    names, fired = ", ".join(sorted(set(part["population"]))), int(part["fired"].sum())
    return filled(f"""\
        Where no threshold with enough acceptance has a risk of 0.20 or less ({names or "nowhere"}), abstaining is
        right: such a cell says whether bounds hold, not whether they are sharp. Certificates there: {fired:,}.
        All cells and privacy levels together, policy `first`:""")
