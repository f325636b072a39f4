"""Drawing many responses to each prompt, whose keys and values are held once for all of them.

The attention of a response's new token goes over its prompt's keys and values, which it shares, and over its own. That
is the same sum as over a copy of both, so the same is drawn but for floating-point rounding; twenty responses to a long
prompt take a small part of the memory and its traffic. For models of the Llama kind, whose layers all attend in full.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedsrc.errors import FedsrcError
from fedsrc.scores.models.model import Sample, Sampling, Wanted
from fedsrc.scores.models.torch_tools import need
from fedsrc.scores.models.transformers_model import TransformersModel
from fedsrc.scores.models.transformers_sampling import Copied, PromptsRead, draw

if TYPE_CHECKING:
    import torch

ATTENTION = "shared_prompts"
KIND = "llama"


def shares(model: TransformersModel) -> bool:
    """Whether prompts can be shared: in models of the Llama kind; others draw from copies, the same but slower."""
    return bool(model.network.config.model_type == KIND)


class Together:
    """A local model that draws so."""

    def __init__(self, model: TransformersModel) -> None:
        if not shares(model):
            raise FedsrcError(f"prompts are shared for models of the kind {KIND!r} alone")
        need("transformers").AttentionInterface.register(ATTENTION, attention)
        self._model, self.identity = model, model.identity

    def sample(self, wanted: Sequence[Wanted], how: Sampling) -> list[Sample]:
        """Return responses in the order of what is wanted."""
        return draw(self._model, wanted, how, Shared)


class Prompts:
    """Prompts' keys and values by layer, a mask of what is real, and which response goes on from which."""

    def __init__(self, read: PromptsRead, row: torch.Tensor) -> None:
        self.layers = read.cache.layers
        self.hidden = (read.mask == 0)[:, None, None, :]
        self._row = row
        self.keep(need("torch").arange(len(row), device=row.device))

    def keep(self, stay: torch.Tensor) -> None:
        """Give each response that stays a place in a grid of prompts by responses."""
        torch = need("torch")
        self._row = self._row[stay]
        counts = torch.bincount(self._row, minlength=len(self.hidden))
        order = torch.argsort(self._row, stable=True)
        starts = (counts.cumsum(0) - counts)[self._row[order]]
        self._place = torch.empty_like(order)
        self._place[order] = torch.arange(len(order), device=order.device) - starts
        self._wide = int(counts.max())

    def grid(self, rows: torch.Tensor) -> torch.Tensor:
        """Lay out what belongs to responses by prompt."""
        found = rows.new_zeros((len(self.hidden), self._wide, *rows.shape[1:]))
        found[self._row, self._place] = rows
        return found

    def rows(self, grid: torch.Tensor) -> torch.Tensor:
        """Take it back."""
        return grid[self._row, self._place]


class Shared(Copied):
    """Responses that go on from prompts that they share."""

    def __init__(self, model: TransformersModel, read: PromptsRead, rows: Sequence[int]) -> None:
        index = model.tensor(rows)
        self._model, self._cache, self.states = model, model.cache(), read.states[index]
        self._prompts, self._place = Prompts(read, index), read.mask[index].sum(dim=1)

    @staticmethod
    def held(read: PromptsRead, tokens: int) -> int:  # noqa: ARG004
        return tokens

    def keep(self, stay: torch.Tensor) -> None:
        self._prompts.keep(stay)
        self._place = self._place[stay]
        if self._cache.get_seq_length():
            self._cache.batch_select_indices(stay)

    def step(self, token: torch.Tensor) -> None:
        config = self._model.network.config
        usual, config._attn_implementation = config._attn_implementation, ATTENTION
        try:
            read = self._model.base(token[:, None], None, self._place[:, None], self._cache, prompts=self._prompts)
        finally:
            config._attn_implementation = usual
        self.states = read.last_hidden_state[:, 0]
        self._place = self._place + 1


def attention(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: None, *,  # noqa: ARG001
    prompts: Prompts, scaling: float, **_: Any,
) -> tuple[torch.Tensor, None]:  # fmt: skip
    """Attend with one new token of each response: to its prompt, then to its own tokens.

    Heads that share keys and values stand together, as transformers orders them: (response, key head, query head,
    size).
    """
    torch = need("torch")
    layer = prompts.layers[module.layer_idx]
    count, heads, size = len(query), key.shape[1], query.shape[-1]
    asked = query[:, :, 0].reshape(count, heads, -1, size) * scaling
    grid = prompts.grid(asked).transpose(1, 2)  # (prompt, key head, response, query head, size)
    several, shape = grid.flatten(2, 3), grid.shape
    before = (several @ layer.keys.transpose(-1, -2)).masked_fill(prompts.hidden, -torch.inf)
    before = prompts.rows(before.unflatten(2, shape[2:4]).transpose(1, 2))
    own = asked @ key.transpose(-1, -2)
    weights = torch.softmax(torch.cat([before, own], dim=-1), dim=-1, dtype=torch.float32).to(value.dtype)
    width = before.shape[-1]
    given = prompts.grid(weights[..., :width]).transpose(1, 2).flatten(2, 3) @ layer.values
    found = prompts.rows(given.unflatten(2, shape[2:4]).transpose(1, 2)) + weights[..., width:] @ value
    return found.reshape(count, 1, -1, size), None
