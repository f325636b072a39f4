"""Shifts have the total variation they declare, and change what they say and nothing else.

Laws are enumerated here a second time, unit by unit, and not with the code's cells.
Chance of a false alarm: nothing is random but hypothesis' search, and the properties hold for every example.
Mutants killed: weight taken equally and not in proportion, half or twice the fraction moved, drift below the threshold,
drift at the neighbouring bin, a share of all accepted instead of the flippable ones, the sign of a change lost, missed
and invented swapped, the paired count row forgotten, total variation without its half or over unmerged rows.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedsrc.audit.shift import drifted, moved_weights, relabelled
from fedsrc.errors import FedsrcError
from fedsrc.maths.kinds import Encoding
from fedsrc.maths.transfer import eta
from fedsrc.protocol.registration import Registration
from fedsrc.simulate.population import Support, from_cells, truth, uniform
from tests.support.formulas import total_variation
from tests.support.helpers import registration, single_units, table

M = 4
REGISTRATIONS = {
    "complementary": registration(thresholds=M, grid=True),
    "paired": registration(thresholds=M, grid=True, preset="paper"),
    "fine": registration(thresholds=M, grid=True, loss_grid=10),
}
FLIPS: dict[str, Callable[[Support, Encoding], Support]] = {
    "drifted": lambda support, encoding: drifted(support, encoding, 0, 0.0),
    "relabelled": lambda support, encoding: relabelled(support, encoding, 0.0, 0.0),
}
Law = dict[tuple[int, int], float]


def law_of(reg: Registration, support: Support) -> Law:
    """Probability per (bin, loss), read off unit by unit."""
    law: Law = defaultdict(float)
    for (first, second), probability in zip(support.masses.tolist(), support.law.tolist(), strict=True):
        (where,) = {b for b in range(M + 1) if first[b] or second[b]}
        bad, grid = second[where], reg.privacy.mass_grid
        assert bad in (0, grid)
        assert first[where] == (grid if reg.histograms.kind == "paired" else grid - bad)
        law[where, bad // grid] += probability
    return law


def distance(p: Law, q: Law) -> float:
    return sum(abs(p.get(atom, 0.0) - q.get(atom, 0.0)) for atom in {*p, *q}) / 2


def near(value: float) -> object:
    return pytest.approx(value, abs=1e-12)


@st.composite
def sites(draw: st.DrawFn) -> tuple[Registration, Support]:
    """A registration and a law: of cells (some of them empty), or uniform on units (some of them alike)."""
    reg = REGISTRATIONS[draw(st.sampled_from(sorted(REGISTRATIONS)))]
    if draw(st.booleans()):
        cell = st.one_of(st.just(0.0), st.floats(0.01, 1))
        cells = np.asarray(draw(st.lists(cell, min_size=2 * M + 2, max_size=2 * M + 2)))
        assume(cells.sum() > 0)
        return reg, from_cells(reg, cells[: M + 1], cells[M + 1 :])
    rows = draw(st.lists(st.tuples(st.floats(0, 1), st.sampled_from([0.0, 1.0])), min_size=1, max_size=30))
    score, loss = zip(*rows, strict=True)
    return reg, uniform(reg, [single_units(list(score), list(loss))])[0]


@st.composite
def weights(draw: st.DrawFn) -> tuple[float, ...]:
    raw = draw(st.lists(st.integers(0, 20), min_size=1, max_size=8))
    assume(sum(raw) > 0)
    return tuple(each / sum(raw) for each in raw)


@settings(deadline=None)
@given(weights(), st.floats(0, 1), st.data())
def test_moved_weights_are_that_far_away(base: tuple[float, ...], part: float, data: st.DataObject) -> None:
    onto = data.draw(st.integers(0, len(base) - 1))
    fraction = part * (1 - base[onto])
    found = moved_weights(base, fraction, onto)
    assert math.fsum(found) == near(1)
    assert min(found) >= 0
    assert sum(abs(a - b) for a, b in zip(base, found, strict=True)) / 2 == near(fraction)
    assert eta(np.asarray(found), np.asarray(base) * 1000, np.zeros(len(base))) == near(fraction)
    assert found[onto] == near(base[onto] + fraction)
    others = [k for k in range(len(base)) if k != onto]
    assert all(found[a] * base[b] == near(found[b] * base[a]) for a in others for b in others)


def test_moved_weights_by_hand() -> None:
    assert moved_weights((0.5, 0.3, 0.2), 0.0, 1) == (0.5, 0.3, 0.2)
    assert moved_weights((0.5, 0.3, 0.2), 0.25, 0) == pytest.approx((0.75, 0.15, 0.1))
    assert moved_weights((0.5, 0.3, 0.2), 0.5, 0) == (1.0, 0.0, 0.0)
    assert moved_weights((0.9, 0.1), 0.1, 0) == (1.0, 0.0)  # 1 - 0.9 is below 0.1 in floating point
    assert moved_weights((1.0,), 0.0, 0) == (1.0,)


def test_moved_weights_refuses() -> None:
    for fraction in (-0.01, 0.51, math.nan):
        with pytest.raises(FedsrcError, match=r"cannot be moved: the other sites hold 0\.5"):
            moved_weights((0.5, 0.3, 0.2), fraction, 0)
    for onto in (-1, 3):
        with pytest.raises(FedsrcError, match="no site"):
            moved_weights((0.5, 0.3, 0.2), 0.1, onto)
    for base in ((0.5, 0.4), (1.5, -0.5), (math.nan, 1.0), ()):
        with pytest.raises(FedsrcError, match="sum to one"):
            moved_weights(base, 0.1, 0)


@settings(deadline=None)
@given(sites(), st.integers(0, M - 1), st.floats(-1, 1))
def test_drift_is_what_it_says(site: tuple[Registration, Support], j: int, part: float) -> None:
    reg, before = site
    exact = truth(reg, [before], [1.0])
    accepted, share = exact.acceptance[j], exact.risk[j]
    assume(accepted > 0)
    change = part * (1 - share if part > 0 else share)
    after = drifted(before, reg.histograms.kind, j, change)
    then = truth(reg, [after], [1.0])
    p, q = law_of(reg, before), law_of(reg, after)
    assert then.acceptance == pytest.approx(exact.acceptance, abs=1e-12)
    assert then.risk[j] == near(share + change)
    assert distance(p, q) == near(accepted * abs(change))
    assert total_variation(before, after) == near(accepted * abs(change))
    for b in range(M + 1):
        assert p.get((b, 0), 0) + p.get((b, 1), 0) == near(q.get((b, 0), 0) + q.get((b, 1), 0))
        if b <= j:
            assert p.get((b, 1), 0) == near(q.get((b, 1), 0))
    assert after.law.min() > 0
    assert len(np.unique(after.masses, axis=0)) == after.law.size


@settings(deadline=None)
@given(sites(), st.integers(0, M - 1), st.floats(0.01, 1), st.sampled_from([0, 1]))
def test_drift_takes_the_same_share_of_every_bin(
    site: tuple[Registration, Support], j: int, part: float, origin: int
) -> None:
    reg, before = site
    exact = truth(reg, [before], [1.0])
    assume(exact.acceptance[j] > 0)
    change = part * (exact.risk[j] if origin else exact.risk[j] - 1) * -1
    assume(abs(change) > 1e-3)
    p, q = law_of(reg, before), law_of(reg, drifted(before, reg.histograms.kind, j, change))
    for b in range(j + 1, M + 1):
        assert q.get((b, origin), 0) == near((1 - part) * p.get((b, origin), 0))


@pytest.mark.parametrize("name", ["complementary", "paired"])
def test_drift_by_hand(name: str) -> None:
    """Accepted at index 1 (bins 2, 3, 4): 0.3 supported and 0.1 unsupported, so q = 1/4."""
    reg = REGISTRATIONS[name]
    supported, unsupported = [0.2, 0.1, 0.05, 0.1, 0.15], [0.1, 0.2, 0.1, 0.0, 0.0]
    before = from_cells(reg, np.asarray(supported), np.asarray(unsupported))
    after = law_of(reg, drifted(before, reg.histograms.kind, 1, 0.25))
    assert [after[b, 0] for b in range(5)] == pytest.approx([0.2, 0.1, 0.05 * 2 / 3, 0.1 * 2 / 3, 0.1])
    assert [after[b, 1] for b in range(5)] == pytest.approx([0.1, 0.2, 0.1 + 0.05 / 3, 0.1 / 3, 0.05])
    back = law_of(reg, drifted(before, reg.histograms.kind, 1, -0.125))
    assert [back[b, 0] for b in range(5)] == pytest.approx([0.2, 0.1, 0.1, 0.1, 0.15])
    assert [back.get((b, 1), 0) for b in range(5)] == pytest.approx([0.1, 0.2, 0.05, 0, 0])


@pytest.mark.parametrize("name", ["complementary", "paired"])
def test_drift_to_the_ends(name: str) -> None:
    reg = REGISTRATIONS[name]
    before = from_cells(reg, np.full(M + 1, 0.15), np.full(M + 1, 0.05))
    for change, share in [(0.75, 1.0), (-0.25, 0.0), (0.0, 0.25)]:
        after = drifted(before, reg.histograms.kind, 0, change)
        assert truth(reg, [after], [1.0]).risk.tolist() == pytest.approx([share] * M)
        assert after.law.min() > 0
    assert drifted(before, reg.histograms.kind, 0, 0.75).law.size == M + 2  # bin 0 keeps both losses
    certain = from_cells(reg, np.full(M + 1, 0.2), np.zeros(M + 1))
    assert total_variation(certain, drifted(certain, reg.histograms.kind, 0, 0.0)) == 0


def test_drift_over_many_records_is_merged() -> None:
    records = table(300)
    for reg in REGISTRATIONS.values():
        support = uniform(reg, [single_units(records.score.tolist(), records.loss.tolist())])[0]
        after = drifted(support, reg.histograms.kind, 1, 0.01)
        assert after.law.size <= 2 * (M + 1) < support.law.size
        assert total_variation(support, after) == near(0.01 * truth(reg, [support], [1.0]).acceptance[1])


def test_drift_refuses() -> None:
    reg = REGISTRATIONS["complementary"]
    before = from_cells(reg, np.full(M + 1, 0.15), np.full(M + 1, 0.05))
    for change in (0.7501, -0.2501, math.nan, math.inf):
        with pytest.raises(FedsrcError, match=r"an unsupported share of 0\.25 cannot change by"):
            drifted(before, "complementary", 0, change)
    for threshold in (-1, M):
        with pytest.raises(FedsrcError, match="no threshold"):
            drifted(before, "complementary", threshold, 0.1)
    rejected = from_cells(reg, np.eye(M + 1)[0], np.eye(M + 1)[0])
    with pytest.raises(FedsrcError, match="nothing is accepted"):
        drifted(rejected, "complementary", 0, 0.1)


@pytest.mark.parametrize("name", FLIPS)
def test_only_single_binary_answers_have_a_flip(name: str) -> None:
    refused: list[tuple[Encoding, Any]] = [
        ("complementary", [[[0, 1, 0], [0, 1, 0]]]),  # graded
        ("paired", [[[0, 2, 0], [0, 1, 0]]]),  # graded
        ("complementary", [[[1, 1, 0], [0, 0, 0]]]),  # two answers
        ("complementary", [[[0, 1, 0], [0, 0, 1]]]),  # two answers
        ("paired", [[[0, 1, 1], [0, 1, 0]]]),  # two answers
        ("paired", [[[0, 1, 0], [0, 0, 1]]]),  # a loss without its answer
        ("paired", [[[0, 0, 0], [0, 1, 0]]]),  # complementary masses
        ("complementary", [[[0, 1, 0], [0, 1, 0]], [[0, 1, 0], [0, 0, 0]]]),  # paired masses
        ("complementary", [[[0, 1, 0], [0, 0, 0]], [[0, 2, 0], [0, 0, 0]]]),  # answers of unequal weight
        ("complementary", [[[0, 1, 0], [0, 0, 0]], [[0, 0, 0], [0, 0, 0]]]),  # no answer
        ("complementary", [[[0, -1, 0], [0, 0, 0]]]),
        ("complementary", np.zeros((0, 2, 3))),
    ]
    for encoding, rows in refused:
        masses = np.asarray(rows, dtype=np.int64)
        with pytest.raises(FedsrcError, match=f"single answers with loss 0 or 1 in {encoding} masses"):
            FLIPS[name](Support(masses, np.full(len(masses), 1 / max(1, len(masses)))), encoding)


@settings(deadline=None)
@given(sites(), st.floats(0, 1), st.floats(0, 1))
def test_labels_are_wrong_as_often_as_declared(
    site: tuple[Registration, Support], missed: float, invented: float
) -> None:
    reg, before = site
    after = relabelled(before, reg.histograms.kind, missed, invented)
    p, q = law_of(reg, before), law_of(reg, after)
    moved = 0.0
    for b in range(M + 1):
        good, bad = p.get((b, 0), 0.0), p.get((b, 1), 0.0)
        assert q.get((b, 0), 0) == near(good + bad * missed - good * invented)
        assert q.get((b, 1), 0) == near(bad - bad * missed + good * invented)
        moved += abs(good * invented - bad * missed)
    assert total_variation(before, after) == near(moved)


@pytest.mark.parametrize("name", ["complementary", "paired"])
def test_labels_at_the_ends(name: str) -> None:
    reg = REGISTRATIONS[name]
    before = from_cells(reg, np.full(M + 1, 0.15), np.full(M + 1, 0.05))
    for missed, invented, share in [(0, 0, 0.25), (1, 0, 0.0), (0, 1, 1.0), (1, 1, 0.75), (0.2, 0, 0.2), (0, 0.2, 0.4)]:
        after = relabelled(before, reg.histograms.kind, missed, invented)
        assert truth(reg, [after], [1.0]).risk.tolist() == pytest.approx([share] * M)
        assert after.law.min() > 0
    for wrong in [(-0.1, 0), (0, 1.1), (math.nan, 0), (0, math.nan)]:
        with pytest.raises(FedsrcError, match="not probabilities"):
            relabelled(before, reg.histograms.kind, *wrong)


@settings(deadline=None)
@given(sites(), sites())
def test_total_variation_is_a_distance(one: tuple[Registration, Support], two: tuple[Registration, Support]) -> None:
    (reg, p), (other, q) = one, two
    assume(reg is other)
    assert total_variation(p, q) == near(distance(law_of(reg, p), law_of(reg, q)))
    assert total_variation(p, q) == total_variation(q, p)
    assert total_variation(p, p) == 0


def test_total_variation_by_hand() -> None:
    """Atoms may be sources with several answers; rows that are alike are one atom."""
    a, b, c = [[2, 0, 1], [0, 1, 0]], [[0, 0, 4], [0, 0, 0]], [[0, 0, 0], [0, 0, 4]]
    p = Support(np.asarray([a, b, a]), np.array([0.25, 0.5, 0.25]))
    assert total_variation(p, Support(np.asarray([b, a]), np.array([0.5, 0.5]))) == 0
    assert total_variation(p, Support(np.asarray([a, c]), np.array([0.7, 0.3]))) == near(0.5)
    assert total_variation(p, Support(np.asarray([c]), np.array([1.0]))) == 1
