"""Information lift: how much the evidence raises the probability of the response's tokens.

Notation
    u        per token, log p(y_r | evidence) - log p(y_r | no evidence), clipped to [0, B]
    B        clipping level
"""

from __future__ import annotations

import numpy as np

from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats
from fedsrc.scores.models.model import TokenScores

B_DEFAULT = 5.0
WINDOW = 20


def token_lift(present: TokenScores, removed: TokenScores, *, B: float = B_DEFAULT) -> Floats:
    """Return u / B per token, in [0, 1]. Both sides must be the same tokens: the same response, teacher-forced."""
    if present.tokens != removed.tokens:
        raise FedsrcError("lift needs the same tokens with and without evidence")
    return np.clip(present.logprobs - removed.logprobs, 0.0, B) / B


def mean_lift(present: TokenScores, removed: TokenScores, *, B: float = B_DEFAULT) -> float:
    """Return S_B, the mean of u / B over the response.

    Paper: eq. (lift).
    """
    return float(np.mean(token_lift(present, removed, B=B)))


def window_lift(present: TokenScores, removed: TokenScores, *, B: float = B_DEFAULT, width: int = WINDOW) -> float:
    """Return the smallest mean lift over `width` consecutive tokens: one unsupported stretch scores low.

    A response shorter than the window is one window. Not in the paper.
    """
    u = token_lift(present, removed, B=B)
    return float(np.clip(window_means(u, width).min(), 0.0, 1.0))


def window_means(values: Floats, width: int) -> Floats:
    """Return the means of every `width` consecutive values; fewer values than that are one window."""
    if values.size <= width:
        return np.array([values.mean()])
    sums = np.concatenate([[0.0], np.cumsum(values)])
    return np.asarray((sums[width:] - sums[:-width]) / width)
