"""Semantic entropy: how many different things a model says when it answers the same prompt again and again.

Responses are drawn after the prompt with the evidence and grouped into clusters of one meaning: a response joins the
first cluster whose first member it means the same as. Two texts mean the same when each entails the other, read after
the question (Farquhar et al.), or, where no entailment model is at hand, when their embeddings are close.

Notation
    l_i      mean log-probability of the tokens of sample i (length-normalised)
    p(c)     sum of exp(l_i) over the samples of cluster c, divided by the sum over all samples
    SE       -sum_c p(c) log p(c), the Rao-Blackwellised estimate; the discrete variant takes p(c) as the share of
             samples in c

The score is 1 - SE / log n for n samples: 1 when all mean the same, 0 when all differ and are equally likely. It is a
property of the prompt: the response that is judged does not enter, so answers to one prompt share it.

S. Farquhar, J. Kossen, L. Kuhn, Y. Gal: Detecting hallucinations in large language models using semantic entropy.
Nature 630, 2024. Unlike there, log-probabilities are the model's own, before temperature and top-p.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats
from fedsrc.scores.models.model import Sample

Same = Callable[[str, str], bool]


def clusters(texts: Sequence[str], same: Same) -> list[int]:
    """Return the cluster of each text, numbered as they appear."""
    firsts: list[str] = []
    found = []
    for text in texts:
        number = next((i for i, first in enumerate(firsts) if text == first or same(first, text)), len(firsts))
        if number == len(firsts):
            firsts.append(text)
        found.append(number)
    return found


def _entropy(weights: Floats, groups: Sequence[int]) -> float:
    """Return the entropy of the weight that each group holds, in nats."""
    mass = np.bincount(groups, weights)
    p = mass[mass > 0] / mass.sum()
    return max(0.0, float(-(p * np.log(p)).sum()))


def semantic_entropy(samples: Sequence[Sample], same: Same) -> float:
    """Return SE of the samples, each cluster weighted by the length-normalised probabilities of its members."""
    mean = np.array([sample.logprobs.mean() for sample in samples])
    return _entropy(np.exp(mean - mean.max()), clusters([sample.text.strip() for sample in samples], same))


def discrete_semantic_entropy(texts: Sequence[str], same: Same) -> float:
    """Return SE with each cluster weighted by how many texts it holds."""
    return _entropy(np.ones(len(texts)), clusters(texts, same))


def sureness(entropy: float, count: int) -> float:
    """Return 1 - entropy / log n, in [0, 1]."""
    if count < 2:
        raise FedsrcError("the entropy of one sample is always zero", hint="give `samples=2` or more")
    return min(1.0, max(0.0, 1.0 - entropy / math.log(count)))
