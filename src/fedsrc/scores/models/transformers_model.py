"""A local language model through transformers, on CPU or GPU: teacher forcing of whole responses, in batches.

Prompt and response are tokenised apart, so that a response has the same tokens whatever stands before it. A prompt is
read once for all its responses: they continue from its keys and values. Only response positions go through the
vocabulary projection. Batches hold texts of similar length, so that little of them is padding.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedsrc.common.canonical import digest_bytes, file_digest
from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats
from fedsrc.scores.models.model import Prompted, Sample, Sampling, TokenScores, Wanted
from fedsrc.scores.models.torch_tools import (
    Response,
    Texts,
    batches,
    folder_digest,
    loading,
    memory,
    need,
    positions,
    rows_of,
)
from fedsrc.scores.models.transformers_sampling import draw

if TYPE_CHECKING:
    import torch


BATCH_TOKENS = {"cpu": 512, "cuda": 65536}  # tokens of one forward pass, padding included
PROJECTED = {"cpu": 64, "cuda": 4096}  # response positions that go through the vocabulary at once
AGREEMENT = {"float32": 1e-3, "bfloat16": 0.25, "float16": 0.25}  # mean difference from a plain forward pass
TRIAL = (
    Prompted("Monday, Tuesday, Wednesday, Thursday,", " Friday and Saturday."),
    Prompted("One, two, three, four, five, six, seven, eight, nine, ten: we count to", " twelve."),
    Prompted("Monday, Tuesday, Wednesday, Thursday,", " and so on."),
)
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


class TransformersModel:
    """A causal language model and its tokenizer. Build one with `load` or `load_gguf`."""

    def __init__(
        self, model: Any, tokenizer: Any, identity: dict[str, str], *, batch_tokens: int | None = None
    ) -> None:
        self.network, self.tokenizer, self.identity = model, tokenizer, identity
        self.budget = batch_tokens or BATCH_TOKENS.get(model.device.type, BATCH_TOKENS["cpu"])
        self.projected = PROJECTED.get(model.device.type, PROJECTED["cpu"])
        self.limit = int(getattr(model.config.get_text_config(), "max_position_embeddings", None) or 1 << 30)

    def score(self, pairs: Sequence[Prompted]) -> list[TokenScores]:
        """Score every pair; results come in the order of the pairs, whatever the batches were."""
        torch = need("torch")
        texts = self.encode(pairs)
        picked: list[tuple[list[int], Any, Any]] = []
        with torch.inference_mode(), memory():
            for read in self.read(texts):
                hidden = read.states.last_hidden_state
                shifted = torch.cat([read.before[:, None], hidden[:, :-1]], dim=1)
                rows = torch.cat([shifted[i, :n] for i, n in enumerate(read.lengths)])
                wanted = [token for i in read.places for token in texts.responses[i].ids]
                picked.append((read.places, *self._project(rows, self.tensor(wanted))))
        found: dict[int, TokenScores] = {}
        for places, logprobs, entropy in picked:
            ends = np.cumsum([len(texts.responses[i].ids) for i in places])[:-1]
            halves = (np.split(each.double().cpu().numpy(), ends) for each in (logprobs, entropy))
            for i, logprob, spread in zip(places, *halves, strict=True):
                found[i] = TokenScores(texts.responses[i].tokens, logprob, spread, texts.responses[i].offsets)
        return [found[i] for i in range(len(pairs))]

    @property
    def device(self) -> str:
        return str(self.network.device)

    def hidden(self, pairs: Sequence[Prompted], layer: int) -> list[Floats]:
        """The hidden state of every response token after a layer (0: the embeddings), one row a token."""
        torch = need("torch")
        texts = self.encode(pairs)
        found: dict[int, Floats] = {}
        with torch.inference_mode(), memory():
            for read in self.read(texts, output_hidden_states=True):
                states = read.states.hidden_states[layer].float().cpu().numpy()
                for i, row, length in zip(read.places, states, read.lengths, strict=True):
                    found[i] = row[:length]
        return [found[i] for i in range(len(pairs))]

    def sample(self, wanted: Sequence[Wanted], how: Sampling) -> list[Sample]:
        """Responses drawn from the model. Another machine's arithmetic may draw others: store what was drawn."""
        return draw(self, wanted, how)

    @property
    def ends(self) -> set[int]:
        """Tokens that end a response."""
        told = getattr(self.network.generation_config, "eos_token_id", None)
        known = [*(told if isinstance(told, list) else [told]), self.tokenizer.eos_token_id]
        return {int(each) for each in known if each is not None}

    def text(self, ids: Sequence[int]) -> str:
        """The text of tokens, without control tokens."""
        plain = {"skip_special_tokens": True, "clean_up_tokenization_spaces": False}
        return str(self.tokenizer.decode(list(ids), **plain))

    def too_long(self, pairs: Sequence[Prompted]) -> list[int]:
        """The places of pairs that do not fit into the model's context."""
        prompts, responses = ({pair[side]: 0 for pair in pairs} for side in (0, 1))
        for texts in (prompts, responses):
            texts.update(zip(texts, map(len, self._ids(list(texts))), strict=True))
        room = self.limit - len(self._lead)
        return [i for i, pair in enumerate(pairs) if prompts[pair.prompt] + responses[pair.response] > room]

    def tokens(self, text: str) -> int:
        """How many tokens a text has, for evidence controls of matched length."""
        return len(self._ids([text])[0])

    def _ids(self, texts: list[str]) -> list[list[int]]:
        """Texts as tokens, whole, with nothing added; what looks like a control token in them is plain text."""
        return list(self.tokenizer(texts, **PLAIN)["input_ids"]) if texts else []

    @property
    def _lead(self) -> list[int]:
        """What the tokenizer itself puts before a text: its start token, or nothing. What it puts after is left out."""
        start = self.tokenizer.bos_token_id
        added = self.tokenizer("", add_special_tokens=True)["input_ids"]
        return [start] if start is not None and added[:1] == [start] else []

    @property
    def pad(self) -> int:
        ids = (self.tokenizer.pad_token_id, self.tokenizer.eos_token_id, 0)
        return int(next(each for each in ids if each is not None))

    def encode(self, pairs: Sequence[Prompted]) -> Texts:
        """Every distinct prompt and every response as tokens, checked against the model's context."""
        prompts = list(dict.fromkeys(pair.prompt for pair in pairs))
        known = {prompt: [*self._lead, *ids] for prompt, ids in zip(prompts, self._ids(prompts), strict=True)}
        start = self.tokenizer.bos_token_id
        start = self.tokenizer.eos_token_id if start is None else start
        known = {prompt: ids or [start] for prompt, ids in known.items()}
        told = self._responses(list(dict.fromkeys(pair.response for pair in pairs)))
        for pair in pairs:
            length = len(known[pair.prompt]) + len(told[pair.response].ids)
            if length > self.limit:
                raise self.too_many(length)
        return Texts(known, [told[pair.response]._replace(prompt=pair.prompt) for pair in pairs])

    def _responses(self, texts: list[str]) -> dict[str, Response]:
        """Each distinct response as tokens."""
        found: dict[str, Response] = {}
        if not texts:
            return found
        given = self.tokenizer(texts, return_offsets_mapping=True, **PLAIN)
        for text, ids, offsets in zip(texts, given["input_ids"], given["offset_mapping"], strict=True):
            if not ids:
                raise FedsrcError("a response without a token cannot be scored", hint="leave empty responses out")
            tokens = tuple(self.tokenizer.convert_ids_to_tokens(ids))
            found[text] = Response("", ids, tokens, np.asarray(offsets, dtype=np.int64).reshape(-1, 2))
        return found

    def too_many(self, tokens: int) -> FedsrcError:
        """The error of a text that does not fit."""
        return FedsrcError(
            f"prompt and response have {tokens:,} tokens; the model takes {self.limit:,}",
            hint="use a model with a longer context, or shorten the evidence yourself: nothing is cut silently",
        )

    def read(self, texts: Texts, *, during: During = lambda _: nullcontext(), **options: bool) -> Iterator[Read]:
        """Prompts in batches, then their responses in batches that continue from the prompts' keys and values.

        `during` is entered, with the places of a batch's responses, while the model reads them.
        """
        torch = need("torch")
        asked = defaultdict(list)
        for place, response in enumerate(texts.responses):
            asked[response.prompt].append(place)
        prompts = list(asked)
        for group in batches([len(texts.prompts[each]) for each in prompts], self.budget):
            ids = [texts.prompts[prompts[i]] for i in group]
            width = max(map(len, ids))
            first, mask = self.padded(ids, width, left=True)
            cache = self.cache()
            states = self.base(first, mask, positions(mask), cache).last_hidden_state
            rows = [(row, place) for row, i in enumerate(group) for place in asked[prompts[i]]]
            lengths = [len(texts.responses[place].ids) for _, place in rows]
            for batch in batches(lengths, self.budget, extra=width):
                chosen = [rows[i] for i in batch]
                places = [place for _, place in chosen]
                index = self.tensor([row for row, _ in chosen])
                told, told_mask = self.padded([texts.responses[i].ids for i in places], None, left=False)
                whole = torch.cat([mask[index], told_mask], dim=1)
                kept = rows_of(cache, index)
                place_of = positions(whole)[:, width:]
                with during(places):
                    out = self.base(told, whole, place_of, kept, **options)
                told_lengths, followed = [lengths[i] for i in batch], [row for row, _ in chosen]
                yield Read(places, states[index, -1], out, told_lengths, states, followed)

    def base(self, ids: torch.Tensor, mask: torch.Tensor, places: torch.Tensor, cache: Any, **options: bool) -> Any:
        return self.network.base_model(
            input_ids=ids, attention_mask=mask, position_ids=places, past_key_values=cache, use_cache=True, **options
        )

    def cache(self) -> Any:
        return need("transformers").DynamicCache(config=self.network.config)

    def padded(self, rows: Sequence[Sequence[int]], width: int | None, *, left: bool) -> tuple[Any, Any]:
        """Token ids of one width, and the mask of those that are real."""
        wide = width or max(map(len, rows))
        ids = np.full((len(rows), wide), self.pad, dtype=np.int64)
        mask = np.zeros((len(rows), wide), dtype=np.int64)
        for i, row in enumerate(rows):
            part = slice(wide - len(row), wide) if left else slice(0, len(row))
            ids[i, part], mask[i, part] = row, 1
        return self.tensor(ids), self.tensor(mask)

    def tensor(self, values: Any) -> Any:
        return need("torch").as_tensor(values).to(self.network.device, non_blocking=True)

    def _project(self, states: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probability of each target and entropy of each distribution, a block of positions at a time."""
        torch = need("torch")
        head = self.network.get_output_embeddings()
        picked, spread = [], []
        for i in range(0, len(states), self.projected):
            logits = head(states[i : i + self.projected]).float()
            total = torch.logsumexp(logits, dim=-1, keepdim=True)
            logits -= total
            picked.append(logits.gather(1, targets[i : i + self.projected, None])[:, 0])
            spread.append(torch.special.entr(logits.exp()).sum(dim=-1))
        return torch.cat(picked), torch.cat(spread)


def load(
    name: str,
    *,
    revision: str | None = None,
    device: str = "cpu",
    dtype: str = "float32",
    batch_tokens: int | None = None,
) -> TransformersModel:
    """A model by hub name or folder. Its revision is the commit that was loaded, or the digest of its files."""
    transformers, torch = need("transformers"), need("torch")
    with loading(name):
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, revision=revision)
        model = transformers.AutoModelForCausalLM.from_pretrained(name, revision=revision, dtype=getattr(torch, dtype))
    folder = Path(name)
    if folder.is_dir():
        identity = {"model": folder.resolve().name, "revision": folder_digest(folder)}
    else:
        commit = getattr(model.config, "_commit_hash", None) or revision or "unknown"
        identity = {"model": name, "revision": str(commit)}
    return tried(model, tokenizer, identity, device, dtype, batch_tokens)


def load_gguf(
    path: Path, *, device: str = "cpu", dtype: str = "float32", batch_tokens: int | None = None
) -> TransformersModel:
    """A model from a GGUF file (dequantised). The digest of the file is its revision."""
    transformers, torch = need("transformers"), need("torch")
    if not path.is_file():
        raise FedsrcError("there is no such model file", where=str(path))
    with loading(path.name):
        tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, dtype=getattr(torch, dtype)
        )
        if _pre_tokenizer(path) == "smollm":
            _split_digits(tokenizer)
    return tried(model, tokenizer, {"model": path.name, "revision": file_digest(path)}, device, dtype, batch_tokens)


def tried(
    model: Any, tokenizer: Any, identity: dict[str, str], device: str, dtype: str, batch_tokens: int | None
) -> TransformersModel:
    """The model, tried once: it must agree with a plain forward pass on two short pairs."""
    if not getattr(tokenizer, "is_fast", False):
        raise FedsrcError("the model's tokenizer cannot say which characters a token covers", hint="use a fast one")
    model.eval()
    model.to(device)
    tokens = digest_bytes(tokenizer.backend_tokenizer.to_str().encode())
    whole = {**identity, "backend": "transformers", "dtype": dtype, "tokenizer": tokens}
    ready = TransformersModel(model, tokenizer, whole, batch_tokens=batch_tokens)
    _try(ready, identity["model"], AGREEMENT[dtype])
    return ready


def _try(model: TransformersModel, name: str, tolerance: float) -> None:
    """Refuse a kind of model whose forward pass does more than ours (scaled or capped logits, recurrent states)."""
    torch = need("torch")
    try:
        for scores, pair in zip(model.score(TRIAL), TRIAL, strict=True):
            texts = model.encode([pair])
            prompt, response = texts.prompts[pair.prompt], texts.responses[0].ids
            with torch.inference_mode():
                logits = model.network(input_ids=torch.tensor([prompt + response], device=model.network.device)).logits
            plain = torch.log_softmax(logits[0, len(prompt) - 1 : -1].float(), dim=-1).cpu()
            expected = plain.gather(1, torch.tensor(response)[:, None])[:, 0].double().numpy()
            gap = float(np.abs(scores.logprobs - expected).mean())
            if not gap <= tolerance:
                raise FedsrcError(f"its log-probabilities are off by {gap:.2g}")
    except Exception as error:
        said = " ".join(str(error).split())[:200] or type(error).__name__
        raise FedsrcError(
            f"{name}: this kind of model cannot be scored here, it failed its trial: {said}",
            hint="use another model, or a server that returns prompt log-probabilities (`server=`)",
        ) from error


def _pre_tokenizer(path: Path) -> str:
    """How a GGUF file says that text is cut before it is tokenised."""
    from gguf import GGUFReader

    field = GGUFReader(path).fields.get("tokenizer.ggml.pre")
    return "" if field is None else bytes(field.parts[field.data[0]]).decode()


def _split_digits(tokenizer: Any) -> None:
    """SmolLM's conversion from GGUF loses the step that splits numbers into digits, and numbers get other tokens."""
    from tokenizers import pre_tokenizers

    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
