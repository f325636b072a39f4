"""Self-consistency, as conformal abstention uses it: the share of drawn responses that match the one returned.

    score(y) = (1/k) sum_i match(y, y_i)

over k responses y_i drawn after the same prompt. Two responses match when they mean the same: by entailment both ways,
or by a similarity above a threshold, which is the paper's own stand-in. Its third way, the model itself as a judge, is
not built here.

Y. Abbasi-Yadkori et al.: Mitigating LLM hallucinations via conformal abstention. arXiv 2405.01563, 2024. There the
returned response is the model's own; here it may be another's (column provenance).
"""

from __future__ import annotations

from collections.abc import Sequence

from fedsrc.scores.methods.semantic_entropy import Same


def self_consistency(response: str, samples: Sequence[str], same: Same) -> float:
    """Return the share of samples that match the response, in [0, 1]."""
    return sum(sample == response or same(response, sample) for sample in samples) / len(samples)
