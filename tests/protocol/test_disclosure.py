"""What a registration of cohorts discloses: epsilon against more than may collude, and the noise of a sum.

Mutants killed: a share of all members taken for that of the honest ones, the smallest cohort taken for the largest, a
sum that is said to have one member's noise, an epsilon rounded down.
"""

from __future__ import annotations

import math

import pytest

from fedsrc.maths.privacy import epsilon_tight
from fedsrc.protocol.disclosure import epsilon_against, epsilon_among, noise_words, sum_scale
from fedsrc.site.policy import cost
from tests.support.cohorts import cohort_registration, member

SIX = [member(name) for name in "abcdef"]


@pytest.mark.parametrize("colluding", [0, 1, 3, 5])
def test_epsilon_if_all_others_collude(colluding: int) -> None:
    """rho (|C| - t), the share's rounding apart; and the registered one where all but one may collude anyway."""
    reg = cohort_registration(SIX, colluding=colluding)
    found, expected = epsilon_among(reg), epsilon_tight(reg.mechanism.rho * (6 - colluding), reg.privacy.delta)
    assert found is not None
    assert found == pytest.approx(expected, abs=2e-6)
    assert found >= expected - 1e-8 or colluding < 5  # shares are rounded up, so rho is less by a hair
    assert sum_scale(reg) == pytest.approx(reg.mechanism.scale * math.sqrt(6 / (6 - colluding)), rel=1e-6)
    assert cost(reg) == pytest.approx(4.0, abs=1e-6), "a site's limit is tested against those that may collude"
    if colluding == 5:
        assert found == pytest.approx(epsilon_against(reg, "replacement"), abs=2e-6)


def test_of_several_cohorts_the_worst_is_said() -> None:
    reg = cohort_registration(SIX, {"four": "abcd", "two": "ef"})
    four, two = epsilon_among(reg, "four"), epsilon_among(reg, "two")
    assert four is not None
    assert two is not None
    assert epsilon_among(reg) == four > two
    assert sum_scale(reg) == sum_scale(reg, "two") != sum_scale(reg, "four")
    assert noise_words(reg) == noise_words(reg, "two") != noise_words(reg, "four")
