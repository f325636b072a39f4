"""The one thing asked of a language model: how likely it finds each token of a response after a prompt.

Every score is a pure function over these arrays, whether a live model, a server or a recording gave them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedsrc.errors import FedsrcError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Prompted(NamedTuple):
    """A response to be scored after a prompt (teacher forcing)."""

    prompt: str
    response: str


@dataclass(frozen=True)
class TokenScores:
    """Per token of the whole response: its text, log-probability, the model's entropy there, and its characters."""

    tokens: tuple[str, ...]
    logprobs: Floats
    entropy: Floats
    offsets: Ints

    def __post_init__(self) -> None:
        sizes = {len(self.tokens), self.logprobs.size, self.entropy.size, len(self.offsets)}
        if len(sizes) != 1 or not len(self.tokens):
            raise FedsrcError("a model must score every token of a response, and at least one")
        if not np.all(np.isfinite(self.logprobs)) or np.any(self.logprobs > 1e-6):
            raise FedsrcError("a model gave log-probabilities that are not numbers of at most zero")
        if not np.all(np.isfinite(self.entropy)) or np.any(self.entropy < -1e-3):
            raise FedsrcError("a model gave entropies that are not numbers of at least zero")


class LanguageModel(Protocol):
    """What a backend offers. `identity` goes into the manifest: everything that decides its numbers."""

    @property
    def identity(self) -> dict[str, str]: ...

    def score(self, pairs: Sequence[Prompted]) -> list[TokenScores]:
        """Scores in the order of the pairs; the complete response is always scored, or it is an error."""
        ...


@runtime_checkable
class HiddenModel(Protocol):
    """A backend that also gives hidden states, for probes."""

    def hidden(self, pairs: Sequence[Prompted], layer: int) -> list[Floats]:
        """The hidden state of every response token after a layer (0: the embeddings), one row a token."""
        ...


@runtime_checkable
class SamplingModel(Protocol):
    """A backend that also draws responses."""

    def sample(
        self, prompt: str, count: int, *, seed: int, max_tokens: int = 256, temperature: float = 1.0
    ) -> list[str]:
        """Responses drawn from the model."""
        ...
