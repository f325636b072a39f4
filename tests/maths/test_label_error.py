"""Label errors: at the boundary, labels that miss the declared share make fair bets, and rounding gives nothing away.

Mutants killed: a test at the target itself (mean 1.02 and more), at r - beta or r / (1 + beta), a division left out, a
rounding the other way, arithmetic in binary fractions. Exact: no chance of a false alarm.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from fedsrc.maths import betting
from fedsrc.maths.label_error import of_answers, on_labels

RISKS = [i / 100 for i in range(1, 51)]


@pytest.mark.parametrize(("r", "beta"), [(0.2, 0.1), (0.05, 0.3), (0.5, 0.02)])
def test_bets_are_fair_where_labels_miss_what_is_declared(r: float, beta: float) -> None:
    accepted, tested = 0.4, on_labels(r, beta)
    theta = betting.ladder([tested]).theta[0]
    x, y = betting.slopes(tested, theta)
    bad = accepted * r * (1 - beta)  # labelled unsupported, at the boundary
    mean = (1 - accepted) + bad * np.exp(x) + (accepted - bad) * np.exp(y)
    assert mean == pytest.approx(np.ones(theta.size), abs=1e-9)


@pytest.mark.parametrize("beta", [0.01, 0.1, 0.125, 0.3, 0.999, 1 / 3])
def test_rounding_gives_nothing_away(beta: float) -> None:
    kept = 1 - Fraction(repr(beta))
    for r in RISKS:
        tested = Fraction(repr(on_labels(r, beta)))
        assert 0 <= Fraction(repr(r)) * kept - tested < Fraction(1, 10**9)
        shown = Fraction(repr(of_answers(r, beta)))
        assert shown == 1 or 0 <= shown - Fraction(repr(r)) / kept < Fraction(1, 10**9)


@pytest.mark.parametrize("beta", [0.0, 0.01, 0.07, 0.1, 0.125, 0.3])
def test_what_is_asked_for_is_what_is_promised(beta: float) -> None:
    assert [of_answers(on_labels(r, beta), beta) for r in RISKS] == RISKS
    assert on_labels(0.2, 0.1) == 0.18  # and not 0.18000000000000002


def test_without_errors_nothing_changes() -> None:
    assert on_labels(0.1 + 0.2, 0.0) == of_answers(0.1 + 0.2, 0.0) == 0.1 + 0.2
    assert of_answers(0.95, 0.1) == 1.0
