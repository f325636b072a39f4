"""Records to a certificate by what a release holds: totals, second moments, or levels of a graded loss.

`python -m research.benchmarks.finer` prints a Markdown table; about two minutes. One site, target 0.2, six thresholds,
all bins alike likely, the mean loss growing towards lower scores by half. Seeds are fixed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.stats import betabinom

from fedsrc.maths.arrays import Ints
from fedsrc.planning.register import Choices, Counted, register_grid
from fedsrc.simulate.population import Support
from fedsrc.simulate.trials import simulate

TARGET, THRESHOLDS, TRIALS = 0.2, 6, 100
BATCHES = {math.inf: (20, 300), 4.0: (100, 100), 1.0: (400, 60)}  # units and rounds, by epsilon
MEANS = (0.05, 0.10, 0.13)  # loss of the best scores
SHARED = (0.5, 2.0, 20.0)  # how alike losses are: mostly all or nothing, spread out, mostly near the mean


def graded(g: int, mean: float, alike: float) -> Support:
    """Records with one answer whose loss is a multiple of 1/g."""
    bins, masses, law = THRESHOLDS + 1, [], []
    for place in range(bins):
        at = mean * (1 + 0.5 * (THRESHOLDS - place) / THRESHOLDS)
        for bad, chance in enumerate(betabinom.pmf(np.arange(g + 1), g, alike * at, alike * (1 - at))):
            masses.append(_unit([(place, bad, g - bad)]))
            law.append(chance / bins)
    return Support(np.stack(masses), np.asarray(law) / np.sum(law))


def sources(answers: int, g: int, mean: float, alike: float) -> Support:
    """Sources of so many answers, supported or not, that share how likely they are unsupported; 2,000 drawn."""
    rng, masses = np.random.default_rng(7), []
    for chance in rng.beta(alike * mean, alike * (1 - mean), 2000):
        share, places = g // answers, rng.integers(0, THRESHOLDS + 1, answers)
        wrong = rng.random(answers) < chance * (1 + 0.5 * (THRESHOLDS - places) / THRESHOLDS)
        masses.append(_unit([(p, share * bool(w), share * (not w)) for p, w in zip(places, wrong, strict=True)]))
    return Support(np.stack(masses), np.full(2000, 1 / 2000))


def _unit(answers: list[tuple[int, int, int]]) -> Ints:
    found = np.zeros((2, THRESHOLDS + 1), dtype=np.int64)
    for place, unsupported, supported in answers:
        found[:, place] += supported, unsupported
    return found


def records(kind: Counted, epsilon: float, choices: dict[str, Any], site: Support) -> str:
    """Mean records to the first certificate, and in how many runs there was one if not in all."""
    batch, rounds = BATCHES[epsilon]
    given = Choices(
        TARGET, epsilon, encoding=kind, grid=True, thresholds=THRESHOLDS, batch=batch, rounds=rounds, **choices
    )
    runs = simulate(register_grid(given, ["a"]), [site], trials=TRIALS, seed=1)
    some = "" if runs.certified.all() else f" ({runs.certified.mean():.0%} certified)"
    return f"{runs.records.mean():,.0f}{some}"


def rows() -> list[str]:
    """One row for each population and epsilon."""
    found = ["| units | mean loss | alike | epsilon | totals | moments | levels |", "| --- " * 7 + "|"]
    for g in (2, 4, 10, 0):  # none: sources
        for mean in MEANS:
            for alike in SHARED:
                name = f"records of {g + 1} levels" if g else "sources of 6 answers"
                choices = {"loss_grid": g} if g else {"unit": "source", "max_answers": 6}
                site = graded(g, mean, alike) if g else sources(6, 60, mean, alike)
                for epsilon in BATCHES:
                    kinds: tuple[Counted, ...] = ("histograms", "moments", "levels") if g else ("histograms", "moments")
                    cells = [records(kind, epsilon, choices, site) for kind in kinds] + ["–"] * (not g)
                    found.append(f"| {name} | {mean:g} | {alike:g} | {epsilon:g} | {' | '.join(cells)} |")
    return found


if __name__ == "__main__":
    print("\n".join(rows()))
