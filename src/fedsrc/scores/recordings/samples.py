"""Recorded responses: drawn once, shared by every score that needs them, and replayed without a model.

One JSON object a line: first the model and how it drew, then responses of one prompt each, found by the prompt's
digest. A prompt with ten serves every score that takes ten or fewer; to one with too few, more are added.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedsrc.common.canonical import digest
from fedsrc.errors import FedsrcError
from fedsrc.scores.models.model import Sample, Sampling, SamplingModel, Wanted
from fedsrc.scores.recordings.line_file import LineFile, numbers, parsing, rounded, typed


class SampleRecording:
    """A file of responses that one model drew in one way; behind it, optionally, that model."""

    def __init__(self, path: Path, model: SamplingModel | None = None, how: Sampling | None = None) -> None:
        self.path, self.model, self.how = path, model, how or Sampling()
        self._known: dict[str, list[Sample]] = defaultdict(list)
        expected = None if model is None else {**model.identity, "sampling": json.dumps(asdict(self.how))}
        self._file = LineFile(path, expected, self._take, "`sample_recording=`")
        self.identity = self._file.identity
        if "sampling" not in self.identity:
            raise FedsrcError("is not a recording of drawn responses", where=str(path))

    def _take(self, row: dict[str, Any], where: str) -> None:
        with parsing("is not a row of drawn responses", where):
            key, start = typed(row["key"], str), typed(row["start"], int)
            samples = [_parsed(each) for each in typed(row["samples"], list)]
        if start != len(self._known[key]):
            raise FedsrcError("is not the next of its prompt's responses", where=where)
        self._known[key] += samples

    @property
    def recorded(self) -> int:
        """How many responses are recorded."""
        return sum(map(len, self._known.values()))

    def missing(self, wanted: Sequence[Wanted]) -> list[Wanted]:
        """Return what is still to be drawn, so that each prompt has its responses without a gap."""
        upto: dict[str, int] = {}
        for each in wanted:
            upto[each.prompt] = max(each.place + 1, upto.get(each.prompt, 0))
        held = {prompt: len(self._known.get(_key(prompt), ())) for prompt in upto}
        return [Wanted(prompt, place) for prompt, count in upto.items() for place in range(held[prompt], count)]

    def sample(self, wanted: Sequence[Wanted]) -> list[Sample]:
        """Return recorded responses; those that are missing are drawn and recorded first."""
        missing = self.missing(wanted)
        if missing and self.model is None:
            raise FedsrcError(
                f"{len(missing):,} of {len(set(wanted)):,} responses are not in the recording",
                where=str(self.path),
                hint="name the model to draw them, or ask for fewer with `samples=`",
            )
        if missing and self.model is not None:
            drawn: dict[str, list[dict[str, Any]]] = defaultdict(list)
            for each, sample in zip(missing, self.model.sample(missing, self.how), strict=True):
                drawn[_key(each.prompt)].append(_plain(sample))
            rows = [{"key": key, "start": len(self._known[key]), "samples": found} for key, found in drawn.items()]
            self._file.append(rows, self._take)
        return [self._known[_key(each.prompt)][each.place] for each in wanted]


def _key(prompt: str) -> str:
    return digest([prompt])


def _plain(sample: Sample) -> dict[str, Any]:
    return {"text": sample.text, "logprobs": rounded(sample.logprobs), "finished": sample.finished}


def _parsed(row: dict[str, Any]) -> Sample:
    return Sample(typed(row["text"], str), numbers(row["logprobs"]), typed(row["finished"], bool))
