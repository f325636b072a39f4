"""Scores are pure functions over token arrays, in [0, 1]; recordings replay them; controls change the evidence alone.

Mutants killed: lift not clipped at 0 or B, divided by the wrong count, a window that misses the last position, evidence
controls that leak the answer's own evidence, a recording that asks the model twice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsrc.data.answers import Answer
from fedsrc.errors import FedsrcError
from fedsrc.scores.methods.confidence import mean_entropy, mean_probability
from fedsrc.scores.methods.control_scores import familiarity, is_refusal, novel_words, shortness
from fedsrc.scores.methods.lift import mean_lift, token_lift, window_lift
from fedsrc.scores.models.model import Prompted, TokenScores
from fedsrc.scores.models.torch_tools import batches
from fedsrc.scores.prompts import controlled, prompt
from fedsrc.scores.recordings.replay import Recording

logprobs = st.lists(st.floats(-30, 0), min_size=1, max_size=60)


def scored(values: Sequence[float], entropy: float = 1.0) -> TokenScores:
    n = len(values)
    spans = np.stack([np.arange(n), np.arange(n) + 1], axis=1)
    return TokenScores(
        tuple(f"t{i}" for i in range(n)), np.asarray(values, dtype=np.float64), np.full(n, entropy), spans
    )


@given(logprobs, st.integers(0, 10**6), st.floats(0.5, 10), st.integers(1, 25))
def test_lift_follows_its_formula(values: list[float], seed: int, B: float, width: int) -> None:
    other = np.minimum(0, np.asarray(values) + np.random.default_rng(seed).normal(0, 3, len(values)))
    present, removed = scored(values), scored(other.tolist())
    u = [min(B, max(0.0, a - b)) / B for a, b in zip(values, other, strict=True)]
    assert token_lift(present, removed, B=B) == pytest.approx(u)
    assert mean_lift(present, removed, B=B) == pytest.approx(sum(u) / len(u))
    windows = [sum(u[i : i + width]) / width for i in range(len(u) - width + 1)] or [sum(u) / len(u)]
    assert window_lift(present, removed, B=B, width=width) == pytest.approx(min(windows), abs=1e-9)
    assert 0 <= window_lift(present, removed, B=B, width=width) <= 1


def test_lift_is_zero_without_evidence_on_either_side() -> None:
    same = scored([-1.0, -2.0, -3.0])
    assert mean_lift(same, same) == window_lift(same, same) == 0.0


def test_lift_needs_the_same_tokens() -> None:
    with pytest.raises(FedsrcError, match="same tokens"):
        mean_lift(scored([-1.0]), scored([-1.0, -2.0]))


@given(logprobs, st.floats(0, 12))
def test_confidence_lies_in_the_unit_interval(values: list[float], entropy: float) -> None:
    present = scored(values, entropy)
    assert mean_probability(present) == pytest.approx(np.mean(np.exp(values)))
    assert mean_entropy(present) == pytest.approx(math.exp(-entropy))


@pytest.mark.parametrize("bad", [[], [math.nan], [0.5], [-math.inf]])
def test_models_must_give_log_probabilities(bad: list[float]) -> None:
    with pytest.raises(FedsrcError):
        scored(bad)


def test_controls() -> None:
    assert novel_words("The cat sat on Mars", "a cat sat here") == 1
    assert familiarity("cat", "a cat") == 1.0
    assert shortness("") == 1.0
    assert shortness("w " * 50) == 0.5
    assert is_refusal("I am unable to answer based on given passages.")
    assert is_refusal("The passages do not provide the phone number.")
    assert not is_refusal("Paris is the capital of France.")
    assert not is_refusal("There is no information on that. " + "But here is a long story. " * 20)


def answers() -> list[Answer]:
    return [
        Answer(
            id=str(i),
            source=f"s{i}",
            group="ab"[i % 2],
            evidence=f"evidence {i} " * (i + 1),
            response="r",
            question="q?",
        )
        for i in range(6)
    ]


def test_evidence_controls_change_the_evidence_alone() -> None:
    own = answers()
    assert controlled(own, "present") == [a.evidence for a in own]
    assert controlled(own, "removed") == [""] * 6
    for control in ("neutral", "irrelevant"):
        texts = controlled(own, control)
        assert [len(text) for text in texts] == [len(a.evidence) for a in own]
    by_evidence = {a.evidence: a for a in own}
    for answer, text in zip(own, controlled(own, "shuffled"), strict=True):
        assert by_evidence[text].group == answer.group
        assert by_evidence[text].source != answer.source
    for answer, text in zip(own, controlled(own, "irrelevant"), strict=True):
        assert not text.startswith(answer.evidence[:10])
    first = prompt(own[0], "X")
    assert first == "Context:\nX\n\nQuestion: q?\nAnswer: "
    assert controlled(own, "shuffled") == controlled(own, "shuffled")
    with pytest.raises(FedsrcError, match="other sources"):
        controlled(own[:1], "shuffled")


def test_lengths_can_be_tokens() -> None:
    own = answers()
    for text, answer in zip(controlled(own, "neutral", lambda t: len(t.split())), own, strict=True):
        assert len(text.split()) == len(answer.evidence.split())


class CountingModel:
    """A stand-in that only counts what it is asked: recordings, not scores, are under test."""

    def __init__(self) -> None:
        self.asked: list[Prompted] = []
        self.identity = {"backend": "counting"}

    def score(self, pairs: Sequence[Prompted]) -> list[TokenScores]:
        self.asked += pairs
        return [scored([-float(len(pair.prompt)) - 1]) for pair in pairs]


def test_a_recording_asks_once_and_survives_a_torn_line(tmp_path: Path) -> None:
    path, model = tmp_path / "r.jsonl", CountingModel()
    pairs = [Prompted("a", "x"), Prompted("bb", "x"), Prompted("a", "x")]
    first = Recording(path, model).score(pairs)
    assert len(model.asked) == 2
    again = Recording(path).score(pairs)
    assert [s.logprobs.tolist() for s in again] == [s.logprobs.tolist() for s in first] == [[-2.0], [-3.0], [-2.0]]
    path.write_bytes(path.read_bytes()[:-10])
    resumed = Recording(path, model)
    assert resumed.missing(pairs) == [pairs[1]]
    resumed.score(pairs)
    assert len(model.asked) == 3
    with pytest.raises(FedsrcError, match="1 of 1 pairs of prompt and response are not in the recording"):
        Recording(path).score([Prompted("new", "x")])
    path.write_text(path.read_text().splitlines()[0] + '\n{"key": "k"}\n')
    with pytest.raises(FedsrcError, match="not a recorded response"):
        Recording(path)


@given(st.lists(st.integers(1, 3000), max_size=80), st.integers(100, 9000))
def test_batches_hold_everything_once_within_the_budget(lengths: list[int], budget: int) -> None:
    found = list(batches(lengths, budget))
    assert sorted(place for batch in found for place in batch) == list(range(len(lengths)))
    for batch in found:
        assert len(batch) == 1 or max(lengths[i] for i in batch) * len(batch) <= budget


def test_large_batches_hold_little_padding() -> None:
    """Mutants killed: no padding limit, the limit on small batches too (one row each), width of the wrong row."""
    lengths = [1000] * 4 + [100] * 400 + [7] * 3
    found = list(batches(lengths, 8192))
    for batch in found:
        width = max(lengths[i] for i in batch)
        padded = 1 - sum(lengths[i] for i in batch) / (width * len(batch))
        assert padded <= 0.1 or 8 * width * (len(batch) - 1) <= 8192
    assert len(found) <= 8
    assert len(list(batches([9, 8, 7, 6], 8192))) == 1  # too small to be split
