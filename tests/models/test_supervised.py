"""Supervised scores with real weights: hidden states, samples, a frozen probe, a fine-tuned detector and its adapter.

TOLERANCE is what the order of float32 sums may move a number by, as in test_small_model.py (seen here: 7e-5, and
5e-4 where a state is 400).
Mutants killed: hidden states of another layer, of the prompt or of padding; a seed that is not used; an adapter or a
head lost on the way to disk; training that leaves its mark in the shared weights; a loss that weighs long responses
more, or that does not reach the adapter.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsrc.data.answers import Answer
from fedsrc.errors import FedsrcError
from fedsrc.scores.fitted import finetune
from fedsrc.scores.fitted.finetune import Detector, Labelled, Training, adapted, fine_tune
from fedsrc.scores.fitted.fit import Fitted, fitted_detector, fitted_probe
from fedsrc.scores.fitted.frozen import load
from fedsrc.scores.fitted.score_file import ADAPTER
from fedsrc.scores.fitted.supervised import pairs_of, probe_scores, score_with
from fedsrc.scores.models.backends import open_model
from fedsrc.scores.models.model import HiddenModel, Prompted, SamplingModel
from fedsrc.scores.models.transformers_model import TransformersModel

TOLERANCE = 2e-4
FACTS = [
    ("The bridge was opened in 1932.", "It was opened in 1932.", "It was opened in 1871."),
    ("Anna keeps three goats.", "Anna keeps goats.", "Anna keeps horses."),
    ("The lake is 40 metres deep.", "The lake is 40 metres deep.", "The lake is 90 metres deep."),
    ("The shop sells bread and tea.", "It sells bread.", "It sells shoes."),
    ("Omar paints old boats.", "Omar paints boats.", "Omar repairs clocks."),
    ("The train leaves at noon.", "The train leaves at noon.", "The train leaves at midnight."),
    ("Lima is the capital of Peru.", "The capital is Lima.", "The capital is Cusco."),
    ("The tower has nine floors.", "It has nine floors.", "It has two floors."),
]


def answers(prefix: str = "s") -> list[Answer]:
    found = []
    for i, (evidence, true, false) in enumerate(FACTS):
        for loss, response in ((0.0, true), (1.0, false)):
            found.append(Answer(f"{prefix}{i}-{loss:g}", f"{prefix}{i}", f"{prefix}: {evidence}", response, loss=loss))
    return found


def pairs() -> list[Prompted]:
    return pairs_of(answers(), "present")


def labelled() -> list[Labelled]:
    return [
        Labelled(pair, ((0, len(pair.response)),) if answer.loss else ())
        for answer, pair in zip(answers()[:8], pairs(), strict=False)
    ]


def plain_states(model: TransformersModel, pair: Prompted, layer: int) -> Any:
    """One pair, one forward pass, no cache, no padding."""
    import torch

    prompt = model.tokenizer(pair.prompt)["input_ids"] or [model.tokenizer.bos_token_id]
    response = model.tokenizer(pair.response, add_special_tokens=False)["input_ids"]
    with torch.inference_mode():
        out = model.network(torch.tensor([[*prompt, *response]]), output_hidden_states=True)
    return out.hidden_states[layer][0, len(prompt) :].numpy()


@pytest.mark.parametrize("layer", [0, 7, -1])
def test_hidden_states_are_those_of_a_plain_pass(model: TransformersModel, layer: int) -> None:
    asked = [*pairs()[:3], Prompted("", "Nothing before it."), Prompted(pairs()[0].prompt * 3, "End.")]
    together = model.hidden(asked, layer)
    for pair, states in zip(asked, together, strict=True):
        expected = plain_states(model, pair, layer)
        np.testing.assert_allclose(states, expected, atol=TOLERANCE, rtol=2e-5)
        np.testing.assert_allclose(model.hidden([pair], layer)[0], states, atol=TOLERANCE, rtol=2e-5)


def test_a_local_model_gives_hidden_states_and_samples(model: TransformersModel) -> None:
    assert isinstance(model, HiddenModel)
    assert isinstance(model, SamplingModel)


def test_a_frozen_probe_scores_as_it_was_fitted(model: TransformersModel, tmp_path: Path) -> None:
    fitted = fitted_probe(answers(), model, layer=12, penalty=100.0)
    kept = fitted.freeze(tmp_path, answers(), "0" * 64)
    assert kept.document.model == model.identity
    others = answers("x")
    found = load(tmp_path).scores(others, model)
    assert found == score_with(fitted.parameters, others, model)
    own = score_with(fitted.parameters, answers(), model)
    assert np.mean(own[0::2]) > np.mean(own[1::2]) + 0.05
    with pytest.raises(FedsrcError, match="16 of 16 answers share a source"):
        kept.scores(answers(), model)
    with pytest.raises(FedsrcError, match="the model has no layer 31"):
        fitted_probe(answers(), model, layer=31)


class Tuned:
    """A detector trained once, what was said meanwhile, and the network as it was before."""

    def __init__(self, model: TransformersModel) -> None:
        self.model, self.told = copy.copy(model), list[str]()
        self.model.network = copy.deepcopy(model.network)  # the shared weights stay out of it
        self.before = self.model.hidden(pairs()[:4], -1)
        training = Training(epochs=4, rank=4, batch_tokens=512, rate=5e-4, head_rate=2e-3, dropout=0.0)
        self.detector = fine_tune(self.model, labelled(), training, self.told.append)


@pytest.fixture(scope="module")
def tuned(model: TransformersModel) -> Tuned:
    return Tuned(model)


def test_fine_tuning_lowers_the_loss_and_leaves_the_model_alone(tuned: Tuned) -> None:
    losses = [float(line.rsplit(" ", 1)[1]) for line in tuned.told if line.startswith("epoch")]
    assert len(losses) == 4
    assert losses[-1] < 0.95 * losses[0]
    for one, other in zip(tuned.model.hidden(pairs()[:4], -1), tuned.before, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_kept_adapter_gives_the_same_scores(tuned: Tuned, tmp_path: Path) -> None:
    others = answers("x")[:4]
    expected = score_with(tuned.detector, others, tuned.model)
    assert expected != probe_scores(tuned.detector.head, others, tuned.model)
    fitted = Fitted(tuned.detector, None, tuned.model.identity, {})
    fitted.freeze(tmp_path, answers(), "0" * 64)
    np.testing.assert_allclose(load(tmp_path).scores(others, tuned.model), expected, atol=1e-4)
    np.testing.assert_allclose(merged_scores(tuned, others), expected, atol=1e-4)
    for one, other in zip(tuned.model.hidden(pairs()[:4], -1), tuned.before, strict=True):
        np.testing.assert_array_equal(one, other)


def merged_scores(tuned: Tuned, others: list[Answer]) -> list[float]:
    """Another route: W + 2 B A added into a copy of the weights by hand (alpha is twice the rank)."""
    import safetensors.torch

    state = safetensors.torch.load(tuned.detector.adapter)
    merged = copy.copy(tuned.model)
    merged.network = copy.deepcopy(tuned.model.network)
    for name in [name for name in state if name.endswith("lora_A.weight")]:
        module = merged.network.get_submodule(name.removeprefix("base_model.model.").removesuffix(".lora_A.weight"))
        module.weight.data += 2 * state[name.replace("lora_A", "lora_B")] @ state[name]
    return probe_scores(tuned.detector.head, others, merged)


def test_adapters_that_do_not_fit_are_refused(tuned: Tuned) -> None:
    import safetensors.torch

    head, good = tuned.detector.head, safetensors.torch.load(tuned.detector.adapter)
    first = next(iter(good))
    less = {name: values for name, values in good.items() if name != first}
    bad = {
        "not a safetensors file": b"pickle?",
        "does not fit the model": safetensors.torch.save(less),
        "not finite": safetensors.torch.save({**good, first: good[first] * np.nan}),
    }
    for message, data in bad.items():
        with pytest.raises(FedsrcError, match=message), adapted(tuned.model, Detector(head, 4, data)):
            pass
    with (
        pytest.raises(FedsrcError, match="does not fit"),
        adapted(tuned.model, Detector(head, 5, tuned.detector.adapter)),
    ):
        pass
    np.testing.assert_array_equal(tuned.model.hidden(pairs()[:4], -1)[0], tuned.before[0])


def test_the_loss_is_the_mean_of_means_and_reaches_every_adapter(tuned: Tuned) -> None:
    import torch

    stage = labelled()[:3]
    texts = tuned.model.encode([each.pair for each in stage])
    labels = [np.linspace(0, 1, len(each.ids)).round() for each in texts.responses]
    head = torch.nn.Linear(tuned.model.network.config.hidden_size, 1)
    with finetune._adapter(tuned.model, 2, 0.0) as network:
        for name, values in network.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(values, std=0.02)
        loss = finetune._loss(tuned.model, network, head, texts, labels, [2, 0, 1])
        loss.backward()
        trained = {name: each.grad for name, each in network.named_parameters() if each.requires_grad}
        states = [torch.tensor(plain_states(tuned.model, each.pair, -1)) for each in stage]
    means = []
    for rows, target in zip(states, labels, strict=True):
        p = torch.sigmoid(head(rows)[:, 0]).detach().double().numpy()
        means.append(-np.mean(np.log(np.where(target == 1, p, 1 - p))))
    assert float(loss.detach()) == pytest.approx(np.mean(means), abs=TOLERANCE)
    assert len(trained) == 2 * 7 * tuned.model.network.config.num_hidden_layers
    assert all(grad is not None and float(grad.abs().sum()) > 0 for grad in trained.values())


def test_a_detector_is_fitted_and_kept(tuned: Tuned, tmp_path: Path) -> None:
    training = Training(epochs=1, rank=2)
    fitted = fitted_detector(answers(), tuned.model, training)
    assert fitted.auc is None
    kept = fitted.freeze(tmp_path, answers(), "0" * 64)
    assert (tmp_path / ADAPTER).is_file()
    assert kept.document.training.settings["rank"] == 2
    given = zip(answers(), pairs(), strict=True)
    stage = [Labelled(pair, ((0, len(a.response)),) if a.loss else ()) for a, pair in given]
    again = fine_tune(tuned.model, stage, training)
    assert isinstance(fitted.parameters, Detector)
    assert again.adapter == fitted.parameters.adapter
    np.testing.assert_array_equal(again.head.token.weights, fitted.parameters.head.token.weights)


def test_models_are_opened_by_what_they_are_called(tmp_path: Path) -> None:
    def opened(model: str, revision: str | None = None, device: str = "cpu", dtype: str = "auto") -> TransformersModel:
        return open_model(model, revision=revision, device=device, dtype=dtype)

    for message, wrong in {
        "there is no such model file": {"model": str(tmp_path / "no.gguf")},
        "a GGUF file has no revision": {"model": "no.gguf", "revision": "main"},
        "unknown device 'tpu'": {"model": "no.gguf", "device": "tpu"},
        "unknown device 'cuda:x'": {"model": "no.gguf", "device": "cuda:x"},
        "there is no device 'cuda:99'": {"model": "no.gguf", "device": "cuda:99"},
        "unknown type of numbers 'int8'": {"model": "no.gguf", "dtype": "int8"},
        "cannot be loaded": {"model": str(tmp_path)},
    }.items():
        with pytest.raises(FedsrcError, match=message):
            opened(**wrong)
