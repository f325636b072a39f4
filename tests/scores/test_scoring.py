"""`fedsrc score`: answers in, records table and manifest out; resumed, replayed, and never cut silently.

A word model stands in for weights here (tests.models has the real ones): a token is a word, and a word of the prompt is
more likely than one that is not, so that evidence gives lift.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from fedsrc.cli import score as cli_score
from fedsrc.cli.fit import fit_command
from fedsrc.common.canonical import file_digest
from fedsrc.data.answers import Answer
from fedsrc.errors import FedsrcError
from fedsrc.records.table import read_records
from fedsrc.scores import opening, scoring
from fedsrc.scores.catalogue import BASIC, Settings
from fedsrc.scores.methods.control_scores import is_refusal
from fedsrc.scores.models.model import Prompted, TokenScores
from fedsrc.scores.prompts import controlled
from fedsrc.scores.recordings.replay import Recording
from fedsrc.scores.scoring import Means, score_answers
from tests.support.answers import write_answers

FACTS = ("the tower is old", "the river is long and cold", "a bridge was built in spring", "the town has two markets")
WITH_MODEL = [name for name, score in BASIC.items() if score.needs]


class Words:
    """log p(word) = -1 if the prompt has it, else -3; context of `limit` words."""

    def __init__(self, limit: int = 1000, fail_after: int | None = None, revision: str = "1") -> None:
        self.identity = {"model": "words", "revision": revision, "backend": "test"}
        self.limit, self.asked, self.fail_after = limit, 0, fail_after

    def score(self, pairs: Sequence[Prompted]) -> list[TokenScores]:
        if self.fail_after is not None and self.asked + len(pairs) > self.fail_after:
            raise KeyboardInterrupt
        self.asked += len(pairs)
        return [self._one(*pair) for pair in pairs]

    def _one(self, prompt: str, response: str) -> TokenScores:
        found = list(re.finditer(r"\S+", response))
        known = set(prompt.split())
        logprobs = np.array([-1.0 if each.group() in known else -3.0 for each in found])
        tokens = tuple(each.group() for each in found)
        return TokenScores(tokens, logprobs, np.full(len(found), 0.5), np.array([each.span() for each in found]))

    def too_long(self, pairs: Sequence[Prompted]) -> list[int]:
        return [i for i, pair in enumerate(pairs) if len(" ".join(pair).split()) > self.limit]

    def tokens(self, text: str) -> int:
        return len(text.split())


def answers(count: int = 12) -> list[Answer]:
    return [
        Answer(
            id=f"a{i}", source=f"s{i // 2}", evidence=FACTS[i // 2 % 4] + f" {i // 2}", question=f"what {i}",
            response=FACTS[i // 2 % 4] if i % 2 else "nobody knows this at all", loss=float(i % 2 == 0),
            span_fraction=0.5 * (i % 2 == 0), generator="words" if i < 4 else "other", group="g" if i % 4 else "h",
        )
        for i in range(count)
    ]  # fmt: skip


Call = Callable[..., Result]


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Words:
    made = Words()
    monkeypatch.setattr(opening, "open_model", lambda *_, **__: made)
    return made


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.chdir(tmp_path)
    write_answers(tmp_path / "answers.jsonl", answers())
    return lambda *args: CliRunner().invoke(cli_score.score_command, ["answers.jsonl", *args])


def test_a_table_and_its_manifest(call: Call, model: Words, tmp_path: Path) -> None:
    done = call("--score", "lift", "--score", "window", "--score", "shortness", "--model", "words", "--format", "json")
    assert done.exit_code == 0, done.output
    table = pl.read_parquet("records.parquet")
    assert table.columns[:7] == ["id", "source", "group", "loss", "score", "lift", "window"]
    assert table["score"].to_list() == table["lift"].to_list()
    np.testing.assert_allclose(table["lift"].to_numpy()[1::2], 0.4)  # every word two nats likelier, B = 5
    assert table["lift"].to_numpy()[::2].max() == 0.0
    assert table["provenance"].to_list() == ["matched"] * 4 + ["cross-model"] * 8
    told = json.loads(Path("records.parquet.manifest.json").read_text())
    assert told == json.loads(done.stdout.splitlines()[-1])
    assert told["answers"]["sha256"] == file_digest(tmp_path / "answers.jsonl")
    assert told["written"][0]["sha256"] == file_digest(tmp_path / "records.parquet")
    assert told["model"] == model.identity
    assert told["settings"]["B"] == 5.0
    assert told["settings"]["control"] == "removed"
    assert told["settings"]["templates"]["question"].count("{evidence}") == 1
    assert told["seconds"] >= 0
    assert told["peak_memory_bytes"]["process"] > 1e6
    read = read_records(tmp_path / "records.parquet")  # certify takes it as it is
    assert read.score.tolist() == table["score"].to_list()


def test_stopped_and_continued_is_the_same_and_asks_no_pair_twice(call: Call, model: Words) -> None:
    many = answers(200)
    write_answers(Path("answers.jsonl"), many)
    model.fail_after = 150
    assert call("--model", "words").exit_code == 1  # interrupted
    assert not Path("records.parquet").exists()
    kept = model.asked
    assert kept > 0
    model.fail_after = None
    assert call("--model", "words").exit_code == 0
    pairs = {(a.question, a.response, side) for a in many for side in (a.evidence, "")}
    assert model.asked == len(pairs)
    whole = pl.read_parquet("records.parquet")
    again = call("-o", "again.parquet", "--recording", "records.parquet.recording.jsonl")  # no model at all
    assert again.exit_code == 0, again.output
    assert pl.read_parquet("again.parquet").drop("provenance").equals(whole.drop("provenance"))
    assert pl.read_parquet("again.parquet")["provenance"].to_list() == whole["provenance"].to_list()


def test_prefixes_are_scored_from_a_recording(call: Call, model: Words) -> None:
    """Mutants killed: a model asked again, another answer's tokens, policies left out of table or manifest."""
    told = [
        Answer(id="a", source="a", evidence="x y", response="x z x y", loss=0.0),  # lift 0.4, 0, 0.4, 0.4 a token
        Answer(id="b", source="b", evidence="x y", response="x", loss=0.0),
    ]
    write_answers(Path("answers.jsonl"), told)
    assert call("--model", "words").exit_code == 0
    kept = ["--recording", "records.parquet.recording.jsonl", "-o", "p.parquet"]
    done = call("--score", "lift", "--score", "probability", *kept, "--prefix", "1,2", "--prefix", "3")
    assert done.exit_code == 0, done.output
    table = pl.read_parquet("p.parquet")
    assert table["tokens"].to_list() == [4, 1]
    expected = {"score": 0.3, "prefix_1": 0.4, "prefix_2": 0.2, "prefix_3": 0.8 / 3, "at_1_2": 0.2, "at_3": 0.8 / 3}
    for name, value in expected.items():
        column = name if name == "score" else f"lift_{name}"
        np.testing.assert_allclose(table[column].to_numpy(), [value, 0.4])
    assert "probability_at_1_2" in table.columns
    manifest = json.loads(Path("p.parquet.manifest.json").read_text())
    assert manifest["settings"]["prefixes"] == [[1, 2], [3]]
    assert manifest["model"] == model.identity
    assert manifest["passes"]["lift_at_3"] == 1
    assert "first 1, 2 tokens" in manifest["scores"]["lift_at_1_2"]


def test_a_policy_is_numbers_of_tokens(call: Call) -> None:
    for text in ("many", "3,", "-3", "1.5"):
        assert "numbers of tokens" in call("--prefix", text).output


def test_a_torn_recording_is_mended_and_another_models_refused(tmp_path: Path) -> None:
    path, pair = tmp_path / "r.jsonl", Prompted("the old tower", "old tower")
    Recording(path, Words()).score([pair, Prompted("x", "y")])
    path.write_bytes(path.read_bytes()[:-20])
    model = Words()
    assert Recording(path, model).score([pair])[0].tokens == ("old", "tower")
    assert model.asked == 0
    Recording(path, model).score([Prompted("x", "y")])
    assert model.asked == 1
    with pytest.raises(FedsrcError, match="recorded with another revision"):
        Recording(path, Words(revision="2"))
    with pytest.raises(FedsrcError, match="there is no such recording"):
        Recording(tmp_path / "none.jsonl")
    (tmp_path / "head.jsonl").write_text('{"format": 9}\n')
    with pytest.raises(FedsrcError, match="not a recording of this version"):
        Recording(tmp_path / "head.jsonl")


def test_what_does_not_fit_is_named_before_any_work(call: Call, model: Words) -> None:
    model.limit = 8
    done = call("--model", "words")
    assert isinstance(done.exception, FedsrcError)
    assert "of 12 answers do not fit into the model's 8 tokens: 'a" in str(done.exception)
    assert "nothing is cut silently" in str(done.exception)
    assert model.asked == 0


def test_refusals_kept_or_apart(call: Call, model: Words) -> None:
    told = [*answers(), Answer(id="r", source="r", evidence="x", response="It is not possible to answer.", loss=0.0)]
    write_answers(Path("answers.jsonl"), told)
    assert call("--score", "lexical").exit_code == 0
    assert pl.read_parquet("records.parquet")["refusal"].sum() == 1
    assert call("--score", "lexical", "--refusals", "apart", "-o", "b.csv").exit_code == 0
    assert pl.read_csv("b.csv").height == 12
    assert pl.read_csv("b.refusals.csv")["id"].to_list() == ["r"]


def test_losses(call: Call, model: Words) -> None:
    assert call("--score", "lexical", "--loss", "graded").exit_code == 0
    assert set(pl.read_parquet("records.parquet")["loss"].to_list()) == {0.0, 0.5}
    write_answers(Path("answers.jsonl"), [Answer(id="u", source="u", evidence="x", response="y")])
    done = call("--score", "lexical", "-o", "u.parquet")
    assert done.exit_code == 0
    assert "1 answers have no label" in done.output
    refused = call("--score", "lexical", "-o", "v.parquet", "--loss", "graded")
    assert "span_fraction" in str(refused.exception)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--score", "magic"], "there is no score 'magic'"),
        (["--score", "lift", "--score", "lift"], "named twice"),
        (["--score", "lift"], "needs a language model"),
        (["--score", "lexical", "-o", "x.txt"], "unknown kind of table"),
        (["--score", "lexical", "-B", "0"], "clipping B must be above zero"),
        (["--score", "lexical", "--window", "0"], "window at least one"),
        (["--server", "http://localhost:1/v1"], "`server=` needs `model=`"),
        (["--score", "lexical", "-o", "answers.jsonl"], "unknown kind of table"),
        (["--score", "lift", "--score", "lexical", "--prefix", "3"], "lexical is not made of token scores alone"),
        (["--score", "judge", "--prefix", "3"], "prefixes are of lift, window, probability, entropy"),
        (["--prefix", "0,3"], "increasing numbers of tokens, from 1"),
        (["--prefix", "3,3"], "increasing numbers of tokens, from 1"),
        (["--prefix", "3", "--prefix", "4", "--prefix", "3"], "named twice"),
    ],
)
def test_clear_refusals(call: Call, args: list[str], message: str) -> None:
    done = call(*args)
    assert done.exit_code != 0
    assert message in str(done.exception)


def test_nothing_is_overwritten(call: Call) -> None:
    assert call("--score", "lexical").exit_code == 0
    before = Path("records.parquet").read_bytes()
    assert "exists already" in str(call("--score", "shortness").exception)
    assert Path("records.parquet").read_bytes() == before


def test_lift_is_zero_when_both_sides_lack_the_evidence() -> None:
    bare = [Answer(id=a.id, source=a.source, evidence=" ", response=a.response) for a in answers()]
    found = score_answers(bare, ["lift", "window"], Settings(), Means(tokens=Words()))
    assert found == {"lift": [0.0] * 12, "window": [0.0] * 12}


@given(st.lists(st.text("ab \n.", min_size=1).filter(str.strip), min_size=2, max_size=6), st.floats(0.1, 9.0))
def test_every_score_is_in_the_unit_interval_whatever_the_text(texts: list[str], clip: float) -> None:
    made = [Answer(id=str(i), source=str(i), evidence=texts[-1 - i], response=text) for i, text in enumerate(texts)]
    found = score_answers(made, list(BASIC), Settings(B=clip, window=2), Means(tokens=Words()))
    assert all(0.0 <= value <= 1.0 for values in found.values() for value in values)


@pytest.mark.parametrize("control", ["neutral", "irrelevant", "shuffled", "removed"])
def test_evidence_controls(control: Any) -> None:
    """Only the evidence changes; lengths match in the model's tokens; what is borrowed is another source's."""
    made = answers()
    model = Words()
    found = controlled(made, control, model.tokens)
    own = {a.source: a.evidence for a in made}
    for answer, evidence in zip(made, found, strict=True):
        if control == "removed":
            assert evidence == ""
            continue
        assert evidence != answer.evidence
        if control == "shuffled":
            lender = {other.source for other in made if other.evidence == evidence}
            assert answer.source not in lender
            assert any(other.group == answer.group for other in made if other.evidence == evidence)
            assert evidence in own.values()
        else:
            assert model.tokens(evidence) == model.tokens(answer.evidence)
    assert found == controlled(made[::-1], control, model.tokens)[::-1]  # the order of answers decides nothing
    with pytest.raises(FedsrcError, match="needs answers of other sources"):
        controlled(made[:1], "shuffled")


def test_matched_controls_need_a_tokenizer(call: Call, model: Words) -> None:
    assert call("--model", "words").exit_code == 0
    done = call("-o", "n.parquet", "--recording", "records.parquet.recording.jsonl", "--control", "neutral")
    assert "needs a local model" in str(done.exception)
    assert call("-o", "m.parquet", "--model", "words", "--control", "neutral").exit_code == 0


def test_a_fitted_score_scores_other_sources_and_refuses_its_own(call: Call, model: Words) -> None:
    many = answers(80)
    write_answers(Path("answers.jsonl"), many[:40])
    assert call("--model", "words", "-o", "dev.parquet").exit_code == 0
    wanted = ["answers.jsonl", "--kind", "combination", "-o", "comb", "--recording", "dev.parquet.recording.jsonl"]
    fitted = CliRunner().invoke(fit_command, wanted)
    assert fitted.exit_code == 0, fitted.output
    again = call("--score", "comb", "--model", "words", "-o", "again.parquet")
    assert "its score would look better than it is" in str(again.exception)
    assert not Path("again.parquet").exists()
    write_answers(Path("answers.jsonl"), many[40:])
    done = call("--score", "comb", "--score", "lift", "--model", "words")
    assert done.exit_code == 0, done.output
    table = pl.read_parquet("records.parquet")
    assert table["score"].to_list() == table["comb"].to_list()
    assert table["score"].to_numpy()[1::2].min() > table["score"].to_numpy()[::2].max()
    told = json.loads(Path("records.parquet.manifest.json").read_text())
    assert told["scores"]["comb"]["kind"] == "combination"
    hidden = [Answer(id="x", source="another name", evidence=many[0].evidence, response="x y", loss=0.0)]
    write_answers(Path("answers.jsonl"), hidden)
    assert "share" in str(call("--score", "comb", "--model", "words", "-o", "h.parquet").exception)


def test_a_file_that_is_no_recording_is_never_touched(call: Call, model: Words, tmp_path: Path) -> None:
    """Mutants killed: cutting or deleting before the header is checked, writing during a replay."""
    for data in (b"my precious notes", b'{"id": "a"}\n{"id": "b"}', b"PAR1 \x00\xff\nPAR1", b'{"format": 1}\nx'):
        (tmp_path / "notes").write_bytes(data)
        for more in ([], ["--model", "words"]):
            done = call("--recording", "notes", *more)
            assert isinstance(done.exception, FedsrcError)
            assert (tmp_path / "notes").read_bytes() == data
    Recording(tmp_path / "r.jsonl", Words()).score([Prompted("a", "b")])
    torn = (tmp_path / "r.jsonl").read_bytes() + b'{"key": "torn'
    (tmp_path / "r.jsonl").write_bytes(torn)
    Recording(tmp_path / "r.jsonl").score([Prompted("a", "b")])
    assert (tmp_path / "r.jsonl").read_bytes() == torn


@pytest.mark.parametrize("left", [b"", b'{"format"', b'{"format": 1, "identity": {"mod'])
def test_a_recording_that_died_at_birth_begins_again(tmp_path: Path, left: bytes) -> None:
    path = tmp_path / "new" / "r.jsonl"
    path.parent.mkdir()
    path.write_bytes(left)
    Recording(path, Words()).score([Prompted("a", "b")])
    assert Recording(path).score([Prompted("a", "b")])[0].tokens == ("b",)


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    first = Recording(tmp_path / "r.jsonl", Words())
    with pytest.raises(FedsrcError, match="another command is writing it"):
        Recording(tmp_path / "r.jsonl", Words())
    first.score([Prompted("a", "b")])
    assert Recording(tmp_path / "r.jsonl").recorded == 1  # reading is free


@pytest.mark.parametrize(
    "row",
    [
        {"entropy": [float("nan")]},
        {"entropy": [-1.0]},
        {"logprobs": [float("nan")]},
        {"logprobs": [1.0]},
        {"logprobs": ["-1"]},
        {"logprobs": [[-1.0]]},
        {"tokens": "a"},
        {"tokens": [1]},
        {"key": 1},
        {"offsets": [[0]]},
    ],
)
def test_damaged_rows_are_refused(tmp_path: Path, row: dict[str, Any]) -> None:
    path = tmp_path / "r.jsonl"
    Recording(path, Words()).score([Prompted("a", "b")])
    head, body = path.read_text().splitlines()
    path.write_text(f"{head}\n{json.dumps({**json.loads(body), **row})}\n")
    with pytest.raises(FedsrcError):
        Recording(path)


def test_steps_count_what_is_missing_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a long recorded part, the first step that needs the model is small; slow steps shrink."""
    clock = iter([0.0, 0.0, 0.0, 40.0, 40.0, 41.0] + [41.0] * 100)
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    parts = list(scoring._steps([False] * 5000 + [True] * 100))
    wanted = [False] * 5000 + [True] * 100
    assert [place for part in parts for place in range(part.start, part.stop)] == list(range(5100))
    asked = [sum(wanted[part]) for part in parts]
    assert asked[0] == 0
    assert max(asked[:3]) == 16


def test_outputs_never_replace_anything(call: Call, model: Words, tmp_path: Path) -> None:
    for name in ("t.parquet.manifest.json", "t.refusals.parquet"):
        (tmp_path / name).write_text("mine")
        done = call("--score", "lexical", "-o", "t.parquet", "--refusals", "apart")
        assert "exists already" in str(done.exception)
        assert (tmp_path / name).read_text() == "mine"
        (tmp_path / name).unlink()


def test_the_next_command_is_one_that_certify_takes(call: Call) -> None:
    assert "--unit source -o run/" in call("--score", "lexical").output
    alone = [Answer(id=f"{i}", source=f"{i}", evidence="x", response="x", loss=0.3) for i in range(3)]
    write_answers(Path("answers.jsonl"), alone)
    assert "--epsilon 4 -o run/" in call("--score", "lexical", "-o", "b.parquet").output
    assert pl.read_parquet("b.parquet")["loss"].to_list() == [1.0] * 3  # any unsupported part counts


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("The provided passages do not say.", True),
        ("The passage doesn’t say who built it.", True),
        ("I can’t determine that.", True),
        ("Unable to answer based on given passages.", True),
        ("There is no information about the price in the passages.", True),
        ("The CEO did not mention layoffs but said revenue rose 20% to $5 billion.", False),
        ("There is no information leak; the vault holds 300 kg of gold.", False),
        ("The tower is 330 metres tall.", False),
    ],
)
def test_refusals_by_their_wording(text: str, refusal: bool) -> None:
    assert is_refusal(text) == refusal


def test_controls_scale_with_many_groups() -> None:
    groups = 5000
    many = [
        Answer(id=f"{i}", source=f"{i}", evidence=f"{i:05d} fact", response="x", group=f"{i % groups}")
        for i in range(4 * groups)
    ]
    for found, answer in zip(controlled(many, "irrelevant"), many, strict=True):
        assert int(found[:5]) % groups != int(answer.group)
