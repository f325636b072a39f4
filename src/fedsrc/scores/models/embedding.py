"""Sentence embeddings: how close two texts are, for scores that compare responses.

The model reads a text, the mean of its last hidden states is the text's vector, and closeness is the cosine of two
vectors, cut to [0, 1]. A text longer than the model takes is cut to that, as these models are meant to be used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fedsrc.maths.arrays import Floats
from fedsrc.scores.models.torch_tools import batches, folder_digest, loading, memory, need

DEFAULT = "sentence-transformers/all-MiniLM-L6-v2"
BATCH_TOKENS = {"cpu": 4096, "cuda": 131072}
LONGEST = 256  # tokens; what all-MiniLM-L6-v2 was made for


class Embeds(Protocol):
    """What gives vectors. `identity` goes into the manifest."""

    @property
    def identity(self) -> dict[str, str]: ...

    def embed(self, texts: Sequence[str]) -> Floats:
        """One row of length 1 a text."""
        ...


class SentenceEmbedder:
    """An encoder and its tokenizer. Build one with `load_embedder`."""

    def __init__(self, encoder: Any, tokenizer: Any, identity: dict[str, str]) -> None:
        self._encoder, self._tokenizer, self.identity = encoder, tokenizer, identity
        self._budget = BATCH_TOKENS.get(encoder.device.type, BATCH_TOKENS["cpu"])
        self._longest = min(LONGEST, int(encoder.config.max_position_embeddings))

    def embed(self, texts: Sequence[str]) -> Floats:
        """One row of length 1 a text, in order, whatever the batches were."""
        torch = need("torch")
        given = self._tokenizer(list(texts), truncation=True, max_length=self._longest)["input_ids"]
        found = np.zeros((len(texts), int(self._encoder.config.hidden_size)))
        with torch.inference_mode(), memory():
            for batch in batches([len(ids) for ids in given], self._budget):
                rows = self._tokenizer.pad({"input_ids": [given[i] for i in batch]}, return_tensors="pt")
                rows = rows.to(self._encoder.device)
                states = self._encoder(input_ids=rows["input_ids"], attention_mask=rows["attention_mask"])
                mask = rows["attention_mask"][:, :, None].float()
                mean = (states.last_hidden_state.float() * mask).sum(dim=1) / mask.sum(dim=1)
                found[batch] = torch.nn.functional.normalize(mean, dim=1).double().cpu().numpy()
        return found


def load_embedder(name: str = DEFAULT, *, device: str = "cpu") -> SentenceEmbedder:
    """An encoder by hub name or folder."""
    transformers, torch = need("transformers"), need("torch")
    with loading(name):
        tokenizer = transformers.AutoTokenizer.from_pretrained(name)
        encoder = transformers.AutoModel.from_pretrained(name, dtype=torch.float32)
    encoder.eval()
    encoder.to(device)
    return SentenceEmbedder(encoder, tokenizer, identity_of(name, encoder))


def identity_of(name: str, model: Any) -> dict[str, str]:
    """Name and revision of a model: the commit on the hub, or the digest of the folder's files."""
    folder = Path(name)
    if folder.is_dir():
        return {"model": folder.resolve().name, "revision": folder_digest(folder)}
    return {"model": name, "revision": str(getattr(model.config, "_commit_hash", None) or "unknown")}


class Embedded:
    """Texts with their vectors, each asked for once."""

    def __init__(self, embeds: Embeds) -> None:
        self._embeds = embeds
        self._known: dict[str, Floats] = {}

    def add(self, texts: Iterable[str]) -> None:
        """Embed what is new, all in one call."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            self._known.update(zip(new, self._embeds.embed(new), strict=True))

    def similarities(self, rows: Sequence[str], columns: Sequence[str]) -> Floats:
        """Cosines of every row text with every column text, in [0, 1]."""
        self.add([*rows, *columns])
        left, right = (np.stack([self._known[text] for text in texts]) for texts in (rows, columns))
        return np.clip(left @ right.T, 0.0, 1.0)

    def similarity(self, one: str, other: str) -> float:
        """The cosine of two texts, in [0, 1]."""
        return float(self.similarities([one], [other])[0, 0])
