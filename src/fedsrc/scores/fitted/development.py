"""Development answers: their labels, and how well a fit ranks answers of sources that it did not see.

Sources that share a text of evidence count as one. Folds depend on the names of the sources and their labels alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from fedsrc.common.canonical import digest
from fedsrc.data.answers import Answer
from fedsrc.data.split import join_sources
from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats, Ints
from fedsrc.maths.rank import chance_above

FOLDS = 5
Places = Sequence[tuple[int, int]]
Held = Callable[[Ints, Ints], Sequence[float]]  # (places to fit on, places to score) -> the scores
Parameters = TypeVar("Parameters")


class Ranked(NamedTuple, Generic[Parameters]):
    """A fit on all answers, and the AUC of fits on four fifths of the sources on the others."""

    parameters: Parameters
    auc: float


def labels_of(answers: Sequence[Answer]) -> Floats:
    """Return 1 for unsupported, 0 for supported; refuse labels that stand in fewer than FOLDS sources."""
    unlabelled = sum(answer.loss is None for answer in answers)
    if unlabelled:
        raise FedsrcError(
            f"{unlabelled:,} of {len(answers):,} answers have no label", hint="fit on labelled answers alone"
        )
    graded = [answer for answer in answers if answer.loss not in (0, 1)]
    if graded:
        raise FedsrcError(
            f"answer {graded[0].id!r} has loss {graded[0].loss:g}; a fit needs 0 (supported) or 1 (unsupported)",
            hint="decide which losses count as unsupported, and write 0 or 1",
        )
    labels = np.array([answer.loss for answer in answers], dtype=np.float64)
    for label, name in ((0, "supported"), (1, "unsupported")):
        found = len({a.source for a, own in zip(join_sources(answers), labels, strict=True) if own == label})
        if found < FOLDS:
            raise FedsrcError(
                f"there are {name} answers of {found} sources; a fit needs them of at least {FOLDS}",
                hint="fit on more answers (sources that share their evidence count as one)",
            )
    return labels


def marked_places(answer: Answer) -> Places:
    """Return where a labelled answer is unsupported: its spans, or all of it where annotators marked no place."""
    if not answer.loss and answer.spans:
        raise FedsrcError(f"answer {answer.id!r} has marked spans and loss 0", hint="give it loss 1, or no spans")
    return answer.spans or (((0, len(answer.response)),) if answer.loss else ())


def folds_of(answers: Sequence[Answer], labels: Floats) -> Ints:
    """Return the fold of each answer: a source lies in one fold, and each fold holds both labels.

    Sources take turns in the order supported only, both, unsupported only (inside each, by a hash of the name), so that
    those that hold a label follow each other, and any FOLDS of them reach every fold.
    """
    joined = join_sources(answers)
    held: dict[str, set[float]] = {}
    for answer, label in zip(joined, labels.tolist(), strict=True):
        held.setdefault(answer.source, set()).add(label)
    order = sorted(held, key=lambda source: (sum(held[source]) / len(held[source]), digest(["fold", source])))
    turn = {source: place % FOLDS for place, source in enumerate(order)}
    return np.array([turn[answer.source] for answer in joined], dtype=np.int64)


def auc(scores: Sequence[float], labels: Floats) -> float:
    """Return the chance that a supported answer scores higher than an unsupported one, ties counted half."""
    values = np.asarray(scores)
    return chance_above(values[labels == 0], values[labels != 0])


def cross_validated(answers: Sequence[Answer], labels: Floats, held: Held) -> float:
    """Return the AUC over pairs of answers of one fold, each scored by a fit that saw no source of that fold."""
    folds = folds_of(answers, labels)
    total, pairs = 0.0, 0.0
    for fold in range(FOLDS):
        own = np.flatnonzero(folds == fold)
        weight = float(labels[own].sum() * (1 - labels[own]).sum())
        total += weight * auc(held(np.flatnonzero(folds != fold), own), labels[own])
        pairs += weight
    return total / pairs


def fit_ranked(
    answers: Sequence[Answer],
    labels: Floats,
    fit: Callable[[Ints], Parameters],
    score: Callable[[Parameters, Ints], Sequence[float]],
) -> Ranked[Parameters]:
    """Fit on all answers, and estimate how well such fits rank answers of sources they did not see."""
    whole = fit(np.arange(len(answers)))
    return Ranked(whole, cross_validated(answers, labels, lambda train, test: score(fit(train), test)))
