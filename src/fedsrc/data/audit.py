"""Manifest audit: what a set of answers holds, where it comes from, and what could make results on it misleading.

A pure function from answers, their files and their notes to a manifest of counts and of findings in plain sentences.
An error means that the answers cannot be used as they are; a warning, that a result on them may not mean what it seems
to; a note, that a reader should know. The manifest holds no text of question, evidence or response.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from fedsrc.data.answers import Answer, Notes, Span
from fedsrc.data.collection import SourceFile
from fedsrc.maths.rank import chance_above

FORMAT = 1
Severity = Literal["error", "warning", "note"]
Label = Literal["supported", "unsupported", "unlabelled"]
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
ARTEFACT = 0.2  # a length that ranks labels this far from chance is worth a warning
ENOUGH = 20  # answers of each kind before a rate or a rank means something
FAR = 4.0  # standard errors between the rates of two splits


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

    text: Literal["evidence", "response"]
    label: Label
    quantiles: dict[str, int]


@dataclass(frozen=True)
class Auc:
    """How well the length of the response alone ranks unsupported above supported; 0.5 is chance. "" is all groups."""

    group: str
    auc: float
    supported: int
    unsupported: int


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
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that forbid use."""
        return tuple(each for each in self.findings if each.severity == "error")

    def plain(self) -> dict[str, Any]:
        """The manifest as plain values, for JSON."""
        return asdict(self)


def audit(
    answers: Sequence[Answer],
    *,
    name: str,
    annotation: str = "not stated",
    files: Sequence[SourceFile] = (),
    notes: Mapping[str, Notes] | None = None,
    more: Iterable[Finding] = (),
) -> Manifest:
    """The manifest of these answers. `more` are findings that the caller made on a larger set."""
    noted = {answer.id: (notes or {}).get(answer.id, Notes()) for answer in answers}
    labels = Counter(label_of(answer) for answer in answers)
    per_source = Counter(Counter(answer.source for answer in answers).values())
    counts, rates, ranks = _counts(answers), _rates(answers), _ranks(answers)
    found_marks = marks(answers, noted)
    quality = Counter(each.quality for each in noted.values() if each.quality)
    findings = [
        *more,
        *_about_files(files),
        *_about_texts(answers),
        *_about_sources(answers),
        *_about_labels(answers, labels, rates, counts),
        *_about_length(ranks),
        *_about_marks(found_marks, quality),
    ]
    return Manifest(
        format=FORMAT,
        collection=name,
        annotation=annotation,
        files=tuple(files),
        answers=len(answers),
        labelled=labels["supported"] + labels["unsupported"],
        unlabelled=labels["unlabelled"],
        unsupported=labels["unsupported"],
        graded=sum(answer.loss not in (None, 0.0, 1.0) for answer in answers),
        sources=len({answer.source for answer in answers}),
        answers_per_source={str(size): per_source[size] for size in sorted(per_source)},
        counts=counts,
        rates=rates,
        lengths=_lengths(answers),
        length_auc=ranks,
        duplicates=duplicates(answers),
        marks=found_marks,
        quality=dict(sorted(quality.items())),
        findings=tuple(sorted(findings, key=lambda each: ("error", "warning", "note").index(each.severity))),
    )


def label_of(answer: Answer) -> Label:
    """Unsupported is any loss above zero."""
    if answer.loss is None:
        return "unlabelled"
    return "unsupported" if answer.loss > 0 else "supported"


def length_auc(supported: Sequence[int], unsupported: Sequence[int]) -> float:
    """Chance that an unsupported response is longer than a supported one, ties counted half."""
    return chance_above(np.asarray(unsupported), np.asarray(supported))


def marks(answers: Sequence[Answer], notes: Mapping[str, Notes]) -> Marks:
    """Counts of spans, of those that do not fit, and of positives that rest on `implicit_true` spans alone."""
    pairs = [(answer, span) for answer in answers for span in notes[answer.id].spans]
    alone = sum(bool(notes[a.id].spans) and all(s.implicit_true for s in notes[a.id].spans) for a in answers)
    return Marks(
        spans=len(pairs),
        outside=sum(_outside(answer, span) for answer, span in pairs),
        reversed=sum(span.end <= span.start for _, span in pairs),
        other_text=sum(_other_text(answer, span) for answer, span in pairs),
        implicit_true=sum(span.implicit_true for _, span in pairs),
        due_to_null=sum(span.due_to_null for _, span in pairs),
        implicit_only_answers=alone,
    )


def duplicates(answers: Sequence[Answer]) -> Duplicates:
    """How many responses, texts of evidence and sources stand where they should stand once."""
    responses = Counter((answer.source, answer.response.strip()) for answer in answers)
    evidence = Counter(text for text, _ in {(answer.evidence.strip(), answer.source) for answer in answers})
    splits = Counter(source for source, _ in {(answer.source, answer.split) for answer in answers})
    return Duplicates(*(sum(count > 1 for count in each.values()) for each in (responses, evidence, splits)))


def audit_lines(manifest: Manifest) -> list[str]:
    """The audit in plain words."""
    share = f" ({manifest.unsupported / manifest.labelled:.1%})" if manifest.labelled else ""
    lines = [
        f"{manifest.collection}: {_many(manifest.answers, 'answer')} of {_many(manifest.sources, 'source')};"
        f" {manifest.labelled:,} labelled, {manifest.unsupported:,} of them unsupported{share}."
    ]
    lines += [
        f"  generator {rate.generator}: {rate.labelled:,} labelled, {rate.share:.1%} unsupported"
        for rate in manifest.rates
    ]
    lines += [
        f"  response length alone{f' in {each.group}' if each.group else ''}: AUC {each.auc:.3f} (0.5 is chance)"
        for each in manifest.length_auc
    ]
    return [*lines, *(f"  {finding}" for finding in manifest.findings)]


def _counts(answers: Iterable[Answer]) -> tuple[Count, ...]:
    found = Counter((a.group, a.generator, a.split, label_of(a)) for a in answers)
    return tuple(Count(*kind, found[kind]) for kind in sorted(found))


def _rates(answers: Iterable[Answer]) -> tuple[Rate, ...]:
    labels: dict[str, list[Label]] = defaultdict(list)
    for answer in answers:
        if answer.loss is not None:
            labels[answer.generator].append(label_of(answer))
    return tuple(Rate(name, len(labels[name]), labels[name].count("unsupported")) for name in sorted(labels))


def _lengths(answers: Iterable[Answer]) -> tuple[Lengths, ...]:
    sizes: dict[tuple[Literal["evidence", "response"], Label], list[int]] = defaultdict(list)
    for answer in answers:
        sizes["evidence", label_of(answer)].append(len(answer.evidence))
        sizes["response", label_of(answer)].append(len(answer.response))
    return tuple(Lengths(text, label, _quantiles(sizes[text, label])) for text, label in sorted(sizes))


def _quantiles(sizes: Sequence[int]) -> dict[str, int]:
    values = np.quantile(np.asarray(sizes), QUANTILES, method="inverted_cdf")
    return {f"{level:g}": int(value) for level, value in zip(QUANTILES, values, strict=True)}


def _ranks(answers: Sequence[Answer]) -> tuple[Auc, ...]:
    """The length's AUC over all answers, then of each group where there are several."""
    groups = {answer.group for answer in answers}
    found = []
    for group in ["", *(sorted(groups - {""}) if len(groups) > 1 else [])]:
        sizes: dict[Label, list[int]] = {"supported": [], "unsupported": [], "unlabelled": []}
        for answer in answers:
            if group in ("", answer.group):
                sizes[label_of(answer)].append(len(answer.response))
        right, wrong = sizes["supported"], sizes["unsupported"]
        if right and wrong:
            found.append(Auc(group, length_auc(right, wrong), len(right), len(wrong)))
    return tuple(found)


def _about_files(files: Iterable[SourceFile]) -> list[Finding]:
    found = []
    for file in files:
        if file.known == "other":
            found.append(
                Finding("note", f"{file.name} is not the public original {file.address}: part of it, or another.")
            )
        elif file.known == "unknown" and file.address:
            found.append(Finding("note", f"{file.name} could not be compared: no digest of its original is known."))
    return found


def _about_texts(answers: Sequence[Answer]) -> list[Finding]:
    found = []
    for text in ("evidence", "response"):
        empty = [answer.id for answer in answers if not str(getattr(answer, text)).strip()]
        if empty:
            found.append(Finding("error", f"{_have(len(empty), 'answer')} no {text}: {_some(empty)}."))
    return found


def _about_sources(answers: Sequence[Answer]) -> list[Finding]:
    sources, evidence, splits = defaultdict(set), defaultdict(set), defaultdict(set)
    for answer in answers:
        if answer.evidence.strip():
            sources[answer.evidence.strip()].add(answer.source)
            evidence[answer.source].add(answer.evidence.strip())
        splits[answer.source].add(answer.split)
    shared = [names for names in sources.values() if len(names) > 1]
    torn = sorted(name for name, each in splits.items() if len(each) > 1)
    several = sorted(name for name, each in evidence.items() if len(each) > 1)
    found = _about_duplicates(answers)
    if shared:
        names = len(set().union(*shared))
        found.append(
            Finding(
                "warning",
                f"{_many(len(shared), 'text')} of evidence under several source names ({names:,} sources): they are"
                " not independent, and a split may tear them apart (--join-sources makes them one).",
            )
        )
    if torn:
        found.append(
            Finding("warning", f"{_have(len(torn), 'source')} answers in several original splits: {_some(torn)}.")
        )
    if several:
        found.append(
            Finding("note", f"{_have(len(several), 'source')} more than one text of evidence: {_some(several)}.")
        )
    return found


def _about_duplicates(answers: Iterable[Answer]) -> list[Finding]:
    """The same response to the same source: harmless from two generators, a doubled record from one."""
    same: dict[tuple[str, str], list[Answer]] = defaultdict(list)
    for answer in answers:
        same[answer.source, answer.response.strip()].append(answer)
    repeated = [group for group in same.values() if len(group) > 1]
    doubled = [group[0].id for group in repeated if len({each.generator for each in group}) < len(group)]
    shared = [group[0].id for group in repeated if len({each.generator for each in group}) == len(group)]
    split = [group[0].id for group in repeated if len({label_of(each) for each in group} - {"unlabelled"}) > 1]
    found = []
    if doubled:
        text = (
            f"{_many(len(doubled), 'response')} of one generator more than once for the same source: {_some(doubled)}."
        )
        found.append(Finding("warning", text))
    if shared:
        text = f"{_many(len(shared), 'response')} word for word from several generators of one source: {_some(shared)}."
        found.append(Finding("note", text))
    if split:
        text = f"{_many(len(split), 'response')} both supported and unsupported for the same source: {_some(split)}."
        found.append(Finding("warning", text))
    return found


def _about_labels(
    answers: Sequence[Answer], labels: Counter[Label], rates: Iterable[Rate], counts: Iterable[Count]
) -> list[Finding]:
    found = []
    if labels["unlabelled"] == len(answers):
        found.append(Finding("warning", "No answer is labelled: they can be scored, but not calibrate."))
    elif labels["unlabelled"]:
        found.append(Finding("note", f"{_have(labels['unlabelled'], 'answer')} no label."))
    if labels["supported"] and labels["unsupported"]:
        fixed = [rate.generator for rate in rates if rate.labelled >= ENOUGH and rate.share in (0.0, 1.0)]
        if fixed:
            text = f"All answers of {_some(fixed)} have the same label: who wrote an answer gives its label away."
            found.append(Finding("warning", text))
    return found + _about_splits(counts)


def _about_splits(counts: Iterable[Count]) -> list[Finding]:
    """Original splits whose rates of unsupported answers are far apart, for the same group and generator."""
    cells: dict[tuple[str, str], dict[str, Counter[Label]]] = defaultdict(lambda: defaultdict(Counter))
    for each in counts:
        if each.label != "unlabelled":
            cells[each.group, each.generator][each.split][each.label] += each.answers
    found = []
    for (group, generator), splits in cells.items():
        rates = [(split, cell["unsupported"], cell.total()) for split, cell in sorted(splits.items())]
        for i, (one, first, n) in enumerate(rates):
            for other, second, m in rates[i + 1 :]:
                if _far(first, n, second, m):
                    where = f"{group}, {generator}" if group else generator
                    text = f"{where}: {first / n:.1%} unsupported in split {one}, {second / m:.1%} in {other}:"
                    found.append(Finding("warning", f"{text} a result on one does not carry over to the other."))
    return found


def _far(first: int, n: int, second: int, m: int) -> bool:
    pooled = (first + second) / (n + m)
    error = math.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))
    return min(n, m) >= ENOUGH and abs(first / n - second / m) > FAR * error > 0


def _about_length(ranks: Iterable[Auc]) -> list[Finding]:
    found = []
    for each in ranks:
        if min(each.supported, each.unsupported) >= ENOUGH and abs(each.auc - 0.5) >= ARTEFACT:
            where = f" in {each.group}" if each.group else ""
            word = "longer" if each.auc > 0.5 else "shorter"
            text = f"Unsupported responses{where} are {word}: length alone has AUC {each.auc:.3f}, and any score that"
            found.append(Finding("warning", f"{text} follows length inherits it."))
    return found


def _about_marks(found: Marks, quality: Mapping[str, int]) -> list[Finding]:
    findings = []
    for count, what in (
        (found.outside, "outside the response"),
        (found.reversed, "with an end that is not after the start"),
        (found.other_text, "whose text is not what stands there"),
    ):
        if count:
            findings.append(Finding("warning", f"{_many(count, 'label span')} {what}."))
    if found.implicit_only_answers:
        text = f"{_many(found.implicit_only_answers, 'answer')} unsupported by spans alone that annotators hold to be"
        findings.append(Finding("note", f"{text} true but absent from the evidence (implicit_true)."))
    if found.due_to_null:
        text = f"{_many(found.due_to_null, 'label span')} about fields that the evidence leaves empty (due_to_null)."
        findings.append(Finding("note", text))
    for name in ("incorrect_refusal", "truncated"):
        if quality.get(name):
            text = f"{_many(quality[name], 'answer')} marked {name} by the annotators; they are kept."
            findings.append(Finding("note", text))
    return findings


def _outside(answer: Answer, span: Span) -> bool:
    return min(span.start, span.end) < 0 or max(span.start, span.end) > len(answer.response)


def _other_text(answer: Answer, span: Span) -> bool:
    fits = not _outside(answer, span) and span.start < span.end
    return fits and span.text not in (None, answer.response[span.start : span.end])


def _many(count: int, word: str) -> str:
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def _have(count: int, word: str) -> str:
    return f"{_many(count, word)} {'has' if count == 1 else 'have'}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")
