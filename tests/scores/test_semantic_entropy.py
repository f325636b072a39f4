"""Semantic entropy by hand and by its properties.

Mutants killed: probabilities not normalised over samples, sums in place of means of log-probabilities, a sample held
against the last member of a cluster or against all, log of clusters in place of samples, a sign.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsrc.errors import FedsrcError
from fedsrc.scores.methods.semantic_entropy import clusters, discrete_semantic_entropy, semantic_entropy, sureness
from fedsrc.scores.models.model import Sample


def sample(text: str, *logprobs: float) -> Sample:
    return Sample(text, np.array(logprobs), True)


def first_letter(one: str, other: str) -> bool:
    return one[0] == other[0]


drawn = st.lists(
    st.tuples(st.text("abc", min_size=1, max_size=3), st.lists(st.floats(-9, 0), min_size=1, max_size=4)),
    min_size=2,
    max_size=8,
)


def test_by_hand() -> None:
    """Two samples of one meaning, with mean probability 1/2 and 1/4, and one of another with 1/4: p = (3/4, 1/4)."""
    half, quarter = math.log(0.5), math.log(0.25)
    found = [sample("a", half, half, half), sample("aa", quarter), sample("b", half, math.log(0.125))]
    expected = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert semantic_entropy(found, first_letter) == pytest.approx(expected)
    assert sureness(expected, 3) == pytest.approx(1 - expected / math.log(3))
    counted = -(2 / 3 * math.log(2 / 3) + 1 / 3 * math.log(1 / 3))
    assert discrete_semantic_entropy(["a", "aa", "b"], first_letter) == pytest.approx(counted)


def test_a_text_is_held_against_the_first_of_each_cluster() -> None:
    """`same` need not be transitive: neighbours in a row of numbers are the same here."""
    near = lambda one, other: abs(int(one) - int(other)) <= 1  # noqa: E731
    assert clusters(["1", "2", "3", "2"], near) == [0, 0, 1, 0]
    assert clusters(["x", "x"], lambda *_: False) == [0, 0]  # the same words mean the same


@given(drawn, st.randoms())
def test_properties(given_samples: list[tuple[str, list[float]]], random: object) -> None:
    samples = [sample(text, *logprobs) for text, logprobs in given_samples]
    entropy = semantic_entropy(samples, first_letter)
    assert 0 <= entropy <= math.log(len(samples)) + 1e-9
    assert 0 <= sureness(entropy, len(samples)) <= 1
    shuffled = list(samples)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert semantic_entropy(shuffled, first_letter) == pytest.approx(entropy)
    finer = semantic_entropy(samples, lambda one, other: one == other)
    assert finer >= entropy - 1e-9  # splitting meanings only adds


@given(st.integers(2, 12), st.floats(-5, 0))
def test_identical_and_distinct(count: int, logprob: float) -> None:
    alike = [sample("same", logprob)] * count
    assert semantic_entropy(alike, first_letter) == 0.0
    assert sureness(0.0, count) == 1.0
    other = [sample(str(i), logprob) for i in range(count)]
    assert semantic_entropy(other, lambda *_: False) == pytest.approx(math.log(count))
    assert sureness(semantic_entropy(other, lambda *_: False), count) == pytest.approx(0.0, abs=1e-12)


def test_one_sample_says_nothing() -> None:
    with pytest.raises(FedsrcError, match="always zero"):
        sureness(0.0, 1)


def test_tiny_probabilities_do_not_vanish() -> None:
    found = [sample("a", -900.0), sample("b", -900.0)]
    assert semantic_entropy(found, first_letter) == pytest.approx(math.log(2))
