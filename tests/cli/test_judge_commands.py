"""`fedsrc score` and `fedsrc fit` with the judge, FRANQ and the mechanistic score: columns, manifests, replays.

The word model of test_scoring stands in for weights; signals come from a recording, as a model would have left it.
Mutants killed: a verdict or reply given to the next answer, unparsable replies not counted, replies of another decoding
taken, parts of FRANQ lost from the table, signals looked for elsewhere than they were written, a replay that needs the
token scores it has no use for.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner, Result

from fedsrc.cli import score as cli_score
from fedsrc.cli.fit import fit_command
from fedsrc.common.canonical import digest
from fedsrc.data.answers import Answer
from fedsrc.errors import FedsrcError
from fedsrc.scores import opening
from fedsrc.scores.catalogue import Settings
from fedsrc.scores.methods.judge import CHOICES, GREEDY, RULES
from fedsrc.scores.models.model import Sample, Sampling, TokenScores, Wanted
from fedsrc.scores.scoring import Means, score_answers
from tests.scores.test_mechanistic import planted, recorded
from tests.scores.test_scoring import Words, answers
from tests.scores.test_supervised import development
from tests.support.answers import write_answers


class Judge(Words):
    """Finds True likely where the response stands in the evidence; says a number, or rambles about the unknown."""

    def _one(self, prompt: str, response: str) -> TokenScores:
        if response not in CHOICES:
            return super()._one(prompt, response)
        p = 0.9 if (response == CHOICES[0]) == supported(prompt) else 0.1
        return TokenScores((response,), np.log([p / 2]), np.array([0.5]), np.array([[0, len(response)]]))

    def sample(self, wanted: Sequence[Wanted], how: Sampling) -> list[Sample]:
        assert how == GREEDY
        self.asked += len(wanted)
        texts = [" 80" if supported(each.prompt) else " It depends." for each in wanted]
        return [Sample(text, np.array([-0.5]), finished=True) for text in texts]


def supported(prompt: str) -> bool:
    context, _, rest = prompt.partition("Proposed answer: ")
    return rest.split("\n")[0] in context


Call = Callable[..., Result]


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Judge:
    made = Judge()
    monkeypatch.setattr(opening, "open_model", lambda *_, **__: made)
    return made


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.chdir(tmp_path)
    write_answers(Path("answers.jsonl"), answers())
    return lambda *args: CliRunner().invoke(cli_score.score_command, ["answers.jsonl", *args])


def told(name: str = "records.parquet") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(f"{name}.manifest.json").read_text())
    return found


def test_a_judge_gives_each_answer_its_own_verdict(call: Call, judge: Judge) -> None:
    done = call("--score", "judge", "--score", "judge-verbal", "--score", "lift", "--model", "words")
    assert done.exit_code == 0, done.output
    table = pl.read_parquet("records.parquet")
    np.testing.assert_allclose(table["judge"].to_numpy(), [0.1, 0.9] * 6, atol=1e-6)
    np.testing.assert_allclose(table["judge-verbal"].to_numpy(), [0.0, 0.8] * 6)
    assert table["lift"].to_numpy()[1::2].min() > 0
    assert "6 replies of the judge were no number, and count as 0." in done.stderr
    manifest = told()
    assert manifest["judge"] == {"rules": RULES, "digest": digest(RULES), "unparsable": 6}
    assert manifest["passes"] == {"judge": 1, "judge-verbal": 1, "lift": 1}
    assert {"verdicts", "replies", "tokens"} <= manifest["seconds_by"].keys()


def test_a_judge_is_replayed_without_a_model(call: Call, judge: Judge) -> None:
    names = ("--score", "judge-verbal", "--score", "judge")
    assert call(*names, "--model", "words").exit_code == 0
    asked = judge.asked
    again = call(*names, "--recording", "records.parquet.recording.jsonl", "-o", "again.parquet")
    assert again.exit_code == 0, again.output
    assert judge.asked == asked
    assert pl.read_parquet("again.parquet").equals(pl.read_parquet("records.parquet"))
    path = Path("records.parquet.recording.replies.jsonl")
    head, *rest = path.read_text().splitlines()
    other = json.loads(head)
    other["identity"]["sampling"] = json.dumps(asdict(Sampling()))
    path.write_text("\n".join([json.dumps(other), *rest]) + "\n")
    refused = call(*names, "--recording", "records.parquet.recording.jsonl", "-o", "no.parquet")
    assert "decoded in another way" in str(refused.exception)


def test_a_judge_needs_a_model(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("judge", "judge-verbal"):
        assert "needs a language model" in str(call("--score", name).exception)
    monkeypatch.setattr(opening, "open_model", lambda *_, **__: Words())
    assert "writes nothing" in str(call("--score", "judge-verbal", "--model", "words").exception)
    with pytest.raises(FedsrcError, match="judge-verbal needs a model that generates text"):
        score_answers(answers(), ["judge-verbal"], Settings(), Means(tokens=Words()))
    with pytest.raises(FedsrcError, match="judge needs a language model"):
        score_answers(answers(), ["judge"], Settings(), Means())


def test_what_a_judge_cannot_read_whole_is_named_before_any_work(call: Call, judge: Judge) -> None:
    judge.limit = 20  # enough for the answers, not for the judge's question
    done = call("--score", "judge", "--model", "words")
    assert "12 of 12 answers do not fit into the model's 20 tokens" in str(done.exception)
    assert judge.asked == 0


def fit(*args: str) -> Result:
    return CliRunner().invoke(fit_command, ["answers.jsonl", *args])


def test_franq_writes_its_parts_beside_it(call: Call, judge: Judge) -> None:
    many = answers(80)
    write_answers(Path("answers.jsonl"), many[:40])
    assert call("--model", "words", "-o", "dev.parquet").exit_code == 0
    recording = ("--recording", "dev.parquet.recording.jsonl")
    done = fit("--kind", "franq", "--support", "lift", *recording, "-o", "franq", "--format", "json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["kind"] == "franq"
    assert "`support=` has no meaning for a combination" in str(
        fit("--kind", "combination", "--support", "lift", *recording, "-o", "c").exception
    )
    write_answers(Path("answers.jsonl"), many[40:])
    scored = call("--score", "franq", "--score", "lift", "--model", "words")
    assert scored.exit_code == 0, scored.output
    table = pl.read_parquet("records.parquet")
    parts = ["franq_faithfulness", "franq_true_if_faithful", "franq_true_if_unfaithful"]
    assert table.columns[4:9] == ["score", "franq", "lift", *parts[:2]]
    faithful, one, two = (table[name].to_numpy() for name in parts)
    np.testing.assert_allclose(table["franq"].to_numpy(), faithful * one + (1 - faithful) * two)
    assert table["score"].to_list() == table["franq"].to_list()
    assert told()["passes"] == {"lift": 1, "franq": 1}
    shutil.copytree("franq", "franq_faithfulness")
    clash = call("--score", "franq", "--score", "franq_faithfulness", "--model", "words", "-o", "d.parquet")
    assert "two columns would be called 'franq_faithfulness'" in str(clash.exception)
    Path("franq").rename("score")
    assert "called like another column" in str(
        call("--score", "score", "--model", "words", "-o", "e.parquet").exception
    )


def test_a_mechanistic_score_is_fitted_and_replayed_from_recorded_signals(call: Call) -> None:
    def signals(name: str, given: list[Answer], seed: int) -> None:
        write_answers(Path("answers.jsonl"), given)
        recorded(Path(f"{name}.signals.jsonl"), given, planted(given, seed))

    signals("dev", development(20), 0)
    done = fit("--kind", "mechanistic", "--recording", "dev.jsonl", "-o", "mech")
    assert done.exit_code == 0, done.output
    assert (
        "Fitted a mechanistic score (ReDeEP-style, not its authors' configuration) on 40 answers of 20 sources"
        in done.output
    )
    signals("new", development(10, "x"), 1)
    scored = call("--score", "mech", "--recording", "new.jsonl")
    assert scored.exit_code == 0, scored.output
    table = pl.read_parquet("records.parquet")
    assert table["score"].to_numpy()[::2].mean() > table["score"].to_numpy()[1::2].mean() + 0.3
    assert told()["model"]["model"] == "arithmetic"
    assert told()["passes"] == {"mech": 0}
    assert not Path("new.jsonl").exists()


def test_signals_need_a_local_models_insides(call: Call, judge: Judge) -> None:
    write_answers(Path("answers.jsonl"), development(20))
    recorded(Path("dev.signals.jsonl"), development(20), planted(development(20)))
    assert fit("--kind", "mechanistic", "--recording", "dev.jsonl", "-o", "mech").exit_code == 0
    write_answers(Path("answers.jsonl"), development(4, "x"))
    assert "need a local model's attention" in str(call("--score", "mech", "--model", "words").exception)
    assert "needs a language model" in str(call("--score", "mech").exception)
