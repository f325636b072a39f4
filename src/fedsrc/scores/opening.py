"""Opening the models that scores need, each behind a recording of what it said, so that nothing is asked twice."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fedsrc.errors import FedsrcError
from fedsrc.scores.catalogue import Count, Need
from fedsrc.scores.fitted.frozen import FrozenScore
from fedsrc.scores.methods.judge import GREEDY
from fedsrc.scores.models.backends import BACKENDS, open_llama_cpp, open_model
from fedsrc.scores.models.embedding import DEFAULT as EMBEDDING
from fedsrc.scores.models.embedding import Embeds, load_embedder
from fedsrc.scores.models.entailment import Entails, load_entailment
from fedsrc.scores.models.model import LanguageModel, Sampling, SamplingModel
from fedsrc.scores.models.server_model import connect
from fedsrc.scores.models.transformers_model import TransformersModel
from fedsrc.scores.recordings.replay import Recording
from fedsrc.scores.recordings.samples import SampleRecording
from fedsrc.scores.recordings.signal_recording import SignalRecording, beside
from fedsrc.scores.scoring import Means, needs


@dataclass(frozen=True)
class ModelChoices:
    """Which models a user names, and where their recordings are. A recording without a model is replayed.

    `sampling` holds what was chosen of `Sampling`; the rest is as it is there, or as the recording says.
    """

    model: str | None = None
    server: str | None = None
    api_key: str | None = field(default=None, repr=False)
    revision: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    batch_tokens: int | None = None
    backend: str = BACKENDS[0]
    recording: Path | None = None
    sample_recording: Path | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    embedding: str = EMBEDDING
    entailment: str | None = None


def open_means(
    target: Path, known: Sequence[str], fitted: Mapping[str, FrozenScore], choices: ModelChoices, count: Count
) -> Means:
    """Open the models that these scores need; recordings that were not named are kept beside `target`."""
    kinds, wanted = {each.kind for each in fitted.values()}, needs(known)
    tokens = bool(wanted & {"present", "verdict"} or kinds - {"mechanistic"})
    if not tokens and not kinds and not wanted & {"samples", "reply"}:
        return Means(None, count, *_comparers(wanted, choices))
    opened = _opened(choices, tokens=tokens)
    if opened is None and choices.recording is None and (tokens or kinds or "reply" in wanted):
        raise FedsrcError("this score needs a language model", hint="give `model=`, `server=` or `recording=`")
    path = choices.recording or target.with_name(f"{target.name}.recording.jsonl")
    return Means(
        _samples(target, opened, choices) if "samples" in wanted else None,
        count,
        *_comparers(wanted, choices),
        _replies(path, opened) if "reply" in wanted else None,
        Recording(path, opened) if tokens else None,
        _signals(path, opened) if "mechanistic" in kinds else None,
        None if choices.server else opened,
    )


def _comparers(wanted: set[Need], choices: ModelChoices) -> tuple[Embeds | None, Entails | None]:
    """Open the models that compare texts, where a score needs them."""
    entails = load_entailment(choices.entailment, device=choices.device) if choices.entailment else None
    embeds = "embedding" in wanted or ("meaning" in wanted and entails is None)
    return (load_embedder(choices.embedding, device=choices.device) if embeds else None), entails


def _opened(choices: ModelChoices, *, tokens: bool) -> LanguageModel | None:
    if choices.server:
        if not choices.model:
            raise FedsrcError("`server=` needs `model=`, the model's name there")
        return connect(
            choices.server, choices.model, api_key=choices.api_key, revision=choices.revision, echo=tokens
        )  # fmt: skip
    if not choices.model:
        return None
    opening = open_llama_cpp if choices.backend == "llama.cpp" else open_model
    return opening(
        choices.model, revision=choices.revision, device=choices.device, dtype=choices.dtype,
        batch_tokens=choices.batch_tokens,
    )  # fmt: skip


def _samples(target: Path, model: LanguageModel | None, choices: ModelChoices) -> SampleRecording:
    """Open drawn responses; a replay takes them as they were drawn."""
    path = choices.sample_recording
    if model is None and path is None:
        raise FedsrcError("this score needs drawn responses", hint="give `model=`, `server=` or `sample_recording=`")
    if model is None and choices.sampling:
        raise FedsrcError("how responses were drawn is in their recording", hint="leave the options of sampling out")
    if model is not None and not isinstance(model, SamplingModel):
        raise FedsrcError("this model draws no responses", hint="use another model, or `sample_recording=`")
    how = Sampling(**choices.sampling)
    return SampleRecording(path or target.with_name(f"{target.name}.samples.jsonl"), model, how)


def _signals(path: Path, model: LanguageModel | None) -> SignalRecording:
    if model is not None and not isinstance(model, TransformersModel):
        raise FedsrcError("mechanistic signals need a local model's attention and states", hint="give `model=` alone")
    return SignalRecording(beside(path, "signals"), model)


def _replies(path: Path, model: LanguageModel | None) -> SampleRecording:
    """Open what a judge says in words; a replay must have been decoded the same way."""
    if model is not None and not isinstance(model, SamplingModel):
        raise FedsrcError("this model writes nothing", hint="use another model, or leave judge-verbal out")
    found = SampleRecording(beside(path, "replies"), model, GREEDY)
    if json.loads(found.identity["sampling"]) != json.loads(json.dumps(asdict(GREEDY))):
        raise FedsrcError("was decoded in another way than a judge's replies are", where=str(found.path))
    return found
