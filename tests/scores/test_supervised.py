"""Supervised scores without a model: fits against oracles, folds by source, and folders that refuse their own training.

Exact tests, or fixed inputs. Mutants killed: the bias penalised, the penalty halved or on raw columns, a constant
column that explodes on new values, a window that misses an end, a span's border counted on the wrong side, folds that
tear a source or evidence apart, an AUC turned round or pooled over folds or without ties, a float that loses its last
digit in JSON, a digest not compared, sources compared by name alone, `check` left out of `scores`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit

from fedsrc.cli.fit import fit_command
from fedsrc.common.canonical import digest_bytes
from fedsrc.data.answers import Answer
from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats, Ints
from fedsrc.scores.fitted.combine import NAMES, Combination, fit_combination
from fedsrc.scores.fitted.development import FOLDS, auc, cross_validated, folds_of, labels_of, marked_places
from fedsrc.scores.fitted.finetune import Detector
from fedsrc.scores.fitted.fit import Fitted, fitted_combination, fitted_probe
from fedsrc.scores.fitted.frozen import FrozenScore, load
from fedsrc.scores.fitted.logistic import Logistic, fit_logistic
from fedsrc.scores.fitted.probe import Probe, fit_probe, token_labels, worst_stretch
from fedsrc.scores.fitted.score_file import ADAPTER, SCORE, evidence_print, source_print
from fedsrc.scores.fitted.supervised import score_with
from fedsrc.scores.models.model import HiddenModel, Prompted, SamplingModel, TokenScores
from fedsrc.scores.models.torch_tools import Response, Texts
from fedsrc.scores.models.transformers_model import TransformersModel
from fedsrc.scores.recordings.replay import Recording
from tests.support.answers import write_answers

SHA = "0" * 64


class Arithmetic:
    """A stand-in for a language model: numbers made of the texts alone. Supported words gain from the evidence."""

    def __init__(self, revision: str = "r1") -> None:
        self.identity = {"model": "arithmetic", "revision": revision, "backend": "test", "dtype": "float64"}

    def score(self, pairs: Sequence[Prompted]) -> list[TokenScores]:
        return [self._scores(pair) for pair in pairs]

    def _scores(self, pair: Prompted) -> TokenScores:
        offsets = places(pair.response)
        said = tuple(pair.response[a:b] for a, b in offsets)
        logprobs = np.array([-0.5 if word.strip() in pair.prompt else -3.0 - len(word) / 7 for word in said])
        return TokenScores(said, logprobs, -logprobs / 2, offsets)


class Hidden(Arithmetic):
    """The same, with hidden states of four numbers a token."""

    def hidden(self, pairs: Sequence[Prompted], layer: int) -> list[Floats]:
        if layer > 3:
            raise IndexError("tuple index out of range")
        return [
            np.stack([each.logprobs, each.entropy**2, each.logprobs * 0 + layer, each.offsets[:, 0] % 2], 1)
            for each in self.score(pairs)
        ]

    def encode(self, pairs: Sequence[Prompted]) -> Texts:
        return Texts({}, [Response(pair.prompt, [], (), places(pair.response)) for pair in pairs])


def places(text: str) -> Ints:
    """Words, each with the space before it."""
    ends = [i for i, letter in enumerate(text) if letter == " "] + [len(text)]
    return np.array(list(zip([0, *ends[:-1]], ends, strict=True)), dtype=np.int64)


def probed() -> TransformersModel:
    return cast("TransformersModel", Hidden())


WORDS = ("amber", "basil", "cedar", "dune", "elm", "fjord", "grove", "heath", "iris", "jade", "kelp", "loam", "moss")


def development(count: int = 24, prefix: str = "s") -> list[Answer]:
    """Two answers a source: one of the evidence's own words, and one where two words are made up."""
    found = []
    for i in range(count):
        evidence = " ".join(WORDS[(i + k) % len(WORDS)] for k in range(8)) + f" {prefix}{i}"
        true = " ".join(evidence.split()[1:6])
        false = f"{true} zebra{i} quartz"
        spans = ((len(true) + 1, len(false)),) if i % 3 else ()
        for name, response, loss in (("t", true, 0.0), ("f", false, 1.0)):
            found.append(
                Answer(f"{prefix}{i}{name}", f"{prefix}{i}", evidence, response, loss=loss, spans=spans if loss else ())
            )
    return found


def kinds(answers: Sequence[Answer]) -> dict[str, tuple[Any, float | None]]:
    """Fitted numbers of each kind with their AUC; the detector's are made up."""
    combined, probe = fitted_combination(answers, Arithmetic()), fitted_probe(answers, probed(), layer=1, penalty=1.0)
    head = Probe.of(-1, 5, Logistic(np.zeros(4), np.ones(4), np.array([0.1, -0.2, 1 / 3, 5e-324]), -0.7))
    return {
        "combination": (combined.parameters, combined.auc),
        "probe": (probe.parameters, probe.auc),
        "detector": (Detector(head, 2, b"adapter bytes"), None),
    }


def frozen(folder: Path, kind: str, answers: Sequence[Answer] | None = None) -> FrozenScore:
    answers = development() if answers is None else answers
    parameters, area = kinds(answers)[kind]
    return Fitted(parameters, area, Arithmetic().identity, {}).freeze(folder, answers, SHA)


# the logistic fit


def regression(rows: int, columns: int, seed: int) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    X = rng.normal(rng.normal(0, 5, columns), rng.uniform(0.1, 30, columns), (rows, columns))
    return X, (rng.random(rows) < expit((X[:, 0] - X[:, 0].mean()) / X[:, 0].std())).astype(np.float64)


@pytest.mark.parametrize("penalty", [0.3, 30.0])
@pytest.mark.parametrize("seed", range(4))
def test_the_fit_meets_the_conditions_of_its_optimum(seed: int, penalty: float) -> None:
    """Sum of residuals 0 (the bias is free), and Z' residuals = -penalty w over standardised columns."""
    X, y = regression(200, 5, seed)
    fitted = fit_logistic(X, y, penalty=penalty)
    Z = (X - X.mean(0)) / X.std(0)
    residual = fitted.probability(X) - y
    assert residual.sum() == pytest.approx(0, abs=1e-4)
    np.testing.assert_allclose(Z.T @ residual, -penalty * fitted.weights, atol=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_the_fit_is_the_general_minimisers(seed: int) -> None:
    """Nelder-Mead knows no derivative and no scaling: another route to the same minimum."""
    X, y = regression(80, 2, seed)
    Z = (X - X.mean(0)) / X.std(0)

    def loss(theta: Floats) -> float:
        p = expit(Z @ theta[:2] + theta[2])
        return float(-np.sum(np.log(np.where(y == 1, p, 1 - p))) + 2.0 * (theta[0] ** 2 + theta[1] ** 2) / 2)

    found = minimize(loss, np.zeros(3), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 5000})
    fitted = fit_logistic(X, y, penalty=2.0)
    np.testing.assert_allclose([*fitted.weights, fitted.bias], found.x, atol=1e-5)


def test_two_points_have_a_closed_form() -> None:
    """x = -1, 1 with labels 0, 1: the bias is 0 and penalty w = 2 / (1 + exp(w))."""
    w = fit_logistic(np.array([[-1.0], [1.0]]), np.array([0.0, 1.0]), penalty=0.5).weights[0]
    assert 0.5 * w == pytest.approx(2 / (1 + np.exp(w)), abs=1e-7)


def test_a_heavy_penalty_leaves_the_rate() -> None:
    X, y = regression(60, 3, 1)
    np.testing.assert_allclose(fit_logistic(X, y, penalty=1e12).probability(X), y.mean(), atol=1e-6)


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e9 / 7])
def test_a_column_that_never_varies_has_no_say(constant: float) -> None:
    """Kills: a spread of 1e-17, which is rounding, taken for a scale; another value would then decide everything."""
    X, y = regression(7, 2, 3)
    y[:3] = [0, 1, 0]
    X[:, 1] = constant
    fitted = fit_logistic(X, y)
    assert fitted.weights[1] == 0
    moved = X.copy()
    moved[:, 1] += 1.0
    np.testing.assert_array_equal(fitted.probability(moved), fitted.probability(X))


@pytest.mark.parametrize(
    ("X", "y", "penalty", "message"),
    [
        ([[1.0], [np.nan]], [0.0, 1.0], 1.0, "finite"),
        ([[1.0], [np.inf]], [0.0, 1.0], 1.0, "finite"),
        ([[1.0]], [0.0, 1.0], 1.0, "one label"),
        ([[1.0], [2.0]], [0.0, 2.0], 1.0, "in \\[0, 1\\]"),
        ([[1.0], [2.0]], [0.0, np.nan], 1.0, "in \\[0, 1\\]"),
        ([[1.0], [2.0]], [1.0, 1.0], 1.0, "are the same"),
        ([[1.0], [2.0]], [0.0, 1.0], 0.0, "penalty"),
        ([[1.0], [2.0]], [0.0, 1.0], np.nan, "penalty"),
    ],
)
def test_fits_that_are_refused(X: Any, y: Any, penalty: float, message: str) -> None:
    with pytest.raises(FedsrcError, match=message):
        fit_logistic(np.array(X), np.array(y), penalty=penalty)


# the probe


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40), st.integers(1, 12))
def test_the_worst_stretch_decides(risk: list[float], width: int) -> None:
    windows = [risk[i : i + width] for i in range(len(risk) - width + 1)] or [risk]
    worst = max(sum(window) / len(window) for window in windows)
    assert worst_stretch(np.array(risk), width) == pytest.approx(1 - worst, abs=1e-9)


def test_a_probe_scores_by_its_formula() -> None:
    probe = Probe.of(2, 2, Logistic(np.array([1.0, 0.0]), np.array([2.0, 1.0]), np.array([1.0, -1.0]), 0.5))
    states = np.array([[1.0, 0.0], [3.0, 0.0], [1.0, 2.0]])
    risk = expit(np.array([0.5, 1.5, -1.5]))
    np.testing.assert_allclose(probe.token.probability(states), risk)
    assert probe.score(states) == pytest.approx(1 - (risk[0] + risk[1]) / 2)
    with pytest.raises(FedsrcError, match="one label for every token"):
        fit_probe([states], [np.zeros(2)])


@pytest.mark.parametrize(
    ("span", "marked"),
    [((0, 3), [1, 0, 0]), ((2, 3), [1, 0, 0]), ((3, 4), [0, 1, 0]), ((2, 4), [1, 1, 0]), ((7, 9), [0, 0, 1])],
)
def test_a_token_is_marked_if_it_shares_a_character(span: tuple[int, int], marked: list[int]) -> None:
    offsets = np.array([[0, 3], [3, 7], [7, 9]])
    assert token_labels(offsets, [span]).tolist() == marked


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(0, 80), st.integers(1, 9)), max_size=4),
)
def test_token_labels_are_those_of_their_characters(lengths: list[int], starts: list[tuple[int, int]]) -> None:
    ends = np.cumsum(lengths)
    offsets = np.stack([ends - lengths, ends], axis=1)
    spans = [(start, start + length) for start, length in starts]
    inside = {place for start, end in spans for place in range(start, end)}
    expected = [float(any(place in inside for place in range(a, b))) for a, b in offsets]
    assert token_labels(offsets, spans).tolist() == expected


def test_an_empty_offset_is_never_marked_by_its_border() -> None:
    assert token_labels(np.array([[3, 3]]), [(3, 5), (0, 3)]).tolist() == [0]


def test_an_unsupported_answer_without_spans_is_marked_whole() -> None:
    answer = Answer("a", "s", "e", "four", loss=1.0)
    assert marked_places(answer) == ((0, 4),)
    assert marked_places(replace(answer, spans=((1, 2),))) == ((1, 2),)
    assert marked_places(replace(answer, loss=0.0)) == ()
    with pytest.raises(FedsrcError, match="'a' has marked spans and loss 0"):
        marked_places(replace(answer, loss=0.0, spans=((1, 2),)))


# labels, folds and the AUC


def test_labels_that_are_refused() -> None:
    answers = development(5)
    assert labels_of(answers).tolist() == [0, 1] * 5
    with pytest.raises(FedsrcError, match="2 of 10 answers have no label"):
        labels_of([*answers[:-2], *(replace(each, loss=None) for each in answers[-2:])])
    with pytest.raises(FedsrcError, match=r"'s4f' has loss 0\.4; a fit needs 0"):
        labels_of([*answers[:-1], replace(answers[-1], loss=0.4)])
    with pytest.raises(FedsrcError, match="unsupported answers of 4 sources; a fit needs them of at least 5"):
        labels_of(answers[:-1])
    with pytest.raises(FedsrcError, match="unsupported answers of 0 sources"):
        labels_of([each for each in answers if not each.loss])
    with pytest.raises(FedsrcError, match="supported answers of 0 sources"):
        labels_of([])


def test_one_evidence_under_many_names_is_one_source() -> None:
    with pytest.raises(FedsrcError, match="supported answers of 1 sources"):
        labels_of([replace(each, evidence="the same") for each in development(9)])


sources = st.lists(st.tuples(st.integers(0, 14), st.booleans(), st.integers(0, 25)), min_size=1, max_size=60)


@given(sources)
def test_folds_keep_sources_and_evidence_together_and_hold_both_labels(rows: list[tuple[int, bool, int]]) -> None:
    answers = [Answer(str(i), f"s{s}", f"e{e}", "r", loss=float(bad)) for i, (s, bad, e) in enumerate(rows)]
    try:
        labels = labels_of(answers)
    except FedsrcError:
        return
    folds = folds_of(answers, labels)
    for field in ("source", "evidence"):
        for value in {getattr(answer, field) for answer in answers}:
            own = [getattr(answer, field) == value for answer in answers]
            assert len(set(folds[own].tolist())) == 1
    for fold in range(FOLDS):
        assert set(labels[folds == fold].tolist()) == {0.0, 1.0}
    backwards = folds_of(answers[::-1], labels[::-1])[::-1]
    if len({answer.evidence for answer in answers}) == len({answer.source for answer in answers}) == len(answers):
        np.testing.assert_array_equal(backwards, folds)


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=30))
def test_the_auc_counts_pairs(rows: list[tuple[int, bool]]) -> None:
    good, bad = ([score for score, wrong in rows if wrong == side] for side in (False, True))
    if good and bad:
        wins = sum((a > b) + (a == b) / 2 for a in good for b in bad)
        found = auc([score for score, _ in rows], np.array([float(wrong) for _, wrong in rows]))
        assert found == pytest.approx(wins / (len(good) * len(bad)))


def test_no_fit_sees_what_it_is_judged_on() -> None:
    answers = development(11)
    labels, judged = labels_of(answers), []

    def held(train: Ints, test: Ints) -> list[float]:
        assert not {answers[i].source for i in train} & {answers[i].source for i in test}
        assert sorted([*train, *test]) == list(range(len(answers)))
        judged.extend(test.tolist())
        return [1 - float(labels[i]) for i in test]

    assert cross_validated(answers, labels, held) == 1.0
    assert sorted(judged) == list(range(len(answers)))


def test_levels_that_differ_between_folds_do_not_count() -> None:
    """Kills a pooled AUC: each fit has its own level, which says nothing about the answers."""
    answers = development(10)
    labels = labels_of(answers)

    def held(train: Ints, test: Ints) -> list[float]:
        return [float(train.sum()) - float(labels[i]) for i in test]

    assert cross_validated(answers, labels, held) == 1.0


# the combination


def test_a_combination_finds_a_planted_signal() -> None:
    answers = development(40)
    model = Arithmetic()
    present, removed = ([model._scores(Prompted(text, a.response)) for a, text in side] for side in (
        [(a, a.evidence) for a in answers], [(a, "") for a in answers],
    ))  # fmt: skip
    fitted = fit_combination(answers, present, removed)
    assert fitted.auc > 0.99
    weights = dict(zip(NAMES, fitted.parameters.logistic.weights.tolist(), strict=True))
    assert weights["novel share"] > 0 > weights["lift"]
    shuffled = [replace(a, loss=float(i % 4 > 1)) for i, a in enumerate(answers)]
    assert abs(fit_combination(shuffled, present, removed).auc - 0.5) < 0.3
    again = fit_combination(answers, present, removed)
    assert again.parameters.logistic.weights.tolist() == list(weights.values())
    assert again.auc == fitted.auc
    with pytest.raises(FedsrcError, match="with and without evidence"):
        fit_combination(answers, present, removed[1:])


def test_an_answers_score_does_not_depend_on_its_neighbours() -> None:
    fitted = fitted_combination(development(), Arithmetic()).parameters
    others = development(9, "x")
    together = score_with(fitted, others, Arithmetic())
    assert [score_with(fitted, [each], Arithmetic())[0] for each in others] == together


# folders


@pytest.mark.parametrize("kind", ["combination", "probe", "detector"])
def test_a_frozen_score_is_read_back_exactly(tmp_path: Path, kind: str) -> None:
    parameters, area = kinds(development())[kind]
    kept = frozen(tmp_path / "score", kind)
    again = load(tmp_path / "score")
    assert again == kept
    assert kept.kind == kind
    assert kept.identity == {
        "digest": digest_bytes((tmp_path / "score" / SCORE).read_bytes()),
        "kind": kind,
        "model": "arithmetic",
    }
    for one, other in zip(flat(parameters), flat(again.parameters()), strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
    assert kept.document.training.auc == area
    assert kept.document.training.answers == 48
    assert kept.document.training.sources == 24
    assert kept.document.training.generators == {"unknown": 48}
    assert {"fedsrc", "numpy", "scipy"} <= kept.document.training.versions.keys()


def flat(parameters: Any) -> list[Any]:
    if isinstance(parameters, Combination):
        fitted = parameters.logistic
        return [fitted.mean, fitted.scale, fitted.weights, fitted.bias]
    if isinstance(parameters, Detector):
        return [parameters.rank, np.frombuffer(parameters.adapter, dtype=np.uint8), *flat(parameters.head)]
    fitted = parameters.token
    return [parameters.layer, parameters.width, fitted.mean, fitted.scale, fitted.weights, fitted.bias]


@settings(max_examples=50)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=8), st.floats(1e-300, 1e300))
def test_every_float_survives(tmp_path_factory: pytest.TempPathFactory, weights: list[float], scale: float) -> None:
    folder = tmp_path_factory.mktemp("floats")
    row = np.array(weights)
    probe = Probe.of(0, 1, Logistic(row, np.full(row.size, scale), row[::-1].copy(), weights[0]))
    kept = Fitted(probe, None, {}, {"penalty": 3}).freeze(folder, development(5), SHA)
    for one, other in zip(flat(probe), flat(kept.parameters()), strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


def test_scores_are_those_of_the_fit(tmp_path: Path) -> None:
    others = development(7, "x")
    for kind in ("combination", "probe"):
        kept = frozen(tmp_path / kind, kind)
        found = kept.scores(others, Hidden())
        assert found == score_with(kinds(development())[kind][0], others, Hidden())
        assert all(0 <= score <= 1 for score in found)
        assert auc(found, labels_of(others)) == 1.0
        assert kept.scores([], Hidden()) == []


def test_fits_are_deterministic(tmp_path: Path) -> None:
    for kind in ("combination", "probe"):
        first, second = frozen(tmp_path / f"{kind}1", kind), frozen(tmp_path / f"{kind}2", kind)
        assert first.digest == second.digest


def test_training_sources_are_refused_under_any_name(tmp_path: Path) -> None:
    kept = frozen(tmp_path, "combination")
    fresh = development(6, "x")
    kept.check(fresh)
    same_name = replace(fresh[0], id="n", source="s3")
    same_text = replace(fresh[1], id="t", evidence=f"  {development()[4].evidence.replace(' ', chr(10))} ")
    for bad, count in (([same_name], 1), ([same_text], 1), (development()[:5], 5)):
        match = f"{count} of {len(fresh) + count} answers share a source or evidence with its training: '{bad[0].id}'"
        with pytest.raises(FedsrcError, match=match) as caught:
            kept.check([*fresh, *bad])
        assert "look better than it is" in str(caught.value)
        assert str(caught.value).count("'s") <= 3
        with pytest.raises(FedsrcError, match="share a source or evidence"):
            kept.scores([*fresh, *bad], Arithmetic())
    with pytest.raises(FedsrcError, match="share a source"):  # before the model is looked at
        kept.scores([same_name], None)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> FrozenScore:
    return frozen(tmp_path_factory.mktemp("kept"), "probe")


@given(st.sets(st.integers(0, 11)), st.lists(st.integers(0, 23), max_size=12), st.booleans())
def test_exactly_the_answers_of_training_are_refused(
    kept: FrozenScore, trained: set[int], asked: list[int], renamed: bool
) -> None:
    pool = development(12, "x")
    of_training = [answer for answer in pool if int(answer.source[1:]) in trained]
    prints = {
        "source_fingerprints": [source_print(answer.source) for answer in of_training],
        "evidence_fingerprints": [evidence_print(answer.evidence) for answer in of_training],
    }
    training = kept.document.training.model_copy(update=prints)
    known = replace(kept, document=kept.document.model_copy(update={"training": training}))
    answers = [replace(pool[i], source="new") if renamed else replace(pool[i], evidence="new") for i in asked]
    wrong = sum(i // 2 in trained for i in asked)
    if not wrong:
        known.check(answers)
        return
    with pytest.raises(FedsrcError, match=f": {wrong} of {len(asked)} answers"):
        known.check(answers)


def test_another_model_is_refused(tmp_path: Path) -> None:
    kept, fresh = frozen(tmp_path, "combination"), development(3, "x")
    with pytest.raises(FedsrcError, match="'arithmetic', revision 'r1', not with model 'arithmetic', revision 'r2'"):
        kept.scores(fresh, Arithmetic("r2"))
    with pytest.raises(FedsrcError, match="needs the model it was fitted with: model 'arithmetic'"):
        kept.scores(fresh, None)
    other = Arithmetic()
    expected = kept.scores(fresh, other)
    other.identity.update(dtype="bfloat16", backend="another")
    assert kept.scores(fresh, other) == expected


def test_a_backend_without_hidden_states_is_refused(tmp_path: Path) -> None:
    fresh = development(3, "x")
    with pytest.raises(FedsrcError, match="hidden states, which this backend does not give"):
        frozen(tmp_path / "probe", "probe").scores(fresh, Arithmetic())
    with pytest.raises(FedsrcError, match="a detector needs its local model"):
        frozen(tmp_path / "detector", "detector").scores(fresh, Hidden())
    with pytest.raises(FedsrcError, match="the model has no layer 9"):
        fitted_probe(development(), probed(), layer=9)
    assert isinstance(Hidden(), HiddenModel)
    assert not isinstance(Arithmetic(), HiddenModel | SamplingModel)


def test_numbers_that_are_no_scores_are_refused(tmp_path: Path) -> None:
    class Broken(Hidden):
        def hidden(self, pairs: Sequence[Prompted], layer: int) -> list[Floats]:
            return [each * np.nan for each in super().hidden(pairs, layer)]

    class Wide(Hidden):
        def hidden(self, pairs: Sequence[Prompted], layer: int) -> list[Floats]:
            return [np.hstack([each, each]) for each in super().hidden(pairs, layer)]

    kept = frozen(tmp_path, "probe")
    with pytest.raises(FedsrcError, match="no scores"):
        kept.scores(development(2, "x"), Broken())
    with pytest.raises(FedsrcError, match="does not fit the model"):
        kept.scores(development(2, "x"), Wide())


def test_a_recording_can_stand_in_for_the_model(tmp_path: Path) -> None:
    kept, fresh = frozen(tmp_path / "score", "combination"), development(3, "x")
    live = kept.scores(fresh, Recording(tmp_path / "r.jsonl", Arithmetic()))
    assert kept.scores(fresh, Recording(tmp_path / "r.jsonl")) == live


def test_a_score_is_never_written_over_another(tmp_path: Path) -> None:
    frozen(tmp_path / "score", "probe")
    before = (tmp_path / "score" / SCORE).read_bytes()
    with pytest.raises(FedsrcError, match="holds a score already"):
        frozen(tmp_path / "score", "combination")
    assert (tmp_path / "score" / SCORE).read_bytes() == before
    (tmp_path / "file").write_text("x")
    with pytest.raises(FedsrcError, match="holds a score already"):
        frozen(tmp_path / "file", "probe")


def edited(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    def apply(data: bytes) -> bytes:
        value = json.loads(data)
        change(value)
        return json.dumps(value).encode()

    return apply


def set_in(*path: Any, to: Any) -> Callable[[bytes], bytes]:
    def change(value: Any) -> None:
        for part in path[:-1]:
            value = value[part]
        value[path[-1]] = to

    return edited(change)


BAD = {
    "empty": lambda _: b"",
    "not json": lambda _: b"{",
    "not utf-8": lambda data: data.replace(b"arithmetic", b"\xff\xfe"),
    "a list": lambda _: b"[]",
    "deep": lambda _: b"[" * 100_000,
    "format 2": set_in("format", to=2),
    "format true": set_in("format", to=True),
    "unknown kind": set_in("kind", to="forest"),
    "kind of another": set_in("kind", to="combination"),
    "unknown field": set_in("code", to="import os"),
    "a number as text": set_in("parameters", "bias", to="0.5"),
    "nan": lambda data: data.replace(b'"bias": ', b'"bias": NaN, "x": ', 1),
    "too large a number": lambda data: data.replace(b'"bias": ', b'"bias": 1e999, "x": ', 1),
    "a weight less": edited(lambda value: value["parameters"]["weights"].pop()),
    "no weights": edited(lambda value: value["parameters"].update(weights=[], mean=[], scale=[])),
    "a scale of zero": set_in("parameters", "scale", 0, to=0.0),
    "a negative width": set_in("parameters", "width", to=-1),
    "no fingerprints": set_in("training", "source_fingerprints", to=[]),
    "a fingerprint less": edited(lambda value: value["training"]["source_fingerprints"].pop()),
    "no evidence": set_in("training", "evidence_fingerprints", to=[]),
    "a fingerprint in words": set_in("training", "evidence_fingerprints", 0, to="x"),
    "an auc of 2": set_in("training", "auc", to=2.0),
    "a file outside": set_in("files", to={"../../secret": SHA}),
    "other prompts": set_in("prompts", to=SHA),
}


@pytest.mark.parametrize("name", BAD)
def test_hostile_score_files_are_refused(tmp_path: Path, name: str) -> None:
    frozen(tmp_path, "probe")
    path = tmp_path / SCORE
    path.write_bytes(BAD[name](path.read_bytes()))
    with pytest.raises(FedsrcError, match=r"score\.json"):
        load(tmp_path)


def test_a_changed_score_has_another_identity(tmp_path: Path) -> None:
    before = frozen(tmp_path, "probe")
    path = tmp_path / SCORE
    path.write_bytes(set_in("parameters", "bias", to=0.0)(path.read_bytes()))
    assert load(tmp_path).identity["digest"] != before.identity["digest"]


def test_features_of_another_version_are_refused(tmp_path: Path) -> None:
    frozen(tmp_path, "combination")
    path = tmp_path / SCORE
    path.write_bytes(edited(lambda value: value["parameters"]["features"].pop("lift"))(path.read_bytes()))
    with pytest.raises(FedsrcError, match="features are not those of this version"):
        load(tmp_path)


def test_an_adapter_is_checked(tmp_path: Path) -> None:
    kept = frozen(tmp_path, "detector")
    path = tmp_path / ADAPTER
    path.write_bytes(b"other bytes!!")
    with pytest.raises(FedsrcError, match="was changed"):
        load(tmp_path)
    with pytest.raises(FedsrcError, match="was changed since it was loaded"):
        kept.parameters()
    path.unlink()
    with pytest.raises(FedsrcError, match="is missing"):
        load(tmp_path)
    with pytest.raises(FedsrcError, match=r"there is no score\.json"):
        load(tmp_path / "nowhere")


def test_a_crash_before_the_score_leaves_no_score(tmp_path: Path) -> None:
    """An adapter without score.json is no score, and the next fit may write there."""
    (tmp_path / ADAPTER).parent.mkdir()
    (tmp_path / ADAPTER).write_bytes(b"half")
    with pytest.raises(FedsrcError, match="there is no"):
        load(tmp_path)
    assert frozen(tmp_path, "detector").kind == "detector"


# the command


def fit(*arguments: object) -> Any:
    return CliRunner().invoke(fit_command, [str(each) for each in arguments])


def test_the_command_fits_from_a_recording(tmp_path: Path) -> None:
    answers, recording = tmp_path / "dev.jsonl", tmp_path / "r.jsonl"
    write_answers(answers, development())
    expected = fitted_combination(development(), Recording(recording, Arithmetic()))
    done = fit(answers, "-o", tmp_path / "score", "--kind", "combination", "--recording", recording, "--format", "json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    kept = load(tmp_path / "score")
    assert told["digest"] == kept.digest
    assert told["auc"] == expected.auc == kept.document.training.auc
    assert kept.document.training.answers_sha256 == digest_bytes(answers.read_bytes())
    assert kept.document.training.settings == {"penalty": 30}
    again = fit(answers, "-o", tmp_path / "score", "--kind", "combination", "--recording", recording)
    assert "holds a score already" in str(again.exception)
    words = fit(answers, "-o", tmp_path / "two", "--kind", "combination", "--recording", recording, "--penalty", 3)
    assert "Fitted a combination on 48 answers of 24 sources. AUC 1.000 on sources" in words.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kind", "combination", "--layer", 3, "--model", "m"], "`layer=` has no meaning for a combination"),
        (["--kind", "probe", "--epochs", 3, "--model", "m"], "`epochs=` has no meaning for a probe"),
        (["--kind", "probe", "--cross-validate", "--model", "m"], "`cross_validate=` has no meaning for a probe"),
        (["--kind", "detector", "--penalty", 3, "--model", "m"], "`penalty=` has no meaning for a detector"),
        (["--kind", "probe", "--recording", "r.jsonl"], "`recording=` has no meaning for a probe"),
        (["--kind", "combination"], "a fit needs a language model"),
    ],
)
def test_options_of_another_kind_are_refused(tmp_path: Path, arguments: list[object], message: str) -> None:
    done = fit("dev.jsonl", "-o", tmp_path / "score", *arguments)
    assert message in str(done.exception)
    assert not (tmp_path / "score").exists()
