"""Drawn responses: drawn once, stored, and shared by every score that needs them. A replay needs no model.

One JSON object a line: first the model and how it drew, then the responses of one prompt each, found by the prompt's
digest. A prompt that has ten serves every score that takes ten or fewer; one that has too few is drawn on.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fedsrc.common.canonical import digest
from fedsrc.errors import FedsrcError
from fedsrc.scores.models.model import Sample, Sampling, Wanted
from fedsrc.scores.recordings.line_file import LineFile
from fedsrc.scores.recordings.replay import PLACES

OPTION = "`sample_recording=`"


class Drawing(Protocol):
    """A model that draws responses, with its identity."""

    @property
    def identity(self) -> dict[str, str]: ...

    def sample(self, wanted: Sequence[Wanted], how: Sampling) -> list[Sample]: ...


class SampleRecording:
    """A file of responses that one model drew in one way; behind it, optionally, that model."""

    def __init__(self, path: Path, model: Drawing | None = None, how: Sampling | None = None) -> None:
        self.path, self.model, self.how = path, model, how or Sampling()
        self._known: dict[str, list[Sample]] = defaultdict(list)
        expected = None if model is None else {**model.identity, "sampling": json.dumps(asdict(self.how))}
        self._file = LineFile(path, expected, self._take, OPTION)
        self.identity = self._file.identity
        if "sampling" not in self.identity:
            raise FedsrcError("is not a recording of drawn responses", where=str(path))

    def _take(self, row: dict[str, Any], where: str) -> None:
        key, start, samples = _recorded(row, where)
        if start != len(self._known[key]):
            raise FedsrcError("is not the next of its prompt's responses", where=where)
        self._known[key] += samples

    @property
    def recorded(self) -> int:
        """How many responses are recorded."""
        return sum(map(len, self._known.values()))

    def missing(self, wanted: Sequence[Wanted]) -> list[Wanted]:
        """What is still to be drawn, so that each prompt has its responses without a gap."""
        upto: dict[str, int] = {}
        for each in wanted:
            upto[each.prompt] = max(each.place + 1, upto.get(each.prompt, 0))
        held = {prompt: len(self._known.get(_key(prompt), ())) for prompt in upto}
        return [Wanted(prompt, place) for prompt, count in upto.items() for place in range(held[prompt], count)]

    def sample(self, wanted: Sequence[Wanted]) -> list[Sample]:
        """Recorded responses; those that are missing are drawn and written down first."""
        missing = self.missing(wanted)
        if missing and self.model is None:
            raise FedsrcError(
                f"{len(missing):,} of {len(set(wanted)):,} responses are not in the recording",
                where=str(self.path),
                hint="name the model to draw them, or ask for fewer with `samples=`",
            )
        if missing and self.model is not None:
            self._record(missing, self.model)
        return [self._known[_key(each.prompt)][each.place] for each in wanted]

    def _record(self, missing: Sequence[Wanted], model: Drawing) -> None:
        """Append; what is used afterwards is what was written, so that a replay gives the same numbers."""
        drawn: dict[str, list[Sample]] = defaultdict(list)
        for each, sample in zip(missing, model.sample(missing, self.how), strict=True):
            drawn[_key(each.prompt)].append(sample)
        rows = [
            {"key": key, "start": len(self._known[key]), "samples": [_plain(each) for each in found]}
            for key, found in drawn.items()
        ]
        for row in rows:
            self._take(row, str(self.path))
        self._file.append(rows)


def _key(prompt: str) -> str:
    return digest([prompt])


def _plain(sample: Sample) -> dict[str, Any]:
    logprobs = np.round(sample.logprobs, PLACES).tolist()
    return {"text": sample.text, "logprobs": logprobs, "finished": sample.finished}


def _recorded(row: dict[str, Any], where: str) -> tuple[str, int, list[Sample]]:
    try:
        key, start, samples = row["key"], row["start"], row["samples"]
        if not isinstance(key, str) or type(start) is not int or not isinstance(samples, list):
            raise TypeError("a key, a place and a list")
        return key, start, [_sample(each) for each in samples]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise FedsrcError("is not a row of drawn responses", where=where) from error


def _sample(row: dict[str, Any]) -> Sample:
    text, logprobs, finished = row["text"], row["logprobs"], row["finished"]
    if not isinstance(text, str) or not isinstance(finished, bool) or not isinstance(logprobs, list):
        raise TypeError("text, numbers and a truth value")
    if not all(type(each) in (int, float) for each in logprobs):
        raise TypeError("numbers")
    return Sample(text, np.asarray(logprobs, dtype=np.float64), finished)
