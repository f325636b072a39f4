"""Findings of an audit: what could make a result on these answers misleading, in plain sentences."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from fedsrc.common.words import count
from fedsrc.data.answers import Answer
from fedsrc.data.collection import SourceFile
from fedsrc.data.manifest import Auc, Count, Finding, Label, Marks, Rate, Severity, label_of

ARTEFACT = 0.2  # a length that ranks labels this far from chance is worth a warning
ENOUGH = 20  # answers of each kind before a rate or a rank means something
FAR = 4.0  # standard errors between the rates of two splits
Findings = Iterator[Finding]


def about_files(files: Iterable[SourceFile]) -> Findings:
    """Name files that are not, or may not be, the public originals."""
    for file in files:
        if file.known == "other":
            yield Finding("note", f"{file.name} is not the public original {file.address}: part of it, or another.")
        elif file.known == "unknown" and file.address:
            yield Finding("note", f"{file.name} could not be compared: no digest of its original is known.")


def about_texts(answers: Sequence[Answer], severity: Severity = "error") -> Findings:
    """Name answers without evidence or response."""
    for text in ("evidence", "response"):
        empty = [answer.id for answer in answers if not str(getattr(answer, text)).strip()]
        if empty:
            yield Finding(severity, f"{_have(len(empty), 'answer')} no {text}: {_some(empty)}.")


def about_sources(answers: Sequence[Answer]) -> Findings:
    """Name what makes sources dependent: shared evidence, several splits, several texts of evidence."""
    sources, evidence, splits = defaultdict(set), defaultdict(set), defaultdict(set)
    for answer in answers:
        if answer.evidence.strip():
            sources[answer.evidence.strip()].add(answer.source)
            evidence[answer.source].add(answer.evidence.strip())
        splits[answer.source].add(answer.split)
    shared = [names for names in sources.values() if len(names) > 1]
    torn = sorted(name for name, each in splits.items() if len(each) > 1)
    several = sorted(name for name, each in evidence.items() if len(each) > 1)
    if shared:
        names = len(set().union(*shared))
        yield Finding(
            "warning",
            f"{count(len(shared), 'text')} of evidence under several source names ({names:,} sources): they are"
            " not independent, and a split may tear them apart (--join-sources makes them one).",
        )
    if torn:
        yield Finding("warning", f"{_have(len(torn), 'source')} answers in several original splits: {_some(torn)}.")
    if several:
        yield Finding("note", f"{_have(len(several), 'source')} more than one text of evidence: {_some(several)}.")


def about_duplicates(answers: Iterable[Answer]) -> Findings:
    """Name responses repeated for one source: harmless from two generators, a doubled record from one."""
    same: dict[tuple[str, str], list[Answer]] = defaultdict(list)
    for answer in answers:
        if answer.response.strip():
            same[answer.source, answer.response.strip()].append(answer)
    repeated = [group for group in same.values() if len(group) > 1]
    alone = [len({each.generator for each in group}) == len(group) for group in repeated]
    doubled = [group[0].id for group, apart in zip(repeated, alone, strict=True) if not apart]
    shared = [group[0].id for group, apart in zip(repeated, alone, strict=True) if apart]
    split = [group[0].id for group in repeated if len({label_of(each) for each in group} - {"unlabelled"}) > 1]
    if doubled:
        responses = count(len(doubled), "response")
        yield Finding("warning", f"{responses} of one generator more than once for the same source: {_some(doubled)}.")
    if shared:
        responses = count(len(shared), "response")
        yield Finding("note", f"{responses} word for word from several generators of one source: {_some(shared)}.")
    if split:
        responses = count(len(split), "response")
        yield Finding("warning", f"{responses} both supported and unsupported for the same source: {_some(split)}.")


def about_labels(answers: int, labels: Counter[Label], rates: Iterable[Rate]) -> Findings:
    """Say what labels are missing, and which generators give theirs away."""
    if labels["unlabelled"] == answers:
        yield Finding("warning", "No answer is labelled: they can be scored, but not calibrate.")
    elif labels["unlabelled"]:
        yield Finding("note", f"{_have(labels['unlabelled'], 'answer')} no label.")
    if labels["supported"] and labels["unsupported"]:
        fixed = [rate.generator for rate in rates if rate.labelled >= ENOUGH and rate.share in (0.0, 1.0)]
        if fixed:
            text = f"All answers of {_some(fixed)} have the same label: who wrote an answer gives its label away."
            yield Finding("warning", text)


def about_splits(counts: Iterable[Count]) -> Findings:
    """Name original splits whose rates of unsupported answers are far apart, for the same group and generator."""
    cells: dict[tuple[str, str], dict[str, Counter[Label]]] = defaultdict(lambda: defaultdict(Counter))
    for each in counts:
        if each.label != "unlabelled":
            cells[each.group, each.generator][each.split][each.label] += each.answers
    for (group, generator), splits in cells.items():
        rates = [(split, cell["unsupported"], cell.total()) for split, cell in sorted(splits.items())]
        for i, (one, first, n) in enumerate(rates):
            for other, second, m in rates[i + 1 :]:
                if _far(first, n, second, m):
                    where = f"{group}, {generator}" if group else generator
                    text = f"{where}: {first / n:.1%} unsupported in split {one}, {second / m:.1%} in {other}:"
                    yield Finding("warning", f"{text} a result on one does not carry over to the other.")


def _far(first: int, n: int, second: int, m: int) -> bool:
    pooled = (first + second) / (n + m)
    error = math.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))
    return min(n, m) >= ENOUGH and abs(first / n - second / m) > FAR * error > 0


def about_length(ranks: Iterable[Auc]) -> Findings:
    """Warn where the length of a response alone tells its label."""
    for each in ranks:
        if min(each.supported, each.unsupported) >= ENOUGH and abs(each.auc - 0.5) >= ARTEFACT:
            word = "longer" if each.auc > 0.5 else "shorter"
            text = f"Unsupported responses{each.where} are {word}: length alone has AUC {each.auc:.3f}"
            yield Finding("warning", f"{text}, and any score that follows length inherits it.")


def about_marks(found: Marks, quality: Mapping[str, int]) -> Findings:
    """Say what annotators marked that does not fit, or that a reader should know."""
    for number, what in (
        (found.outside, "outside the response"),
        (found.reversed, "with an end that is not after the start"),
        (found.other_text, "whose text differs from the response"),
    ):
        if number:
            yield Finding("warning", f"{count(number, 'label span')} {what}.")
    if found.implicit_only_answers:
        text = f"{count(found.implicit_only_answers, 'answer')} unsupported by spans alone that annotators hold to be"
        yield Finding("note", f"{text} true but absent from the evidence (implicit_true).")
    if found.due_to_null:
        text = f"{count(found.due_to_null, 'label span')} about fields that the evidence leaves empty (due_to_null)."
        yield Finding("note", text)
    for name in ("incorrect_refusal", "truncated"):
        if quality.get(name):
            yield Finding("note", f"{count(quality[name], 'answer')} marked {name} by the annotators; they are kept.")


def _have(number: int, word: str) -> str:
    return f"{count(number, word)} {'has' if number == 1 else 'have'}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")
