"""Recorded log-probabilities: the same arrays again, from a file, without a model. It makes scoring resumable.

One JSON object a line: first the model they came from, then one response each, found by a digest of prompt and
response.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedsrc.common.canonical import digest
from fedsrc.errors import FedsrcError
from fedsrc.scores.models.model import LanguageModel, Prompted, TokenScores
from fedsrc.scores.recordings.line_file import LineFile

PLACES = 6  # decimals of a recorded number


def pair_key(pair: Prompted) -> str:
    """What a recording is found by: the digest of prompt and response."""
    return digest([pair.prompt, pair.response])


class Recording:
    """A file of token scores of one model; behind it, optionally, that model, which fills what is missing."""

    def __init__(self, path: Path, model: LanguageModel | None = None) -> None:
        self.path, self.model = path, model
        self._known: dict[str, TokenScores] = {}
        self._file = LineFile(path, None if model is None else dict(model.identity), self._take, "`recording=`")
        self.identity = self._file.identity

    def _take(self, row: dict[str, Any], where: str) -> None:
        key, scores = _recorded(row, where)
        self._known[key] = scores

    @property
    def recorded(self) -> int:
        """How many responses are recorded."""
        return len(self._known)

    def missing(self, pairs: Sequence[Prompted]) -> list[Prompted]:
        """The distinct pairs that are not recorded yet."""
        return [pair for pair in dict.fromkeys(pairs) if pair_key(pair) not in self._known]

    def score(self, pairs: Sequence[Prompted]) -> list[TokenScores]:
        """Recorded scores; those that are missing come from the model and are written down first."""
        wanted = self.missing(pairs)
        if wanted and self.model is None:
            raise FedsrcError(
                f"{len(wanted):,} of {len(set(pairs)):,} pairs of prompt and response are not in the recording",
                where=str(self.path),
                hint="name the model to record them",
            )
        if wanted and self.model is not None:
            self._record(wanted, self.model.score(wanted))
        return [self._known[pair_key(pair)] for pair in pairs]

    def _record(self, pairs: Sequence[Prompted], scores: Sequence[TokenScores]) -> None:
        """Append; what is used afterwards is what was written, so that a replay gives the same numbers."""
        rows = [{"key": pair_key(pair), **_plain(found)} for pair, found in zip(pairs, scores, strict=True)]
        for row in rows:
            self._take(row, str(self.path))
        self._file.append(rows)


def _plain(found: TokenScores) -> dict[str, Any]:
    return {
        "tokens": list(found.tokens),
        "logprobs": np.round(found.logprobs, PLACES).tolist(),
        "entropy": np.round(found.entropy, PLACES).tolist(),
        "offsets": found.offsets.tolist(),
    }


def _recorded(row: dict[str, Any], where: str) -> tuple[str, TokenScores]:
    try:
        tokens, key = row["tokens"], row["key"]
        numbers = [row[name] for name in ("logprobs", "entropy")]
        if not all(isinstance(each, list) for each in (tokens, *numbers)) or not isinstance(key, str):
            raise TypeError("lists and a key")
        if not all(isinstance(token, str) for token in tokens):
            raise TypeError("tokens")
        if not all(type(each) in (int, float) for part in numbers for each in part):
            raise TypeError("numbers")
        logprobs, entropy = (np.asarray(part, dtype=np.float64) for part in numbers)
        offsets = np.asarray(row["offsets"], dtype=np.int64).reshape(-1, 2)
        return key, TokenScores(tuple(tokens), logprobs, entropy, offsets)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise FedsrcError("is not a recorded response", where=where) from error
