"""The study of labels on demand counts what people would label: no more, no less.

Mutants killed: labels counted at the highest threshold, units of rounds that were never opened, or of development, a
source counted once whatever its answers, a judge's plan that reads the labels of development units, rounds that
overlap or leave a unit out.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from research.studies import labels_needed
from research.studies.labels_needed import WAYS, Log, Way, outcome, play
from research.studies.sources_once import Table


def log(count: int = 200) -> Log:
    """A log of sources of 1 to 4 answers, whose risk falls with the score."""
    rng = np.random.default_rng(3)
    sizes = rng.integers(1, 5, count)
    score = rng.random(sizes.sum())
    loss = (rng.random(score.size) < 0.8 * (1 - score) ** 2).astype(np.float64)
    return Log("made up", "0.2", Table(score, loss, np.cumsum(sizes) - sizes))


@pytest.mark.parametrize("used", [1, 40, 120])
def test_needed_labels_are_the_answers_at_or_above_the_lowest_threshold_of_opened_rounds(used: int) -> None:
    made = log()
    data, kept = made.split(0), (4, 9)
    table, rows = made.table, np.repeat(np.arange(200), np.diff(made.table.starts, append=made.table.score.size))
    opened = np.isin(rows, data.parts[1][:used])
    levels = np.quantile(table.score[np.isin(rows, data.parts[0])], np.arange(1, 21) / 21)
    lazy, every = (
        outcome(data, way, kept, np.array([False, True]), used) for way in (Way("labels", 1), WAYS["default"])
    )
    assert lazy.labels == (opened & (table.score >= levels[4])).sum()
    assert every.labels == opened.sum()
    assert lazy.development == np.isin(rows, data.parts[0]).sum()


@pytest.mark.parametrize("epsilon", [math.inf, pytest.param(4.0, marks=pytest.mark.thorough)])
def test_people_label_less_on_demand_than_every_record(epsilon: float) -> None:
    every, lazy = (play(log(1_000), WAYS[name], epsilon, 1) for name in ("default", "on demand"))
    assert every.certified
    assert lazy.certified
    assert lazy.labels < every.labels / 2
    assert lazy.held_out_unsupported < lazy.held_out


def test_a_judges_plan_reads_the_judge_alone() -> None:
    """Other labels of the development part change nothing of its plan; and development takes nobody's time."""
    made, way = log(), WAYS["on demand, a judge's plan"]
    rows = np.repeat(np.arange(200), np.diff(made.table.starts, append=made.table.score.size))
    other = np.where(np.isin(rows, made.split(2).parts[0]), 1.0, made.table.loss)
    found = [
        play(Log("made up", "0.2", made.table._replace(loss=loss), judged=made.table.loss), way, 4.0, 2)
        for loss in (made.table.loss, other)
    ]
    assert found[0] == found[1]
    assert found[0].development == 0


def test_every_unit_is_in_one_round() -> None:
    assert (labels_needed.in_rounds(np.array([3, 5, 9]), 9).sum(axis=0) == 1).all()
