"""SelfCheckGPT: a sentence that the model would not say again is suspect.

Each sentence of the response is held against responses drawn after the same prompt; the mean over sentences is the
score of the response. Higher is better supported here, unlike in the paper.

Notation
    s_i      sentence i of the response
    S_n      sample n of N; k runs over its sentences
    w_ij     word j of s_i

n-gram     a unigram model of the samples and the response; of each sentence, max_j -log p(w_ij) (or the mean over all
           words). The score is exp(-mean): the probability of a typical sentence's least likely word.
embedding  mean over n of max_k sim(s_i, s_nk): the paper's BERTScore variant with sentence embeddings in its place
nli        1 - mean over n of P(contradiction | premise S_n, hypothesis s_i), among entailment and contradiction alone

P. Manakul, A. Liusie, M. J. F. Gales: SelfCheckGPT: Zero-resource black-box hallucination detection for generative
large language models. EMNLP 2023. Words are runs of letters and digits and sentences end in . ! or ?, where the
released code asks spaCy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from fedsrc.maths.arrays import Floats
from fedsrc.scores.methods.lexical import sentences, words

Similarities = Callable[[Sequence[str], Sequence[str]], Floats]
Contradiction = Callable[[str, str], float]


def _surprise(response: str, samples: Sequence[str]) -> list[Floats]:
    """Return -log p(w_ij) for each sentence that has words, under counts of the samples and the response."""
    counts = Counter(word for text in (response, *samples) for word in words(text))
    total = sum(counts.values())
    said = [words(each) for each in sentences(response)]
    return [-np.log([counts[word] / total for word in each]) for each in said if each]


def selfcheck_ngram(response: str, samples: Sequence[str]) -> float:
    """Return exp(-mean over sentences of the largest surprise), in (0, 1]; a response without words scores 0."""
    surprise = _surprise(response, samples)
    return float(np.exp(-np.mean([each.max() for each in surprise]))) if surprise else 0.0


def selfcheck_ngram_mean(response: str, samples: Sequence[str]) -> float:
    """Return exp(-mean surprise of all words), in (0, 1]; a response without words scores 0."""
    surprise = _surprise(response, samples)
    return float(np.exp(-np.mean(np.concatenate(surprise)))) if surprise else 0.0


def selfcheck_embedding(response: str, samples: Sequence[str], similarities: Similarities) -> float:
    """Return the mean over sentences and samples of the closest sentence's similarity, in [0, 1]."""
    said = sentences(response)
    closest = [similarities(said, sentences(sample)).max(axis=1) for sample in samples]
    return float(np.clip(np.mean(closest), 0.0, 1.0))


def selfcheck_nli(response: str, samples: Sequence[str], contradiction: Contradiction) -> float:
    """Return 1 - mean over sentences and samples of P(contradiction), in [0, 1]."""
    found = [contradiction(sample, sentence) for sentence in sentences(response) for sample in samples]
    return float(np.clip(1.0 - np.mean(found), 0.0, 1.0))
