"""Drawing from a local model: responses to many prompts, and many to each, at once.

A prompt is read once for all its responses. Every few tokens, responses that have ended leave the batch. Each response
has random numbers of its own, so it does not depend on what is drawn beside it, but for floating-point rounding.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from fedsrc.scores.models.drawing import chances, cut
from fedsrc.scores.models.model import Prompted, Sample, Sampling, Wanted, too_many_tokens
from fedsrc.scores.models.torch_tools import batches, memory, need, positions, rows_of
from fedsrc.scores.models.transformers_reader import Reader
from fedsrc.scores.prompts import by_prompt

if TYPE_CHECKING:
    import torch

CHECK = 16  # tokens between two looks at which responses have ended
HELD = 16384  # tokens of keys and values that a CPU holds at once
FEW = 1024  # tokens that are sorted, where they are enough
SHARE = 0.35  # of a GPU's free memory that keys and values may take


class Tokens(Protocol):
    """What says which tokens end a response, and what tokens are as text."""

    @property
    def ends(self) -> Collection[int]: ...

    def text(self, ids: Sequence[int]) -> str: ...


class PromptsRead(NamedTuple):
    """Prompts that were read: keys and values, their mask, and the state after each."""

    cache: Any
    mask: torch.Tensor
    states: torch.Tensor


class Copied:
    """Responses that go on from their prompts, each with a copy of its prompt's keys and values."""

    def __init__(self, model: Reader, read: PromptsRead, rows: Sequence[int]) -> None:
        index = model.tensor(rows)
        self._model = model
        self._cache, self._mask, self.states = rows_of(read.cache, index), read.mask[index], read.states[index]

    @staticmethod
    def held(read: PromptsRead, tokens: int) -> int:
        """Return how many tokens' keys and values a response holds when it has so many tokens of its own."""
        return int(read.mask.shape[1]) + tokens

    def keep(self, stay: torch.Tensor) -> None:
        """Let all others go."""
        self._mask = self._mask[stay]
        self._cache.batch_select_indices(stay)

    def step(self, token: torch.Tensor) -> None:
        """Read one more token of each."""
        self._mask = need("torch").cat([self._mask, self._mask.new_ones((len(token), 1))], dim=1)
        places = positions(self._mask)[:, -1:]
        self.states = self._model.base(token[:, None], self._mask, places, self._cache).last_hidden_state[:, 0]


def draw(model: Reader, wanted: Sequence[Wanted], how: Sampling, continued: type[Copied] = Copied) -> list[Sample]:
    """Return responses in the order of what is wanted."""
    prompts = model.encode([Prompted(each.prompt, ".") for each in wanted]).prompts
    longest = max(map(len, prompts.values()), default=0)
    if longest + how.max_tokens > model.limit:
        raise too_many_tokens(longest + how.max_tokens, model.limit)
    asked = by_prompt(each.prompt for each in wanted)
    names = list(asked)
    found: dict[int, Sample] = {}
    with need("torch").inference_mode(), memory():
        for group in batches([len(prompts[each]) for each in names], model.budget):
            read = _read(model, [prompts[names[i]] for i in group])
            rows = [(row, place) for row, i in enumerate(group) for place in asked[names[i]]]
            for part in _parts(rows, read, continued.held(read, how.max_tokens)):
                places = [place for _, place in part]
                going = continued(model, read, [row for row, _ in part])
                drawn = _drawn(model, going, [wanted[i] for i in places], how)
                found.update(zip(places, drawn, strict=True))
    return [found[i] for i in range(len(wanted))]


def _read(model: Reader, prompts: Sequence[Sequence[int]]) -> PromptsRead:
    ids, mask = model.padded(prompts, left=True)
    cache = model.cache()
    states = model.base(ids, mask, positions(mask), cache).last_hidden_state[:, -1]
    return PromptsRead(cache, mask, states)


def _parts(rows: list[tuple[int, int]], read: PromptsRead, each: int) -> Iterator[list[tuple[int, int]]]:
    """Yield as many responses at once as memory holds, going by the prompts' keys and values and the tokens of each."""
    count, width = read.mask.shape
    held = HELD
    if read.mask.device.type == "cuda":
        taken = sum(part.nbytes for layer in read.cache.layers for part in (layer.keys, layer.values))
        free, _ = need("torch").cuda.mem_get_info(read.mask.device)
        held = int(SHARE * free / max(1.0, taken / (count * width)))
    size = max(1, held // each)
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def _drawn(model: Reader, going: Copied, wanted: Sequence[Wanted], how: Sampling) -> list[Sample]:
    """Draw one batch of responses, a token at a time; those that have ended leave it."""
    torch = need("torch")
    chance = model.tensor(np.stack([chances(each, how.seed, how.max_tokens) for each in wanted]))
    ids = torch.full(chance.shape, model.pad, dtype=torch.long, device=chance.device)
    logprobs = torch.zeros(ids.shape, dtype=torch.float64, device=ids.device)
    live = torch.arange(len(ids), device=ids.device)
    head = model.network.get_output_embeddings()
    for step in range(how.max_tokens):
        row = torch.log_softmax(head(going.states).float(), dim=-1)
        token = picked(row, chance[live, step], how)
        ids[live, step] = token
        logprobs[live, step] = row.gather(1, token[:, None])[:, 0].double()
        if (step + 1) % CHECK == 0:
            unended = [i for i, own in enumerate(ids[live, : step + 1].tolist()) if ended(model, own, how) is None]
            if not unended:
                break
            if len(unended) < len(live):
                stay = model.tensor(unended)
                live, token = live[stay], token[stay]
                going.keep(stay)
        if step + 1 < how.max_tokens:
            going.step(token)
    whole = zip(ids.tolist(), logprobs.cpu().numpy(), strict=True)
    return [_sample(model, own, numbers, how) for own, numbers in whole]


def picked(logprobs: torch.Tensor, chance: torch.Tensor, how: Sampling) -> Any:
    """Pick a token for each row, as `drawing.pick` does for one. Where the few likeliest are enough, only they sort."""
    torch = need("torch")
    p = torch.softmax(logprobs / how.temperature, dim=-1)
    if how.top_p == 1:
        return _among(p.sort(dim=-1, descending=True, stable=True), chance, how)
    few = p.topk(min(FEW, p.shape[1]), dim=-1)
    found = _among(few, chance, how)
    short = (few.values.sum(dim=-1) <= how.top_p).nonzero()[:, 0]
    if len(short):
        found[short] = _among(p[short].sort(dim=-1, descending=True, stable=True), chance[short], how)
    return found


def _among(likeliest: Any, chance: torch.Tensor, how: Sampling) -> Any:
    """Pick among tokens that are in order of their probabilities."""
    torch = need("torch")
    mass = likeliest.values.double().cumsum(dim=-1)
    kept = torch.full((len(mass), 1), mass.shape[1], device=mass.device)
    if how.top_p < 1:
        kept = (torch.searchsorted(mass, torch.full_like(mass[:, :1], how.top_p)) + 1).clamp(max=mass.shape[1])
    total = mass.gather(1, kept - 1)
    place = torch.searchsorted(mass, chance[:, None] * total, right=True)
    return likeliest.indices.gather(1, torch.minimum(place, kept - 1))[:, 0]


def ended(model: Tokens, ids: Sequence[int], how: Sampling) -> tuple[str, int] | None:
    """Return text and number of tokens of a response that has ended; None for one that goes on."""
    ends = model.ends
    stop = next((i for i, each in enumerate(ids) if each in ends), None)
    text = model.text(ids if stop is None else ids[:stop])
    shorter = cut(text, how.stops)
    if shorter is None:
        return None if stop is None else (text, stop + 1)
    # One by one: bytes of an unfinished character change the text before them, so a stop can come, go and come again.
    return shorter, next(k for k in range(1, len(ids) + 1) if cut(model.text(ids[:k]), how.stops) == shorter)


def _sample(model: Reader, ids: Sequence[int], logprobs: Any, how: Sampling) -> Sample:
    end = ended(model, ids, how)
    text, count = end or (model.text(ids), len(ids))
    return Sample(text, np.minimum(logprobs[:count], 0.0), end is not None)
