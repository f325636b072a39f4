"""The narrower of Fed-SRC-C and Fed-SRC-VA, with split budgets.

Chance of a false alarm: none, generators are seeded; validity at a null is tested with the other proved methods.
Mutants killed: the whole budget for each, a budget split for one of sampling and noise, the wider bound taken, the two
bounds of one construction always taken together, one construction left out.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fedsrc.audit.methods import METHODS, narrower
from fedsrc.audit.methods.setting import Aim, Evidence, Verdict, gather
from fedsrc.maths import contrast, variance_adaptive
from fedsrc.maths.arrays import Floats
from fedsrc.maths.basis import covariance
from tests.support.evidence import simulated

AIM = Aim(target_risk=0.2)
N, M, V0 = 30_000, 20, 1.984**2
ACCEPTED = np.linspace(0.95, 0.03, M) * N
QUARTER = {"alpha_s": 0.0125, "alpha_n": 0.0125, "v0": V0}  # of 0.05, half for each construction, half for noise


def evidence(risk: float = 0.12) -> Evidence:
    V = 150 * V0 * np.arange(M, 0.0, -1)
    return gather(ACCEPTED[None], risk * ACCEPTED[None], [N], noise=covariance("paired", V[None]), unit=V0, eta=0.002)


def by_hand() -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Contrast bounds and acceptance bounds of both constructions, from the formulas, with a quarter each."""
    A, D = ACCEPTED, (0.12 - 0.2) * ACCEPTED
    V = 150 * V0 * np.arange(M, 0.0, -1)
    V_D = (1 + 0.2**2) * V
    d = {
        "contrast": contrast.d_upper(D, N, V_D, r_star=0.2, eta=0.002, **QUARTER),
        "variance-adaptive": variance_adaptive.d_upper(D, A, N, V_D, V, r_star=0.2, eta=0.002, **QUARTER),
    }
    a = {
        "contrast": contrast.a_lower(A, N, V, eta=0.002, **QUARTER),
        "variance-adaptive": variance_adaptive.a_lower(A, N, V, eta=0.002, **QUARTER),
    }
    return d, a


def test_bounds_are_the_narrower_ones_by_hand() -> None:
    found, (d, a) = METHODS["fed-src-narrower"].judge(evidence(), AIM), by_hand()
    np.testing.assert_allclose(found.contrast_upper[0], np.minimum(*d.values()), atol=2e-9, rtol=0)
    np.testing.assert_allclose(found.acceptance_lower[0], np.maximum(*a.values()), atol=2e-9, rtol=0)
    closer = d["variance-adaptive"] < d["contrast"]
    assert closer.any()  # where little is accepted
    assert not closer.all()
    assert (a["contrast"] >= a["variance-adaptive"]).all()  # fewer families share its budget


def test_it_certifies_where_both_inequalities_hold() -> None:
    found = METHODS["fed-src-narrower"].judge(evidence(), AIM)
    expected = (found.contrast_upper <= 0) & (found.acceptance_lower >= AIM.min_acceptance)
    np.testing.assert_array_equal(found.certified, expected)
    assert found.certified.any()
    assert not found.certified.all()
    assert not METHODS["fed-src-narrower"].judge(evidence(0.2), AIM).certified.any()


def whole(seen: Evidence, aim: Aim) -> Verdict:
    """Mutant: each construction has the whole budget."""
    one, other = (METHODS[name].judge(seen, aim) for name in ("fed-src-c", "fed-src-va"))
    return Verdict(
        one.certified, one.risk_upper, np.minimum(one.contrast_upper, other.contrast_upper),
        np.maximum(one.acceptance_lower, other.acceptance_lower),
    )  # fmt: skip


def wider(seen: Evidence, aim: Aim) -> Verdict:
    """Mutant: the wider bounds."""
    one, other = narrower.bounds(seen, aim)
    return Verdict(
        one.certified, one.risk_upper, np.maximum(one.contrast_upper, other.contrast_upper),
        np.minimum(one.acceptance_lower, other.acceptance_lower),
    )  # fmt: skip


def range_only(seen: Evidence, aim: Aim) -> Verdict:
    """Mutant: one construction."""
    return narrower.bounds(seen, aim)[0]


@pytest.mark.parametrize("mutant", [whole, wider, range_only])
def test_other_rules_are_seen(mutant: Callable[[Evidence, Aim], Verdict]) -> None:
    d, _ = by_hand()
    assert np.abs(mutant(evidence(), AIM).contrast_upper[0] - np.minimum(*d.values())).max() > 1e-6


@pytest.mark.parametrize("sigma", [0.0, 2.0])
def test_it_lies_between_both_with_half_and_both_with_all(sigma: float) -> None:
    seen = simulated(4, trials=20, rounds=12, sites=3, m=10, batch=200, sigma=sigma, eta=0.001)
    found, free = METHODS["fed-src-narrower"].judge(seen, AIM), whole(seen, AIM)
    assert (found.contrast_upper >= free.contrast_upper - 2e-9).all()
    assert (found.acceptance_lower <= free.acceptance_lower + 2e-9).all()
    for half in narrower.bounds(seen, AIM):
        assert (found.contrast_upper <= half.contrast_upper).all()
        assert (found.acceptance_lower >= half.acceptance_lower).all()
