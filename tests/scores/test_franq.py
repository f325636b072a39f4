"""FRANQ and the judge without a model: maps against scikit-learn, the formula by hand, labels apart, strict parsing.

Exact tests, or fixed inputs. Mutants killed: a map that falls or goes on beyond its ends, ties that are not pooled,
weights ignored; branches swapped or fitted on the other's weights; factual answers taken for faithful ones; a fit that
sees a fold it is judged on; True and False swapped or one token of an answer dropped; a reply read beyond its number.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from fedsrc.data.answers import Answer
from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats
from fedsrc.scores.fitted.development import auc, labels_of
from fedsrc.scores.fitted.fit import fitted_franq
from fedsrc.scores.fitted.franq import Franq, Judged, fit_franq, numbers, truths
from fedsrc.scores.fitted.frozen import load
from fedsrc.scores.fitted.isotonic import Isotonic, fit_isotonic
from fedsrc.scores.fitted.score_file import SCORE
from fedsrc.scores.fitted.supervised import both_sides, columns_with
from fedsrc.scores.methods.confidence import mean_probability
from fedsrc.scores.methods.judge import (
    ASKED,
    CHOICES,
    Judgement,
    confidence,
    parsed,
    question_in_words,
    stated_confidence,
    verdict_pairs,
)
from fedsrc.scores.methods.lift import window_lift
from fedsrc.scores.models.model import Sample, TokenScores
from tests.scores.test_supervised import SHA, Arithmetic, development

rows = st.lists(
    st.tuples(st.integers(-5, 5), st.sampled_from([0.0, 0.25, 1.0]), st.sampled_from([0.5, 1.0, 3.0])),
    min_size=1, max_size=40,
)  # fmt: skip


def map_of(*points: tuple[float, float]) -> Isotonic:
    x, y = zip(*points, strict=True)
    return Isotonic(x=x, y=y)


# isotonic maps


@given(rows)
def test_maps_are_scikit_learns(given_rows: list[tuple[int, float, float]]) -> None:
    x, y, w = (np.array(column, dtype=np.float64) for column in zip(*given_rows, strict=True))
    found = fit_isotonic(x, y, w)
    oracle = IsotonicRegression(out_of_bounds="clip").fit(x, y, sample_weight=w)
    asked = np.linspace(-7, 7, 57)
    np.testing.assert_allclose([found(value) for value in asked], oracle.predict(asked), atol=1e-9)
    assert np.all(np.diff(found.x) > 0)
    assert np.all(np.diff(found.y) >= 0)


def test_a_map_by_hand() -> None:
    found = fit_isotonic(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.0, 1.0, 0.0, 1.0]))
    assert [found(each) for each in (0.0, 1.0, 1.5, 2.0, 2.7, 4.0, 9.0)] == [0, 0, 0.25, 0.5, 0.5, 1, 1]
    pooled = fit_isotonic(np.array([1.0, 1.0, 1.0]), np.array([0.0, 1.0, 1.0]))
    assert pooled(1.0) == pytest.approx(2 / 3)
    left = fit_isotonic(np.array([1.0, 2.0]), np.array([1.0, 0.0]), np.array([1.0, 0.0]))
    assert left(2.0) == 1.0  # weight 0 has no say
    flat = fit_isotonic(np.arange(9.0), np.array([0.0] * 4 + [1.0] * 5))
    assert flat.x == (0, 3, 4, 8)


@pytest.mark.parametrize(
    ("x", "y", "w"),
    [([1.0], [0.0, 1.0], None), ([np.nan], [0.0], None), ([1.0], [1.5], None), ([], [], None)]
    + [([1.0], [1.0], w) for w in ([-1.0], [0.0], [np.nan], [np.inf], [1.0, 1.0])],
)
def test_maps_that_are_refused(x: Any, y: Any, w: Any) -> None:
    with pytest.raises(FedsrcError, match="an isotonic fit needs"):
        fit_isotonic(np.array(x), np.array(y), None if w is None else np.array(w))


# FRANQ


def test_the_formula_by_hand() -> None:
    assert Judged(0.75, 0.8, 0.4).true == pytest.approx(0.75 * 0.8 + 0.25 * 0.4)
    assert Judged(1.0, 0.8, 0.4).true == 0.8
    assert Judged(0.0, 0.8, 0.4).true == 0.4
    maps = map_of((0, 0), (1, 1)), map_of((0, 0.2), (1, 0.6)), map_of((0, 0.1), (1, 0.3))
    franq = Franq(support="window", faithful=maps[0], if_faithful=maps[1], if_unfaithful=maps[2])
    assert franq.judge([0.5, 0.25, 1.0]) == Judged(0.5, pytest.approx(0.3), pytest.approx(0.3))  # type: ignore[arg-type]


def sides(answers: Sequence[Answer]) -> tuple[list[TokenScores], list[TokenScores]]:
    return both_sides(answers, Arithmetic())


def test_an_answers_numbers_are_support_and_probability_with_and_without_evidence() -> None:
    answer = development(1)[1]
    present, removed = (each[0] for each in sides([answer]))
    expected = [window_lift(present, removed), mean_probability(present), mean_probability(removed)]
    assert numbers("window", answer, present, removed) == expected
    assert len(set(expected)) == 3
    assert numbers("shortness", answer, present, removed)[0] != expected[0]


def test_a_fit_is_three_weighted_maps() -> None:
    """Another route: scikit-learn on the same numbers, the branches weighted by the first map and its complement."""
    answers = [replace(a, factual=float(not a.loss or i % 3 == 0)) for i, a in enumerate(noisy(30))]
    found = fit_franq(answers, *sides(answers)).parameters
    X = np.array([numbers("window", *each) for each in zip(answers, *sides(answers), strict=True)])
    supported, true = 1 - labels_of(answers), truths(answers)
    faithful = oracle(X[:, 0], supported, np.ones(len(X)))
    weight = faithful.predict(X[:, 0])
    maps = (faithful, oracle(X[:, 1], true, weight), oracle(X[:, 2], true, 1 - weight))
    for row in X:
        judged = found.judge(row.tolist())
        np.testing.assert_allclose(
            judged, [float(m.predict([v])[0]) for m, v in zip(maps, row, strict=True)], atol=1e-9
        )
    assert len({value for value in weight if 0 < value < 1}) > 1  # both branches weigh the same answers


def oracle(x: Floats, y: Floats, w: Floats) -> Any:
    kept = w > 0
    return IsotonicRegression(out_of_bounds="clip").fit(x[kept], y[kept], sample_weight=w[kept])


def noisy(count: int, prefix: str = "s") -> list[Answer]:
    """Development answers whose labels are sometimes wrong, so that no map is sure."""
    answers = development(count, prefix)
    return [replace(a, loss=1 - (a.loss or 0), spans=()) if i % 7 in (0, 3) else a for i, a in enumerate(answers)]


def test_faithfulness_ignores_what_is_factual() -> None:
    answers = noisy(20)
    marked = [replace(a, factual=1.0) for a in answers]
    plain, other = (fit_franq(each, *sides(each)).parameters for each in (answers, marked))
    np.testing.assert_array_equal(plain.faithful.y, other.faithful.y)
    assert set(other.if_unfaithful.y) == {1.0}
    assert set(plain.if_unfaithful.y) != {1.0}


def test_truth_is_the_mark_or_support() -> None:
    answers = development(6)
    np.testing.assert_array_equal(truths(answers), 1 - labels_of(answers))
    marked = [replace(a, factual=1.0) for a in answers]
    assert truths(marked).tolist() == [1.0] * 12
    with pytest.raises(FedsrcError, match="11 of 12 answers are marked as factual or not"):
        truths([answers[0], *marked[1:]])


def test_no_fit_sees_the_fold_it_is_judged_on() -> None:
    """Support that says nothing, and maps flexible enough to learn single answers by heart."""
    answers = [replace(a, loss=float(i % 4 > 1), spans=()) for i, a in enumerate(development(40))]
    fitted = fit_franq(answers, *sides(answers))
    assert abs(fitted.auc - 0.5) < 0.2
    good = development(40)
    assert fit_franq(good, *sides(good)).auc > 0.95


def test_a_kept_franq_writes_its_parts_apart(tmp_path: Path) -> None:
    answers, others = noisy(20), noisy(8, "x")
    fitted = fitted_franq(answers, Arithmetic(), support="familiarity")
    kept = fitted.freeze(tmp_path / "franq", answers, SHA)
    columns = load(tmp_path / "franq").columns(others, Arithmetic())
    assert list(columns) == ["", "faithfulness", "true_if_faithful", "true_if_unfaithful"]
    assert columns == columns_with(fitted.parameters, others, Arithmetic())
    true, faithful, one, two = map(np.array, columns.values())
    np.testing.assert_allclose(true, faithful * one + (1 - faithful) * two)
    assert kept.scores(others, Arithmetic()) == columns[""]
    assert auc(columns["faithfulness"], labels_of(others)) > 0.6
    told = json.loads((tmp_path / "franq" / SCORE).read_text())
    assert told["parameters"]["support"] == "familiarity"
    assert told["training"]["settings"] == {"marked_factual": 0}
    with pytest.raises(FedsrcError, match="share a source"):
        kept.scores(answers[:2], Arithmetic())
    for name, value in (
        ("support", "shortness"),
        ("faithful", {"x": [0, 1], "y": [1, 0]}),
        ("faithful", {"x": [], "y": []}),
    ):
        (tmp_path / "bad").mkdir(exist_ok=True)
        changed = {**told, "parameters": {**told["parameters"], name: value}}
        (tmp_path / "bad" / SCORE).write_text(json.dumps(changed))
        with pytest.raises(FedsrcError, match="not a score of this version"):
            load(tmp_path / "bad")


def test_fits_that_are_refused() -> None:
    answers = development(6)
    with pytest.raises(FedsrcError, match="no score of support 'shortness'"):
        fit_franq(answers, *sides(answers), "shortness")
    with pytest.raises(FedsrcError, match="with and without evidence"):
        fit_franq(answers, sides(answers)[0], [])


# the judge


def said(*logprobs: float) -> TokenScores:
    count = len(logprobs)
    return TokenScores(("x",) * count, np.array(logprobs), np.zeros(count), np.zeros((count, 2), dtype=np.int64))


def test_the_judges_confidence_by_hand() -> None:
    true, false = np.log([0.3, 0.1])
    assert confidence(Judgement(said(true), said(false))) == pytest.approx(0.75)
    assert confidence(Judgement(said(-1.0, true), said(-1.0, false))) == pytest.approx(0.75)
    assert confidence(Judgement(said(-900.0), said(-0.5))) == 0.0
    assert confidence(Judgement(said(-0.5), said(-900.0))) == 1.0


def test_the_judge_reads_evidence_question_and_response() -> None:
    answer = Answer("a", "s", "The lake is {deep}.", "It is deep.", question="How deep?")
    one, other = verdict_pairs(answer)
    assert (one.response, other.response) == CHOICES
    assert one.prompt == other.prompt
    assert one.prompt.endswith(ASKED)
    places = [
        one.prompt.index(part) for part in ("The lake is {deep}.", "Question: How deep?\n", "answer: It is deep.")
    ]
    assert places == sorted(places)
    assert "Question:" not in verdict_pairs(replace(answer, question=""))[0].prompt
    wanted = question_in_words(answer)
    assert wanted.prompt.startswith(one.prompt.removesuffix(ASKED))
    assert wanted.place == 0


@pytest.mark.parametrize(
    ("reply", "value"),
    [(" 85", 0.85), ("0", 0.0), ("100", 1.0), (" 7%.", 0.07), (" 42 ", 0.42)]
    + [(bad, None) for bad in ("", " ", "101", "-5", "85/100", "8.5", "eighty", "85 because", "007", "1e2", "٣")],
)
def test_a_stated_number_is_parsed_strictly(reply: str, value: float | None) -> None:
    assert parsed(reply) == value
    assert stated_confidence(Sample(reply, np.array([-0.1]), finished=True)) == (value or 0.0)
