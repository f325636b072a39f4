"""The one thing asked of a language model: how likely it finds each token of a response after a prompt.

Every score is a pure function over these arrays, whether a live model, a server or a recording gave them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats, Ints


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

    def first(self, n: int) -> TokenScores:
        """Return what a causal model gives the first tokens: the same."""
        return TokenScores(self.tokens[:n], self.logprobs[:n], self.entropy[:n], self.offsets[:n])


class LanguageModel(Protocol):
    """What a backend offers. `identity` goes into the manifest: everything that decides its numbers."""

    @property
    def identity(self) -> dict[str, str]: ...

    def score(self, pairs: Sequence[Prompted]) -> list[TokenScores]:
        """Return scores in the order of the pairs; the complete response is scored, or it is an error."""
        ...


@runtime_checkable
class HiddenModel(Protocol):
    """A backend that also gives hidden states, for probes."""

    def hidden(self, pairs: Sequence[Prompted], layer: int) -> list[Floats]:
        """Return the hidden state of every response token after a layer (0: the embeddings), one row a token."""
        ...


class Wanted(NamedTuple):
    """One response to draw: its prompt, and its index among that prompt's draws."""

    prompt: str
    place: int


@dataclass(frozen=True)
class Sampling:
    """How responses are drawn. A response also ends where one of the `stops` begins."""

    temperature: float = 1.0
    top_p: float = 0.9
    max_tokens: int = 128
    seed: int = 0
    stops: tuple[str, ...] = ("\nContext:", "\nQuestion:")

    def __post_init__(self) -> None:
        if not 0 < self.temperature < float("inf") or not 0 < self.top_p <= 1 or self.max_tokens < 1:
            raise FedsrcError("sampling needs a temperature above 0, top-p in (0, 1] and at least one token")


@dataclass(frozen=True)
class Sample:
    """A response that a model drew; `finished` if it ended within the tokens that it was given.

    Log-probabilities are the model's own, before temperature and top-p; the last is that of a token that ended it.
    """

    text: str
    logprobs: Floats
    finished: bool

    def __post_init__(self) -> None:
        if not self.logprobs.size or not np.all(np.isfinite(self.logprobs)) or np.any(self.logprobs > 1e-6):
            raise FedsrcError("a model drew a response without log-probabilities of at most zero")


@runtime_checkable
class SamplingModel(Protocol):
    """A backend that draws responses."""

    @property
    def identity(self) -> dict[str, str]: ...

    def sample(self, wanted: Sequence[Wanted], how: Sampling) -> list[Sample]:
        """Return responses in order; each depends on the seed, the prompt and its index, and on rounding: store it."""
        ...


def no_token() -> FedsrcError:
    """Return the error of a response without a token."""
    return FedsrcError("a response without a token cannot be scored", hint="leave empty responses out")


def too_many_tokens(tokens: int, limit: int) -> FedsrcError:
    """Return the error of a text that does not fit into a model's context."""
    hint = "use a model with a longer context, or shorten the evidence yourself: nothing is cut silently"
    return FedsrcError(f"prompt and response have {tokens:,} tokens; the model takes {limit:,}", hint=hint)
