"""Audit of answers: from answers, their files and their notes to a manifest; a pure function."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fedsrc.common.canonical import digest
from fedsrc.data import findings, manifest
from fedsrc.data.answers import Answer, Notes, Span
from fedsrc.data.collection import SourceFile
from fedsrc.data.manifest import SEVERITIES, Finding, Label, Manifest, Text, label_of
from fedsrc.maths.rank import chance_above

FORMAT = 1
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


def audit(
    answers: Sequence[Answer],
    *,
    name: str,
    annotation: str = "not stated",
    files: Sequence[SourceFile] = (),
    notes: Mapping[str, Notes] | None = None,
    more: Iterable[Finding] = (),
    logged: bool = False,
) -> Manifest:
    """Return the manifest of these answers. `more` are findings that the caller made on a larger set; `logged` answers
    may lack texts."""
    noted = {answer.id: (notes or {}).get(answer.id, Notes()) for answer in answers}
    labels = Counter(label_of(answer) for answer in answers)
    per_source = Counter(Counter(answer.source for answer in answers).values())
    counts, rates, ranks, marks = _counts(answers), _rates(answers), _ranks(answers), _marks(answers, noted)
    quality = Counter(each.quality for each in noted.values() if each.quality)
    found = [
        *more,
        *findings.about_files(files),
        *findings.about_texts(answers, "note" if logged else "error"),
        *findings.about_duplicates(answers),
        *findings.about_sources(answers),
        *findings.about_labels(len(answers), labels, rates),
        *findings.about_splits(counts),
        *findings.about_length(ranks),
        *findings.about_marks(marks, quality),
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
        duplicates=_duplicates(answers),
        marks=marks,
        quality=dict(sorted(quality.items())),
        decoding=_decoding(answers, noted),
        prompts=_prompts(noted),
        findings=tuple(sorted(found, key=lambda each: SEVERITIES.index(each.severity))),
    )


def _marks(answers: Sequence[Answer], notes: Mapping[str, Notes]) -> manifest.Marks:
    pairs = [(answer, span) for answer in answers for span in notes[answer.id].spans]
    alone = sum(bool(notes[a.id].spans) and all(s.implicit_true for s in notes[a.id].spans) for a in answers)
    return manifest.Marks(
        spans=len(pairs),
        outside=sum(_outside(answer, span) for answer, span in pairs),
        reversed=sum(span.end <= span.start for _, span in pairs),
        other_text=sum(_other_text(answer, span) for answer, span in pairs),
        implicit_true=sum(span.implicit_true for _, span in pairs),
        due_to_null=sum(span.due_to_null for _, span in pairs),
        implicit_only_answers=alone,
    )


def _decoding(answers: Iterable[Answer], notes: Mapping[str, Notes]) -> tuple[manifest.Decoding, ...]:
    """Return how answers were drawn, generator by generator; nothing where the collection says nothing."""
    found = Counter((answer.generator, notes[answer.id].decoding) for answer in answers)
    if not any(decoding for _, decoding in found):
        return ()
    return tuple(manifest.Decoding(*key, found[key]) for key in sorted(found))


def _prompts(notes: Mapping[str, Notes]) -> manifest.Prompts:
    known = {name: each.prompt for name, each in notes.items() if each.prompt}
    return manifest.Prompts(len(known), digest(known) if known else "")


def _outside(answer: Answer, span: Span) -> bool:
    return min(span.start, span.end) < 0 or max(span.start, span.end) > len(answer.response)


def _other_text(answer: Answer, span: Span) -> bool:
    fits = not _outside(answer, span) and span.start < span.end
    return fits and span.text not in (None, answer.response[span.start : span.end])


def _duplicates(answers: Sequence[Answer]) -> manifest.Duplicates:
    responses = Counter((answer.source, answer.response.strip()) for answer in answers if answer.response.strip())
    evidence = Counter(text for text, _ in {(answer.evidence.strip(), answer.source) for answer in answers} if text)
    splits = Counter(source for source, _ in {(answer.source, answer.split) for answer in answers})
    return manifest.Duplicates(*(sum(number > 1 for number in each.values()) for each in (responses, evidence, splits)))


def _counts(answers: Iterable[Answer]) -> tuple[manifest.Count, ...]:
    found = Counter((a.group, a.generator, a.split, label_of(a)) for a in answers)
    return tuple(manifest.Count(*kind, found[kind]) for kind in sorted(found))


def _rates(answers: Iterable[Answer]) -> tuple[manifest.Rate, ...]:
    labels: dict[str, list[Label]] = defaultdict(list)
    for answer in answers:
        if answer.loss is not None:
            labels[answer.generator].append(label_of(answer))
    return tuple(manifest.Rate(name, len(labels[name]), labels[name].count("unsupported")) for name in sorted(labels))


def _lengths(answers: Iterable[Answer]) -> tuple[manifest.Lengths, ...]:
    sizes: dict[tuple[Text, Label], list[int]] = defaultdict(list)
    for answer in answers:
        sizes["evidence", label_of(answer)].append(len(answer.evidence))
        sizes["response", label_of(answer)].append(len(answer.response))
    return tuple(manifest.Lengths(text, label, _quantiles(sizes[text, label])) for text, label in sorted(sizes))


def _quantiles(sizes: Sequence[int]) -> dict[str, int]:
    values = np.quantile(np.asarray(sizes), QUANTILES, method="inverted_cdf")
    return {f"{level:g}": int(value) for level, value in zip(QUANTILES, values, strict=True)}


def _ranks(answers: Sequence[Answer]) -> tuple[manifest.Auc, ...]:
    """Return the length's AUC over all answers, then of each group where there are several."""
    groups = {answer.group for answer in answers}
    found = []
    for group in ["", *(sorted(groups - {""}) if len(groups) > 1 else [])]:
        sizes: dict[Label, list[int]] = defaultdict(list)
        for answer in answers:
            if group in ("", answer.group):
                sizes[label_of(answer)].append(len(answer.response))
        right, wrong = sizes["supported"], sizes["unsupported"]
        if right and wrong:
            longer = chance_above(np.asarray(wrong), np.asarray(right))
            found.append(manifest.Auc(group, longer, len(right), len(wrong)))
    return tuple(found)
