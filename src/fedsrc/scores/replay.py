"""Recorded log-probabilities: the same arrays again, from a file, without a model. It makes scoring resumable.

One JSON object a line: first the model they came from, then one response each, found by a digest of prompt and
response.
"""

from __future__ import annotations

import fcntl
import json
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fedsrc.canonical import digest
from fedsrc.errors import FedsrcError
from fedsrc.scores.model import LanguageModel, Prompted, TokenScores

FORMAT = 1
HEAD = '{"format": 1, "identity": '
PLACES = 6  # decimals of a recorded number


def pair_key(pair: Prompted) -> str:
    """What a recording is found by: the digest of prompt and response."""
    return digest([pair.prompt, pair.response])


class Recording:
    """A file of token scores of one model; behind it, optionally, that model, which fills what is missing.

    With a model the file is held alone by this process. A line that a crash tore off at the end is cut then, and only
    after the file has shown itself to be a recording; without a model nothing is written.
    """

    def __init__(self, path: Path, model: LanguageModel | None = None) -> None:
        self.path, self.model = path, model
        self._known: dict[str, TokenScores] = {}
        self.identity: dict[str, str] = {} if model is None else dict(model.identity)
        if path.suffix == ".gz":
            raise FedsrcError("a recording is not compressed", where=str(path), hint="give a name that ends in .jsonl")
        if model is None and not path.is_file():
            raise FedsrcError("there is no such recording", where=str(path), hint="name a model to record it")
        self._file = None if model is None else _held(path)
        self._begun = False
        if self._file is not None:
            weakref.finalize(self, self._file.close)
        whole = self._read()
        if self._file is not None:
            self._file.truncate(whole)
            self._begun = whole > 0

    def _read(self) -> int:
        """Read what is recorded; the number of bytes in whole lines."""
        whole = 0
        try:
            with self.path.open("rb") as file:
                for number, line in enumerate(file, start=1):
                    where = f"{self.path} line {number}"
                    if number == 1:
                        self._check_head(line, where)
                    elif line.endswith(b"\n"):
                        key, scores = _recorded(_object(line, where), where)
                        self._known[key] = scores
                    if line.endswith(b"\n"):
                        whole += len(line)
        except OSError as error:
            raise FedsrcError(f"cannot be read: {error}", where=str(self.path)) from error
        return whole

    def _check_head(self, line: bytes, where: str) -> None:
        head = HEAD.encode()
        if not line.endswith(b"\n") and head.startswith(line[: len(head)]):
            return  # torn while its first line was written: there is nothing in it yet
        identity = _identity(_object(line, where), where)
        if self.model is not None and identity != self.identity:
            names = sorted({name for name, _ in set(identity.items()) ^ set(self.identity.items())})
            hint = "choose another --recording"
            raise FedsrcError(f"was recorded with another {' and '.join(names)}", where=str(self.path), hint=hint)
        self.identity = identity

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
        assert self._file is not None
        lines = [] if self._begun else [f"{HEAD}{json.dumps(self.identity)}}}"]
        for pair, found in zip(pairs, scores, strict=True):
            row = {"key": pair_key(pair), **_plain(found)}
            lines.append(json.dumps(row, ensure_ascii=False, allow_nan=False))
            self._known[row["key"]] = _recorded(row, str(self.path))[1]
        try:
            self._file.write("".join(f"{line}\n" for line in lines).encode())
            self._file.flush()
        except OSError as error:
            raise FedsrcError(f"cannot be written: {error}", where=str(self.path)) from error
        self._begun = True


def _held(path: Path) -> BinaryIO:
    """The file, opened to append and held alone, made if it is not there."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("ab")
    except OSError as error:
        raise FedsrcError(f"cannot be written: {error}", where=str(path)) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise FedsrcError("another command is writing it", where=str(path), hint="wait, or choose another") from error
    return file


def _object(line: bytes, where: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FedsrcError("is not a recording, or is damaged", where=where) from error
    if not isinstance(value, dict):
        raise FedsrcError("is not a recording, or is damaged", where=where)
    return value


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
