"""The file score.json of a fitted score: what it holds, and how fitted numbers are written to it and read from it."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Final, Generic, Literal, TypeVar

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError, model_validator

from fedsrc.common.canonical import digest
from fedsrc.common.values import Frozen as Value
from fedsrc.common.values import Hex, Numbers, describe
from fedsrc.data.answers import Answer
from fedsrc.errors import FedsrcError
from fedsrc.scores.fitted.combine import NAMES, Combination
from fedsrc.scores.fitted.finetune import LAST
from fedsrc.scores.fitted.franq import SUPPORT, Franq
from fedsrc.scores.fitted.isotonic import Isotonic
from fedsrc.scores.fitted.logistic import Logistic
from fedsrc.scores.fitted.mechanistic import SHARE, Mechanistic
from fedsrc.scores.fitted.probe import Probe
from fedsrc.scores.fitted.supervised import Parameters
from fedsrc.scores.prompts import prompt

SCORE: Final = "score.json"
ADAPTER: Final = "adapter/adapter_model.safetensors"
MAX_BYTES = 1 << 26
ADAPTATION: Final = "ReDeEP-style adaptation, not the authors' configuration"
Scale = Annotated[float, Field(gt=0)]
Place = Annotated[int, Field(ge=0)]
Places = Annotated[tuple[Place, ...], Field(strict=False, min_length=1)]
Head = Annotated[tuple[Place, Place], Field(strict=False)]
Fingerprints = Annotated[tuple[Hex, ...], Field(strict=False, min_length=1)]


class _Feature(Value):
    mean: float
    scale: Scale
    weight: float


class _CombinationNumbers(Value):
    bias: float
    features: dict[str, _Feature]

    @model_validator(mode="after")
    def _names(self) -> _CombinationNumbers:
        if self.features.keys() != set(NAMES):
            raise ValueError("features are not those of this version")
        return self

    def parameters(self) -> Combination:
        return Combination(_logistic([self.features[name] for name in NAMES], self.bias))


class _ProbeNumbers(Value):
    layer: int = Field(ge=LAST)
    width: int = Field(ge=1)
    bias: float
    mean: Numbers
    scale: Annotated[tuple[Scale, ...], Field(strict=False)]
    weights: Numbers

    @model_validator(mode="after")
    def _sizes(self) -> _ProbeNumbers:
        if not len(self.mean) == len(self.scale) == len(self.weights) or not self.weights:
            raise ValueError("mean, scale and weights differ in length")
        return self

    def parameters(self) -> Probe:
        mean, scale, weights = (np.array(each, dtype=np.float64) for each in (self.mean, self.scale, self.weights))
        return Probe(self.layer, self.width, Logistic(mean, scale, weights, self.bias))


class _DetectorNumbers(Value):
    rank: int = Field(ge=1, le=4096)
    head: _ProbeNumbers


class _MechanisticNumbers(Value):
    method: Literal["ReDeEP-style adaptation, not the authors' configuration"]
    attended_share: float
    heads: Annotated[tuple[Head, ...], Field(strict=False, min_length=1)]  # layer, head
    layers: Places
    parametric: _Feature
    external: _Feature
    bias: float

    @model_validator(mode="after")
    def _of_this_version(self) -> _MechanisticNumbers:
        if self.attended_share != SHARE:
            raise ValueError("signals are not those of this version")
        if len(set(self.heads)) < len(self.heads) or len(set(self.layers)) < len(self.layers):
            raise ValueError("a head or layer is listed twice")
        return self

    def parameters(self) -> Mechanistic:
        return Mechanistic(self.heads, self.layers, _logistic([self.parametric, self.external], self.bias))


class _IsotonicNumbers(Value):
    x: Numbers
    y: Numbers

    @model_validator(mode="after")
    def _rises(self) -> _IsotonicNumbers:
        if len(self.x) != len(self.y) or not self.x:
            raise ValueError("a map needs as many scores as probabilities")
        if sorted(set(self.x)) != list(self.x) or sorted(self.y) != list(self.y):
            raise ValueError("a map must rise")
        if not 0 <= self.y[0] <= self.y[-1] <= 1:
            raise ValueError("a map must give probabilities")
        return self

    def parameters(self) -> Isotonic:
        return Isotonic(np.array(self.x, dtype=np.float64), np.array(self.y, dtype=np.float64))


class _FranqNumbers(Value):
    support: str
    faithful: _IsotonicNumbers
    if_faithful: _IsotonicNumbers
    if_unfaithful: _IsotonicNumbers

    @model_validator(mode="after")
    def _known(self) -> _FranqNumbers:
        if self.support not in SUPPORT:
            raise ValueError("support is no score of this version")
        return self

    def parameters(self) -> Franq:
        maps = (self.faithful, self.if_faithful, self.if_unfaithful)
        return Franq(self.support, *(each.parameters() for each in maps))


class _Manifest(Value):
    answers: int = Field(ge=1)
    sources: int = Field(ge=1)
    unsupported: int = Field(ge=1)
    answers_sha256: Hex
    source_fingerprints: Fingerprints
    evidence_fingerprints: Fingerprints
    generators: dict[str, int]
    auc: float | None = Field(ge=0, le=1)  # on sources that the fit did not see, where it was asked for
    settings: dict[str, int | float]
    versions: dict[str, str]

    @model_validator(mode="after")
    def _counts(self) -> _Manifest:
        if len(set(self.source_fingerprints)) != self.sources or self.sources > self.answers:
            raise ValueError("there is not one fingerprint for each source")
        return self


KindT = TypeVar("KindT")
NumbersT = TypeVar("NumbersT")
FilesT = TypeVar("FilesT")
NoFiles = Annotated[dict[str, Hex], Field(max_length=0)]
AdapterFile = Annotated[dict[Literal["adapter/adapter_model.safetensors"], Hex], Field(min_length=1)]


class _Document(Value, Generic[KindT, NumbersT, FilesT]):
    format: int = Field(ge=1, le=1)
    model: dict[str, str]
    prompts: Hex
    training: _Manifest
    kind: KindT
    parameters: NumbersT
    files: FilesT  # digests of the other files of the folder


DetectorDocument = _Document[Literal["detector"], _DetectorNumbers, AdapterFile]
Document = (
    _Document[Literal["combination"], _CombinationNumbers, NoFiles]
    | _Document[Literal["probe"], _ProbeNumbers, NoFiles]
    | DetectorDocument
    | _Document[Literal["mechanistic"], _MechanisticNumbers, NoFiles]
    | _Document[Literal["franq"], _FranqNumbers, NoFiles]
)
_ADAPTER: TypeAdapter[Document] = TypeAdapter(Annotated[Document, Field(discriminator="kind")])


def parse(data: bytes, where: str) -> Document:
    """Return the document that a file holds, checked but for its prompts and other files."""
    if len(data) > MAX_BYTES:
        raise FedsrcError(f"larger than {MAX_BYTES:,} bytes", where=where, hint="fit on fewer answers")
    try:
        return _ADAPTER.validate_json(data)
    except ValidationError as error:
        raise FedsrcError(f"is not a score of this version: {describe(error)}", where=where) from error


def plain(parameters: Parameters) -> dict[str, Any]:
    """Return kind and numbers as JSON; Python writes floats so that they are read back exactly."""
    if isinstance(parameters, Combination):
        named = dict(zip(NAMES, _features(parameters.logistic), strict=True))
        return {"kind": "combination", "parameters": {"bias": parameters.logistic.bias, "features": named}}
    if isinstance(parameters, Probe):
        return {"kind": "probe", "parameters": _probe(parameters)}
    if isinstance(parameters, Mechanistic):
        return {"kind": "mechanistic", "parameters": _mechanistic(parameters)}
    if isinstance(parameters, Franq):
        names = ("faithful", "if_faithful", "if_unfaithful")
        maps = {name: getattr(parameters, name) for name in names}
        points = {name: {"x": each.x.tolist(), "y": each.y.tolist()} for name, each in maps.items()}
        return {"kind": "franq", "parameters": {"support": parameters.support, **points}}
    return {"kind": "detector", "parameters": {"rank": parameters.rank, "head": _probe(parameters.head)}}


def _probe(probe: Probe) -> dict[str, Any]:
    fitted = probe.token
    rows = {"mean": fitted.mean.tolist(), "scale": fitted.scale.tolist(), "weights": fitted.weights.tolist()}
    return {"layer": probe.layer, "width": probe.width, "bias": fitted.bias, **rows}


def _mechanistic(found: Mechanistic) -> dict[str, Any]:
    parametric, external = _features(found.logistic)
    chosen = {"heads": [list(head) for head in found.heads], "layers": list(found.layers)}
    sums = {"parametric": parametric, "external": external, "bias": found.logistic.bias}
    return {"method": ADAPTATION, "attended_share": SHARE, **chosen, **sums}


def _features(fitted: Logistic) -> list[dict[str, float]]:
    columns = zip(fitted.mean.tolist(), fitted.scale.tolist(), fitted.weights.tolist(), strict=True)
    return [{"mean": mean, "scale": scale, "weight": weight} for mean, scale, weight in columns]


def _logistic(features: list[_Feature], bias: float) -> Logistic:
    mean, scale, weights = np.array([[each.mean, each.scale, each.weight] for each in features]).T.copy()
    return Logistic(mean, scale, weights, bias)


def source_print(source: str) -> str:
    """Return the fingerprint of a source's name."""
    return hashlib.sha256(source.encode()).hexdigest()


def evidence_print(evidence: str) -> str:
    """Return the fingerprint of a text of evidence; space and line breaks do not count."""
    return source_print(" ".join(evidence.split()))


def prompts_digest() -> str:
    """Return a digest of what the prompts look like, with and without a question."""
    asked = [Answer(id="", source="", evidence="", response="", question=question) for question in ("{question}", "")]
    return digest([prompt(each, "{evidence}") for each in asked])
