"""The model's own confidence with the evidence present: mean token probability and mean token entropy."""

from __future__ import annotations

import numpy as np

from fedsrc.scores.models.model import TokenScores


def mean_probability(present: TokenScores) -> float:
    """Return the mean probability of the response's tokens, in [0, 1]."""
    return float(np.mean(np.exp(np.minimum(present.logprobs, 0.0))))


def mean_entropy(present: TokenScores) -> float:
    """Return exp(-mean entropy), in (0, 1], higher where the model was surer of the next token."""
    return float(np.exp(-max(0.0, float(np.mean(present.entropy)))))
