"""What can be certified from real labels in the honest regime: every source used once, whole sources protected.

Reads the outcomes of `sources_once` and `labels_needed`, split by split; `today` puts this first on its page.
"""

from __future__ import annotations

import math

import polars as pl

from research.pages import FIGURES, markdown, words
from research.studies.sources_once import (
    EPSILONS,
    ONE_LOOK,
    OPEN,
    PROTECTED,
    RECORDS,
    TARGETS,
    Cell,
    cell,
    shown_detectors,
)

LABELS = FIGURES / "labels.parquet"
OLD, PAPER = "old default", "paper's rule"
HEAD = [
    "detector", "target", "epsilon", "paper's rule", "old default", "default", "acceptance", "held-out risk",
    "splits above target", "labels", "on demand", "labels on demand",
]  # fmt: skip
ABOUT = """## Each source once, whole sources protected

RAGTruth's test set: 450 sources with six answers each, each used once. In each of {splits} splits a fifth of the
sources plans, three fifths calibrate, and a fifth is held out. The default, as `fedsrc certify` takes it: with
privacy sealed with one look, planned on one noised release of the development sources; without privacy open, with
second moments. One holder has all sources. Epsilon is for replacing a source with all its answers. Certified: percent
of splits. Acceptance counts a split without a certificate as zero; held-out risk is that of all certified splits
together; 'splits above target' are certified splits whose held-out risk is above target. Labels: what was labelled,
development included; 'on demand' is the run in which people label only what a round needs ([labels](../labels.md)),
percent certified and mean labels with development, where it was run. It is planned on the labels of its development
sources, which are not protected there, so that it may certify more often than the default beside it."""
SITES = "three sites, own noise"
SOURCE = """Made by `python -m research.studies.sources_once FOLDER`
([looks, sites, other methods](../sources-once.md)) and `python -m research.studies.labels_needed FOLDER TABLES`."""


Key = tuple[str, str, float]
Cells = dict[tuple[object, ...], Cell]


def default_at(epsilon: float) -> str:
    """Return the method that `fedsrc certify` takes by default."""
    return OPEN if math.isinf(epsilon) else PROTECTED


def section(frame: pl.DataFrame, labels: pl.DataFrame) -> list[str]:
    """Return the parts of the section: what does not work first, then the table."""
    found: Cells = {
        (detector, target, epsilon, method): cell(part, float(target))
        for (detector, target, epsilon, method), part in frame.group_by(
            ["detector", "target", "epsilon", "method"], maintain_order=True
        )
    }
    detectors = shown_detectors(frame)
    keys = [(name, target, epsilon) for name in detectors for target in TARGETS for epsilon in EPSILONS]
    table = markdown(HEAD, [_row(found, labels, *key) for key in keys])
    about = ABOUT.format(splits=frame["split"].n_unique())
    return [about, _lead(found, keys), _sites(found, detectors[0]), table, SOURCE]


def _lead(found: Cells, keys: list[Key]) -> str:
    mine = {key: found[*key, default_at(key[2])] for key in keys}
    most = {name: sum(found[*key, name].mostly for key in keys) for name in (PAPER, OLD)}
    never = sum(each.certified == 0 for each in mine.values())
    certified, above = sum(each.certified for each in mine.values()), sum(each.above for each in mine.values())
    beyond = sum((each.risk or 0.0) > float(key[1]) for key, each in mine.items())
    return (
        f"Of {len(keys)} combinations of detector, target and epsilon, {never} were never certified and"
        f" {sum(each.mostly for each in mine.values())} in most splits; the old default certifies {most[OLD]} in most,"
        f" the paper's rule {most[PAPER]}. Of {certified:,} certificates, {above} have a held-out risk above target, on"
        f" 90 held-out sources each; pooled over splits, {beyond} combinations have."
    )


def _sites(found: Cells, detector: str) -> str:
    """Return what it costs if three sites add their own noise, both planned on exact development sources."""
    each = (
        f"{found[detector, '0.2', epsilon, ONE_LOOK].percent} and {found[detector, '0.2', epsilon, SITES].percent}% at"
        f" epsilon {words(epsilon)}"
        for epsilon in EPSILONS[1:]
    )
    return (
        f"Three sites that each add their own noise certify less often than one holder: with {detector} at target 0.2,"
        f" both planned on development sources that are not protected, {', '.join(each)}."
    )


def _row(found: Cells, labels: pl.DataFrame, detector: str, target: str, epsilon: float) -> list[str]:
    mine = found[detector, target, epsilon, default_at(epsilon)]
    others = [found[detector, target, epsilon, name].percent for name in (PAPER, OLD)]
    above = f"{mine.above}/{mine.certified}" if mine.certified else "–"
    return [detector, target, words(epsilon), *others, *mine.words, above, *_labels(labels, detector, target, epsilon)]


def _labels(labels: pl.DataFrame, detector: str, target: str, epsilon: float) -> list[str]:
    """Labels of the default, and certified and labels on demand, where that was run; development included."""
    here = (pl.col("log") == f"RAGTruth test, {detector}") & (pl.col("target") == target)
    runs = labels.filter(here & (pl.col("epsilon") == epsilon))
    every, lazy = (runs.filter(pl.col("way") == way) for way in ("default", "on demand"))
    if runs.is_empty():  # the default labels the same answers at every target
        return [
            _counted(labels.filter(pl.col("log").str.starts_with("RAGTruth test") & (pl.col("way") == "default"))),
            *"––",
        ]
    return [_counted(every), f"{100 * lazy['certified'].to_numpy().mean():.0f}", _counted(lazy)]


def _counted(runs: pl.DataFrame) -> str:
    return f"{float((runs['labels'] + runs['development']).to_numpy().mean()):,.0f}"


def parts() -> list[str]:
    """Return the section from the published records."""
    return section(pl.read_parquet(RECORDS), pl.read_parquet(LABELS))
