"""The two mechanistic signals of a response, by hooks, in one teacher-forced reading after its evidence.

The prompt up to its last token is read as always. The positions that predict the response's tokens are then read with
plain ("eager") attention, so that memory holds their rows of attention alone, a layer at a time; of those only the
places of the attended prompt tokens are kept. Works for models whose blocks are built like Llama's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats
from fedsrc.scores.fitted.mechanistic import Signals, attended, cosine, divergence
from fedsrc.scores.models.model import Prompted
from fedsrc.scores.models.torch_tools import Texts, memory, need
from fedsrc.scores.models.transformers_model import TransformersModel
from fedsrc.scores.models.transformers_reader import Read

if TYPE_CHECKING:
    import torch

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "phi3")


def signals(model: TransformersModel, pairs: Sequence[Prompted]) -> list[Signals]:
    """Return signals in the order of the pairs."""
    kind = model.network.config.model_type
    if kind not in FAMILIES:
        hint = f"use one of {', '.join(FAMILIES)}"
        raise FedsrcError(f"mechanistic signals are not supported for models of kind {kind!r}", hint=hint)
    texts = _shifted(model.encode(pairs))
    watch = _Watch(model, texts)
    found: dict[int, Signals] = {}
    with need("torch").inference_mode(), memory():
        for read in model.read(texts, during=watch.reading):
            found.update(zip(read.places, watch.finish(read), strict=True))
    return [found[i] for i in range(len(pairs))]


def _shifted(texts: Texts) -> Texts:
    """Cut the texts one token earlier: a prompt without its last token, then what predicts each response token."""
    if any(len(ids) < 2 for ids in texts.prompts.values()):
        raise FedsrcError("mechanistic signals need a prompt of at least two tokens")
    told = [each._replace(ids=[texts.prompts[each.prompt][-1], *each.ids[:-1]]) for each in texts.responses]
    return Texts({prompt: ids[:-1] for prompt, ids in texts.prompts.items()}, told)


class _Watch:
    """What the hooks see of one batch: attended places by layer and row, and parametric knowledge by layer and row."""

    def __init__(self, model: TransformersModel, texts: Texts) -> None:
        self.model, self.network = model, model.network
        self.prompts = [len(texts.prompts[each.prompt]) + 1 for each in texts.responses]
        self.lengths = [len(each.ids) for each in texts.responses]
        self.places: list[int] = []
        self.before: torch.Tensor | None = None
        self.attended: list[list[torch.Tensor]] = []
        self.parametric: list[Floats] = []

    @contextmanager
    def reading(self, places: list[int]) -> Iterator[None]:
        """Hook every block, with plain attention, while a batch of responses is read."""
        self.places, self.attended, self.parametric = places, [], []
        usual = self.network.config._attn_implementation
        with ExitStack() as stack:
            self.network.set_attn_implementation("eager")
            stack.callback(self.network.set_attn_implementation, usual)
            for layer in self.network.base_model.layers:
                for handle in (
                    layer.self_attn.register_forward_hook(self._attention),
                    layer.post_attention_layernorm.register_forward_pre_hook(self._middle),
                    layer.register_forward_hook(self._end),
                ):
                    stack.callback(handle.remove)
            yield

    def _attention(self, _: Any, __: Any, output: Any) -> None:
        """Keep where in the prompt each head looks most, from every position."""
        weights = output[1]
        held = weights.shape[-1] - weights.shape[-2]  # prompt tokens in the cache; a sliding window drops early ones
        kept = []
        for row, place in enumerate(self.places):
            prompt, length = self.prompts[place], self.lengths[place]
            shown = min(prompt, held + 1)
            own = weights[row, :, :length, held + 1 - shown : held + 1]
            found = own.topk(min(attended(prompt), shown), dim=-1).indices + (prompt - shown)
            kept.append(found.int())
        self.attended.append(kept)

    def _middle(self, _: Any, args: Any) -> None:
        """Keep the residual stream between attention and the feed-forward block."""
        self.before = args[0]

    def _end(self, _: Any, __: Any, output: Any) -> None:
        """Keep how much the feed-forward block moved the next-token distribution, averaged over each response."""
        torch = need("torch")
        assert self.before is not None
        lengths = [self.lengths[place] for place in self.places]
        sides = [torch.cat([side[i, :n] for i, n in enumerate(lengths)]) for side in (self.before, output)]
        blocks = zip(*(side.split(self.model.projected) for side in sides), strict=True)
        seen = (self._lens(torch.stack(pair)) for pair in blocks)
        moved = torch.cat([divergence(before, after, torch) for before, after in seen])
        means = [part.mean() for part in moved.split(lengths)]
        self.parametric.append(torch.stack(means).double().cpu().numpy())

    def _lens(self, states: torch.Tensor) -> torch.Tensor:
        """Return log-probabilities of the next token, if the model ended here."""
        head = self.network.get_output_embeddings()
        found: torch.Tensor = need("torch").log_softmax(head(self.network.base_model.norm(states)).float(), dim=-1)
        return found

    def finish(self, read: Read) -> list[Signals]:
        """Return the batch's signals, once the last layer's states are known."""
        parametric = np.stack(self.parametric, axis=1)
        return [Signals(self._external(read, row, place), parametric[row]) for row, place in enumerate(read.places)]

    def _external(self, read: Read, row: int, place: int) -> Floats:
        """Return the mean cosine of each position's last state with the mean of the states attended to."""
        torch = need("torch")
        current = read.states.last_hidden_state[row, : self.lengths[place]].float()
        early = read.prompts[read.rows[row], 1 - self.prompts[place] :].float()
        context = torch.cat([early, current[:1]])
        found = []
        for layer in self.attended:
            heads, length, _ = layer[row].shape
            pooled = torch.nn.functional.embedding_bag(layer[row].flatten(0, 1), context, mode="mean")
            found.append(cosine(pooled.view(heads, length, -1), current).mean(dim=1))
        external: Floats = torch.stack(found).double().cpu().numpy()
        return external
