"""Sentence embeddings: how close two texts are, for scores that compare responses.

The model reads a text, the mean of its last hidden states is the text's vector, and closeness is the cosine of two
vectors, cut to [0, 1]. A text longer than the model takes is cut to that, as these models are meant to be used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from fedsrc.maths.arrays import Floats
from fedsrc.scores.models.torch_tools import Known, batches, load_encoder, memory, need

DEFAULT = "sentence-transformers/all-MiniLM-L6-v2"
BATCH_TOKENS = {"cpu": 4096, "cuda": 131072}
LONGEST = 256  # tokens; what all-MiniLM-L6-v2 was made for


class Embeds(Protocol):
    """What gives vectors. `identity` goes into the manifest."""

    @property
    def identity(self) -> dict[str, str]: ...

    def embed(self, texts: Sequence[str]) -> Floats:
        """Return one row of length 1 a text."""
        ...


class SentenceEmbedder:
    """An encoder and its tokenizer. Build one with `load_embedder`."""

    def __init__(self, encoder: Any, tokenizer: Any, identity: dict[str, str]) -> None:
        self._encoder, self._tokenizer, self.identity = encoder, tokenizer, identity
        self._budget = BATCH_TOKENS.get(encoder.device.type, BATCH_TOKENS["cpu"])
        self._longest = min(LONGEST, int(encoder.config.max_position_embeddings))

    def embed(self, texts: Sequence[str]) -> Floats:
        """Return one row of length 1 a text, in order, whatever the batches were."""
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
    """Load an encoder by hub name or folder."""
    return SentenceEmbedder(*load_encoder("AutoModel", name, device))


class Embedded(Known[str]):
    """Texts with their vectors."""

    def __init__(self, embeds: Embeds) -> None:
        super().__init__(embeds.embed)

    def similarities(self, rows: Sequence[str], columns: Sequence[str]) -> Floats:
        """Return the cosines of every row text with every column text, in [0, 1]."""
        self.add([*rows, *columns])
        left, right = (np.stack([self._known[text] for text in texts]) for texts in (rows, columns))
        return np.clip(left @ right.T, 0.0, 1.0)

    def similarity(self, one: str, other: str) -> float:
        """Return the cosine of two texts, in [0, 1]."""
        return float(self.similarities([one], [other])[0, 0])
