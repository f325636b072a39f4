"""What can be certified from real labels in the honest regime: every source used once, whole sources protected.

Reads the outcomes of `sources_once` and `on_demand`, split by split; `today` puts this first on its page.
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

ON_DEMAND = FIGURES / "on_demand.parquet"
OLD, PAPER = "old default", "paper's rule"
BETS = "per-unit betting"  # on exact counts
HEAD = [
    "detector", "target", "epsilon", "paper's rule", "old default", "default", "acceptance", "held-out risk",
    "splits above target", "labels", "on demand", "acceptance on demand", "above target on demand", "labels on demand",
]  # fmt: skip
ABOUT = """## Each source once, whole sources protected

RAGTruth's test set: 450 sources with six answers each, each used once. In each of {splits} splits a fifth of the
sources plans, three fifths calibrate, and a fifth is held out. The default, as `fedsrc certify` takes it: with
privacy sealed with one look, planned on one noised release of the development sources; without privacy open, with
second moments. One holder has all sources. Epsilon is for replacing a source with all its answers. Certified: percent
of splits. Acceptance counts a split without a certificate as zero; held-out risk is that of all certified splits
together; 'splits above target' are certified splits whose held-out risk is above target. Labels: what was labelled,
development included. 'On demand' is another plan, for few labels: people label only what a round needs
([more](../labels.md)), and it stops at its first certificate. With privacy it is made on another noised release of the
same sources and has up to 15 looks, without privacy it looks after every round. Percent certified, acceptance, splits
above target, mean labels with development. The old default and the paper's rule have thresholds from the exact
development sources, which their epsilon does not protect."""
SITES = "three sites, own noise"
SOURCE = """Made by `python -m research.studies.sources_once FOLDER`
([looks, sites, other methods](../sources-once.md)) and `python -m research.studies.on_demand FOLDER`."""


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
    return [about, _lead(found, keys), _free(found, detectors), _sites(found, detectors), table, SOURCE]


def _lead(found: Cells, keys: list[Key]) -> str:
    mine = {key: found[*key, default_at(key[2])] for key in keys}
    most = {name: sum(found[*key, name].mostly for key in keys) for name in (PAPER, OLD)}
    never = sum(each.certified == 0 for each in mine.values())
    certified, above = sum(each.certified for each in mine.values()), sum(each.above for each in mine.values())
    old = [found[*key, OLD] for key in keys]
    beyond = sum((each.risk or 0.0) > float(key[1]) for key, each in mine.items())
    return (
        f"Of {len(keys)} combinations of detector, target and epsilon, {never} were never certified and"
        f" {sum(each.mostly for each in mine.values())} in most splits; the old default certifies {most[OLD]} in most,"
        f" the paper's rule {most[PAPER]}. Of {certified:,} certificates, {above} have a held-out risk above target, on"
        f" 90 held-out sources each; pooled over splits, {beyond} combinations have. Of the old default's"
        f" {sum(each.certified for each in old):,} certificates {sum(each.above for each in old)} have."
    )


def _free(found: Cells, detectors: list[str]) -> str:
    """Return what the default pays without privacy for being open to any look."""
    free, most = EPSILONS[:2]
    places = [(detector, target) for detector in detectors for target in TARGETS]
    mine, private, sealed = (
        [found[*place, epsilon, method] for place in places]
        for epsilon, method in ((free, OPEN), (most, PROTECTED), (free, ONE_LOOK))
    )
    behind = (
        sum(one.certified < other.certified for one, other in zip(mine, others, strict=True))
        for others in (private, sealed)
    )
    less = sum(one.acceptance < other.acceptance for one, other in zip(mine, private, strict=True))
    old, bets = ([found[*place, free, name] for place in places] for name in (OLD, BETS))
    worse = [(one, other) for one, other in zip(mine, old, strict=True) if one.acceptance < other.acceptance]
    widest = max(worse, key=lambda pair: pair[1].acceptance - pair[0].acceptance)
    often = sum(one.certified < other.certified for one, other in zip(mine, bets, strict=True))
    more = sum(one.acceptance < other.acceptance for one, other in zip(mine, bets, strict=True))
    return (
        f"Without privacy the default is open: it holds at any look, and pays for that. It certifies less often than at"
        f" epsilon {words(most)} in {next(behind)} of {len(places)} combinations of detector and target, and accepts"
        f" less in {less}; a sealed certificate with one look and no noise, planned on the same sources, certifies more"
        f" often in {next(behind)}. The old default, open too, accepts more in {len(worse)}"
        f" ({widest[1].acceptance:.2f} beside {widest[0].acceptance:.2f} where it is furthest ahead); bets on the exact"
        f" counts of one source after the other, which show no floor of acceptance, certify more often in {often} and"
        f" accept more in {more}."
    )


def _sites(found: Cells, detectors: list[str]) -> str:
    """Return what it costs if three sites add their own noise, both planned on exact development sources."""
    pairs = {
        (name, epsilon): (found[name, "0.2", epsilon, ONE_LOOK], found[name, "0.2", epsilon, SITES])
        for name in detectors
        for epsilon in EPSILONS[1:]
    }
    gaps = [three.certified - one.certified for one, three in pairs.values()]
    less = sum(gap < 0 for gap in gaps)
    each = (
        f"{one.percent} and {three.percent}% at epsilon {words(epsilon)}"
        for (name, epsilon), (one, three) in pairs.items()
        if name == detectors[0]
    )
    return (
        f"Three sites that each add their own noise certify less often than one holder in {less} of {len(gaps)}"
        f" combinations of detector and epsilon at target 0.2, more often in {sum(gap > 0 for gap in gaps)}, both"
        f" planned on development sources that are not protected: with {detectors[0]}, {', '.join(each)}."
    )


def _row(found: Cells, labels: pl.DataFrame, detector: str, target: str, epsilon: float) -> list[str]:
    mine = found[detector, target, epsilon, default_at(epsilon)]
    others = [found[detector, target, epsilon, name].percent for name in (PAPER, OLD)]
    above = f"{mine.above}/{mine.certified}" if mine.certified else "–"
    return [detector, target, words(epsilon), *others, *mine.words, above, *_labels(labels, detector, target, epsilon)]


def _labels(labels: pl.DataFrame, detector: str, target: str, epsilon: float) -> list[str]:
    """Return the labels of the default, and what labels on demand come to; development included."""
    here = (pl.col("detector") == detector) & (pl.col("target") == target) & (pl.col("epsilon") == epsilon)
    runs = labels.filter(here)
    taken, every = (float(each.to_numpy().mean()) for each in (runs["labels"] + runs["development"], runs["every"]))
    mine = cell(runs, float(target))
    above = f"{mine.above}/{mine.certified}" if mine.certified else "–"
    return [f"{every:,.0f}", mine.percent, mine.words[1], above, f"{taken:,.0f}"]


def parts() -> list[str]:
    """Return the section from the published records."""
    return section(pl.read_parquet(RECORDS), pl.read_parquet(ON_DEMAND))
