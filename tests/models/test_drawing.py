"""Responses that share their prompts' keys and values are those that each have a copy.

Chance of a false alarm: none but for rounding; no number decides between two tokens here within the tolerance.
Mutants killed: a response going on from another prompt, padding attended to, a place that starts at the padded width,
heads in another order, the scale left out, an ended response that keeps its place, its cache or its mask while another
goes, own tokens left out; a row that needs more than the likeliest tokens picked among these.
"""

from __future__ import annotations

import numpy as np
import pytest

from fedsrc.errors import FedsrcError
from fedsrc.scores.models.drawing import pick
from fedsrc.scores.models.model import Sampling, Wanted
from fedsrc.scores.models.transformers_model import TransformersModel
from fedsrc.scores.models.transformers_sampling import FEW, picked
from research.tables.drawing import KIND, Together

PROMPTS = (
    "Context:\nThe tower was built in 1889 and is 330 metres high.\n\nQuestion: How high is it?\nAnswer: ",
    "One, two, three,",
    "The capital of France is Paris. The capital of Italy is Rome. The capital of Spain is",
)
WANTED = [Wanted(PROMPTS[row], place) for row, place in [(0, 0), (1, 0), (0, 1), (2, 0), (2, 1), (0, 2), (1, 1)]]
HOW = Sampling(max_tokens=36, stops=("\n",))


def test_what_is_shared_draws_the_same(model: TransformersModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """All in one batch, where those that go on are not the first ones, and each as if it were alone."""
    alone = [model.sample([each], HOW)[0] for each in WANTED]
    monkeypatch.setattr(model, "budget", 5_000)
    copied, shared = model.sample(WANTED, HOW), Together(model).sample(WANTED, HOW)
    assert [each.text for each in shared] == [each.text for each in copied] == [each.text for each in alone]
    for one, other in zip(shared, copied, strict=True):
        assert one.finished == other.finished
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-3)
    lengths = [len(each.logprobs) for each in copied]
    assert min(lengths) <= 16 < max(lengths), "some leave the batch, and some go on"
    assert [each > 16 for each in lengths] != sorted((each > 16 for each in lengths), reverse=True)


def test_rows_that_need_the_whole_vocabulary_sort_alone() -> None:
    """Rows with a flat, a sharp and a falling law, together: each is picked as numpy picks it."""
    import torch

    logits = torch.zeros(3, 5000)
    logits[1, :7] = 30.0 - torch.arange(7) / 10
    logits[2] = -torch.arange(5000) / 400.0
    rows, chance = torch.log_softmax(logits, dim=-1), torch.tensor([0.99, 0.5, 0.999], dtype=torch.float64)
    together = picked(rows, chance, HOW)
    for i in range(3):
        assert together[i] == pick(rows[i].double().numpy(), float(chance[i]), HOW)
    assert 600 < together[2] < FEW < together[0]


def test_another_kind_of_model_is_refused(model: TransformersModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model.network.config, "model_type", "gemma2")
    with pytest.raises(FedsrcError, match=f"the kind '{KIND}' alone"):
        Together(model)
