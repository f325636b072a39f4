"""The attack on a cohort's opened sums, by its server and the members that may collude.

Chance of a false alarm: 1e-6 (4.9 standard errors) that real noise looks wrong; below 1e-9 that noise shared for all
members looks right, whose variance is off by 13 standard errors.
Mutants killed: noise shared for K where K - t was registered, noise of the whole scale, no masks, masks that stay.
"""

from __future__ import annotations

import pytest

from research import membership
from research.opened_sums import COLLUDING, DELTA, HONEST, MEMBERS, chunk, registration, variance, worlds

pytestmark = pytest.mark.thorough

SUMS, FAR = 1_500, 4.9


def test_real_sums_carry_the_registered_noise_against_server_and_colluders() -> None:
    seen, coins = chunk(COLLUDING, 0, SUMS)
    found, off = variance(seen, coins)
    assert abs(off) < FAR, found
    assert membership.audit(seen, coins, DELTA).refuted(membership.claim_of(registration())) == ()


def test_noise_shared_for_all_members_is_refuted() -> None:
    """A cohort of 4 with t = 2: half the variance."""
    found, off = variance(*chunk(0, 0, SUMS))
    assert off < -FAR
    assert found == pytest.approx(HONEST / len(MEMBERS), abs=0.15)


def test_the_two_worlds_are_as_far_apart_as_the_sensitivity() -> None:
    assert worlds().distance == pytest.approx(registration().mechanism.sensitivity)
