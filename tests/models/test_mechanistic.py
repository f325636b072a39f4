"""Mechanistic signals and the judge with real weights, and with tiny random ones, against a plain slow pass.

The slow pass reads prompt and response as one text with eager attention, asks the library for every attention matrix
and hidden state, and follows the definitions a token and a head at a time. It agrees to 1e-6 here; TOLERANCE leaves
room for another machine's order of float32 sums.
Mutants killed: positions off by one; padding, or the response, among the attended tokens; attention of another layer or
head; the state before the last norm; the lens before attention or without its norm; a divergence summed over padding;
hooks or the attention implementation left behind; a sliding window that shifts the prompt's places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cosine as cosine_distance
from scipy.spatial.distance import jensenshannon

from fedsrc.data.answers import Answer
from fedsrc.errors import FedsrcError
from fedsrc.scores.fitted.fit import fitted_mechanistic
from fedsrc.scores.fitted.mechanistic import Signals
from fedsrc.scores.methods.judge import CHOICES, GREEDY, Judgement, confidence, question_in_words, verdict_pairs
from fedsrc.scores.methods.mechanistic_signals import signals
from fedsrc.scores.models.model import Prompted
from fedsrc.scores.models.transformers_model import TransformersModel
from fedsrc.scores.recordings.signal_recording import SignalRecording
from tests.models.test_architectures import bytes_tokenizer, ready, tiny
from tests.models.test_supervised import answers

TOLERANCE = 1e-4
EVIDENCE = "Context:\nThe Eiffel Tower in Paris is 330 metres tall and was finished in 1889.\n\n"
QUESTION = "Question: How tall is the Eiffel Tower?\nAnswer: "
PAIRS = [
    Prompted(EVIDENCE + QUESTION, "330 metres."),
    Prompted(EVIDENCE * 2 + QUESTION, "It"),
    Prompted(EVIDENCE + QUESTION, "Martians built it."),
]


def slowly(model: TransformersModel, pair: Prompted) -> Signals:
    """By the definitions: everything the library can give, then loops."""
    network, texts = model.network, model.encode([pair])
    prompt, response = texts.prompts[pair.prompt], texts.responses[0].ids
    out, ends, added = everything(network, [*prompt, *response])
    positions = list(range(len(prompt) - 1, len(prompt) + len(response) - 1))
    last, count = out.hidden_states[-1][0].double().numpy(), max(1, int(0.1 * len(prompt)))
    external = np.zeros((len(ends), network.config.num_attention_heads))
    for layer, head in np.ndindex(external.shape):
        weights = out.attentions[layer][0, head].numpy()
        tops = [np.argsort(-weights[n, : len(prompt)])[:count] for n in positions]
        cosines = [1 - cosine_distance(last[top].mean(0), last[n]) for top, n in zip(tops, positions, strict=True)]
        external[layer, head] = np.mean(cosines)
    parametric = []
    for end, step in zip(ends, added, strict=True):
        before, after = lens(network, (end - step)[positions]), lens(network, end[positions])
        parametric.append(np.mean(jensenshannon(before, after, axis=1) ** 2))
    return Signals(external, np.array(parametric))


def everything(network: Any, ids: list[int]) -> tuple[Any, list[Any], list[Any]]:
    """All attention and states of one text, what each block left in the residual stream, and what its MLP added."""
    usual, ends, added = network.config._attn_implementation, list[Any](), list[Any]()
    hooks = [each.register_forward_hook(lambda _, __, out: ends.append(out[0])) for each in network.base_model.layers]
    hooks += [
        each.mlp.register_forward_hook(lambda _, __, out: added.append(out[0])) for each in network.base_model.layers
    ]
    network.set_attn_implementation("eager")
    with torch.inference_mode():
        out = network(torch.tensor([ids]), output_attentions=True, output_hidden_states=True)
    network.set_attn_implementation(usual)
    for hook in hooks:
        hook.remove()
    return out, ends, added


@torch.inference_mode()
def lens(network: Any, rows: Any) -> Any:
    """What the model would say next if it ended here."""
    return torch.softmax(network.lm_head(network.base_model.norm(rows)).double(), -1).numpy()


def check(model: TransformersModel, pairs: Sequence[Prompted]) -> None:
    before = model.network.config._attn_implementation
    together = signals(model, pairs)
    assert model.network.config._attn_implementation == before
    for pair, found in zip(pairs, together, strict=True):
        expected = slowly(model, pair)
        np.testing.assert_allclose(found.external, expected.external, atol=TOLERANCE)
        np.testing.assert_allclose(found.parametric, expected.parametric, atol=TOLERANCE)


def hooks_of(model: TransformersModel) -> list[int]:
    return [len(each._forward_hooks) + len(each._forward_pre_hooks) for each in model.network.modules()]


def test_signals_are_those_of_a_plain_pass(model: TransformersModel) -> None:
    check(model, PAIRS[:2])
    before = hooks_of(model)
    signals(model, PAIRS[:1])
    assert hooks_of(model) == before


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("mistral", {"sliding_window": None}),
        ("mistral", {"sliding_window": 100}),
        ("qwen2", {}),
        ("qwen3", {}),
        ("phi3", {"pad_token_id": 0}),
    ],
)
def test_other_families(kind: str, more: dict[str, Any]) -> None:
    check(ready(tiny(kind, **more), bytes_tokenizer()), PAIRS)


def test_what_cannot_be_watched_is_refused(model: TransformersModel) -> None:
    other = ready(tiny("olmo2", pad_token_id=0), bytes_tokenizer())
    with pytest.raises(FedsrcError, match="not supported for models of kind 'olmo2'"):
        signals(other, PAIRS)
    with pytest.raises(FedsrcError, match="a prompt of at least two tokens"):
        signals(model, [Prompted("", "x")])


def test_a_fit_is_recorded_and_replayed(model: TransformersModel, tmp_path: Path) -> None:
    few = [replace(each, response="No" if each.loss else "Yes") for each in answers()[:10]]
    fitted = fitted_mechanistic(few, SignalRecording(tmp_path / "s.jsonl", model))
    again = fitted_mechanistic(few, SignalRecording(tmp_path / "s.jsonl"))
    assert again.auc == fitted.auc
    kept = fitted.freeze(tmp_path / "mech", few, "0" * 64)
    assert kept.document.model["revision"] == model.identity["revision"]
    fresh = [Answer("new", "new", "The mill was sold in 1950.", "1950", loss=0.0)]
    live = SignalRecording(tmp_path / "s.jsonl", model)
    assert kept.scores(fresh, live) == kept.scores(fresh, SignalRecording(tmp_path / "s.jsonl"))
    assert kept.scores(fresh, model) == pytest.approx(kept.scores(fresh, live), abs=1e-3)


def test_the_judge_takes_the_two_answers_over_each_other(model: TransformersModel) -> None:
    """Another route: the next-token distribution after the judge's prompt; both answers are one token."""
    answer = answers()[0]
    pairs = verdict_pairs(answer)
    ids = [model.encode([pair]).responses[0].ids for pair in pairs]
    assert [len(each) for each in ids] == [1, 1]
    with torch.inference_mode():
        logits = model.network(torch.tensor([model.encode(pairs[:1]).prompts[pairs[0].prompt]])).logits[0, -1]
    expected = torch.softmax(logits[[ids[0][0], ids[1][0]]].double(), 0)[0]
    assert confidence(Judgement(*model.score(pairs))) == pytest.approx(float(expected), abs=TOLERANCE)
    assert CHOICES == (" True", " False")


def test_a_judges_words_are_the_most_likely_ones(model: TransformersModel) -> None:
    """Another route: the library's own greedy decoding, up to a line break."""
    wanted = [question_in_words(each) for each in answers()[:2]]
    for each, reply in zip(wanted, model.sample(wanted, GREEDY), strict=True):
        ids = model.encode([Prompted(each.prompt, ".")]).prompts[each.prompt]
        settings = {"do_sample": False, "max_new_tokens": GREEDY.max_tokens, "pad_token_id": model.pad}
        with torch.inference_mode():
            out = model.network.generate(torch.tensor([ids]), attention_mask=torch.ones((1, len(ids))), **settings)
        said = model.tokenizer.decode(out[0, len(ids) :], skip_special_tokens=True)
        assert reply.text == said.split("\n")[0]
