"""ConU, SConU and self-consistency by hand and by their properties.

Mutants killed: frequency among the response and samples in place of the samples, weights not normalised, samples
compared with themselves alone, the response left out of SConU's meanings, log n in place of log(n + 1).
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsrc.maths.arrays import Floats
from fedsrc.scores.methods.conu import conu, sconu
from fedsrc.scores.methods.self_consistency import self_consistency


def test_conu_by_hand() -> None:
    """Samples 1 and 2 are alike, 3 is not: F = (2/3, 2/3, 1/3), w = (0.4, 0.4, 0.2); the response is like 1 and 3."""
    among = np.array([[1.0, 0.8, 0.1], [0.8, 1.0, 0.2], [0.1, 0.2, 1.0]])
    to_samples = np.array([0.9, 0.5, 0.7])
    expected = (2 / 3) / 2 + (0.4 * 0.9 + 0.4 * 0.5 + 0.2 * 0.7) / 2
    assert conu(to_samples, among) == pytest.approx(expected)
    assert conu(to_samples, among, similar=0.8) == pytest.approx((1 / 3) / 2 + 0.7 / 2)


def test_sconu_by_hand() -> None:
    """The response opens a cluster that samples 1 and 3 join; sample 2 is alone: shares 3/4 and 1/4."""
    among = np.array([[1.0, 0.8, 0.1], [0.8, 1.0, 0.2], [0.1, 0.2, 1.0]])
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert sconu(np.array([0.9, 0.5, 0.7]), among) == pytest.approx(1 - entropy / math.log(4))


def test_one_sample_is_enough() -> None:
    one = np.ones((1, 1))
    assert conu(np.array([0.9]), one) == pytest.approx(0.5 + 0.45)
    assert sconu(np.array([0.9]), one) == 1.0
    assert sconu(np.array([0.1]), one) == pytest.approx(0.0)


@st.composite
def similarities(draw: st.DrawFn) -> tuple[Floats, Floats]:
    count = draw(st.integers(1, 6))
    numbers = st.floats(0, 1)
    among = np.eye(count)
    for i in range(count):
        for j in range(i):
            among[i, j] = among[j, i] = draw(numbers)
    return np.array([draw(numbers) for _ in range(count)]), among


@given(similarities(), st.randoms())
def test_properties(given_similarities: tuple[Floats, Floats], random: object) -> None:
    to_samples, among = given_similarities
    order = list(range(to_samples.size))
    random.shuffle(order)  # type: ignore[attr-defined]
    assert 0 <= conu(to_samples, among) <= 1
    assert conu(to_samples[order], among[np.ix_(order, order)]) == pytest.approx(conu(to_samples, among))
    assert 0 <= sconu(to_samples, among) <= 1
    assert conu(np.ones_like(to_samples), among) == pytest.approx(1.0)
    assert sconu(np.ones_like(to_samples), np.ones_like(among)) == 1.0


def test_self_consistency_by_hand() -> None:
    samples = ["Paris", "paris", "Rome", "the city of Paris"]
    same = lambda one, other: one.lower() == other.lower()  # noqa: E731
    assert self_consistency("Paris", samples, same) == 0.5
    assert self_consistency("London", samples, same) == 0.0
    assert self_consistency("Rome", ["Rome"], lambda *_: False) == 1.0  # the same words match
