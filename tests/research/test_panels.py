"""The studies of panels: their splits, what a policy saves, and that every way of a split is decided as it says.

Mutants killed: held-out sources that calibrate, a stop after the last failed checkpoint instead of the first, one at a
checkpoint that an answer never reaches, a group's acceptance of all answers, a group whose certificate is another's,
sources in several certificates whose privacy is not divided.
"""

from __future__ import annotations

import numpy as np
import pytest

from research.studies import panel_scores, panels


def answers(sources: int = 600) -> panels.Answers:
    """Sources with two answers of one group; the second group is bad at every score."""
    rng = np.random.default_rng(3)
    source = np.repeat(np.arange(sources), 2)
    group = np.repeat(rng.integers(0, 2, sources), 2)
    loss = (rng.random(source.size) < np.where(group == 0, 0.02, 0.9)).astype(np.float64)
    return panels.Answers(source, group, ("good", "bad"), np.clip(0.5 + 0.3 * rng.random(source.size), 0, 1), loss)


def test_held_out_sources_neither_develop_nor_calibrate() -> None:
    mine, held = panels.divided(answers(), 0)
    assert not {*mine.source.tolist()} & {*held.source.tolist()}
    assert len({*held.source.tolist()}) == 120


def test_every_method_decides_for_every_group() -> None:
    setting = panels.Setting("made up", answers(), 2)
    found = list(panels.outcomes(setting, 8.0, 1))
    by_method = {name: {each.group: each for each in found if each.method == name} for name in panels.METHODS}
    assert {name: len(each) for name, each in by_method.items()} == dict.fromkeys(panels.METHODS, 2)
    assert by_method["panel"]["good"].certified
    assert not by_method["panel"]["bad"].certified
    assert not by_method["all groups"]["good"].certified
    assert by_method["panel"]["good"].acceptance > 0.5  # of its own group's answers
    assert by_method["panel"]["bad"].accepted == 0


def test_a_certificate_for_each_group_divides_the_privacy_of_sources_that_span_them() -> None:
    spanning = answers()._replace(group=np.arange(1200) % 2)
    assert [panels.Setting("", each, 2).spanning for each in (answers(), spanning)] == [False, True]
    found = {each.method for each in panels.outcomes(panels.Setting("", spanning, 2), 8.0, 1)}
    assert {*panels.METHODS} - found == {"one each, groups public"}


def test_a_stream_ends_at_the_first_checkpoint_that_it_fails() -> None:
    tokens = np.array([10.0, 100.0, 100.0, 25.0])
    prefixes = {"lift_prefix_20": np.array([0.1, 0.1, 0.9, 0.9]), "lift_prefix_50": np.array([0.1, 0.1, 0.1, 0.1])}
    table = panel_scores.Table("t", np.arange(4), np.zeros(4), {}, tokens, prefixes)
    assert panel_scores.saved(table, "lift_at_20_50", 0.5) == pytest.approx(1 - (10 + 20 + 50 + 25) / 235)
    assert panel_scores.saved(table, "lift_at_50", 0.5) == pytest.approx(1 - (10 + 50 + 50 + 25) / 235)
    assert panel_scores.saved(table, "lift", 0.5) == 0.0
    assert panel_scores.points_of("lift_at_20_50") == (20, 50)
