"""What choices cost, by forecast: records to a certificate against epsilon, target, release size, score, thresholds.

Writes docs/results/forecast.md and its figures. Run: python -m research.benchmarks.forecasts  (needs the plots extra)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from scipy.special import ndtr, ndtri

from fedsrc.planning.forecast import HORIZON, TRIALS, Forecast, forecast
from fedsrc.planning.register import Choices, development_part, register
from fedsrc.records.units import Records, units_of
from fedsrc.simulate.population import Support, uniform
from research.pages import RESULTS, markdown, publish, records_of, words

DRAWS, UNSUPPORTED, AUC, SITES, MOST = 20_000, 0.4, 0.85, 5, 60_000
EPSILONS, TARGETS = (math.inf, 8.0, 4.0, 2.0, 1.0, 0.5), (0.30, 0.20, 0.15, 0.10)
BATCHES, AUCS, THRESHOLDS = (25, 50, 100, 200, 500, 1000), (0.70, 0.75, 0.80, 0.85, 0.90, 0.95), (5, 20, 100)
MARKS = "osD^v<>"


@dataclass(frozen=True)
class Case:
    """One choice of everything that is varied on this page."""

    epsilon: float = 4.0
    target: float = 0.2
    batch: int = 200
    auc: float = AUC
    thresholds: int = 20

    def costs(self) -> Forecast:
        table = population(self.auc)
        names = [f"site {i + 1}" for i in range(SITES)]
        choices = Choices(
            target_risk=self.target, epsilon=self.epsilon, batch=self.batch, thresholds=self.thresholds,
            rounds=max(1, MOST // (HORIZON * self.batch * SITES)), weights=dict.fromkeys(names, 1 / SITES),
            public_development=True, adjacency="replacement",
        )  # fmt: skip
        registration = register(choices, table, development_part(table, "record", 1), sites=names)
        law: list[Support] = uniform(registration, [units_of(table, "all", "record")])
        return forecast(registration, law * SITES, self.target, self.epsilon)


def population(auc: float) -> Records:
    """Scores Phi(Z + sqrt(2) Phi^-1(auc) (1 - loss)), which rank supported answers with that AUC."""
    rng = np.random.default_rng(0)
    loss = (np.arange(DRAWS) < UNSUPPORTED * DRAWS).astype(float)
    score = ndtr(rng.standard_normal(DRAWS) + np.sqrt(2.0) * ndtri(auc) * (1.0 - loss))
    return records_of(score, loss, np.zeros(DRAWS, np.int64), ["all"])


def grid(rows: Sequence[Case], columns: Sequence[Case], vary: str) -> list[list[Forecast]]:
    """A forecast for every row, with the named choice taken from each column."""
    return [[replace(row, **{vary: getattr(column, vary)}).costs() for column in columns] for row in rows]


def cell(found: Forecast) -> str:
    if math.isinf(found.limit):
        return "out of reach"
    return f"more than {found.horizon:,}" if found.records is None else f"{found.records:,}"


def figure(file: str, title: str, xlabel: str, places: Sequence[str], lines: dict[str, list[Forecast]]) -> str:
    """An SVG of records against the places of the x axis, and the Markdown that shows it."""
    mpl.rcParams.update({"svg.hashsalt": "fedsrc", "svg.fonttype": "none", "font.size": 9})
    drawing = Figure(figsize=(7.2, 3.8), layout="constrained")
    axes = drawing.add_subplot()
    for (label, found), mark in zip(lines.items(), MARKS, strict=False):
        axes.plot(range(len(places)), [each.records or math.nan for each in found], marker=mark, label=label)
    axes.set(xlabel=xlabel, ylabel="records to a certificate, median", yscale="log")
    axes.set_xticks(range(len(places)), places)
    axes.set_title(title, fontsize=10)
    axes.grid(visible=True, color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    drawing.savefig(RESULTS / file, format="svg", metadata={"Date": None, "Title": title, "Creator": "fedsrc"})
    return f"![{title}]({file})"


def main() -> None:
    base = Case()
    aims = [replace(base, target=r) for r in TARGETS]
    noises = [replace(base, epsilon=e) for e in (math.inf, 4.0, 1.0)]
    by_epsilon = grid(aims, [replace(base, epsilon=e) for e in EPSILONS], "epsilon")
    by_batch = grid(noises, [replace(base, batch=n) for n in BATCHES], "batch")
    by_auc = grid(aims, [replace(base, auc=a) for a in AUCS], "auc")
    by_count = grid(noises, [replace(base, thresholds=m) for m in THRESHOLDS], "thresholds")
    targets, levels = [f"target {r:.2f}" for r in TARGETS], [f"epsilon {words(c.epsilon)}" for c in noises]
    limits = ", ".join(f"{row[0].limit:,.0f} at {label}" for label, row in zip(targets, by_epsilon, strict=True))
    publish("forecast.md", [
        "# What choices cost, by forecast",
        intro(base),
        "## Epsilon and target",
        figure("forecast-epsilon.svg", "Records against epsilon", "epsilon (smaller is more private)",
               [words(e) for e in EPSILONS], dict(zip(targets, by_epsilon, strict=True))),
        table("epsilon", [words(e) for e in EPSILONS], targets, by_epsilon),
        f"The fewest records that any method needs on average, without privacy and told the best threshold: {limits}.",
        "## Records in a release",
        "A release carries its own noise, whatever its size. Without privacy small batches only stop sooner; with it, "
        "they cost.",
        figure("forecast-batch.svg", "Records against the size of a release", "records in a release (5 sites a round)",
               [f"{n:,}" for n in BATCHES], dict(zip(levels, by_batch, strict=True))),
        table("records in a release", [f"{n:,}" for n in BATCHES], levels, by_batch),
        "## The score",
        figure("forecast-score.svg", "Records against how well the score ranks", "AUC of the score, epsilon 4",
               [f"{a:.2f}" for a in AUCS], dict(zip(targets, by_auc, strict=True))),
        table("AUC", [f"{a:.2f}" for a in AUCS], targets, by_auc),
        "## The number of thresholds",
        table("thresholds", [str(m) for m in THRESHOLDS], levels, by_count),
    ])  # fmt: skip


def intro(base: Case) -> str:
    return f"""Made by

    python -m research.benchmarks.forecasts

Each figure is the median of {TRIALS} simulated runs of `fedsrc forecast`, up to {MOST:,} records, on a made-up
population: {UNSUPPORTED:.0%} of the answers are unsupported, and scores are normal with an AUC of {AUC}. Five equal
sites with declared weights. Unless said otherwise: target {base.target}, epsilon {base.epsilon:g}, {base.batch} records
in a release (one release a site and round), {base.thresholds} quantile thresholds, acceptance of at least 0.05. Records
come in steps of a round, so nothing is certified before the first. Epsilon is for replacement, as `--epsilon` is. The
certificates are open ones without a plan, whose shapes are easiest to read; [planned ones](label-cost.md) take fewer
records. Forecast on your own development records instead: the shapes carry over, the numbers do not."""


def table(what: str, places: Sequence[str], columns: Sequence[str], found: list[list[Forecast]]) -> str:
    return markdown([what, *columns], [[place, *(cell(row[i]) for row in found)] for i, place in enumerate(places)])


if __name__ == "__main__":
    main()
