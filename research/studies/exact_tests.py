"""Without privacy: records at 80% power, planned certificates beside exact Learn-then-Test.

Run: python -m research.studies.exact_tests [DATA_FOLDER]; the folder has ragtruth/detector_scores.csv.gz

Population L (ten draws) and, with a folder, each detector with one answer per source. A fifth (of population L: 125)
plans; the rest is the law from which units are drawn with replacement. The open certificate may be looked at after
every round and shows every target; the sealed one and the exact tests see a number of records that is fixed
beforehand, at one target. The sealed one tests few thresholds of its plan by exact counts, and passes weights on.
Bonferroni: any of the same 20 thresholds at 0.05 / 20. Fixed sequence: the plan's heaviest threshold at 0.05.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedsrc.audit.methods import ltt
from fedsrc.maths.arrays import Bools, Floats, Ints
from fedsrc.planning.aim import Aim
from fedsrc.planning.open_plan import plan_open
from fedsrc.planning.sealed_plan import Totals, plan_sealed
from fedsrc.records.masses import above
from fedsrc.simulate.posterior import from_answers
from research.pages import markdown, publish
from research.studies import label_cost, sources_once

TARGET, ALPHA, THRESHOLDS, CAP, TRIALS, POWER = Fraction(1, 5), 0.05, 20, 30_000, 400, 0.8
R = float(TARGET)


class Population(NamedTuple):
    """Development masses (units, thresholds), and the law of kinds of answers: bins of supported, then unsupported."""

    unsupported: Floats
    supported: Floats
    law: Floats


def population(score: Floats, loss: Floats, development: Ints) -> Population:
    known = np.isin(np.arange(score.size), development)
    thresholds = np.quantile(score[known], np.arange(1, THRESHOLDS + 1) / (THRESHOLDS + 1))
    accepted = (score[known][:, None] >= thresholds).astype(np.float64)
    kinds = np.searchsorted(thresholds, score[~known], side="right") + (THRESHOLDS + 1) * loss[~known].astype(np.int64)
    law = np.bincount(kinds, minlength=2 * THRESHOLDS + 2) / kinds.size
    return Population(accepted * loss[known][:, None], accepted * (1 - loss[known])[:, None], law)


def counted(counts: Ints) -> tuple[Ints, Ints]:
    """Unsupported and accepted counts at or above each threshold."""
    supported, unsupported = (above(each) for each in np.split(counts, 2, axis=-1))
    return unsupported, supported + unsupported


def ours(where: Population, rng: np.random.Generator) -> tuple[float, int]:
    """Records by which 80% of the runs have certified, and the plan's heaviest threshold."""
    known = from_answers(where.unsupported, where.supported, rng)
    plan, _ = plan_open(known, Aim(TARGET, CAP, objective="records"), rng)
    counts = np.stack([rng.multinomial(n, where.law, TRIALS) for n in plan.sizes], axis=1).cumsum(axis=1)
    bad, accepted = (each[..., list(plan.kept)].astype(np.float64) for each in counted(counts))
    shown: Bools = np.any(plan.decide(bad, accepted - bad), axis=-1)
    used = np.where(np.any(shown, axis=1), np.cumsum(plan.sizes)[shown.argmax(axis=1)], np.inf)
    return float(np.quantile(used, POWER, method="higher")), plan.kept[int(np.argmax(plan.weights))]


SIZES = np.unique(np.geomspace(20, CAP, 90).astype(int)).tolist()


def sealed(where: Population, rng: np.random.Generator) -> float:
    """The fewest records at which the sealed certificate that is planned for them certifies in 80% of the runs."""
    known = from_answers(where.unsupported, where.supported, rng)
    for n in SIZES:
        plan, _ = plan_sealed(known, Aim(TARGET, n, objective="rounds", exact=True), rng)
        bad, accepted = (
            x[:, None, list(plan.kept)].astype(np.float64) for x in counted(rng.multinomial(n, where.law, TRIALS))
        )
        if plan.decide(Totals(R * accepted - bad, 0.0 * bad, accepted)).any(axis=(1, 2)).mean() >= POWER:
            return float(n)
    return math.inf


def exact(where: Population, first: int, rng: np.random.Generator) -> tuple[float, float]:
    """The fewest records at which each exact test certifies in 80% of the runs: Bonferroni, fixed sequence."""
    found = [math.inf, math.inf]
    for n in SIZES:
        bad, accepted = (each.astype(np.float64) for each in counted(rng.multinomial(n, where.law, TRIALS)))
        p = ltt.exact(bad, accepted, R)
        powers = (ltt.bonferroni(p, ALPHA).any(axis=1).mean(), ltt.sequence_from(p, ALPHA, first).any(axis=1).mean())
        found = [min(old, n) if power >= POWER else old for old, power in zip(found, powers, strict=True)]
    return found[0], found[1]


def populations() -> Iterator[tuple[str, Population]]:
    for seed in range(label_cost.DRAWS):
        rng = np.random.default_rng(seed)
        score, loss = label_cost.answers(rng)
        yield f"L, draw {seed}", population(score, loss.astype(np.float64), np.arange(label_cost.DEVELOPMENT))
    if len(sys.argv) > 1:
        for name, table in sources_once.read(Path(sys.argv[1])).items():
            rng = np.random.default_rng(19)
            sizes = np.diff(table.starts, append=table.score.size)
            pick = table.starts + rng.integers(0, sizes)
            part = rng.permutation(pick.size)[: pick.size // 5]
            yield name, population(table.score[pick], table.loss[pick], part)


def row(number: int, name: str, where: Population) -> tuple[list[str], tuple[float, ...]]:
    """One population, and how many times the records of the two exact tests planned certificates take."""
    rng = np.random.default_rng([19, number])
    mine, first = ours(where, rng)
    both, others = (sealed(where, rng), mine), exact(where, first, rng)
    over = tuple(one / other for one in both for other in others)
    return [name, *(f"{each:,.0f}" for each in (*both, *others)), *(f"{each:.2f}" for each in over)], over


def main() -> None:
    found = [row(number, *each) for number, each in enumerate(populations())]
    means = [f"{math.exp(float(np.mean(np.log(each)))):.2f}" for each in zip(*(over for _, over in found), strict=True)]
    tests = ("Bonferroni", "fixed sequence")
    head = ["population", "sealed", "open", *(f"exact, {each}" for each in tests)]
    head += [f"{kind} / {each}" for kind in ("sealed", "open") for each in tests]
    publish(
        "exact-tests.md",
        [
            "# Without privacy: records at 80% power",
            "Records by which 80% of the runs have certified at target 0.2. The open certificate may be looked at after"
            " every round and shows every target; the sealed one and the exact tests see one number of records, fixed"
            " beforehand, at one target. Made by `python -m research.studies.exact_tests FOLDER` (the folder of"
            " RAGTruth's scores).",
            markdown(head, [*(line for line, _ in found), ["geometric mean", "", "", "", "", *means]]),
        ],
    )


if __name__ == "__main__":
    main()
