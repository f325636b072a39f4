"""The mechanistic score without a model: its formulas by hand, its choices by development answers alone, its folder.

Exact tests, or fixed inputs. Mutants killed: a divergence over one side only, in bits, or that fails where a
probability is zero; a cosine without its norms; heads or layers ranked the wrong way round or by other answers than
those of the fit; an AUC whose choices saw the fold it is taken on; layer and head swapped on the way to disk; signals
of another model or version taken as they are; a recording that gives other numbers than were used.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedsrc.data.answers import Answer
from fedsrc.errors import FedsrcError
from fedsrc.scores.fitted import mechanistic
from fedsrc.scores.fitted.development import auc, folds_of, labels_of
from fedsrc.scores.fitted.fit import Fitted, fitted_mechanistic
from fedsrc.scores.fitted.frozen import load
from fedsrc.scores.fitted.logistic import Logistic
from fedsrc.scores.fitted.mechanistic import (
    Mechanistic,
    Signals,
    areas,
    attended,
    chosen_columns,
    cosine,
    divergence,
    fit_mechanistic,
)
from fedsrc.scores.fitted.score_file import SCORE
from fedsrc.scores.fitted.supervised import pairs_of, score_with
from fedsrc.scores.recordings.replay import pair_key
from fedsrc.scores.recordings.signal_recording import SignalRecording, beside
from tests.scores.test_supervised import SHA, Arithmetic, development

LAYERS, HEADS = 3, 4
GOOD_HEAD, GOOD_LAYER = (1, 2), 2


def planted(answers: list[Answer], seed: int = 0, strength: float = 0.3) -> list[Signals]:
    """Noise, but one head looks at the evidence less, and one layer adds more, where an answer is unsupported."""
    rng, found = np.random.default_rng(seed), []
    for answer in answers:
        external, parametric = rng.uniform(0.2, 0.6, (LAYERS, HEADS)), rng.uniform(0.1, 0.3, LAYERS)
        external[GOOD_HEAD] -= strength * (answer.loss or 0)
        parametric[GOOD_LAYER] += strength * (answer.loss or 0)
        found.append(Signals(external, parametric))
    return found


# formulas


def test_the_divergence_by_hand() -> None:
    half, sure = np.log([0.5, 0.5]), np.array([0.0, -200.0])
    assert divergence(half, half) == 0
    expected = (0.5 * np.log(0.5 / 0.75) + 0.5 * np.log(0.5 / 0.25) + np.log(1 / 0.75)) / 2
    assert divergence(half, sure) == pytest.approx(expected)
    apart = np.array([0.0, -200.0]), np.array([-200.0, 0.0])
    assert divergence(*apart) == pytest.approx(np.log(2))
    both_zero = np.array([0.0, -800.0, -800.0]), np.array([0.0, -800.0, -900.0])
    assert divergence(*both_zero) == 0


@given(arrays(np.float64, (2, 5), elements=st.floats(-30, 30)))
def test_the_divergence_is_the_mean_of_two_relative_entropies(logits: Any) -> None:
    log_p, log_q = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    p, q = np.exp(log_p), np.exp(log_q)
    m = (p + q) / 2
    expected = (np.sum(p * np.log(p / m)) + np.sum(q * np.log(q / m))) / 2
    assert divergence(log_p, log_q) == pytest.approx(expected, abs=1e-12)
    assert divergence(log_q, log_p) == pytest.approx(divergence(log_p, log_q), abs=1e-12)
    assert -1e-12 <= divergence(log_p, log_q) <= np.log(2) + 1e-12


def test_the_cosine_by_hand() -> None:
    a, b = np.array([[3.0, 4.0], [1.0, 0.0]]), np.array([[4.0, 3.0], [0.0, 5.0]])
    np.testing.assert_allclose(cosine(a, b), [24 / 25, 0.0])
    assert cosine(10 * a[0], b[0]) == pytest.approx(24 / 25)


@pytest.mark.parametrize(("prompt", "count"), [(1, 1), (9, 1), (19, 1), (20, 2), (1000, 100)])
def test_a_tenth_of_the_prompt_is_attended_to(prompt: int, count: int) -> None:
    assert attended(prompt) == count


def test_the_score_by_its_formula() -> None:
    logistic = Logistic(np.array([1.0, 2.0]), np.array([2.0, 4.0]), np.array([0.5, -1.5]), 0.25)
    score = Mechanistic.of(((0, 1), (2, 3)), (0, 2), logistic)
    external = np.arange(12.0).reshape(LAYERS, HEADS) / 12
    parametric = np.array([0.1, 0.2, 0.5])
    z = 0.5 * (0.1 + 0.5 - 1) / 2 - 1.5 * (1 / 12 + 11 / 12 - 2) / 4 + 0.25
    assert score.score(Signals(external, parametric)) == pytest.approx(1 - 1 / (1 + np.exp(-z)))
    for wrong in (
        score.model_copy(update={"heads": ((0, HEADS),)}),
        score.model_copy(update={"heads": ((LAYERS, 0),)}),
        score.model_copy(update={"layers": (3,)}),
    ):
        with pytest.raises(FedsrcError, match="does not fit the model"):
            wrong.score(Signals(external, parametric))


@pytest.mark.parametrize(
    ("external", "parametric"),
    [([[0.1]], [0.1, 0.2]), ([0.1], [0.1]), ([[1.1]], [0.1]), ([[np.nan]], [0.1]), ([[0.1]], [-0.1]), ([[]], [0.1])],
)
def test_signals_that_are_refused(external: Any, parametric: Any) -> None:
    with pytest.raises(FedsrcError, match="signals are"):
        Signals(np.array(external), np.array(parametric))


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=30))
def test_areas_are_the_auc_of_each_column(rows: list[tuple[int, bool]]) -> None:
    labels = np.array([float(bad) for _, bad in rows])
    if 0 < labels.sum() < len(labels):
        column = np.array([float(value) for value, _ in rows])
        found = areas(np.stack([column, -column], axis=1), labels)
        np.testing.assert_allclose(found, [auc(column.tolist(), labels), auc((-column).tolist(), labels)])


# the fit


def test_a_fit_finds_the_planted_head_and_layer() -> None:
    answers = development(40)
    fitted = fit_mechanistic(answers, planted(answers))
    assert GOOD_HEAD in fitted.parameters.heads
    assert GOOD_LAYER in fitted.parameters.layers
    assert fitted.auc > 0.95
    alpha, beta = fitted.parameters.logistic.weights
    assert alpha > 0 > beta
    others = development(30, "x")
    scores = [fitted.parameters.score(each) for each in planted(others, seed=1)]
    assert auc(scores, labels_of(others)) > 0.95
    again = fit_mechanistic(answers, planted(answers))
    assert again.parameters.heads == fitted.parameters.heads
    assert again.auc == fitted.auc


def test_choices_are_part_of_what_is_judged() -> None:
    """Noise, with far more heads than answers: the best of them looks fine where it was chosen, and not elsewhere.

    Kills heads chosen before the folds are parted: the AUC would be near 0.9 (fixed seed, so no chance is involved).
    """
    answers, rng = development(20), np.random.default_rng(3)
    noise = [Signals(rng.uniform(0, 1, (10, 40)), rng.uniform(0, 0.5, 10)) for _ in answers]
    labels = labels_of(answers)
    fitted = fit_mechanistic(answers, noise)
    inside = auc([fitted.parameters.score(each) for each in noise], labels)
    assert inside > 0.8
    assert fitted.auc < 0.7


@pytest.mark.parametrize("fold", range(5))
def test_a_fit_sees_its_own_answers_alone(fold: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels and signals of held-out sources can be anything: heads, layers, scales and weights stay as they are."""
    answers = development(25)
    labels, found = labels_of(answers), planted(answers, strength=0.1)
    own = folds_of(answers, labels) == fold
    turned = [replace(a, loss=1 - (a.loss or 0), spans=()) if held else a for a, held in zip(answers, own, strict=True)]
    changed = [
        Signals(1 - each.external, each.parametric[::-1].copy()) if held else each
        for each, held in zip(found, own, strict=True)
    ]
    seen = [fits_of(given, monkeypatch) for given in ((answers, found), (turned, changed))]
    one, other = (fits[fold] for fits in seen)
    assert one.heads == other.heads
    assert one.layers == other.layers
    assert flat(one) == flat(other)
    assert flat(seen[0][-1]) != flat(seen[1][-1])  # the fit on all of them


def fits_of(given: tuple[list[Answer], list[Signals]], monkeypatch: pytest.MonkeyPatch) -> list[Mechanistic]:
    """Every fit that a fit makes: the five of its cross-validation, in the order of the folds, and itself."""
    made: list[Mechanistic] = []
    usual = mechanistic._fit

    def watched(*rows: Any) -> Mechanistic:
        made.append(usual(*rows))
        return made[-1]

    monkeypatch.setattr(mechanistic, "_fit", watched)
    fit_mechanistic(*given)
    monkeypatch.undo()
    return [*made[1:], made[0]]


def test_columns_are_chosen_by_their_auc_and_their_number_in_folds_left_out() -> None:
    """The first column tells all; the sum of it and three of noise, far larger, tells nothing."""
    rng = np.random.default_rng(1)
    labels, folds = np.array([0.0, 1.0] * 20), np.repeat(np.arange(5), 8)
    noise = rng.uniform(-9, 9, (40, 6))
    columns = np.column_stack([noise[:, :3], 1 - labels, noise[:, 3:]])
    assert chosen_columns(columns, labels, folds, (1, 4)) == [3]
    assert chosen_columns(columns, labels, folds, (4,))[:1] != [3]
    assert len(chosen_columns(columns, labels, folds, (4,))) == 4
    assert len(chosen_columns(columns, labels, folds, (64,))) == 7
    weak = (1 - labels)[:, None] + rng.normal(0, 2.0, (40, 7))
    assert len(chosen_columns(weak, labels, folds, (1, 7))) == 7


def test_signals_must_fit_the_answers() -> None:
    answers = development(12)
    with pytest.raises(FedsrcError, match="every answer's signals, of one model"):
        fit_mechanistic(answers, planted(answers)[1:])
    with pytest.raises(FedsrcError, match="of one model"):
        fit_mechanistic(answers, [*planted(answers)[1:], Signals(np.zeros((2, 2)), np.zeros(2))])


# folders and recordings


def flat(found: Mechanistic) -> list[float]:
    fitted = found.logistic
    return [*fitted.mean, *fitted.scale, *fitted.weights, fitted.bias]


def recorded(path: Path, answers: list[Answer], found: list[Signals]) -> SignalRecording:
    """A recording as a model would have left it."""
    head = {"format": 1, "identity": {**Arithmetic().identity, "signals": "prompt tokens attended to: 0.1"}}
    rows = [
        {"key": pair_key(pair), "external": each.external.tolist(), "parametric": each.parametric.tolist()}
        for pair, each in zip(pairs_of(answers, "present"), found, strict=True)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in (head, *rows)))
    return SignalRecording(path)


@pytest.fixture
def fitted(tmp_path: Path) -> Fitted:
    answers = development(20)
    return fitted_mechanistic(answers, recorded(tmp_path / "dev.signals.jsonl", answers, planted(answers)))


def test_a_kept_score_is_read_back_and_replayed(fitted: Fitted, tmp_path: Path) -> None:
    kept = fitted.freeze(tmp_path / "mech", development(20), SHA)
    again = load(tmp_path / "mech").parameters()
    assert isinstance(again, Mechanistic)
    assert isinstance(fitted.parameters, Mechanistic)
    assert again.heads == fitted.parameters.heads
    assert again.layers == fitted.parameters.layers
    np.testing.assert_array_equal(flat(again), flat(fitted.parameters))
    assert kept.kind == "mechanistic"
    told = json.loads((tmp_path / "mech" / SCORE).read_text())
    assert told["parameters"]["method"].startswith("ReDeEP-style adaptation")
    assert told["model"]["model"] == "arithmetic"
    assert told["training"]["settings"]["heads"] == len(fitted.parameters.heads)
    others = development(6, "x")
    replayed = recorded(tmp_path / "x.signals.jsonl", others, planted(others, seed=2))
    assert kept.scores(others, replayed) == score_with(fitted.parameters, others, replayed)
    assert auc(kept.scores(others, replayed), labels_of(others)) > 0.9
    with pytest.raises(FedsrcError, match="share a source"):
        kept.scores(development(20)[:2], replayed)
    with pytest.raises(FedsrcError, match="attention and states, which this backend does not give"):
        kept.scores(others, Arithmetic())
    with pytest.raises(FedsrcError, match="4 of 4 pairs of prompt and response are not in the recording"):
        kept.scores(development(2, "y"), replayed)


def set_parameter(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document["parameters"].__setitem__(name, value)


BAD = {
    "another share": set_parameter("attended_share", 0.2),
    "a head twice": set_parameter("heads", [[0, 1], [0, 1]]),
    "a layer twice": set_parameter("layers", [1, 1]),
    "no heads": set_parameter("heads", []),
    "a negative layer": set_parameter("layers", [-1]),
    "a head without a layer": set_parameter("heads", [[1]]),
    "another method": set_parameter("method", "ReDeEP"),
    "a scale of zero": set_parameter("external", {"mean": 0.0, "scale": 0.0, "weight": 1.0}),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_folders_are_refused(fitted: Fitted, tmp_path: Path, name: str) -> None:
    fitted.freeze(tmp_path / "mech", development(20), SHA)
    path = tmp_path / "mech" / SCORE
    document = json.loads(path.read_text())
    BAD[name](document)
    path.write_text(json.dumps(document))
    with pytest.raises(FedsrcError, match="not a score of this version"):
        load(tmp_path / "mech")


def test_recordings_that_are_refused(tmp_path: Path) -> None:
    answers = development(5)
    path = tmp_path / "s.jsonl"
    recorded(path, answers, planted(answers))
    lines = path.read_text().splitlines()
    for number, wrong, message in (
        (0, json.dumps({"format": 1, "identity": Arithmetic().identity}), "not a recording of mechanistic signals"),
        (1, json.dumps({"key": "k"}), "line 2: is not a row of mechanistic signals"),
        (1, json.dumps({"key": "k", "external": [["x"]], "parametric": [1]}), "not a row of mechanistic signals"),
        (1, json.dumps({"key": "k", "external": [[0.1], [0.1, 0.2]], "parametric": [0, 0]}), "not a row"),
        (1, json.dumps({"key": "k", "external": [[7.0]], "parametric": [0]}), "signals are cosines"),
    ):
        path.write_text("\n".join([*lines[:number], wrong, *lines[number + 1 :]]) + "\n")
        with pytest.raises(FedsrcError, match=message):
            SignalRecording(path)
    with pytest.raises(FedsrcError, match="there is no such recording"):
        SignalRecording(tmp_path / "none.jsonl")
    assert beside(Path("a/records.parquet.recording.jsonl"), "signals") == Path(
        "a/records.parquet.recording.signals.jsonl"
    )
