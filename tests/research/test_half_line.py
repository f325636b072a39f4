"""The half-line for contrasts whose acceptance is bounded: above the exact quantile, and lower where less is accepted.

Mutants killed: acceptance or noise left out of the line, the bound of another risk. Chance of a false alarm: none.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from research.half_line import half_line


@pytest.mark.parametrize("abar", [0.05, 0.3, 1.0])
def test_the_half_line_without_noise_is_above_the_exact_quantile(abar: float) -> None:
    """Binary units at the boundary null: accepted with chance abar, unsupported with chance r among those."""
    r, N, alpha = 0.2, 300, 0.05
    x = half_line(alpha, r, N, abar, 0.0)
    accepted = np.arange(N + 1)
    most = np.floor((r * accepted - x) + 1e-9)  # D = r A - U >= x
    exact = float(binom.pmf(accepted, N, abar) @ np.where(most >= 0, binom.cdf(most, accepted, r), 0.0))
    assert exact <= alpha
    assert exact >= alpha / 12  # a Chernoff line: not tight, and not vacuous


def test_the_half_line_uses_acceptance_and_noise() -> None:
    base = half_line(0.05, 0.2, 300, 0.3, 20.0)
    assert half_line(0.05, 0.2, 300, 0.2, 20.0) < base < half_line(0.05, 0.2, 300, 0.4, 20.0)
    assert half_line(0.05, 0.2, 300, 0.3, 10.0) < base < half_line(0.05, 0.2, 300, 0.3, 40.0)
