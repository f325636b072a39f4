"""Recorded log-probabilities: the same arrays again, from a file, without a model. It makes scoring resumable."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedsrc.canonical import digest
from fedsrc.data.answers import json_lines
from fedsrc.errors import FedsrcError
from fedsrc.scores.model import LanguageModel, Prompted, TokenScores


def pair_key(pair: Prompted) -> str:
    """What a recording is found by: the digest of prompt and response."""
    return digest([pair.prompt, pair.response])


class Recording:
    """A JSON-lines file of token scores; behind it, optionally, a live model that fills what is missing."""

    def __init__(self, path: Path, model: LanguageModel | None = None) -> None:
        self.path, self.model = path, model
        self._known = dict(_read(path)) if path.exists() else {}

    @property
    def identity(self) -> dict[str, str]:
        return {"backend": "recording"} if self.model is None else self.model.identity

    def missing(self, pairs: Sequence[Prompted]) -> list[Prompted]:
        """The pairs that are not recorded yet."""
        return [pair for pair in pairs if pair_key(pair) not in self._known]

    def score(self, pairs: Sequence[Prompted]) -> list[TokenScores]:
        """Recorded scores; those that are missing come from the model and are written down first."""
        wanted = list(dict.fromkeys(self.missing(pairs)))
        if wanted and self.model is None:
            raise FedsrcError(
                f"{len(wanted)} responses are not in the recording",
                where=str(self.path),
                hint="record them with a model",
            )
        if wanted and self.model is not None:
            self._record(wanted, self.model.score(wanted))
        return [self._known[pair_key(pair)] for pair in pairs]

    def _record(self, pairs: Sequence[Prompted], scores: Sequence[TokenScores]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            for pair, found in zip(pairs, scores, strict=True):
                file.write(json.dumps({"key": pair_key(pair), **_plain(found)}, ensure_ascii=False) + "\n")
                self._known[pair_key(pair)] = found


def _plain(found: TokenScores) -> dict[str, object]:
    return {
        "tokens": list(found.tokens),
        "logprobs": found.logprobs.tolist(),
        "entropy": found.entropy.tolist(),
        "offsets": found.offsets.tolist(),
    }


def _read(path: Path) -> list[tuple[str, TokenScores]]:
    """Whole lines of a recording; a torn last line is left out."""
    text = path.read_bytes()
    whole = text[: text.rfind(b"\n") + 1]
    if len(whole) < len(text):
        path.write_bytes(whole)
    found = []
    for where, row in json_lines(path):
        try:
            scores = TokenScores(
                tuple(row["tokens"]),
                np.asarray(row["logprobs"], dtype=np.float64),
                np.asarray(row["entropy"], dtype=np.float64),
                np.asarray(row["offsets"], dtype=np.int64).reshape(-1, 2),
            )
            found.append((str(row["key"]), scores))
        except (KeyError, TypeError, ValueError) as error:
            raise FedsrcError("is not a recorded response", where=where) from error
    return found
