"""The file score.json of a fitted score: what it holds, and how fitted numbers are written to it and read from it."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Final, Generic, Literal, TypeVar

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from fedsrc.common.canonical import digest
from fedsrc.common.values import Frozen as Value
from fedsrc.common.values import Hex, describe
from fedsrc.data.answers import Answer
from fedsrc.errors import FedsrcError
from fedsrc.scores.fitted.combine import Combination
from fedsrc.scores.fitted.finetune import Detector
from fedsrc.scores.fitted.franq import Franq
from fedsrc.scores.fitted.mechanistic import Mechanistic
from fedsrc.scores.fitted.probe import Probe
from fedsrc.scores.fitted.supervised import Parameters
from fedsrc.scores.prompts import prompt

SCORE: Final = "score.json"
ADAPTER: Final = "adapter/adapter_model.safetensors"
MAX_BYTES = 1 << 26
KINDS = {Combination: "combination", Probe: "probe", Mechanistic: "mechanistic", Franq: "franq"}
Fingerprints = Annotated[tuple[Hex, ...], Field(strict=False, min_length=1)]


class _DetectorNumbers(Value):
    rank: int = Field(ge=1, le=4096)
    head: Probe


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
    _Document[Literal["combination"], Combination, NoFiles]
    | _Document[Literal["probe"], Probe, NoFiles]
    | DetectorDocument
    | _Document[Literal["mechanistic"], Mechanistic, NoFiles]
    | _Document[Literal["franq"], Franq, NoFiles]
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
    if isinstance(parameters, Detector):
        return {"kind": "detector", "parameters": {"rank": parameters.rank, "head": parameters.head.model_dump()}}
    return {"kind": KINDS[type(parameters)], "parameters": parameters.model_dump()}


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
