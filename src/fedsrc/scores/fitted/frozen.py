"""A fitted score as a folder that says what it was fitted on, and refuses to score that again.

`score.json` holds the numbers, the model, and fingerprints (SHA-256) of every source name and every text of evidence in
training; a detector's adapter lies beside it as safetensors. Nothing in the folder is code, and its author is not
checked: whoever edits score.json can also edit the fingerprints, so name its digest where it must not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fedsrc.common.canonical import digest_bytes, file_digest
from fedsrc.common.durable import read_bytes
from fedsrc.data.answers import Answer
from fedsrc.errors import FedsrcError
from fedsrc.scores.fitted import score_file
from fedsrc.scores.fitted.finetune import Detector
from fedsrc.scores.fitted.score_file import ADAPTER, SCORE, evidence_print, source_print
from fedsrc.scores.fitted.supervised import Model, Parameters, columns_with

MAX_ADAPTER = 1 << 32
Kind = Literal["combination", "probe", "detector", "mechanistic", "franq"]


@dataclass(frozen=True)
class FrozenScore:
    """A fitted score. Build one with `load`."""

    folder: Path
    digest: str
    document: score_file.Document

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
                hint="score answers of other sources: on these its score would look better than it is",
            )

    def scores(self, answers: Sequence[Answer], model: Model | None) -> list[float]:
        """Return a score in [0, 1] for each answer, higher meaning better supported; refuse answers of training."""
        return self.columns(answers, model)[""]

    def columns(self, answers: Sequence[Answer], model: Model | None) -> dict[str, list[float]]:
        """Return the scores under the name "", with what this kind of score says beside it under names of their own."""
        self.check(answers)
        trained = self._same_model(model)
        found = columns_with(self.parameters(), answers, trained)
        if not all(0 <= score <= 1 for column in found.values() for score in column):  # false for NaN
            raise FedsrcError("the model gave numbers that are no scores", where=str(self.folder))
        return found

    def parameters(self) -> Parameters:
        """Return the fitted numbers; a detector's adapter is read here."""
        if self.document.kind != "detector":
            return self.document.parameters
        numbers, path = self.document.parameters, self.folder / ADAPTER
        adapter = read_bytes(path, MAX_ADAPTER)
        if digest_bytes(adapter) != self.document.files[ADAPTER]:
            raise FedsrcError("was changed since it was loaded", where=str(path))
        return Detector(numbers.head, numbers.rank, adapter)

    def _same_model(self, model: Model | None) -> Model:
        """Return the model if it is the one of the training; type and backend may differ."""
        wanted = self.document.model
        name = f"model {wanted.get('model')!r}, revision {wanted.get('revision')!r}"
        if model is None:
            raise FedsrcError(f"needs the model it was fitted with: {name}", where=str(self.folder))
        if any(wanted.get(part) != model.identity.get(part) for part in ("model", "revision")):
            given = f"model {model.identity.get('model')!r}, revision {model.identity.get('revision')!r}"
            raise FedsrcError(f"was fitted with {name}, not with {given}", where=str(self.folder), hint="use that one")
        return model


def load(folder: Path) -> FrozenScore:
    """Load a fitted score from its folder, checked: format, shapes, prompts, and the digest of every file."""
    path = folder / SCORE
    if not path.is_file():
        raise FedsrcError(f"there is no {SCORE} in it", where=str(folder), hint="`fedsrc fit` writes one")
    data = read_bytes(path, score_file.MAX_BYTES)
    document = score_file.parse(data, str(path))
    if document.prompts != score_file.prompts_digest():
        raise FedsrcError("was fitted with other prompts than this version's", where=str(path), hint="fit it again")
    if document.kind == "detector":
        adapter = folder / ADAPTER
        if not adapter.is_file():
            raise FedsrcError("is missing", where=str(adapter), hint="copy the whole folder")
        if file_digest(adapter) != document.files[ADAPTER]:
            raise FedsrcError("was changed: its digest is not the one in score.json", where=str(adapter))
    return FrozenScore(folder, digest_bytes(data), document)


def refuse_existing(folder: Path) -> None:
    """Refuse a folder that holds a score already."""
    if (folder / SCORE).exists() or (folder.exists() and not folder.is_dir()):
        raise FedsrcError("holds a score already", where=str(folder), hint="choose another folder")
