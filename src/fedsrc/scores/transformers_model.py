"""A local language model through transformers, on CPU or GPU: teacher forcing of whole responses, in batches.

Prompt and response are tokenised apart, so that a response has the same tokens whatever stands before it. Batches hold
pairs of similar length, and only response positions go through the vocabulary projection.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsrc.errors import FedsrcError
from fedsrc.records import file_digest
from fedsrc.scores.model import Prompted, TokenScores

if TYPE_CHECKING:
    import torch

BATCH_TOKENS = 8192
PROJECTED = 1024  # response positions that go through the vocabulary at once
HINT = "pip install 'fedsrc[models]'"


class TransformersModel:
    """A causal language model and its tokenizer. Build one with `load` or `load_gguf`."""

    def __init__(
        self, model: Any, tokenizer: Any, identity: dict[str, str], *, batch_tokens: int = BATCH_TOKENS
    ) -> None:
        self._model, self._tokenizer, self.identity = model, tokenizer, identity
        self._batch_tokens = batch_tokens
        self._limit = int(getattr(model.config, "max_position_embeddings", 1 << 30))

    def score(self, pairs: Sequence[Prompted]) -> list[TokenScores]:
        """Score every pair; results come in the order of the pairs, whatever the batches were."""
        encoded = [self._encode(pair) for pair in pairs]
        found: dict[int, TokenScores] = {}
        for batch in _batches([len(each.ids) for each in encoded], self._batch_tokens):
            for place, scores in zip(batch, self._score([encoded[i] for i in batch]), strict=True):
                found[place] = scores
        return [found[i] for i in range(len(pairs))]

    def _encode(self, pair: Prompted) -> _Encoded:
        prompt = self._tokenizer(pair.prompt, add_special_tokens=True)["input_ids"]
        if not prompt:
            prompt = [self._tokenizer.bos_token_id or self._tokenizer.eos_token_id]
        response = self._tokenizer(pair.response, add_special_tokens=False, return_offsets_mapping=True)
        ids = response["input_ids"]
        if not ids:
            raise FedsrcError("a response without a token cannot be scored", hint="leave empty responses out")
        if len(prompt) + len(ids) > self._limit:
            raise FedsrcError(
                f"prompt and response have {len(prompt) + len(ids):,} tokens; the model takes {self._limit:,}",
                hint="use a model with a longer context, or shorten the evidence yourself: nothing is cut silently",
            )
        tokens = tuple(self._tokenizer.convert_ids_to_tokens(ids))
        return _Encoded([*prompt, *ids], len(ids), tokens, response["offset_mapping"])

    def _score(self, batch: Sequence[_Encoded]) -> list[TokenScores]:
        torch = _torch()
        device = self._model.device
        width = max(len(each.ids) for each in batch)
        ids = torch.zeros((len(batch), width), dtype=torch.long)
        mask = torch.zeros((len(batch), width), dtype=torch.long)
        for row, each in enumerate(batch):
            ids[row, : len(each.ids)] = torch.tensor(each.ids)
            mask[row, : len(each.ids)] = 1
        with torch.inference_mode():
            base = self._model.base_model
            hidden = base(input_ids=ids.to(device), attention_mask=mask.to(device)).last_hidden_state
            states = torch.cat([hidden[r, len(e.ids) - e.count - 1 : len(e.ids) - 1] for r, e in enumerate(batch)])
            targets = torch.cat([torch.tensor(e.ids[-e.count :]) for e in batch]).to(device)
            logprobs, entropy = self._project(states, targets)
        ends = np.cumsum([each.count for each in batch])
        return [
            TokenScores(each.tokens, logprobs[end - each.count : end], entropy[end - each.count : end], each.spans())
            for each, end in zip(batch, ends.tolist(), strict=True)
        ]

    def _project(self, states: torch.Tensor, targets: torch.Tensor) -> tuple[Any, Any]:
        """Log-probability of each target and entropy of each distribution, a block of positions at a time."""
        torch = _torch()
        head = self._model.get_output_embeddings()
        picked, spread = [], []
        for i in range(0, len(states), PROJECTED):
            logits = torch.log_softmax(head(states[i : i + PROJECTED]).float(), dim=-1)
            picked.append(logits.gather(1, targets[i : i + PROJECTED, None])[:, 0])
            spread.append(-(logits.exp() * logits).sum(dim=-1))
        pair = (torch.cat(each).double().cpu().numpy() for each in (picked, spread))
        return next(pair), next(pair)


class _Encoded:
    """One pair as tokens: all ids, how many of them are the response's, their texts and characters."""

    def __init__(self, ids: list[int], count: int, tokens: tuple[str, ...], offsets: Sequence[tuple[int, int]]) -> None:
        self.ids, self.count, self.tokens, self._offsets = ids, count, tokens, offsets

    def spans(self) -> Any:
        return np.asarray(self._offsets, dtype=np.int64).reshape(-1, 2)


def load(name: str, *, revision: str | None = None, device: str = "cpu", dtype: str = "float32") -> TransformersModel:
    """A model by hub name or folder. The revision in the identity is the one that was loaded."""
    transformers, torch = _transformers(), _torch()
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, revision=revision)
        model = transformers.AutoModelForCausalLM.from_pretrained(name, revision=revision, dtype=getattr(torch, dtype))
    except (OSError, ValueError) as error:
        raise FedsrcError(f"model {name!r} cannot be loaded: {str(error).splitlines()[0]}") from error
    loaded = revision or getattr(model.config, "_commit_hash", None) or "local"
    return _ready(model, tokenizer, {"model": name, "revision": str(loaded)}, device, dtype)


def load_gguf(path: Path, *, device: str = "cpu", dtype: str = "float32") -> TransformersModel:
    """A model from a GGUF file (dequantised). The digest of the file is its revision."""
    transformers, torch = _transformers(), _torch()
    if not path.is_file():
        raise FedsrcError("there is no such model file", where=str(path))
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, dtype=getattr(torch, dtype)
        )
    except (OSError, ValueError) as error:
        raise FedsrcError(f"cannot be loaded as GGUF: {str(error).splitlines()[0]}", where=str(path)) from error
    _split_digits(tokenizer)
    return _ready(model, tokenizer, {"model": path.name, "revision": file_digest(path)}, device, dtype)


def _ready(model: Any, tokenizer: Any, identity: dict[str, str], device: str, dtype: str) -> TransformersModel:
    model.eval()
    model.to(device)
    whole = {**identity, "backend": "transformers", "dtype": dtype, "tokenizer": type(tokenizer).__name__}
    return TransformersModel(model, tokenizer, whole)


def _split_digits(tokenizer: Any) -> None:
    """GGUF conversion loses the step that splits numbers into digits; without it numbers get other tokens."""
    from tokenizers import pre_tokenizers

    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )


def _batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Places of similar length together, longest first, each batch within the token budget (padding included)."""
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batch and lengths[batch[0]] * (len(batch) + 1) > budget:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise FedsrcError("a local model needs torch", hint=HINT) from error
    return torch


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise FedsrcError("a local model needs transformers", hint=HINT) from error
    return transformers
