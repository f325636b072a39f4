"""Drawn responses with real weights: they follow their seed, not their batch; log-probabilities are the model's own.

Tolerance: as in test_small_model.py, float32 sums in another order.
Mutants killed: chances shared between rows, positions off by one after the prompt, log-probabilities of the tempered or
cut distribution, a response that goes on after its end, responses mixed up when others leave the batch.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from click.testing import CliRunner

from fedsrc.cli import score as cli_score
from fedsrc.data.answers import Answer
from fedsrc.errors import FedsrcError
from fedsrc.scores import opening
from fedsrc.scores.models import transformers_sampling
from fedsrc.scores.models.drawing import pick
from fedsrc.scores.models.model import Prompted, Sampling, Wanted
from fedsrc.scores.models.transformers_model import TransformersModel
from tests.support.answers import write_answers

TOLERANCE = 2e-4
TOWER = "Context:\nThe tower is 330 metres tall.\n\nQuestion: How tall is it?\nAnswer: "
RIVER = "Context:\nThe Loire is the longest river in France.\n\nQuestion: Which river is longest?\nAnswer: "
HOW = Sampling(max_tokens=12, seed=1)
WANTED = [Wanted(prompt, place) for place in range(2) for prompt in (TOWER, RIVER)]


def test_responses_follow_their_seed_and_not_their_batch(
    model: TransformersModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = model.sample(WANTED, HOW)
    monkeypatch.setattr(transformers_sampling, "CHECK", 3)  # ended responses leave at once
    alone = model.sample(WANTED[1:2], HOW)[0]
    assert alone.text == together[1].text
    np.testing.assert_allclose(alone.logprobs, together[1].logprobs, atol=TOLERANCE)
    assert [each.text for each in model.sample(WANTED, HOW)] == [each.text for each in together]
    other = model.sample(WANTED, Sampling(max_tokens=12, seed=2))
    assert [each.text for each in other] != [each.text for each in together]
    assert len({each.text for each in (*together, *other)}) > 4


@pytest.mark.parametrize("few", [2, 1024])
@pytest.mark.parametrize("top_p", [0.3, 0.9, 1.0])
def test_rows_are_picked_as_one_is(top_p: float, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants killed: top-p over the few that were sorted in place of all, a row's chance used for another."""
    monkeypatch.setattr(transformers_sampling, "FEW", few)
    logits = torch.randn((64, 50), generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2
    rows, how = torch.log_softmax(logits, dim=-1), Sampling(temperature=0.8, top_p=top_p)
    chance = torch.rand(64, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = [pick(row.numpy(), float(c), how) for row, c in zip(rows, chance, strict=True)]
    assert transformers_sampling.picked(rows, chance, how).tolist() == expected


def test_log_probabilities_are_those_of_teacher_forcing(model: TransformersModel) -> None:
    """Also where temperature and top-p decide what is drawn."""
    cool = Sampling(max_tokens=8, temperature=0.5, top_p=0.8)
    for wanted, sample in zip(WANTED[:2], model.sample(WANTED[:2], cool), strict=True):
        forced = model.score([Prompted(wanted.prompt, sample.text)])[0].logprobs
        assert len(sample.logprobs) == len(forced) + sample.finished  # the token that ends it is counted
        np.testing.assert_allclose(sample.logprobs[: len(forced)], forced, atol=TOLERANCE)


def test_a_response_ends_at_a_stop_and_a_prompt_must_leave_room(model: TransformersModel) -> None:
    plain = model.sample([Wanted(TOWER, 0)], HOW)[0]
    stop = plain.text[4:6]
    short = model.sample([Wanted(TOWER, 0)], Sampling(max_tokens=12, seed=1, stops=(stop,)))[0]
    assert short.finished
    assert short.text == plain.text[: plain.text.index(stop)]
    np.testing.assert_allclose(short.logprobs, plain.logprobs[: len(short.logprobs)], atol=TOLERANCE)
    assert len(short.logprobs) < len(plain.logprobs)
    with pytest.raises(FedsrcError, match="the model takes 8,192"):
        model.sample([Wanted(TOWER, 0)], Sampling(max_tokens=8190))


def test_the_whole_command_draws_once(
    model: TransformersModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(opening, "open_model", lambda *_, **__: model)  # loaded once for all tests
    evidence = "The tower is 330 metres tall."
    said = ("It is 330 metres tall.", "Giants built it of ice.")
    answers = [
        Answer(id=str(i), source="tower", question="How tall?", evidence=evidence, response=text, loss=float(i))
        for i, text in enumerate(said)
    ]
    write_answers(Path("answers.jsonl"), answers)
    scores = ["answers.jsonl", "--score", "selfcheck-ngram-mean", "--score", "selfcheck-ngram", "--samples", "2"]
    drawn = CliRunner().invoke(cli_score.score_command, [*scores, "--model", "smollm2", "--sample-tokens", "12"])
    assert drawn.exit_code == 0, drawn.output
    table = pl.read_parquet("records.parquet")
    assert table["score"][0] > table["score"][1]
    recording = ["--sample-recording", "records.parquet.samples.jsonl"]
    replayed = CliRunner().invoke(cli_score.score_command, [*scores, "-o", "b.parquet", *recording])
    assert replayed.exit_code == 0, replayed.output
    assert pl.read_parquet("b.parquet").equals(table)
