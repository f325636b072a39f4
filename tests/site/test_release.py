"""Releases: fixed shape whatever the data, masses as defined, losses rounded up, noise as the registration needs.

Mutants killed: accept on > instead of >=, masses rounded down, bin 0 counted, source mass not shared, noise scale
below what the registration needs.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsrc.maths import privacy
from fedsrc.records.masses import grid_losses, histogram, unit_masses
from fedsrc.records.table import MISSING_SCORE
from fedsrc.records.units import Units
from fedsrc.server.recruiter import make_requests
from fedsrc.server.tally import masses
from tests.support.helpers import changed, registration, release_of, single_units

REG = registration(thresholds=3, grid=True, epsilon=float("inf"))  # thresholds 0.25, 0.5, 0.75


def test_a_score_on_a_threshold_is_accepted() -> None:
    units = single_units([0.25, np.nextafter(0.25, 0), 1.0, 0.75, MISSING_SCORE], [0, 0, 1, 0, 1])
    assert histogram(REG, units).tolist() == [[1, 1, 0, 1], [1, 0, 0, 1]]


def test_suffix_masses_are_the_accepted_ones() -> None:
    units = single_units([0.1, 0.3, 0.6, 0.9, 0.9], [1, 1, 0, 1, 0])
    request = make_requests(REG, [5], number=0, round=1)[0]
    release = release_of(REG, request, units)
    seen = masses(REG, np.array([release.first, release.second]), 1)
    assert seen.unsupported.tolist() == [2, 1, 1]
    assert seen.supported.tolist() == [2, 2, 1]
    assert seen.noise.uu.tolist() == [0, 0, 0]


@pytest.mark.parametrize("encoding", ["paired", "complementary"])
@pytest.mark.parametrize("basis", ["bins", "suffix"])
def test_every_encoding_gives_the_same_masses(encoding: str, basis: str) -> None:
    reg = changed(REG, privacy={"loss_grid": 4}, encoding={"kind": encoding, "basis": basis})
    rng = np.random.default_rng(5)
    units = single_units(rng.random(50).tolist(), (rng.integers(0, 5, 50) / 4).tolist())
    sums = reg.mechanism.basis.encode(histogram(reg, units))
    seen = masses(reg, sums, 1)
    for j, threshold in enumerate(reg.thresholds.values):
        accepted = units.score >= threshold
        assert seen.unsupported[j] == pytest.approx(units.loss[accepted].sum())
        assert seen.accepted[j] == pytest.approx(accepted.sum())


def test_a_source_shares_one_unit_of_mass() -> None:
    reg = changed(REG, privacy={"unit": "source", "max_answers": 3})
    units = Units(
        np.array([0, 3, 5, 6]), np.array([0.3, 0.6, 0.9, 0.1, 0.9, 0.6]), np.array([1, 0, 0, 1, 1, 0.0]), None
    )
    per_unit = unit_masses(reg, units)
    assert per_unit.sum(axis=(1, 2)).tolist() == [6, 6, 6]  # lcm(1, 2, 3)
    assert per_unit[0].tolist() == [[0, 0, 2, 2], [0, 2, 0, 0]]
    assert per_unit[1].tolist() == [[0, 0, 0, 0], [3, 0, 0, 3]]
    np.testing.assert_array_equal(per_unit.sum(axis=0), histogram(reg, units))


def test_answer_weighting_gives_every_answer_the_same_mass() -> None:
    reg = changed(REG, privacy={"unit": "source", "max_answers": 3, "answer_weight": "answer"})
    units = Units(np.array([0, 3, 4]), np.array([0.3, 0.6, 0.9, 0.9]), np.array([1, 0, 0, 0.0]), None)
    assert unit_masses(reg, units).sum(axis=(1, 2)).tolist() == [3, 1]


@given(st.floats(0, 1), st.integers(1, 1000))
def test_losses_are_rounded_up_to_the_grid(loss: float, grid: int) -> None:
    k = int(grid_losses(np.array([loss]), grid)[0])
    assert 0 <= k <= grid
    assert k / grid >= loss
    assert (k - 1) / grid < loss or k == 0


def test_grid_points_stay_where_they_are() -> None:
    k = np.arange(101)
    np.testing.assert_array_equal(grid_losses(k / 100, 100), k)


def test_shape_and_metadata_do_not_depend_on_the_data() -> None:
    reg = registration(thresholds=5, grid=True)
    request = make_requests(reg, [4], number=0, round=1)[0]
    shapes = set()
    for scores, losses in [([0.0] * 4, [0.0] * 4), ([1.0] * 4, [1.0] * 4), ([0.1, 0.5, 0.9, MISSING_SCORE], [1.0] * 4)]:
        release = release_of(reg, request, single_units(scores, losses))
        shapes.add((release.site, release.slots, release.scale, len(release.first), len(release.second)))
    assert len(shapes) == 1


@pytest.mark.parametrize("epsilon", [8.0, 4.0, 1.0, 0.5])
@pytest.mark.parametrize("preset", ["default", "paper"])
def test_the_registered_scale_gives_the_registered_privacy(epsilon: float, preset: str) -> None:
    reg = registration(thresholds=20, grid=True, epsilon=epsilon, preset=preset)
    rule = reg.mechanism
    spent = privacy.epsilon_of(rule.rho, reg.privacy.delta, reg.privacy.conversion)
    assert spent <= epsilon
    assert spent > 0.9999 * epsilon  # and no more noise than needed, up to rounding of the scale
    assert rule.scale * 2**20 == round(rule.scale * 2**20)


def test_preset_scales_are_the_known_ones() -> None:
    """theory (iii) and the paper, at epsilon 4: tau = 1.268 complementary and tight, sigma = 1.98444 paired, both
    for zero-out; the default, for replacement, has sqrt 2 times the first."""
    ours = changed(registration(grid=True, adjacency="zero-out"), encoding={"basis": "bins"}).mechanism
    papers = registration(grid=True, preset="paper").mechanism
    assert ours.scale == pytest.approx(1.267825432, abs=1e-6)
    assert papers.scale == pytest.approx(1.984441147, abs=1e-6)
    replaced = changed(registration(grid=True), encoding={"basis": "bins"}).mechanism
    assert replaced.scale == pytest.approx(math.sqrt(2) * 1.267825432, abs=1e-6)
