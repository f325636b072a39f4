"""Other kinds of models, tiny and with random weights: scored as a plain forward pass does, or refused.

Mutants killed: logits that are capped or scaled by the model taken as they are, a sliding window that loses the prompt
behind padding, positions that count padding, an end token between prompt and response, a control token read from text.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from fedsrc.errors import FedsrcError
from fedsrc.scores.models.model import Prompted
from fedsrc.scores.models.transformers_model import TransformersModel, tried

SIZES: dict[str, Any] = {
    "vocab_size": 300, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 512,
}  # fmt: skip
PAIRS = [
    Prompted("Some long evidence that goes on and on and on. " * 4 + "And then?", " It ends."),
    Prompted("Short.", " It ends here, but much later than one would think."),
    Prompted("Short.", " Yes"),
]


def bytes_tokenizer(*, end: bool = False) -> Any:
    """One token a byte; with `end`, an end token is appended to every text, as some tokenizers do."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE({"<s>": 0, "</s>": 1, **{c: i + 2 for i, c in enumerate(alphabet)}}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    if end:
        inner.post_processor = processors.TemplateProcessing(  # type: ignore[assignment]
            single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
        )
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>", eos_token="</s>")


def tiny(kind: str, **more: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **SIZES, **more)
    return transformers.AutoModelForCausalLM.from_config(config)


def ready(model: Any, tokenizer: Any) -> TransformersModel:
    return tried(model, tokenizer, {"model": "tiny", "revision": "0"}, "cpu", "float32", None)


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("llama", {}),
        ("mistral", {"sliding_window": 8}),
        ("qwen3", {}),
        ("phi3", {"sliding_window": 8, "pad_token_id": 0}),
    ],
)
def test_scored_as_a_plain_forward_pass(kind: str, more: dict[str, Any]) -> None:
    network, tokenizer = tiny(kind, **more), bytes_tokenizer()
    model = ready(network, tokenizer)
    for pair, scores in zip(PAIRS, model.score(PAIRS), strict=True):
        prompt, response = (list(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in pair)
        with torch.inference_mode():
            plain = torch.log_softmax(network(input_ids=torch.tensor([prompt + response])).logits[0].double(), -1)
        expected = plain[len(prompt) - 1 : -1].gather(1, torch.tensor(response)[:, None])[:, 0]
        np.testing.assert_allclose(scores.logprobs, expected.numpy(), atol=1e-4)


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("gemma2", {"final_logit_softcapping": 0.2}),
        ("granite", {"logits_scaling": 8.0}),
        ("cohere", {"logit_scale": 0.1}),
    ],
)
def test_models_that_do_more_with_their_logits_are_refused(kind: str, more: dict[str, Any]) -> None:
    network = tiny(kind, **more)
    with torch.no_grad():
        for weight in network.parameters():
            weight.mul_(4.0)  # random weights give flat logits, which no scale changes
    with pytest.raises(FedsrcError, match="failed its trial"):
        ready(network, bytes_tokenizer())


def test_no_end_between_prompt_and_response_and_no_control_token_from_text() -> None:
    network = tiny("llama")
    model = ready(network, bytes_tokenizer(end=True))
    texts = model.encode([Prompted("ab", "c</s>")])
    assert texts.prompts["ab"][0] == 0
    assert 1 not in texts.prompts["ab"]
    assert 1 not in texts.responses[0].ids
    assert len(texts.responses[0].ids) == len("c</s>")
