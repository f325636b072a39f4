"""Panels: weights that are passed on, and what a unit can move in several blocks, against plain enumerations.

Mutants killed: the weight of a block without rows lost or doubled, `keep` ignored, the heir above instead of below,
two groups counted as one block (2 zero lost), spans squared, shared blocks not subtracted, scores taken for groups.
"""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsrc.maths.basis import Basis
from fedsrc.maths.contrasts import ContrastCode
from fedsrc.maths.kinds import Adjacency
from fedsrc.maths.moments import MomentCode
from fedsrc.maths.panels import Layout, weights_left
from fedsrc.protocol.mechanism import Code, sensitivity_of

SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 4))


@st.composite
def weighed(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, float]:
    shape = draw(SHAPES)
    w = np.array(draw(st.lists(st.integers(1, 9), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1])), float)
    done = np.array(draw(st.lists(st.booleans(), min_size=w.size, max_size=w.size)))
    return w.reshape(shape) / w.sum(), done.reshape(shape), draw(st.sampled_from([0.0, 0.25, 0.5, 1.0]))


@given(weighed())
def test_weights_are_kept_and_never_fall_when_another_row_goes(found: tuple[np.ndarray, np.ndarray, float]) -> None:
    w, done, keep = found
    now = weights_left(w, done, keep)
    assert not now[done].any()
    assert now.sum() == pytest.approx(0.0 if done.all() else 1.0)
    for place in zip(*np.nonzero(~done), strict=True):
        more = done.copy()
        more[place] = True
        after = weights_left(w, more, keep)
        assert np.all(after[~more] >= now[~more] - 1e-12)


def by_hand(w: np.ndarray, done: np.ndarray, keep: float) -> np.ndarray:
    """The rule as its docstring says it, row by row."""
    after, pot = np.where(done, 0.0, w), 0.0
    for b, j in zip(*np.nonzero(done), strict=True):
        left = np.flatnonzero(~done[b])
        if not left.size:
            pot += w[b, j]
            continue
        below = left[left < j]
        after[b, below[-1] if below.size else left[0]] += keep * w[b, j]
        pot += (1 - keep) * w[b, j]
    mine = np.where(done, 0.0, w)
    return np.asarray(after + pot * mine / mine.sum() if mine.any() else after)


@given(weighed())
def test_weights_go_where_the_rule_says(found: tuple[np.ndarray, np.ndarray, float]) -> None:
    w, done, keep = found
    np.testing.assert_allclose(weights_left(w, done, keep), by_hand(w, done, keep), atol=1e-12)


def test_many_sets_of_rejections_at_once() -> None:
    w = np.arange(1.0, 7.0).reshape(2, 3) / 21
    sets = np.array([[bool(s >> k & 1) for k in range(6)] for s in range(64)]).reshape(64, 2, 3)
    np.testing.assert_allclose(weights_left(w, sets, 0.3), [by_hand(w, each, 0.3) for each in sets], atol=1e-12)


CODES: dict[str, tuple[Code, int]] = {
    "histograms": (Basis("suffix", 3), 1),
    "bins": (Basis("bins", 3), 1),
    "moments": (MomentCode(Basis("suffix", 3), 2), 2),
    "contrasts": (
        ContrastCode((Fraction(1, 5),), 1, ((300, -90, 10), (0, 280, -70), (0, 0, 310)), (90, 80, 70), ()),
        1,
    ),
}


def unit_types(name: str) -> np.ndarray:
    """What one-answer units add to one block, flat: nothing first, then every bin, supported and unsupported."""
    code, g = CODES[name]
    found = []
    for bin_, bad in itertools.product(range(4), (0, 1)):
        masses = np.zeros((2, 4), dtype=np.int64)
        masses[bad, bin_] = g
        if isinstance(code, ContrastCode):
            supported, unsupported = masses[:, ::-1].cumsum(axis=1)[:, ::-1][:, 1:]
            found.append(code.encode(unsupported, supported).ravel())
        elif isinstance(code, Basis):
            found.append(code.encode(masses * 1)[..., (1 if code.name == "bins" else 0) :].ravel())
        else:
            found.append(code.encode(code.bins(masses)).ravel())
    return np.unique(np.array([np.zeros_like(found[0]), *found]), axis=0)


@pytest.mark.parametrize("name", ["histograms", "moments", "contrasts"])
@pytest.mark.parametrize("adjacency", ["zero-out", "replacement", "same-group"])
@pytest.mark.parametrize(("blocks", "spans"), [(1, 1), (2, 1), (3, 1), (2, 2), (3, 2), (3, 3)])
def test_sensitivity_of_groups_is_what_two_units_can_do(
    name: str, adjacency: Adjacency, blocks: int, spans: int
) -> None:
    """Over every pair of units that are in at most `spans` blocks: reached, and never passed."""
    code, g = CODES[name]
    types = unit_types(name).astype(object)
    pairwise_ = np.array([[int(((a - b) ** 2).sum()) for b in types] for a in types])
    norms = np.array([int((a**2).sum()) for a in types])
    apart, zero, most = int(pairwise_.max()), int(norms.max()), 0
    for mine in itertools.combinations(range(blocks), spans):
        every = list(itertools.combinations(range(blocks), spans))
        others: dict[str, list[tuple[int, ...]]] = {"zero-out": [()], "same-group": [mine], "replacement": every}
        for other in others[adjacency]:
            shared = len({*mine} & {*other})
            alone = len(mine) + len(other) - 2 * shared
            most = max(most, shared * apart + alone * zero)
    assert sensitivity_of(code, g, adjacency, Layout(blocks, spans=spans)) == most


@pytest.mark.parametrize("name", ["histograms", "moments", "contrasts"])
def test_sensitivity_of_scores_adds_up(name: str) -> None:
    code, g = CODES[name]
    for adjacency in ("zero-out", "replacement"):
        one = sensitivity_of(code, g, adjacency)
        assert sensitivity_of(code, g, adjacency, Layout(3, joint=True)) == 3 * one


def test_a_unit_that_changes_group_moves_contrasts_farther() -> None:
    """The factor that only sealed releases pay: their two ends are nearer than two blocks are."""
    code, g = CODES["contrasts"]
    one, two = sensitivity_of(code, g, "replacement"), sensitivity_of(code, g, "replacement", Layout(2))
    assert two > one
    basis, _ = CODES["histograms"]
    assert sensitivity_of(basis, 1, "replacement", Layout(2)) == sensitivity_of(basis, 1, "replacement")
