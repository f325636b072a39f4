"""A local language model through transformers: token scores, hidden states and drawn responses, and how it is loaded.

Whole responses are scored by teacher forcing. Only response positions go through the vocabulary projection.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsrc.common.canonical import digest_bytes, file_digest
from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats
from fedsrc.scores.models.model import Prompted, Sample, Sampling, TokenScores, Wanted
from fedsrc.scores.models.torch_tools import identity_of, loading, memory, need
from fedsrc.scores.models.transformers_reader import Reader
from fedsrc.scores.models.transformers_sampling import draw

if TYPE_CHECKING:
    import torch

PROJECTED = {"cpu": 64, "cuda": 4096}  # response positions that go through the vocabulary at once
AGREEMENT = {"float32": 1e-3, "bfloat16": 0.25, "float16": 0.25}  # mean difference from a plain forward pass
TRIAL = (
    Prompted("Monday, Tuesday, Wednesday, Thursday,", " Friday and Saturday."),
    Prompted("One, two, three, four, five, six, seven, eight, nine, ten: we count to", " twelve."),
    Prompted("Monday, Tuesday, Wednesday, Thursday,", " and so on."),
)


class TransformersModel(Reader):
    """A causal language model and its tokenizer. Build one with `load`."""

    @property
    def device(self) -> str:
        return str(self.network.device)

    @property
    def projected(self) -> int:
        """How many response positions go through the vocabulary at once."""
        return PROJECTED.get(self.network.device.type, PROJECTED["cpu"])

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

    def hidden(self, pairs: Sequence[Prompted], layer: int) -> list[Floats]:
        """Return the hidden state of every response token after a layer (0: the embeddings), one row a token."""
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
        """Draw responses. Another machine's arithmetic may draw others: store what was drawn."""
        return draw(self, wanted, how)

    def _project(self, states: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the log-probability of each target and the entropy there, a block of positions at a time."""
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
    """Load a model by hub name, folder or GGUF file (dequantised), and try it.

    Its revision is the commit that was loaded, or the digest of its files.
    """
    transformers, torch = need("transformers"), need("torch")
    path, gguf = Path(name), name.endswith(".gguf")
    if gguf and revision is not None:
        raise FedsrcError("a GGUF file has no revision; its digest stands for it", hint="leave `revision=` out")
    if gguf and not path.is_file():
        raise FedsrcError("there is no such model file", where=name)
    source, options = (path.parent, {"gguf_file": path.name}) if gguf else (name, {"revision": revision})
    with loading(path.name if gguf else name):
        tokenizer = transformers.AutoTokenizer.from_pretrained(source, **options)
        model = transformers.AutoModelForCausalLM.from_pretrained(source, **options, dtype=getattr(torch, dtype))
        if gguf and _pre_tokenizer(path) == "smollm":
            _split_digits(tokenizer)
    identity = {"model": path.name, "revision": file_digest(path)} if gguf else identity_of(name, model, revision)
    return tried(model, tokenizer, identity, device, dtype, batch_tokens)


def tried(
    model: Any, tokenizer: Any, identity: dict[str, str], device: str, dtype: str, batch_tokens: int | None
) -> TransformersModel:
    """Return the model, tried once: it must agree with a plain forward pass on short pairs."""
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
    """Return how a GGUF file says that text is cut before it is tokenised."""
    from gguf import GGUFReader

    field = GGUFReader(path).fields.get("tokenizer.ggml.pre")
    return "" if field is None else bytes(field.parts[field.data[0]]).decode()


def _split_digits(tokenizer: Any) -> None:
    """Split numbers into digits: SmolLM's conversion from GGUF loses that step, and numbers get other tokens."""
    from tokenizers import pre_tokenizers

    digits = pre_tokenizers.Digits(individual_digits=True)
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, whole])
