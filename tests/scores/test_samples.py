"""Drawn responses: drawn once, stored, shared by scores, replayed without a model; and the command that does it.

A model of words stands in for weights here (tests.models has the real ones): a response is words of the prompt. Texts
are embedded as counts of words, and entail each other when they hold each other's words.
Mutants killed: chances that depend on the count or on other prompts, top-p that keeps one token too few or too many, a
recording that draws twice or forgets the order, a score that takes more samples than it was given, a column that does
not say how it compared, entailment ignored when it is at hand.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from fedsrc.cli import score as cli_score
from fedsrc.data.answers import Answer
from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats
from fedsrc.scores import opening
from fedsrc.scores.catalogue import BASIC, SAMPLED, SCORES, Settings
from fedsrc.scores.methods.lexical import words
from fedsrc.scores.models.drawing import chances, cut, pick, request_seed
from fedsrc.scores.models.embedding import Embedded
from fedsrc.scores.models.entailment import Entailed, Pair, label_columns
from fedsrc.scores.models.model import Prompted, Sample, Sampling, TokenScores, Wanted
from fedsrc.scores.models.transformers_sampling import ended
from fedsrc.scores.recordings.samples import SampleRecording
from fedsrc.scores.scoring import Means, score_answers
from tests.support.answers import write_answers

FACTS = ("the tower is old", "the river is long and cold", "a bridge was built in spring")
BY_EMBEDDING = [name for name in SAMPLED if name != "selfcheck-nli"]


class Words:
    """Draws responses of three words of the prompt, and counts how many it drew."""

    def __init__(self, revision: str = "1") -> None:
        self.identity = {"model": "words", "revision": revision}
        self.drawn: list[Wanted] = []

    def score(self, pairs: Sequence[Prompted]) -> list[TokenScores]:
        raise AssertionError("no score here needs token scores")

    def sample(self, wanted: Sequence[Wanted], how: Sampling) -> list[Sample]:
        self.drawn += wanted
        return [self._one(each, how) for each in wanted]

    def _one(self, wanted: Wanted, how: Sampling) -> Sample:
        known = words(wanted.prompt.removesuffix("Answer: "))
        picked = [known[int(chance * len(known))] for chance in chances(wanted, how.seed, 3)]
        return Sample(" ".join(picked), -chances(wanted, how.seed + 1, 4), True)


class Counts:
    """Embeds a text as counts of its words."""

    identity = {"model": "counts"}  # noqa: RUF012

    def embed(self, texts: Sequence[str]) -> Floats:
        found = np.zeros((len(texts), 97))
        for row, text in zip(found, texts, strict=True):
            for word in words(text) or [""]:
                row[sum(word.encode()) % 97] += 1
        return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True))


class Subsets:
    """A text entails what holds no other words, contradicts what shares none, and is neutral otherwise."""

    identity = {"model": "subsets"}  # noqa: RUF012

    def judge(self, pairs: Sequence[Pair]) -> Floats:
        return np.array([self._one(set(words(each.premise)), set(words(each.hypothesis))) for each in pairs])

    def _one(self, premise: set[str], hypothesis: set[str]) -> tuple[float, float, float]:
        return (
            (0.8, 0.1, 0.1)
            if hypothesis <= premise
            else (0.1, 0.2, 0.7)
            if not hypothesis & premise
            else (0.1, 0.8, 0.1)
        )


def answers(count: int = 6) -> list[Answer]:
    return [
        Answer(
            id=f"a{i}", source=f"s{i // 2}", evidence=FACTS[i // 2 % 3], question=f"what {i // 2}",
            response=FACTS[i // 2 % 3] if i % 2 else "nobody knows. Giants built it!", loss=float(i % 2 == 0),
        )
        for i in range(count)
    ]  # fmt: skip


Call = Callable[..., Result]


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Words:
    made = Words()
    monkeypatch.setattr(opening, "open_model", lambda *_, **__: made)
    monkeypatch.setattr(opening, "load_embedder", lambda *_, **__: Counts())
    monkeypatch.setattr(opening, "load_entailment", lambda *_, **__: Subsets())
    return made


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.chdir(tmp_path)
    write_answers(tmp_path / "answers.jsonl", answers())
    return lambda *args: CliRunner().invoke(cli_score.score_command, ["answers.jsonl", *args])


def named(names: Sequence[str]) -> list[str]:
    return [part for name in names for part in ("--score", name)]


def manifest(name: str = "records.parquet") -> dict[str, object]:
    found: dict[str, object] = json.loads(Path(f"{name}.manifest.json").read_text())
    return found


@given(st.text(), st.integers(0, 50), st.integers(0, 9))
def test_chances_belong_to_one_draw(prompt: str, place: int, seed: int) -> None:
    own = chances(Wanted(prompt, place), seed, 20)
    assert np.all((own >= 0) & (own < 1))
    assert chances(Wanted(prompt, place), seed, 7).tolist() == own[:7].tolist()
    for other in (Wanted(prompt, place + 1), Wanted(f"{prompt} ", place)):
        assert not np.any(chances(other, seed, 20) == own)
    assert not np.any(chances(Wanted(prompt, place), seed + 1, 20) == own)
    assert 0 <= request_seed(Wanted(prompt, place), seed) < 2**31


def test_what_a_chance_falls_on() -> None:
    """p = (0.1, 0.6, 0.3): in order of probability 1, 2, 0; top-p 0.6 keeps token 1 alone, 0.61 the first two."""
    logprobs = np.log([0.1, 0.6, 0.3])
    plain, narrow, wider = (Sampling(top_p=p) for p in (1.0, 0.6 - 1e-9, 0.61))
    assert [pick(logprobs, c, plain) for c in (0.0, 0.59, 0.61, 0.89, 0.91, 1 - 1e-12)] == [1, 1, 2, 2, 0, 0]
    assert [pick(logprobs, c, narrow) for c in (0.0, 0.5, 1 - 1e-12)] == [1, 1, 1]
    assert [pick(logprobs, c, wider) for c in (0.66, 0.67, 1 - 1e-12)] == [1, 2, 2]
    assert pick(logprobs, 0.72, Sampling(temperature=0.5, top_p=1.0)) == 1  # squared: 36 of 46
    assert pick(logprobs, 0.82, Sampling(temperature=0.5, top_p=1.0)) == 2


def test_draws_follow_the_probabilities() -> None:
    """10,000 draws: each share within 6 standard deviations (chance of a false alarm below 1e-8).

    Mutants killed: temperature multiplied, a chance used twice.
    """
    logprobs, how = np.log([0.5, 0.3, 0.2]), Sampling(top_p=1.0)
    found = [pick(logprobs, float(c), how) for i in range(100) for c in chances(Wanted("p", i), 0, 100)]
    shares = np.bincount(found, minlength=3) / len(found)
    for share, p in zip(shares, (0.5, 0.3, 0.2), strict=True):
        assert abs(share - p) < 6 * math.sqrt(p * (1 - p) / len(found))


def test_stops() -> None:
    assert cut("one\nQuestion: two\nContext:", ("\nContext:", "\nQuestion:")) == "one"
    assert cut("one", ("\nContext:",)) is None


class Bytes:
    """Tokens as text where a run of bytes that are no character becomes one mark each, its line feeds too."""

    ends = frozenset({6})
    tokens = ("Rome", b"\n", b"\xe2", " is", " big", b"\n", "")

    def text(self, ids: Sequence[int]) -> str:
        found, run = "", b""
        for token in (*(self.tokens[i] for i in ids), ""):
            if isinstance(token, bytes):
                run += token
                continue
            try:
                found += run.decode()
            except UnicodeDecodeError:
                found += "\ufffd" * len(run)
            found, run = found + token, b""
        return found


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([0, 1, 2, 3, 4, 5], ("Rome\ufffd\ufffd is big", 6)),  # the first line feed was part of no character
        ([0, 1, 2, 3, 4, 6], ("Rome\ufffd\ufffd is big", 6)),
        ([0, 1, 3], ("Rome", 2)),
        ([0, 3, 4], None),
    ],
)
def test_a_stopped_response_counts_the_tokens_of_its_text(ids: list[int], expected: tuple[str, int] | None) -> None:
    """Mutant killed: tokens up to the first that shows any stop, one that later tokens take back."""
    assert ended(Bytes(), ids, Sampling(max_tokens=16, stops=("\n",))) == expected
    with pytest.raises(FedsrcError, match="temperature above 0"):
        Sampling(temperature=0.0)


def test_responses_are_drawn_once_and_drawn_on(tmp_path: Path) -> None:
    path, model = tmp_path / "s.jsonl", Words()
    five = [Wanted(prompt, place) for prompt in "ab" for place in range(5)]
    first = SampleRecording(path, model).sample(five)
    again = SampleRecording(path, model)
    assert [each.text for each in again.sample(five[:2])] == [each.text for each in first[:2]]
    assert len(model.drawn) == 10
    more = again.sample([Wanted("a", place) for place in (7, 5, 0)])
    assert model.drawn[10:] == [Wanted("a", 5), Wanted("a", 6), Wanted("a", 7)]  # no gap is left
    fresh = Words().sample([Wanted("a", place) for place in (7, 5, 0)], Sampling())
    assert [each.text for each in more] == [each.text for each in fresh]
    replayed = SampleRecording(path)
    assert replayed.recorded == 13
    assert [each.logprobs.tolist() for each in replayed.sample(five)] == [each.logprobs.tolist() for each in first]
    with pytest.raises(FedsrcError, match="1 of 1 responses are not in the recording"):
        replayed.sample([Wanted("b", 5)])


def test_a_recording_of_another_way_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    SampleRecording(path, Words()).sample([Wanted("a", 0)])
    with pytest.raises(FedsrcError, match="recorded with another sampling"):
        SampleRecording(path, Words(), Sampling(temperature=0.5))
    with pytest.raises(FedsrcError, match="recorded with another revision"):
        SampleRecording(path, Words("2"))
    path.write_text(path.read_text() + path.read_text().splitlines()[1] + "\n")
    with pytest.raises(FedsrcError, match="not the next of its prompt's responses"):
        SampleRecording(path)
    path.write_text('{"format": 1, "identity": {"model": "m"}}\n')
    with pytest.raises(FedsrcError, match="not a recording of drawn responses"):
        SampleRecording(path)


@pytest.mark.parametrize(
    "row",
    [
        {"start": 1}, {"start": True}, {"samples": [{}]},
        {"samples": [{"text": 1, "logprobs": [-1], "finished": True}]},
        {"samples": [{"text": "", "logprobs": [], "finished": True}]}, {"key": 1},
        {"samples": [{"text": "", "logprobs": ["-1"], "finished": True}]},
        {"samples": [{"text": "", "logprobs": [1.0], "finished": True}]},
        {"samples": [{"text": "", "logprobs": [-1.0], "finished": 1}]},
    ],
)  # fmt: skip
def test_damaged_rows_are_refused(tmp_path: Path, row: dict[str, object]) -> None:
    path = tmp_path / "s.jsonl"
    SampleRecording(path, Words()).sample([Wanted("a", 0)])
    head, body = path.read_text().splitlines()
    path.write_text(f"{head}\n{json.dumps({**json.loads(body), **row})}\n")
    with pytest.raises(FedsrcError):
        SampleRecording(path)


def test_every_score_is_in_the_unit_interval_and_shares_the_draws(tmp_path: Path) -> None:
    model = Words()
    means = Means(SampleRecording(tmp_path / "s.jsonl", model), 4, Counts(), Subsets())
    found = score_answers(answers(), list(SAMPLED), Settings(), means)
    assert all(0.0 <= value <= 1.0 for values in found.values() for value in values)
    assert len(model.drawn) == 3 * 4  # answers to one prompt share its responses
    assert set(means.seconds) == {"samples", "embedding", "entailment", "arithmetic"}
    for name in ("semantic-entropy", "semantic-entropy-discrete"):  # properties of the prompt
        assert found[name][::2] == found[name][1::2]
    for name in ("selfcheck-embedding", "selfcheck-nli", "conu", "selfcheck-ngram-mean"):
        assert sum(found[name][1::2]) > sum(found[name][::2])


def test_all_that_is_compared_is_asked_for_at_once(tmp_path: Path) -> None:
    """Mutants killed: a score that compares other texts than it names, one by one."""

    class Spaced(Words):
        def sample(self, wanted: Sequence[Wanted], how: Sampling) -> list[Sample]:
            return [Sample(f"\n{each.text} ", each.logprobs, True) for each in super().sample(wanted, how)]

    class Asked(Counts, Subsets):
        calls = 0

        def embed(self, texts: Sequence[str]) -> Floats:
            self.calls += 1
            return super().embed(texts)

        def judge(self, pairs: Sequence[Pair]) -> Floats:
            self.calls += 1
            return super().judge(pairs)

    recording = SampleRecording(tmp_path / "s.jsonl", Spaced())
    for name in SAMPLED:
        for entails in (None, Asked()):
            if entails is None and name == "selfcheck-nli":
                continue
            embeds = Asked()
            means = Means(recording, 4, embeds, entails)
            score_answers(answers(), [name], Settings(), means)
            assert embeds.calls + (entails.calls if entails else 0) == ("ngram" not in name), name


def test_a_score_takes_the_first_that_it_asks_for(tmp_path: Path) -> None:
    recording = SampleRecording(tmp_path / "s.jsonl", Words())
    whole = score_answers(answers(), list(SAMPLED), Settings(), Means(recording, "matched", Counts(), Subsets()))
    assert recording.recorded == 3 * 2  # the most that one takes: semantic entropy needs two
    for name in SAMPLED:
        count = SCORES[name].matched
        alone = score_answers(answers(), [name], Settings(), Means(recording, count, Counts(), Subsets()))
        assert alone[name] == whole[name]
    assert recording.recorded == 3 * 2
    score_answers(answers(), ["selfcheck-ngram"], Settings(), Means(recording, "recommended"))
    assert recording.recorded == 3 * 20


def test_extra_passes() -> None:
    passes = {
        name: score.extra_passes("recommended") for name, score in {**BASIC, **SAMPLED}.items() if score.extra_passes(3)
    }
    assert passes == {
        "lift": 1, "window": 1, "semantic-entropy": 10, "semantic-entropy-discrete": 10, "selfcheck-ngram": 20,
        "selfcheck-ngram-mean": 20, "selfcheck-embedding": 20, "selfcheck-nli": 20, "conu": 10, "sconu": 10,
        "self-consistency": 10,
    }  # fmt: skip
    assert SCORES["conu"].extra_passes(7) == 7
    assert SCORES["conu"].extra_passes("matched") == SCORES["lift"].extra_passes("matched") == 1


def test_texts_and_pairs_are_asked_for_once() -> None:
    asked: list[str] = []

    class Asked(Counts):
        def embed(self, texts: Sequence[str]) -> Floats:
            asked.extend(texts)
            return super().embed(texts)

    texts = Embedded(Asked())
    assert texts.similarity("a b", "b a") == pytest.approx(1.0)
    assert texts.similarities(["a b"], ["b a", "z"]).tolist()[0] == pytest.approx([1.0, 0.0])
    assert asked == ["a b", "b a", "z"]
    pairs = Entailed(Subsets())
    assert pairs.both_ways("a b", "b a")
    assert not pairs.both_ways("a b", "a")
    assert pairs.contradiction("a", "b") == pytest.approx(0.7 / 0.8)
    assert pairs.contradiction("a b", "a") == pytest.approx(0.1 / 0.9)


def test_labels_are_read_from_the_classifier() -> None:
    assert label_columns({0: "CONTRADICTION", 1: "NEUTRAL", 2: "ENTAILMENT"}) == [2, 1, 0]
    with pytest.raises(FedsrcError, match="labels are label_0, label_1"):
        label_columns({0: "LABEL_0", 1: "LABEL_1"})


def test_the_command_draws_stores_and_replays(call: Call, model: Words) -> None:
    done = call(*named(BY_EMBEDDING), "--model", "words", "--samples", "3")
    assert done.exit_code == 0, done.output
    assert len(model.drawn) == 9
    assert "Seconds per answer: samples" in done.output
    assert "Compared by embedding (counts): semantic-entropy" in done.output
    table, told = pl.read_parquet("records.parquet"), manifest()
    assert table["score"].to_list() == table["semantic-entropy"].to_list()
    assert table["provenance"].to_list() == ["unknown"] * 6
    assert told["samples"] == told["passes"] == dict.fromkeys(BY_EMBEDDING, 3)
    assert told["compared_by"] == {name: "embedding" for name in BY_EMBEDDING if "ngram" not in name}
    assert told["sampler"] == {**model.identity, "sampling": json.dumps(Sampling().__dict__, default=list)}
    assert told["embedding"] == {"model": "counts"}
    assert told["entailment"] == told["model"] == {}
    again = call(*named(BY_EMBEDDING), "-o", "b.parquet", "--samples", "3", "--sample-recording", RECORDING)
    assert again.exit_code == 0, again.output
    assert pl.read_parquet("b.parquet").equals(table)
    assert len(model.drawn) == 9
    fewer = call("--score", "conu", "-o", "c.parquet", "--samples", "2", "--sample-recording", RECORDING)
    assert fewer.exit_code == 0, fewer.output
    more = call("--score", "conu", "-o", "d.parquet", "--sample-recording", RECORDING)
    assert "6 of 15 responses are not in the recording" in str(more.exception)


RECORDING = "records.parquet.samples.jsonl"


def test_entailment_is_used_where_it_is_at_hand(call: Call, model: Words) -> None:
    names = ["semantic-entropy", "self-consistency", "selfcheck-nli", "conu"]
    done = call(*named(names), "--model", "words", "--entailment", "subsets", "--format", "json")
    assert done.exit_code == 0, done.output
    assert manifest()["compared_by"] == {**dict.fromkeys(names, "entailment"), "conu": "embedding"}
    assert manifest()["entailment"] == {"model": "subsets"}
    by_embedding = call(*named(names[:2]), "-o", "b.parquet", "--sample-recording", RECORDING)
    assert by_embedding.exit_code == 0, by_embedding.output
    own, other = pl.read_parquet("records.parquet"), pl.read_parquet("b.parquet")
    assert own["semantic-entropy"].to_list() != other["semantic-entropy"].to_list()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--score", "selfcheck-nli", "--model", "words"], "needs an entailment model"),
        (["--score", "conu"], "needs drawn responses"),
        (["--score", "semantic-entropy", "--model", "words", "--samples", "1"], "at least 2 samples"),
        (["--score", "conu", "--model", "words", "--temperature", "0"], "temperature above 0"),
        (["--score", "conu", "--sample-recording", "none", "--top-p", "0.5"], "is in their recording"),
        (["--score", "conu", "--model", "words", "--similar", "0"], "cosine in"),
        (["--score", "conu", "--model", "m", "--backend", "llama.cpp"], "reads .gguf files"),
        (["--score", "conu", "--model", "m.gguf", "--backend", "llama.cpp", "--dtype", "float16"], "as it is"),
    ],
)
def test_clear_refusals(call: Call, model: Words, args: list[str], message: str) -> None:
    done = call(*args)
    assert done.exit_code != 0
    assert message in str(done.exception)
    assert model.drawn == []


def test_prompts_must_leave_room(call: Call, model: Words, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "limit", 137, raising=False)
    monkeypatch.setattr(model, "tokens", lambda text: len(text.split()), raising=False)
    done = call("--score", "conu", "--model", "words")
    assert "of 6 prompts leave no room for a response in the model's 137 tokens: 'a2', ..." in str(done.exception)
    assert model.drawn == []
    assert call("--score", "conu", "--model", "words", "--sample-tokens", "60", "-o", "b.parquet").exit_code == 0


@pytest.mark.parametrize("count", ["0", "-1", "many", "1.5"])
def test_counts(call: Call, model: Words, count: str) -> None:
    assert "a number above zero" in call("--score", "conu", "--model", "words", "--samples", count).output
