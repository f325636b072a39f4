"""SelfCheckGPT by hand and by its properties.

Mutants killed: the response left out of the counts, min for max, a mean over words in place of sentences, the closest
sentence taken over all samples together, premise and hypothesis exchanged, contradiction not turned round.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsrc.maths.arrays import Floats
from fedsrc.scores.methods.lexical import sentences
from fedsrc.scores.methods.selfcheck import selfcheck_embedding, selfcheck_ngram, selfcheck_ngram_mean, selfcheck_nli

texts = st.text("ab .!", min_size=1, max_size=20)


def overlap(rows: Sequence[str], columns: Sequence[str]) -> Floats:
    """Share of letters in common."""
    return np.array([[len(set(a) & set(b)) / max(1, len(set(a) | set(b))) for b in columns] for a in rows])


def test_n_grams_by_hand() -> None:
    """Words of response and samples: a 4, b 2, c 1 of 7; sentences "a b." and "c!": least likely 2/7 and 1/7."""
    response, samples = "A b. C!", ["a a", "a b"]
    worst = (math.log(7 / 2) + math.log(7 / 1)) / 2
    assert selfcheck_ngram(response, samples) == pytest.approx(math.exp(-worst))
    mean = (math.log(7 / 4) + math.log(7 / 2) + math.log(7 / 1)) / 3
    assert selfcheck_ngram_mean(response, samples) == pytest.approx(math.exp(-mean))
    assert selfcheck_ngram("...", ["a"]) == selfcheck_ngram_mean("...", ["a"]) == 0.0


def test_embeddings_by_hand() -> None:
    """Sentence "ab." against "ab. cd." and "cd.": closest 1, then shares {.} of {a,b,c,d,.}: 1/5."""
    assert selfcheck_embedding("ab.", ["ab. cd.", "cd."], overlap) == pytest.approx((1 + 1 / 5) / 2)
    assert selfcheck_embedding("ab. cd.", ["cd."], overlap) == pytest.approx((1 / 5 + 1) / 2)


def test_contradiction_by_hand() -> None:
    said = {("s1", "one."): 0.1, ("s2", "one."): 0.3, ("s1", "two."): 0.6, ("s2", "two."): 1.0}
    score = selfcheck_nli("one. two.", ["s1", "s2"], lambda premise, hypothesis: said[premise, hypothesis])
    assert score == pytest.approx(1 - 2.0 / 4)


@given(texts, st.lists(texts, min_size=1, max_size=5), st.randoms())
def test_properties(response: str, samples: list[str], random: object) -> None:
    shuffled = list(samples)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    for score in (selfcheck_ngram, selfcheck_ngram_mean):
        assert 0 <= score(response, samples) <= 1
        assert score(response, shuffled) == pytest.approx(score(response, samples))
    close = selfcheck_embedding(response, samples, overlap)
    assert 0 <= close <= 1
    assert selfcheck_embedding(response, shuffled, overlap) == pytest.approx(close)


def test_a_response_that_is_said_again_scores_higher() -> None:
    again = ["the tower is tall"] * 3
    for score in (selfcheck_ngram, selfcheck_ngram_mean):
        assert score("the tower is tall", again) > score("giants built it", again)


def test_sentences() -> None:
    assert sentences("One. Two!  Three? ") == ["One.", "Two!", "Three?"]
    assert sentences("no end") == ["no end"]
    assert sentences(" ... ") == ["..."]
    assert sentences("") == [""]
