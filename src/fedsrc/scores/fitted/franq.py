"""FRANQ: faithfulness and factuality apart, and the probability that an answer is true from both.

Fadeeva et al. (2025), "Faithfulness-aware uncertainty quantification for fact-checking the output of
retrieval-augmented generation", arXiv:2505.21072:

    P(true) = P(faithful) P(true | faithful) + (1 - P(faithful)) P(true | unfaithful)

each of the three an isotonic map of a score, fitted on development answers.

An adaptation: whole responses stand in for claims, and three scores that any language model gives for theirs.
P(faithful) is a map of a score of support, the window lift unless another is named (theirs: AlignScore).
P(true | faithful) is a map of the mean token probability after the evidence (theirs: an entailment score), fitted on
answers weighted by P(faithful); P(true | unfaithful) one of the mean token probability without the evidence, which is
what the model knows by itself, weighted by 1 - P(faithful).

Labels: an answer is faithful when its loss is 0. It is true when it is marked `factual`; where no answer has that mark,
when it is faithful, and P(true) is then one more estimate of support.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from pydantic import model_validator

from fedsrc.common.values import Frozen
from fedsrc.data.answers import Answer
from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats, Ints
from fedsrc.scores.catalogue import BASIC, Seen, Settings
from fedsrc.scores.fitted.development import Ranked, fit_ranked, labels_of
from fedsrc.scores.fitted.isotonic import Isotonic, fit_isotonic
from fedsrc.scores.methods.confidence import mean_probability
from fedsrc.scores.models.model import TokenScores

SUPPORT = tuple(name for name in BASIC if name != "shortness")
DEFAULT = "window"


class Judged(NamedTuple):
    """What FRANQ says of one answer, four probabilities."""

    faithful: float
    if_faithful: float
    if_unfaithful: float

    @property
    def true(self) -> float:
        """P(true), by the law of total probability."""
        return float(np.clip(self.faithful * self.if_faithful + (1 - self.faithful) * self.if_unfaithful, 0.0, 1.0))


class Franq(Frozen):
    """The score of support by its name, and the three maps."""

    support: str
    faithful: Isotonic
    if_faithful: Isotonic
    if_unfaithful: Isotonic

    @model_validator(mode="after")
    def _known(self) -> Franq:
        if self.support not in SUPPORT:
            raise ValueError("support is no score of this version")
        return self

    def judge(self, row: Sequence[float]) -> Judged:
        """Return the probabilities of an answer from its three numbers."""
        return Judged(self.faithful(row[0]), self.if_faithful(row[1]), self.if_unfaithful(row[2]))


def numbers(support: str, answer: Answer, present: TokenScores, removed: TokenScores) -> list[float]:
    """Return support, and the mean token probability with the evidence and without it."""
    seen = Seen(answer, Settings(), present, removed)
    return [BASIC[support].of(seen), mean_probability(present), mean_probability(removed)]


def fit_franq(
    answers: Sequence[Answer], present: Sequence[TokenScores], removed: Sequence[TokenScores], support: str = DEFAULT
) -> Ranked[Franq]:
    """Fit the maps on development answers."""
    if support not in SUPPORT:
        raise FedsrcError(f"there is no score of support {support!r}", hint=f"one of {', '.join(SUPPORT)}")
    if not len(answers) == len(present) == len(removed):
        raise FedsrcError("FRANQ needs every answer's tokens with and without evidence")
    labels = labels_of(answers)
    true = truths(answers)
    X = np.array([numbers(support, *each) for each in zip(answers, present, removed, strict=True)])

    def fit(own: Ints) -> Franq:
        faithful = fit_isotonic(X[own, 0], 1 - labels[own])
        weight = np.array([faithful(value) for value in X[own, 0].tolist()])
        rest = (fit_isotonic(X[own, i], true[own], w) for i, w in ((1, weight), (2, 1 - weight)))
        branches = dict(zip(("if_faithful", "if_unfaithful"), rest, strict=True))
        return Franq(support=support, faithful=faithful, **branches)

    return fit_ranked(answers, labels, fit, lambda franq, test: [franq.judge(row).true for row in X[test].tolist()])


def truths(answers: Sequence[Answer]) -> Floats:
    """Return 1 for an answer that is true: as marked, or, where none is marked, if it is supported."""
    marked = [answer for answer in answers if answer.factual is not None]
    if marked and len(marked) < len(answers):
        hint = "mark all of them, or none"
        raise FedsrcError(f"{len(marked):,} of {len(answers):,} answers are marked as factual or not", hint=hint)
    return 1 - labels_of(answers) if not marked else np.array([answer.factual for answer in answers], dtype=np.float64)
