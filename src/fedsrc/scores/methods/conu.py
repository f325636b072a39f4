"""ConU and SConU: how often, and how closely, drawn responses come back to the one returned.

Notation
    s(a, b)  similarity of two responses in [0, 1]
    F(y)     share of samples y_i with s(y, y_i) at least 0.7
    w_i      F(y_i) divided by the sum of F over the samples

ConU's nonconformity of a response is one minus its frequency, with the similarity to the samples, weighted by their own
frequency, as its second part: the score is F(y)/2 + (sum_i w_i s(y, y_i))/2, one minus that nonconformity. The released
code computes both parts and uses the first alone; equal halves are a choice made here, and so is that the returned
response takes the place of a sampled one.

SConU tests whether a prompt's uncertainty is an outlier, by a conformal p-value over calibration prompts. That p-value
falls as the uncertainty grows, so both order answers alike, and a certificate sees only the order: the score is
1 - H / log(n + 1), where H is the entropy of the shares of distinct meanings among the n samples and the response.

Z. Wang et al.: ConU: Conformal uncertainty in large language models with correctness coverage guarantees. EMNLP
Findings 2024. Z. Wang et al.: SConU: Selective conformal uncertainty in large language models. ACL 2025. Both measure s
with a cross-encoder trained for similarity (stsb-roberta-large), where this is the cosine of sentence embeddings.
"""

from __future__ import annotations

import numpy as np

from fedsrc.maths.arrays import Floats
from fedsrc.scores.methods.semantic_entropy import discrete_semantic_entropy, sureness

SIMILAR = 0.7


def conu(to_samples: Floats, among_samples: Floats, similar: float = SIMILAR) -> float:
    """Return half the frequency of the response plus half its weighted similarity, in [0, 1]."""
    often = (among_samples >= similar).mean(axis=1)
    weights = often / often.sum() if often.sum() else np.full(often.size, 1.0 / often.size)
    frequency = float((to_samples >= similar).mean())
    return float(np.clip(frequency / 2 + float(weights @ to_samples) / 2, 0.0, 1.0))


def sconu(to_samples: Floats, among_samples: Floats, similar: float = SIMILAR) -> float:
    """Return 1 - H / log(n + 1) over the response and its n samples, in [0, 1]."""
    count = to_samples.size
    whole = np.ones((count + 1, count + 1))
    whole[0, 1:] = whole[1:, 0] = to_samples
    whole[1:, 1:] = among_samples
    places = [str(i) for i in range(count + 1)]
    entropy = discrete_semantic_entropy(places, lambda one, other: bool(whole[int(one), int(other)] >= similar))
    return sureness(entropy, count + 1)
