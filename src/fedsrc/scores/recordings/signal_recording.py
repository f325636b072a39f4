"""Recorded mechanistic signals: fits and scores replay them without the model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedsrc.errors import FedsrcError
from fedsrc.scores.fitted.mechanistic import SHARE, Signals
from fedsrc.scores.methods.mechanistic_signals import signals
from fedsrc.scores.models.model import Prompted
from fedsrc.scores.models.transformers_model import TransformersModel
from fedsrc.scores.recordings.line_file import numbers, rounded
from fedsrc.scores.recordings.replay import PairRecording


class SignalRecording(PairRecording[Signals]):
    """A file of one model's signals; behind it, optionally, that model."""

    damaged = "is not a row of mechanistic signals"
    step = 64

    def __init__(self, path: Path, model: TransformersModel | None = None) -> None:
        expected = None if model is None else {**model.identity, "signals": f"prompt tokens attended to: {SHARE:g}"}
        super().__init__(path, expected, None if model is None else partial(signals, model))
        if "signals" not in self.identity:
            raise FedsrcError("is not a recording of mechanistic signals", where=str(path))

    def signals(self, pairs: Sequence[Prompted]) -> list[Signals]:
        """Return signals in the order of the pairs."""
        return self.found(pairs)

    def _plain(self, found: Signals) -> dict[str, Any]:
        return {"external": rounded(found.external), "parametric": rounded(found.parametric)}

    def _parsed(self, row: dict[str, Any]) -> Signals:
        external = np.asarray([numbers(each) for each in row["external"]], dtype=np.float64)
        return Signals(external, numbers(row["parametric"]))


def beside(recording: Path, what: str) -> Path:
    """Return where other recordings lie, beside one of token scores."""
    return recording.with_suffix(f".{what}.jsonl")
