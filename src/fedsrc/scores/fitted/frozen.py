"""A fitted score as a folder that says what it was fitted on, and refuses to score that again.

`score.json` holds the numbers, the model, and fingerprints (SHA-256) of every source name and every text of evidence in
training; a detector's adapter lies beside it as safetensors. Nothing in the folder is code, and its author is not
checked: whoever edits score.json can also edit the fingerprints, so name its digest where it must not change.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError, model_validator

from fedsrc.common.canonical import digest, digest_bytes, file_digest
from fedsrc.common.durable import read_bytes, write_whole
from fedsrc.common.values import Frozen as Value
from fedsrc.common.values import Hex, Numbers, describe
from fedsrc.data.answers import Answer
from fedsrc.errors import FedsrcError
from fedsrc.scores.fitted.combine import Combination
from fedsrc.scores.fitted.features import NAMES
from fedsrc.scores.fitted.finetune import LAST, Detector
from fedsrc.scores.fitted.franq import SUPPORT, Franq
from fedsrc.scores.fitted.isotonic import Isotonic
from fedsrc.scores.fitted.logistic import Logistic
from fedsrc.scores.fitted.mechanistic import SHARE, Mechanistic
from fedsrc.scores.fitted.probe import Probe
from fedsrc.scores.fitted.supervised import Model, Parameters, columns_with
from fedsrc.scores.prompts import prompt

SCORE: Final = "score.json"
ADAPTER: Final = "adapter/adapter_model.safetensors"
MAX_BYTES, MAX_ADAPTER = 1 << 26, 1 << 32
OTHER_SOURCES = "score answers of other sources: on these its score would look better than it is"
Kind = Literal["combination", "probe", "detector", "mechanistic", "franq"]
ADAPTATION: Final = "ReDeEP-style adaptation, not the authors' configuration"
Scale = Annotated[float, Field(gt=0)]
Place = Annotated[int, Field(ge=0)]
Places = Annotated[tuple[Place, ...], Field(strict=False, min_length=1)]
HeadPlaces = Annotated[
    tuple[Annotated[tuple[Place, Place], Field(strict=False)], ...], Field(strict=False, min_length=1)
]
Fingerprints = Annotated[tuple[Hex, ...], Field(strict=False, min_length=1)]


class Feature(Value):
    """One number of a combination."""

    mean: float
    scale: Scale
    weight: float


class CombinationNumbers(Value):
    """The numbers of a combination, by the names of its features."""

    bias: float
    features: dict[str, Feature]

    @model_validator(mode="after")
    def _names(self) -> CombinationNumbers:
        if self.features.keys() != set(NAMES):
            raise ValueError("features are not those of this version")
        return self

    def parameters(self) -> Combination:
        columns = [self.features[name] for name in NAMES]
        mean, scale, weights = np.array([[each.mean, each.scale, each.weight] for each in columns]).T.copy()
        return Combination(Logistic(mean, scale, weights, self.bias))


class ProbeNumbers(Value):
    """The numbers of a probe, one mean, scale and weight for each dimension of the hidden states."""

    layer: int = Field(ge=LAST)
    width: int = Field(ge=1)
    bias: float
    mean: Numbers
    scale: Annotated[tuple[Scale, ...], Field(strict=False)]
    weights: Numbers

    @model_validator(mode="after")
    def _sizes(self) -> ProbeNumbers:
        if not len(self.mean) == len(self.scale) == len(self.weights) or not self.weights:
            raise ValueError("mean, scale and weights differ in length")
        return self

    def parameters(self) -> Probe:
        mean, scale, weights = (np.array(each, dtype=np.float64) for each in (self.mean, self.scale, self.weights))
        return Probe(self.layer, self.width, Logistic(mean, scale, weights, self.bias))


class DetectorNumbers(Value):
    """The head of a detector and the rank of its adapter."""

    rank: int = Field(ge=1, le=4096)
    head: ProbeNumbers


class MechanisticNumbers(Value):
    """Chosen heads (layer, head) and layers, and the scale and weight of each sum."""

    method: Literal["ReDeEP-style adaptation, not the authors' configuration"]
    attended_share: float
    heads: HeadPlaces
    layers: Places
    parametric: Feature
    external: Feature
    bias: float

    @model_validator(mode="after")
    def _of_this_version(self) -> MechanisticNumbers:
        if self.attended_share != SHARE:
            raise ValueError("signals are not those of this version")
        if len(set(self.heads)) < len(self.heads) or len(set(self.layers)) < len(self.layers):
            raise ValueError("a head or layer stands twice")
        return self

    def parameters(self) -> Mechanistic:
        sums = (self.parametric, self.external)
        mean, scale, weights = np.array([[each.mean, each.scale, each.weight] for each in sums]).T.copy()
        return Mechanistic(self.heads, self.layers, Logistic(mean, scale, weights, self.bias))


class IsotonicNumbers(Value):
    """The points of a non-decreasing map to probabilities."""

    x: Numbers
    y: Numbers

    @model_validator(mode="after")
    def _rises(self) -> IsotonicNumbers:
        if len(self.x) != len(self.y) or not self.x:
            raise ValueError("a map needs as many scores as probabilities")
        if sorted(set(self.x)) != list(self.x) or sorted(self.y) != list(self.y):
            raise ValueError("a map must rise")
        if not 0 <= self.y[0] <= self.y[-1] <= 1:
            raise ValueError("a map must give probabilities")
        return self

    def parameters(self) -> Isotonic:
        return Isotonic(np.array(self.x, dtype=np.float64), np.array(self.y, dtype=np.float64))


class FranqNumbers(Value):
    """The score of support by its name, and FRANQ's three maps."""

    support: str
    faithful: IsotonicNumbers
    if_faithful: IsotonicNumbers
    if_unfaithful: IsotonicNumbers

    @model_validator(mode="after")
    def _known(self) -> FranqNumbers:
        if self.support not in SUPPORT:
            raise ValueError("support is no score of this version")
        return self

    def parameters(self) -> Franq:
        maps = (self.faithful, self.if_faithful, self.if_unfaithful)
        return Franq(self.support, *(each.parameters() for each in maps))


class Manifest(Value):
    """What a score was fitted on. `auc`: of answers of sources that the fit did not see, where it was asked for."""

    answers: int = Field(ge=1)
    sources: int = Field(ge=1)
    unsupported: int = Field(ge=1)
    answers_sha256: Hex
    source_fingerprints: Fingerprints
    evidence_fingerprints: Fingerprints
    generators: dict[str, int]
    auc: float | None = Field(ge=0, le=1)
    settings: dict[str, int | float]
    versions: dict[str, str]

    @model_validator(mode="after")
    def _counts(self) -> Manifest:
        if len(set(self.source_fingerprints)) != self.sources or self.sources > self.answers:
            raise ValueError("there is not one fingerprint for each source")
        return self


class Document(Value):
    """The file score.json."""

    format: int = Field(ge=1, le=1)
    model: dict[str, str]
    prompts: Hex
    training: Manifest


class CombinationDocument(Document):
    """A combination's score.json."""

    kind: Literal["combination"]
    parameters: CombinationNumbers
    files: dict[str, Hex] = Field(max_length=0)


class ProbeDocument(Document):
    """A probe's score.json."""

    kind: Literal["probe"]
    parameters: ProbeNumbers
    files: dict[str, Hex] = Field(max_length=0)


class DetectorDocument(Document):
    """A detector's score.json, with the digest of its adapter."""

    kind: Literal["detector"]
    parameters: DetectorNumbers
    files: dict[Literal["adapter/adapter_model.safetensors"], Hex] = Field(min_length=1)


class MechanisticDocument(Document):
    """A mechanistic score's score.json."""

    kind: Literal["mechanistic"]
    parameters: MechanisticNumbers
    files: dict[str, Hex] = Field(max_length=0)


class FranqDocument(Document):
    """FRANQ's score.json."""

    kind: Literal["franq"]
    parameters: FranqNumbers
    files: dict[str, Hex] = Field(max_length=0)


AnyDocument = CombinationDocument | ProbeDocument | DetectorDocument | MechanisticDocument | FranqDocument
DOCUMENT: TypeAdapter[AnyDocument] = TypeAdapter(Annotated[AnyDocument, Field(discriminator="kind")])


@dataclass(frozen=True)
class Frozen:
    """A fitted score. Build one with `load`."""

    folder: Path
    digest: str
    document: AnyDocument

    @property
    def kind(self) -> Kind:
        return self.document.kind

    @property
    def identity(self) -> dict[str, str]:
        """What decides its numbers, for a manifest."""
        return {"digest": self.digest, "kind": self.kind, "model": self.document.model.get("model", "")}

    @property
    def passes(self) -> int:
        """Relative compute: passes of the model beyond the one that wrote the response."""
        return 1 if self.kind in ("combination", "franq") else 0  # without the evidence

    def check(self, answers: Sequence[Answer]) -> None:
        """Refuse answers that share a source or a text of evidence with training."""
        sources = set(self.document.training.source_fingerprints)
        evidence = set(self.document.training.evidence_fingerprints)
        seen = [a.id for a in answers if source_print(a.source) in sources or evidence_print(a.evidence) in evidence]
        if seen:
            names = ", ".join(repr(each) for each in seen[:3]) + (", ..." if len(seen) > 3 else "")
            raise FedsrcError(
                f"{len(seen):,} of {len(answers):,} answers share a source or evidence with its training: {names}",
                where=str(self.folder),
                hint=OTHER_SOURCES,
            )

    def scores(self, answers: Sequence[Answer], model: Model | None) -> list[float]:
        """A score in [0, 1] for each answer, higher meaning better supported; answers of its training are refused."""
        return self.columns(answers, model)[""]

    def columns(self, answers: Sequence[Answer], model: Model | None) -> dict[str, list[float]]:
        """The same under the name "", with what this kind of score says beside it under names of their own."""
        self.check(answers)
        trained = self._same_model(model)
        found = columns_with(self.parameters(), answers, trained)
        if not all(0 <= score <= 1 for column in found.values() for score in column):  # false for NaN
            raise FedsrcError("the model gave numbers that are no scores", where=str(self.folder))
        return found

    def parameters(self) -> Parameters:
        """The fitted numbers; a detector's adapter is read here."""
        if self.document.kind != "detector":
            return self.document.parameters.parameters()
        numbers = self.document.parameters
        adapter = _read_adapter(self.folder, self.document)
        return Detector(numbers.head.parameters(), numbers.rank, adapter)

    def _same_model(self, model: Model | None) -> Model:
        """The model, if it is the one of the training; type and backend may differ."""
        wanted = self.document.model
        name = f"model {wanted.get('model')!r}, revision {wanted.get('revision')!r}"
        if model is None:
            raise FedsrcError(f"needs the model it was fitted with: {name}", where=str(self.folder))
        if any(wanted.get(part) != model.identity.get(part) for part in ("model", "revision")):
            given = f"model {model.identity.get('model')!r}, revision {model.identity.get('revision')!r}"
            raise FedsrcError(f"was fitted with {name}, not with {given}", where=str(self.folder), hint="use that one")
        return model


def source_print(source: str) -> str:
    """The fingerprint of a source's name."""
    return hashlib.sha256(source.encode()).hexdigest()


def evidence_print(evidence: str) -> str:
    """The fingerprint of a text of evidence; space and line breaks do not count."""
    return hashlib.sha256(" ".join(evidence.split()).encode()).hexdigest()


def prompts_digest() -> str:
    """A digest of what the prompts look like, with and without a question."""
    asked = [Answer(id="", source="", evidence="", response="", question=question) for question in ("{question}", "")]
    return digest([prompt(each, "{evidence}") for each in asked])


def save(
    folder: Path,
    parameters: Parameters,
    *,
    model: Mapping[str, str],
    answers: Sequence[Answer],
    answers_sha256: str,
    auc: float | None,
    settings: Mapping[str, float],
) -> Frozen:
    """Write a fitted score, whole, into a folder that holds none yet."""
    refuse_existing(folder)
    adapter = parameters.adapter if isinstance(parameters, Detector) else None
    document = {
        "format": 1,
        **_plain(parameters),
        "model": dict(model),
        "prompts": prompts_digest(),
        "training": {**_manifest(answers), "answers_sha256": answers_sha256, "auc": auc, "settings": dict(settings)},
        "files": {} if adapter is None else {ADAPTER: digest_bytes(adapter)},
    }
    data = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    _parse(data, str(folder / SCORE))
    if adapter is not None:
        write_whole(folder / ADAPTER, adapter)
    write_whole(folder / SCORE, data, replace=False)
    found = load(folder)
    if found.digest != digest_bytes(data):
        raise _exists(folder)  # another process was first
    return found


def load(folder: Path) -> Frozen:
    """A fitted score from its folder, checked: format, shapes, prompts, and the digest of every file."""
    path = folder / SCORE
    if not path.is_file():
        raise FedsrcError(f"there is no {SCORE} in it", where=str(folder), hint="`fedsrc fit` writes one")
    data = read_bytes(path, MAX_BYTES)
    document = _parse(data, str(path))
    if document.prompts != prompts_digest():
        raise FedsrcError("was fitted with other prompts than this version's", where=str(path), hint="fit it again")
    if document.kind == "detector":
        _check_adapter(folder, document)
    return Frozen(folder, digest_bytes(data), document)


def refuse_existing(folder: Path) -> None:
    """Refuse a folder that holds a score already."""
    if (folder / SCORE).exists() or (folder.exists() and not folder.is_dir()):
        raise _exists(folder)


def _exists(folder: Path) -> FedsrcError:
    return FedsrcError("holds a score already", where=str(folder), hint="choose another folder")


def _parse(data: bytes, where: str) -> AnyDocument:
    if len(data) > MAX_BYTES:
        raise FedsrcError(f"larger than {MAX_BYTES:,} bytes", where=where, hint="fit on fewer answers")
    try:
        return DOCUMENT.validate_json(data)
    except ValidationError as error:
        raise FedsrcError(f"is not a score of this version: {describe(error)}", where=where) from error


def _check_adapter(folder: Path, document: DetectorDocument) -> None:
    path = folder / ADAPTER
    if not path.is_file():
        raise FedsrcError("is missing", where=str(path), hint="copy the whole folder")
    if file_digest(path) != document.files[ADAPTER]:
        raise FedsrcError("was changed: its digest is not the one in score.json", where=str(path))


def _read_adapter(folder: Path, document: DetectorDocument) -> bytes:
    data = read_bytes(folder / ADAPTER, MAX_ADAPTER)
    if digest_bytes(data) != document.files[ADAPTER]:
        raise FedsrcError("was changed since it was loaded", where=str(folder / ADAPTER))
    return data


def _plain(parameters: Parameters) -> dict[str, Any]:
    """Kind and numbers as JSON; Python writes floats so that they are read back exactly."""
    if isinstance(parameters, Combination):
        fitted = parameters.logistic
        columns = zip(NAMES, fitted.mean.tolist(), fitted.scale.tolist(), fitted.weights.tolist(), strict=True)
        named = {name: {"mean": mean, "scale": scale, "weight": weight} for name, mean, scale, weight in columns}
        return {"kind": "combination", "parameters": {"bias": fitted.bias, "features": named}}
    if isinstance(parameters, Probe):
        return {"kind": "probe", "parameters": _probe_plain(parameters)}
    if isinstance(parameters, Mechanistic):
        return {"kind": "mechanistic", "parameters": _mechanistic_plain(parameters)}
    if isinstance(parameters, Franq):
        names = ("faithful", "if_faithful", "if_unfaithful")
        maps = {name: _isotonic_plain(getattr(parameters, name)) for name in names}
        return {"kind": "franq", "parameters": {"support": parameters.support, **maps}}
    return {"kind": "detector", "parameters": {"rank": parameters.rank, "head": _probe_plain(parameters.head)}}


def _probe_plain(probe: Probe) -> dict[str, Any]:
    fitted = probe.token
    rows = {"mean": fitted.mean.tolist(), "scale": fitted.scale.tolist(), "weights": fitted.weights.tolist()}
    return {"layer": probe.layer, "width": probe.width, "bias": fitted.bias, **rows}


def _mechanistic_plain(found: Mechanistic) -> dict[str, Any]:
    fitted = found.logistic
    columns = zip(fitted.mean.tolist(), fitted.scale.tolist(), fitted.weights.tolist(), strict=True)
    parametric, external = ({"mean": mean, "scale": scale, "weight": weight} for mean, scale, weight in columns)
    chosen = {"heads": [list(head) for head in found.heads], "layers": list(found.layers)}
    sums = {"parametric": parametric, "external": external, "bias": fitted.bias}
    return {"method": ADAPTATION, "attended_share": SHARE, **chosen, **sums}


def _isotonic_plain(found: Isotonic) -> dict[str, Any]:
    return {"x": found.x.tolist(), "y": found.y.tolist()}


def _manifest(answers: Sequence[Answer]) -> dict[str, Any]:
    sources = sorted({source_print(answer.source) for answer in answers})
    return {
        "answers": len(answers),
        "sources": len(sources),
        "unsupported": sum(answer.loss == 1 for answer in answers),
        "source_fingerprints": sources,
        "evidence_fingerprints": sorted({evidence_print(answer.evidence) for answer in answers}),
        "generators": dict(sorted(Counter(answer.generator for answer in answers).items())),
        "versions": _versions(),
    }


def _versions() -> dict[str, str]:
    """Versions of what the numbers came through."""
    used = ["fedsrc", "numpy", "scipy", *(name for name in ("torch", "transformers", "peft") if name in sys.modules)]
    return {name: importlib.metadata.version(name) for name in used}
