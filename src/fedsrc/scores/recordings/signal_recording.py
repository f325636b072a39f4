"""Mechanistic signals kept as they come: fits and scores replay them without the model.

One JSON object a line: first the model they came from, then one response each, found by a digest of prompt and
response.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedsrc.errors import FedsrcError
from fedsrc.scores.fitted.mechanistic import SHARE, Signals
from fedsrc.scores.methods.mechanistic_signals import signals
from fedsrc.scores.models.model import Prompted
from fedsrc.scores.models.transformers_model import TransformersModel
from fedsrc.scores.recordings.line_file import LineFile
from fedsrc.scores.recordings.replay import PLACES, pair_key

STEP = 64  # responses that a stop may lose


class SignalRecording:
    """A file of one model's signals; behind it, optionally, that model, which fills what is missing."""

    def __init__(self, path: Path, model: TransformersModel | None = None) -> None:
        self.path, self.model = path, model
        self._known: dict[str, Signals] = {}
        expected = None if model is None else {**model.identity, "signals": f"prompt tokens attended to: {SHARE:g}"}
        self._file = LineFile(path, expected, self._take, "`recording=`")
        self.identity = self._file.identity
        if "signals" not in self.identity:
            raise FedsrcError("is not a recording of mechanistic signals", where=str(path))

    def _take(self, row: dict[str, Any], where: str) -> None:
        key, found = _recorded(row, where)
        self._known[key] = found

    def signals(self, pairs: Sequence[Prompted]) -> list[Signals]:
        """Recorded signals; those that are missing come from the model and are written down first."""
        wanted = [pair for pair in dict.fromkeys(pairs) if pair_key(pair) not in self._known]
        if wanted and self.model is None:
            raise FedsrcError(
                f"{len(wanted):,} of {len(set(pairs)):,} pairs of prompt and response are not in the recording",
                where=str(self.path),
                hint="name the model to record them",
            )
        for start in range(0, len(wanted), STEP):
            assert self.model is not None
            part = wanted[start : start + STEP]
            self._record(part, signals(self.model, part))
        return [self._known[pair_key(pair)] for pair in pairs]

    def _record(self, pairs: Sequence[Prompted], found: Sequence[Signals]) -> None:
        """Append; what is used afterwards is what was written, so that a replay gives the same numbers."""
        rows = [{"key": pair_key(pair), **_plain(each)} for pair, each in zip(pairs, found, strict=True)]
        for row in rows:
            self._take(row, str(self.path))
        self._file.append(rows)


def beside(recording: Path, what: str) -> Path:
    """Where other recordings lie, beside one of token scores."""
    return recording.with_suffix(f".{what}.jsonl")


def _plain(found: Signals) -> dict[str, Any]:
    numbers = {"external": found.external, "parametric": found.parametric}
    return {name: np.round(values, PLACES).tolist() for name, values in numbers.items()}


def _recorded(row: dict[str, Any], where: str) -> tuple[str, Signals]:
    try:
        key, external, parametric = row["key"], row["external"], row["parametric"]
        rows = [*external, parametric]
        if not isinstance(key, str) or not all(type(each) in (int, float) for part in rows for each in part):
            raise TypeError("a key and numbers")
        return key, Signals(np.asarray(external, dtype=np.float64), np.asarray(parametric, dtype=np.float64))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise FedsrcError("is not a row of mechanistic signals", where=where) from error
