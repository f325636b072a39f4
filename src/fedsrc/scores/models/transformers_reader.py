"""Reading texts with a local model through transformers, on CPU or GPU, in batches.

Prompt and response are tokenised apart, so that a response has the same tokens whatever stands before it. A prompt is
read once for all its responses: they continue from its keys and values. Batches hold texts of similar length, so that
little of them is padding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedsrc.scores.models.model import Prompted, no_token, too_many_tokens
from fedsrc.scores.models.torch_tools import Response, Texts, batches, need, positions, rows_of
from fedsrc.scores.prompts import by_prompt

if TYPE_CHECKING:
    import torch

BATCH_TOKENS = {"cpu": 512, "cuda": 65536}  # tokens of one forward pass, padding included
PLAIN = {"add_special_tokens": False, "split_special_tokens": True, "truncation": False, "padding": False}
During = Callable[[list[int]], AbstractContextManager[None]]


class Read(NamedTuple):
    """One batch of responses, read after their prompts: which pairs they are, and what the model made of them."""

    places: list[int]
    before: torch.Tensor  # the last prompt position's state, one a response
    states: Any  # the model's output over the response positions
    lengths: list[int]
    prompts: torch.Tensor  # the states of every prompt of the group, padded on the left
    rows: list[int]  # which of those prompts each response follows


class Reader:
    """A causal language model and its tokenizer."""

    def __init__(
        self, model: Any, tokenizer: Any, identity: dict[str, str], *, batch_tokens: int | None = None
    ) -> None:
        self.network, self.tokenizer, self.identity = model, tokenizer, identity
        self.budget = batch_tokens or BATCH_TOKENS.get(model.device.type, BATCH_TOKENS["cpu"])
        self.limit = int(getattr(model.config.get_text_config(), "max_position_embeddings", None) or 1 << 30)

    @property
    def ends(self) -> set[int]:
        """Tokens that end a response."""
        told = getattr(self.network.generation_config, "eos_token_id", None)
        known = [*(told if isinstance(told, list) else [told]), self.tokenizer.eos_token_id]
        return {int(each) for each in known if each is not None}

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of tokens, without control tokens."""
        plain = {"skip_special_tokens": True, "clean_up_tokenization_spaces": False}
        return str(self.tokenizer.decode(list(ids), **plain))

    def too_long(self, pairs: Sequence[Prompted]) -> list[int]:
        """Return the places of pairs that do not fit into the model's context."""
        prompts, responses = ({pair[side]: 0 for pair in pairs} for side in (0, 1))
        for texts in (prompts, responses):
            texts.update(zip(texts, map(len, self._ids(list(texts))), strict=True))
        room = self.limit - len(self._lead)
        return [i for i, pair in enumerate(pairs) if prompts[pair.prompt] + responses[pair.response] > room]

    def tokens(self, text: str) -> int:
        """Return how many tokens a text has, for evidence controls of matched length."""
        return len(self._ids([text])[0])

    def _ids(self, texts: list[str]) -> list[list[int]]:
        """Return texts as tokens, whole, with nothing added; what looks like a control token in them is plain text."""
        return list(self.tokenizer(texts, **PLAIN)["input_ids"]) if texts else []

    @property
    def _lead(self) -> list[int]:
        """What the tokenizer puts before a text: its start token, or nothing. What it puts after is left out."""
        start = self.tokenizer.bos_token_id
        added = self.tokenizer("", add_special_tokens=True)["input_ids"]
        return [start] if start is not None and added[:1] == [start] else []

    @property
    def pad(self) -> int:
        ids = (self.tokenizer.pad_token_id, self.tokenizer.eos_token_id, 0)
        return int(next(each for each in ids if each is not None))

    def encode(self, pairs: Sequence[Prompted]) -> Texts:
        """Return every distinct prompt and every response as tokens, checked against the model's context."""
        prompts = list(dict.fromkeys(pair.prompt for pair in pairs))
        known = {prompt: [*self._lead, *ids] for prompt, ids in zip(prompts, self._ids(prompts), strict=True)}
        bos, eos = self.tokenizer.bos_token_id, self.tokenizer.eos_token_id
        known = {prompt: ids or [eos if bos is None else bos] for prompt, ids in known.items()}
        told = self._responses(list(dict.fromkeys(pair.response for pair in pairs)))
        for pair in pairs:
            length = len(known[pair.prompt]) + len(told[pair.response].ids)
            if length > self.limit:
                raise too_many_tokens(length, self.limit)
        return Texts(known, [told[pair.response]._replace(prompt=pair.prompt) for pair in pairs])

    def _responses(self, texts: list[str]) -> dict[str, Response]:
        """Return each distinct response as tokens."""
        found: dict[str, Response] = {}
        if not texts:
            return found
        given = self.tokenizer(texts, return_offsets_mapping=True, **PLAIN)
        for text, ids, offsets in zip(texts, given["input_ids"], given["offset_mapping"], strict=True):
            if not ids:
                raise no_token()
            tokens = tuple(self.tokenizer.convert_ids_to_tokens(ids))
            found[text] = Response("", ids, tokens, np.asarray(offsets, dtype=np.int64).reshape(-1, 2))
        return found

    def read(self, texts: Texts, *, during: During = lambda _: nullcontext(), **options: bool) -> Iterator[Read]:
        """Read prompts in batches, then their responses in batches that continue from the prompts' keys and values.

        `during` is entered, with the places of a batch's responses, while the model reads them.
        """
        torch = need("torch")
        asked = by_prompt(response.prompt for response in texts.responses)
        prompts = list(asked)
        for group in batches([len(texts.prompts[each]) for each in prompts], self.budget):
            ids = [texts.prompts[prompts[i]] for i in group]
            first, mask = self.padded(ids, left=True)
            width = mask.shape[1]
            cache = self.cache()
            states = self.base(first, mask, positions(mask), cache).last_hidden_state
            rows = [(row, place) for row, i in enumerate(group) for place in asked[prompts[i]]]
            lengths = [len(texts.responses[place].ids) for _, place in rows]
            for batch in batches(lengths, self.budget, extra=width):
                chosen = [rows[i] for i in batch]
                places = [place for _, place in chosen]
                index = self.tensor([row for row, _ in chosen])
                told, told_mask = self.padded([texts.responses[i].ids for i in places], left=False)
                whole = torch.cat([mask[index], told_mask], dim=1)
                kept = rows_of(cache, index)
                place_of = positions(whole)[:, width:]
                with during(places):
                    out = self.base(told, whole, place_of, kept, **options)
                told_lengths, followed = [lengths[i] for i in batch], [row for row, _ in chosen]
                yield Read(places, states[index, -1], out, told_lengths, states, followed)

    def base(self, ids: torch.Tensor, mask: Any, places: torch.Tensor, cache: Any, **options: Any) -> Any:
        return self.network.base_model(
            input_ids=ids, attention_mask=mask, position_ids=places, past_key_values=cache, use_cache=True, **options
        )

    def cache(self) -> Any:
        return need("transformers").DynamicCache(config=self.network.config)

    def padded(self, rows: Sequence[Sequence[int]], *, left: bool) -> tuple[Any, Any]:
        """Return token ids padded to one width, and the mask of those that are real."""
        wide = max(map(len, rows))
        ids = np.full((len(rows), wide), self.pad, dtype=np.int64)
        mask = np.zeros((len(rows), wide), dtype=np.int64)
        for i, row in enumerate(rows):
            part = slice(wide - len(row), wide) if left else slice(0, len(row))
            ids[i, part], mask[i, part] = row, 1
        return self.tensor(ids), self.tensor(mask)

    def tensor(self, values: Any) -> Any:
        return need("torch").as_tensor(values).to(self.network.device, non_blocking=True)
