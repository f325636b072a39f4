"""A mechanistic score in the style of ReDeEP: does a response come from the evidence, or from the model's own weights?

Sun et al. (2024), "ReDeEP: Detecting hallucination in retrieval-augmented generation via mechanistic interpretability",
arXiv:2410.11414. Two signals at each position that predicts a response token, averaged over the response:

    external context     per head: cosine between the last-layer state there and the mean last-layer state of the tenth
                         of the prompt's tokens that the head attends to most
    parametric knowledge per layer: Jensen-Shannon divergence between the next-token distributions that the residual
                         stream stands for (logit lens) before and after the layer's feed-forward block

    log-odds of unsupported = alpha * (sum of parametric, chosen layers) - beta * (sum of external, chosen heads) + bias

An adaptation, not the authors' configuration. Heads and layers are chosen for the model at hand, by their AUC on
development answers, from all there are (theirs: from a list of copying heads of Llama); how many of each, by the AUC of
their sum in sources left out. Each sum is standardised, and alpha, beta and bias are a logistic fit (theirs: min-max
scales and a grid). The divergence is the one of the definition; their code's averages over the vocabulary and swaps the
arguments of its relative entropies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, get_args

import numpy as np
from pydantic import Field, model_validator
from scipy.stats import rankdata

from fedsrc.common.values import Frozen
from fedsrc.data.answers import Answer
from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats, Ints
from fedsrc.scores.fitted.development import Ranked, fit_ranked, folds_of, labels_of
from fedsrc.scores.fitted.logistic import Feature, Logistic, fit_logistic

SHARE = 0.1  # of the prompt's tokens, those attended to most
HEADS, LAYERS = (1, 4, 16, 64), (1, 4, 16)  # how many may be chosen
PENALTY = 1.0
TINY = 1e-38  # a probability that float32 still holds
Adaptation = Literal["ReDeEP-style adaptation, not the authors' configuration"]
Place = Annotated[int, Field(ge=0)]
Head = Annotated[tuple[Place, Place], Field(strict=False)]  # layer, head


@dataclass(frozen=True)
class Signals:
    """Means over one response: external context by layer and head, parametric knowledge by layer."""

    external: Floats
    parametric: Floats

    def __post_init__(self) -> None:
        if self.external.ndim != 2 or self.parametric.shape != self.external.shape[:1] or not self.external.size:
            raise FedsrcError("signals are one row of heads and one number for each layer")
        if not np.all(np.abs(self.external) <= 1 + 1e-4) or not np.all(self.parametric >= -1e-4):  # false for NaN
            raise FedsrcError("signals are cosines and divergences")


def divergence(log_p: Any, log_q: Any, xp: Any = np) -> Any:
    """Return the Jensen-Shannon divergence in nats, over the last axis of log-probabilities; `xp` is numpy or torch."""
    p, q = xp.exp(log_p), xp.exp(log_q)
    log_m = xp.log(xp.clip((p + q) / 2, TINY, None))
    return (p * (log_p - log_m) + q * (log_q - log_m)).sum(-1) / 2


def cosine(a: Any, b: Any) -> Any:
    """Return the cosine of the angle between vectors along the last axis."""
    return (a * b).sum(-1) / ((a * a).sum(-1) * (b * b).sum(-1)) ** 0.5


def attended(prompt: int) -> int:
    """Return how many of a prompt's tokens count as attended to."""
    return max(1, int(SHARE * prompt))


class Mechanistic(Frozen):
    """Chosen heads and layers, and a logistic model of "unsupported" over the two sums (parametric, external)."""

    method: Adaptation
    attended_share: float
    heads: Annotated[tuple[Head, ...], Field(strict=False, min_length=1)]
    layers: Annotated[tuple[Place, ...], Field(strict=False, min_length=1)]
    parametric: Feature
    external: Feature
    bias: float

    @model_validator(mode="after")
    def _of_this_version(self) -> Mechanistic:
        if self.attended_share != SHARE:
            raise ValueError("signals are not those of this version")
        if len(set(self.heads)) < len(self.heads) or len(set(self.layers)) < len(self.layers):
            raise ValueError("a head or layer is listed twice")
        return self

    @classmethod
    def of(cls, heads: tuple[tuple[int, int], ...], layers: tuple[int, ...], fitted: Logistic) -> Mechanistic:
        sums = dict(zip(("parametric", "external"), fitted.features, strict=True))
        (method,) = get_args(Adaptation)
        return cls(method=method, attended_share=SHARE, heads=heads, layers=layers, **sums, bias=fitted.bias)

    @cached_property
    def logistic(self) -> Logistic:
        return Logistic.of((self.parametric, self.external), self.bias)

    def score(self, found: Signals) -> float:
        """Return 1 - the probability that the response is unsupported."""
        layers, heads = found.external.shape
        if any(layer >= layers or head >= heads for layer, head in self.heads) or max(self.layers) >= layers:
            raise FedsrcError("the score does not fit the model", hint="score with the model it was fitted with")
        external = sum(float(found.external[head]) for head in self.heads)
        parametric = sum(float(found.parametric[layer]) for layer in self.layers)
        return float(1.0 - self.logistic.probability(np.array([[parametric, external]]))[0])


def fit_mechanistic(answers: Sequence[Answer], found: Sequence[Signals]) -> Ranked[Mechanistic]:
    """Fit heads, layers, scales and weights on development answers."""
    if len(answers) != len(found) or len({each.external.shape for each in found}) != 1:
        raise FedsrcError("a mechanistic fit needs every answer's signals, of one model")
    labels = labels_of(answers)
    external = np.stack([each.external.ravel() for each in found])
    parametric = np.stack([each.parametric for each in found])
    folds, heads = folds_of(answers, labels), found[0].external.shape[1]
    return fit_ranked(
        answers,
        labels,
        lambda own: _fit(external[own], parametric[own], labels[own], folds[own], heads),
        lambda fitted, test: [fitted.score(found[i]) for i in test.tolist()],
    )


def _fit(external: Floats, parametric: Floats, labels: Floats, folds: Ints, heads: int) -> Mechanistic:
    """Fit on these rows alone, one an answer."""
    chosen = chosen_columns(external, labels, folds, HEADS)
    layers = chosen_columns(-parametric, labels, folds, LAYERS)
    sums = np.stack([parametric[:, layers].sum(axis=1), external[:, chosen].sum(axis=1)], axis=1)
    named = tuple((head // heads, head % heads) for head in chosen)
    return Mechanistic.of(named, tuple(layers), fit_logistic(sums, labels, penalty=PENALTY))


def chosen_columns(columns: Floats, labels: Floats, folds: Ints, counts: Sequence[int]) -> list[int]:
    """Return the columns of the largest AUC; their number is the one whose sum has the best AUC in folds left out."""
    there = np.unique(folds)
    totals = np.zeros(len(counts))
    for fold in there:
        out = folds == fold
        best = [_largest(areas(columns[~out], labels[~out]), count) for count in counts]
        sums = np.stack([columns[out][:, each].sum(axis=1) for each in best], axis=1)
        totals += areas(sums, labels[out])
    return _largest(areas(columns, labels), counts[int(np.argmax(totals))])


def areas(columns: Floats, labels: Floats) -> Floats:
    """Return, per column, the chance that a supported answer lies above an unsupported one, ties counted half."""
    good = labels == 0
    supported = int(good.sum())
    above = rankdata(columns, axis=0)[good].sum(axis=0) - supported * (supported + 1) / 2
    return np.asarray(above / (supported * (len(labels) - supported)))


def _largest(values: Floats, count: int) -> list[int]:
    """Return the places of the largest values, in order; of equal ones the first."""
    return sorted(np.argsort(-values, kind="stable")[:count].tolist())
