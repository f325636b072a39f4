"""Recorded token scores: scoring resumes from them, and replays them without a model.

One JSON object a line: first the model, then one response each, found by a digest of prompt and response.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from fedsrc.common.canonical import digest
from fedsrc.errors import FedsrcError
from fedsrc.scores.models.model import LanguageModel, Prompted, TokenScores
from fedsrc.scores.recordings.line_file import LineFile, numbers, parsing, rounded, typed

Found = TypeVar("Found")


def pair_key(pair: Prompted) -> str:
    """Return the digest of prompt and response, by which a pair is found."""
    return digest([pair.prompt, pair.response])


class PairRecording(ABC, Generic[Found]):
    """What one model gave for each pair, in a file; `ask` fills in what is missing."""

    damaged: str  # what is wrong with a row that cannot be read
    step = 1 << 40  # pairs that are asked for, and recorded, at once

    def __init__(
        self, path: Path, identity: dict[str, str] | None, ask: Callable[[list[Prompted]], list[Found]] | None
    ) -> None:
        self.path, self._ask = path, ask
        self._known: dict[str, Found] = {}
        self._file = LineFile(path, identity, self._take, "`recording=`")
        self.identity = self._file.identity

    @abstractmethod
    def _parsed(self, row: dict[str, Any]) -> Found: ...

    @abstractmethod
    def _plain(self, found: Found) -> dict[str, Any]: ...

    def _take(self, row: dict[str, Any], where: str) -> None:
        with parsing(self.damaged, where):
            self._known[typed(row["key"], str)] = self._parsed(row)

    @property
    def recorded(self) -> int:
        """How many responses are recorded."""
        return len(self._known)

    def missing(self, pairs: Sequence[Prompted]) -> list[Prompted]:
        """Return the distinct pairs that are not recorded yet."""
        return [pair for pair in dict.fromkeys(pairs) if pair_key(pair) not in self._known]

    def found(self, pairs: Sequence[Prompted]) -> list[Found]:
        """Return what is recorded; what is missing comes from the model and is recorded first."""
        wanted = self.missing(pairs)
        if wanted and self._ask is None:
            raise FedsrcError(
                f"{len(wanted):,} of {len(set(pairs)):,} pairs of prompt and response are not in the recording",
                where=str(self.path),
                hint="name the model to record them",
            )
        for start in range(0, len(wanted), self.step):
            assert self._ask is not None
            part = wanted[start : start + self.step]
            given = zip(part, self._ask(part), strict=True)
            rows = [{"key": pair_key(pair), **self._plain(each)} for pair, each in given]
            self._file.append(rows, self._take)
        return [self._known[pair_key(pair)] for pair in pairs]


class Recording(PairRecording[TokenScores]):
    """A file of token scores of one model; behind it, optionally, that model."""

    damaged = "is not a recorded response"

    def __init__(self, path: Path, model: LanguageModel | None = None) -> None:
        super().__init__(path, None if model is None else dict(model.identity), None if model is None else model.score)

    def score(self, pairs: Sequence[Prompted]) -> list[TokenScores]:
        """Return token scores in the order of the pairs."""
        return self.found(pairs)

    def _plain(self, found: TokenScores) -> dict[str, Any]:
        arrays = {"logprobs": rounded(found.logprobs), "entropy": rounded(found.entropy)}
        return {"tokens": list(found.tokens), **arrays, "offsets": found.offsets.tolist()}

    def _parsed(self, row: dict[str, Any]) -> TokenScores:
        tokens = tuple(typed(token, str) for token in typed(row["tokens"], list))
        offsets = np.asarray(row["offsets"], dtype=np.int64).reshape(-1, 2)
        return TokenScores(tokens, numbers(row["logprobs"]), numbers(row["entropy"]), offsets)
