"""The paper's capital heuristic with a privacy charge in every round, as its caption says, in two readings.

The caption of Table dpe says that capital "cannot outrun the per-round privacy charge". The rule that it prints has no
such charge, and the study `capital` runs it as printed. Here the same releases are read with a charge.

Writes docs/results/capital-charge.md. Run: python -m research.studies.capital_charge
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedsrc.audit.cell import Cell, build
from fedsrc.audit.events import Events, happen
from fedsrc.audit.evidence import aim_of, exact, facts_of, released
from fedsrc.audit.methods.capital import FRACTIONS, log_capital
from fedsrc.audit.methods.setting import Aim, column, verdict
from fedsrc.audit.outcomes import chosen
from fedsrc.maths import boundaries, contrast
from fedsrc.maths.arrays import Bools, Floats
from research.pages import markdown, publish, words
from research.studies.catalogue import printed, study_of

NAME, ROUNDS = "capital", 400
AS_PRINTED = "as printed: no charge"
BOUNDARY = "G of a round's noise added to its increment"
DIVIDED = f"epsilon divided among the {ROUNDS} rounds"
READINGS = (AS_PRINTED, BOUNDARY, DIVIDED)


@dataclass(frozen=True)
class Seen:
    """Cumulative sums of a block of trials as the heuristic reads them: contrast, acceptance bound, records, eta."""

    D: Floats
    a: Floats
    N: Floats
    eta: Floats


@dataclass(frozen=True)
class Found:
    """What a block of trials came to: which fired, the true acceptance of the threshold, the round."""

    fired: Bools
    acceptance: Floats
    rounds: Floats


def seen(cell: Cell, events: Events, aim: Aim, reading: str, seed: tuple[int, ...]) -> Seen:
    """Return the block under one reading of the charge.

    Divided: noise of the same draws, larger by the square root of the rounds, as zCDP adds up over rounds.
    """
    clean, noised = (read(cell, events, seed=seed) for read in (exact, released))
    r, half = aim.target_risk, aim.failure_probability / 2.0
    larger = math.sqrt(ROUNDS) if reading == DIVIDED else 1.0
    D, A = (
        x + larger * (y - x)
        for x, y in ((clean.contrast(r), noised.contrast(r)), (clean.accepted, noised.accepted))
    )  # fmt: skip
    N, eta, v0 = noised.records, noised.eta, larger**2 * noised.unit
    if reading == BOUNDARY:
        of_round = np.diff(noised.V_D(r), axis=-2, prepend=0.0)
        D = D + np.cumsum(boundaries.G(of_round, c=2, m=noised.thresholds, alpha=half, v0=v0), axis=-2)
    a = contrast.a_lower(
        A, column(N), larger**2 * noised.V_A, eta=column(eta), alpha_s=half, alpha_n=half, v0=v0
    )  # fmt: skip
    return Seen(D, a, N, eta)


def decided(read: Seen, truth: Floats, aim: Aim, line: float) -> Found:
    """Stop each trial at its first certificate: capital at its line, acceptance at its floor."""
    capital = log_capital(read.D, read.N, read.eta).max(axis=-1)
    shown = np.logical_or.accumulate(capital >= line, axis=-2) & (read.a >= aim.min_acceptance)
    fires = np.asarray(shown.any(axis=-1))
    fired, look = np.asarray(fires.any(axis=-1)), fires.argmax(axis=-1)
    trial = np.arange(look.size)
    j = chosen(verdict(np.asarray(shown[trial, look]), acceptance=read.a[trial, look]))
    return Found(fired, truth[j], look + 1.0)


def lines(thresholds: int, aim: Aim) -> dict[str, float]:
    """Return the lines that capital has to reach: the caption's, and that of the study, where thresholds share."""
    one = math.log(FRACTIONS.size / aim.failure_probability)
    return {"fractions / alpha": one, "thresholds x fractions / alpha": one + math.log(thresholds)}


def blocks(epsilon: float, trials: int) -> Iterator[tuple[Cell, Events, tuple[int, int]]]:
    """Yield blocks of trials as the study draws them: that epsilon, the long horizon."""
    study = study_of(NAME)
    setting = next(each for each in study.settings if (each.epsilon, each.rounds) == (epsilon, ROUNDS))
    cell = build(setting, study.by_name[setting.population], seed=study.seed, folder=Path())
    for number, first in enumerate(range(0, trials, study.block)):
        seed, count = (study.seed, number), min(study.block, trials - first)
        yield cell, happen(cell, trials=count, seed=seed, per_site=False, reads={"released sums"}), seed


def outcomes(epsilon: float, trials: int) -> dict[tuple[str, str], list[Found]]:
    """Return what every reading comes to at every line, block by block."""
    made: dict[tuple[str, str], list[Found]] = {}
    for cell, events, seed in blocks(epsilon, trials):
        aim, truth = aim_of(cell.registration), np.ravel(facts_of(cell, events).acceptance)
        for reading in READINGS:
            read = seen(cell, events, aim, reading, seed)
            for name, line in lines(read.D.shape[-1], aim).items():
                made.setdefault((reading, name), []).append(decided(read, truth, aim, line))
    return made


def cell_of(found: list[Found]) -> str:
    """Fired, and over those the mean acceptance and round."""
    fired, a, rounds = (np.concatenate([vars(each)[name] for each in found]) for name in vars(found[0]))
    if not fired.any():
        return "0"
    return f"{int(fired.sum())} / {a[fired].mean():.3f} / {rounds[fired].mean():.0f}"


def main() -> None:
    study = study_of(NAME)
    epsilons = study.sweep["epsilon"]
    table = {epsilon: {key: cell_of(found) for key, found in outcomes(epsilon, study.trials).items()}
             for epsilon in epsilons}  # fmt: skip
    keys = list(table[epsilons[0]])
    paper = next(each for each in printed(NAME) if each.rule == "capital")
    says = [f"{row['fired']} / {row['acceptance']:.3f}" if row["fired"] else "0" for row in paper.rows]
    publish("capital-charge.md", [
        "# The capital heuristic with a charge in every round",
        'The caption of the paper\'s Table dpe says that capital "cannot outrun the per-round privacy charge once the'
        ' budget tightens". The rule that it prints, capital as the product of 1 - kappa x over rounds, has no such'
        f" charge, and neither does the appendix say what it is. Below, {study.trials} trials of {ROUNDS} rounds of the"
        f" study [{study.name}](studies/{NAME}.md) (a surrogate of C1, target {study.settings[0].target_risk:.2f}),"
        " with no charge and with two that could be meant. A cell: *fired / mean acceptance / mean round*, or 0.",
        markdown(
            ["charge", "capital reaches", *(f"epsilon {words(epsilon)}" for epsilon in epsilons)],
            [["the paper's table", "", *says], *([*key, *(table[e][key] for e in epsilons)] for key in keys)],
        ),
        READING,
        "Made by `python -m research.studies.capital_charge`.",
    ])  # fmt: skip


READING = (
    "With no charge, noise hardly matters: in a round of 1,000 records it moves the increment by a few hundredths,"
    " and over hundreds of rounds that averages out. With the paper's noise boundary G of a round's noise added to its"
    " increment, and the line that the caption gives (fractions / alpha), the heuristic fires where the paper's does"
    " and nowhere else. So that charge would explain the paper's counts. It does not explain its acceptance at epsilon"
    " 8, which is far larger than here. Dividing epsilon among the rounds explains neither. Which charge the paper"
    " made, if one of these, cannot be told from its text."
)

if __name__ == "__main__":
    main()
