"""Recorded log-probabilities: the same arrays again, from a file, without a model. It makes scoring resumable.

One JSON object a line: first the model they came from, then one response each, found by a digest of prompt and
response.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedsrc.canonical import digest
from fedsrc.data.answers import json_lines
from fedsrc.errors import FedsrcError
from fedsrc.scores.model import LanguageModel, Prompted, TokenScores

FORMAT = 1
PLACES = 6  # decimals of a recorded number


def pair_key(pair: Prompted) -> str:
    """What a recording is found by: the digest of prompt and response."""
    return digest([pair.prompt, pair.response])


class Recording:
    """A file of token scores of one model; behind it, optionally, that model, which fills what is missing."""

    def __init__(self, path: Path, model: LanguageModel | None = None) -> None:
        self.path, self.model = path, model
        self._known: dict[str, TokenScores] = {}
        self.identity: dict[str, str] = {} if model is None else dict(model.identity)
        if _cut_torn_line(path):
            self._open(path)
        elif model is None:
            raise FedsrcError("there is no such recording", where=str(path), hint="name a model to record it")

    def _open(self, path: Path) -> None:
        lines = json_lines(path)
        where, head = next(lines)
        identity = _identity(head, where)
        if self.model is not None and identity != self.identity:
            names = sorted(name for name, _ in set(identity.items()) ^ set(self.identity.items()))
            differs = " and ".join(dict.fromkeys(names))
            hint = "choose another --recording"
            raise FedsrcError(f"was recorded with another {differs}", where=str(path), hint=hint)
        self.identity = identity
        for place, row in lines:
            key, scores = _recorded(row, place)
            self._known[key] = scores

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
        lines = [] if self.path.exists() else [json.dumps({"format": FORMAT, "identity": self.identity})]
        for pair, found in zip(pairs, scores, strict=True):
            row = {"key": pair_key(pair), **_plain(found)}
            lines.append(json.dumps(row, ensure_ascii=False))
            self._known[row["key"]] = _recorded(row, str(self.path))[1]
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write("".join(f"{line}\n" for line in lines))
        except OSError as error:
            raise FedsrcError(f"cannot be written: {error}", where=str(self.path)) from error


def _identity(head: dict[str, Any], where: str) -> dict[str, str]:
    """The model that a recording's first line names."""
    found = head.get("identity")
    plain = isinstance(found, dict) and all(isinstance(each, str) for each in found.values())
    if head.get("format") != FORMAT or not isinstance(found, dict) or not plain:
        raise FedsrcError("is not a recording of this version", where=where)
    return dict(found)


def _plain(found: TokenScores) -> dict[str, Any]:
    return {
        "tokens": list(found.tokens),
        "logprobs": np.round(found.logprobs, PLACES).tolist(),
        "entropy": np.round(found.entropy, PLACES).tolist(),
        "offsets": found.offsets.tolist(),
    }


def _cut_torn_line(path: Path) -> bool:
    """Whether there is a recording with a whole line; a last line that a crash tore is cut off."""
    try:
        data = path.read_bytes() if path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        if data and not whole:
            path.unlink()
        elif len(whole) < len(data):
            path.write_bytes(whole)
    except OSError as error:
        raise FedsrcError(f"cannot be read: {error}", where=str(path)) from error
    return bool(whole.strip())


def _recorded(row: dict[str, Any], where: str) -> tuple[str, TokenScores]:
    try:
        tokens = tuple(row["tokens"])
        if not all(isinstance(token, str) for token in tokens):
            raise TypeError("tokens")
        return str(row["key"]), TokenScores(
            tokens,
            np.asarray(row["logprobs"], dtype=np.float64),
            np.asarray(row["entropy"], dtype=np.float64),
            np.asarray(row["offsets"], dtype=np.int64).reshape(-1, 2),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise FedsrcError("is not a recorded response", where=where) from error
