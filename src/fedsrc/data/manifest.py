"""What a manifest of answers holds: counts, figures, and findings in plain sentences; no text of any answer.

An error means that the answers cannot be used as they are; a warning, that a result on them may not mean what it seems
to; a note, that a reader should know.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from fedsrc.common.words import count
from fedsrc.data.answers import Answer
from fedsrc.data.collection import SourceFile

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
Label = Literal["supported", "unsupported", "unlabelled"]
Text = Literal["evidence", "response"]


@dataclass(frozen=True)
class Finding:
    """One thing found, in a plain sentence."""

    severity: Severity
    text: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.text}"


@dataclass(frozen=True)
class Count:
    """Answers of one kind."""

    group: str
    generator: str
    split: str
    label: Label
    answers: int


@dataclass(frozen=True)
class Rate:
    """How many labelled answers of a generator are unsupported."""

    generator: str
    labelled: int
    unsupported: int

    @property
    def share(self) -> float:
        return self.unsupported / self.labelled


@dataclass(frozen=True)
class Lengths:
    """Quantiles of a text's length in characters, for the answers of one label."""

    text: Text
    label: Label
    quantiles: dict[str, int]


@dataclass(frozen=True)
class Auc:
    """How well the length of the response alone ranks unsupported above supported; 0.5 is chance. "" is all groups."""

    group: str
    auc: float
    supported: int
    unsupported: int

    @property
    def where(self) -> str:
        return f" in {self.group}" if self.group else ""


@dataclass(frozen=True)
class Marks:
    """Annotators' spans, and those that do not fit their response; answers whose every span is `implicit_true`."""

    spans: int
    outside: int
    reversed: int
    other_text: int
    implicit_true: int
    due_to_null: int
    implicit_only_answers: int


@dataclass(frozen=True)
class Duplicates:
    """Responses that a source has more than once, evidence under several source names, sources in several splits."""

    responses: int
    evidence: int
    split_sources: int


@dataclass(frozen=True)
class Decoding:
    """How many answers of a generator were drawn in one way; "" where the collection does not say."""

    generator: str
    decoding: str
    answers: int


@dataclass(frozen=True)
class Prompts:
    """Answers whose original prompt the collection has, and one digest of these prompts, answer by answer."""

    answers: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What was audited, the figures, and the findings."""

    format: int
    collection: str
    annotation: str
    files: tuple[SourceFile, ...]
    answers: int
    labelled: int
    unlabelled: int
    unsupported: int
    graded: int
    sources: int
    answers_per_source: dict[str, int]
    counts: tuple[Count, ...]
    rates: tuple[Rate, ...]
    lengths: tuple[Lengths, ...]
    length_auc: tuple[Auc, ...]
    duplicates: Duplicates
    marks: Marks
    quality: dict[str, int]
    decoding: tuple[Decoding, ...]
    prompts: Prompts
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that forbid use."""
        return tuple(each for each in self.findings if each.severity == "error")

    def lines(self) -> list[str]:
        """Say the audit in plain words."""
        share = f" ({self.unsupported / self.labelled:.1%})" if self.labelled else ""
        return [
            f"{self.collection}: {count(self.answers, 'answer')} of {count(self.sources, 'source')};"
            f" {self.labelled:,} labelled, {self.unsupported:,} of them unsupported{share}.",
            *(f"  generator {r.generator}: {r.labelled:,} labelled, {r.share:.1%} unsupported" for r in self.rates),
            *(f"  response length alone{each.where}: AUC {each.auc:.3f} (0.5 is chance)" for each in self.length_auc),
            *(f"  {finding}" for finding in self.findings),
        ]


def label_of(answer: Answer) -> Label:
    """Return an answer's label; any loss above zero is unsupported."""
    if answer.loss is None:
        return "unlabelled"
    return "unsupported" if answer.loss > 0 else "supported"
