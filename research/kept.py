"""Pages of benchmarks that follow from what every trial gave: `python -m research.kept` names those that do not."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import polars as pl

from research import counted, forecast_coverage, membership_page, monitor_stories
from research.benchmarks import (
    boundary,
    cohort_voids,
    demo,
    development_cost,
    finer,
    gate,
    lazy_labels,
    monitor,
    population_l,
    ragtruth,
    scores_once,
    sealed_validity,
    speed,
)
from research.pages import RESULTS
from research.studies import cohort_records, exact_tests, label_cost, labels_needed, panel_scores, panels


class Kept(NamedTuple):
    """A page's records, how it is made from them, which columns name a row, and where what they say begins and ends."""

    records: Path
    made: Callable[[pl.DataFrame], list[str]]
    keys: tuple[str, ...]
    trials: int | None = None
    since: str = ""
    until: str = ""

    def frame(self) -> pl.DataFrame:
        """Read the records; in comma-separated ones an epsilon is a word."""
        if self.records.suffix == ".gz":
            return pl.read_csv(self.records, schema_overrides={"epsilon": pl.String})
        return pl.read_parquet(self.records)

    def text(self) -> str:
        """Return the page, or its part, as the records have it."""
        return "\n\n".join(self.made(self.frame())) + "\n"

    def published(self, name: str) -> str:
        """Return what is published of it; a name may go on after the page's, where a page has records of two kinds."""
        text = (RESULTS / name.partition(",")[0]).read_text(encoding="utf-8")
        return text[text.index(self.since) : text.index(self.until) if self.until else None]


PAGES = {
    "population-l.md": Kept(
        population_l.RECORDS, population_l.page, ("draw", "target", "epsilon", "batch", "preset", "trial"), 7_600
    ),
    "label-cost.md": Kept(
        label_cost.RECORDS,
        label_cost.page,
        ("certificate", "adjacency", "epsilon", "releases", "draw", "trial"),
        40_000,
    ),
    "cohorts.md": Kept(cohort_records.RECORDS, cohort_records.page, (*cohort_records.SETTING, "draw", "records")),
    "finer.md": Kept(finer.RECORDS, finer.page, ("grades", "mean", "alike", "epsilon", "encoding", "trial"), 29_700),
    "forecast-coverage.md": Kept(forecast_coverage.RECORDS, forecast_coverage.page, ("table", "split"), 3_200),
    "exact-tests.md": Kept(exact_tests.RECORDS, exact_tests.page, ("population", "test", "records"), 6_050),
    "development.md": Kept(development_cost.RECORDS, development_cost.page, development_cost.KEYS, 9_608),
    "sealed-validity.md": Kept(sealed_validity.RECORDS, sealed_validity.page, counted.KEYS, 32),
    "lazy-labels.md": Kept(lazy_labels.RECORDS, lazy_labels.page, counted.KEYS, 73),
    "cohort-voids.md": Kept(cohort_voids.RECORDS, cohort_voids.page, counted.KEYS, 50),
    "ragtruth.md": Kept(
        ragtruth.RECORDS, ragtruth.page, ("draw", "preset", "target", "epsilon", "batch", "policy", "seed"), 2_320
    ),
    "monitor.md": Kept(
        monitor.RECORDS,
        monitor.page,
        ("table", "setting", "epsilon", "after", "run"),
        129_000,
        until=f"\n{monitor_stories.TITLE}\n",
    ),
    "monitor.md, last table": Kept(
        monitor_stories.RECORDS,
        monitor_stories.page,
        ("certified_on", "deployed_on", "target", "epsilon", "run"),
        1_200,
        since=f"{monitor_stories.TITLE}\n",
    ),
    "membership.md": Kept(
        membership_page.RECORDS, membership_page.page, ("preset", "epsilon", "noise", "member", "evidence")
    ),
    "scores.md, last section": Kept(
        scores_once.RECORDS,
        scores_once.page,
        ("score", "target", "epsilon", "method", "split"),
        3_600,
        since=f"{scores_once.TITLE}\n",
    ),
    "boundary.md": Kept(
        boundary.RECORDS, boundary.page, (*boundary.PLACE, "trial"), 41_000, until="\nMade by"
    ),  # beside the study's own table, which tests/research/test_results.py holds to its trials
    "labels.md": Kept(labels_needed.RECORDS, labels_needed.page, ("log", "way", "epsilon", "trial"), 15_500),
    "panels.md": Kept(panels.OUTCOMES, panels.page, ("setting", "epsilon", "method", "split", "group"), 26_400),
    "panel-scores.md": Kept(
        panel_scores.OUTCOMES, panel_scores.page, ("table", "share", "epsilon", "way", "split"), 5_550
    ),
    "demo.md": Kept(demo.RECORDS, demo.page, ("run",), demo.RUNS),
    "speed.md": Kept(speed.KEPT, speed.page, ("table", "what", "thresholds", "repetition")),
    "gate.md": Kept(gate.KEPT, gate.page, ("table", "what", "clients", "rate", "microseconds", "wrong")),
}


if __name__ == "__main__":
    changed = [name for name, each in PAGES.items() if each.text() != each.published(name)]
    sys.exit(f"these pages do not follow from their records: {', '.join(changed)}" if changed else 0)
