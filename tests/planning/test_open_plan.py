"""Open plans: weights and priors that can be registered, batches that follow the noise, and a forecast that holds.

Mutants killed: weights or priors that do not sum to one or have a zero, noise left out of the objective (bets would not
shrink with it) or of the batch, releases counted once, the acceptance floor ignored, certification without its line.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from fedsrc.maths import betting
from fedsrc.planning.aim import Aim
from fedsrc.planning.open_plan import OpenPlan, plan_open
from fedsrc.simulate.posterior import Populations, from_answers
from tests.planning.test_sealed_plan import drawn, masses

AIM = Aim(Fraction(1, 5), 20_000, noise=1.27, sites=4, releases=4, objective="records", adjacency="zero-out")


def known(units: int = 150, risk: float = 0.5) -> Populations:
    return from_answers(*masses(*drawn(units, risk)), np.random.default_rng(3))


def planned(aim: Aim, populations: Populations | None = None) -> OpenPlan:
    return plan_open(populations or known(), aim, np.random.default_rng(7))[0]


def leaning(plan: OpenPlan) -> float:
    """The mean bet of the plan, by its weights and priors."""
    theta = betting.ladder([0.2]).theta[0]
    return float(np.array(plan.weights) @ np.array(plan.priors) @ theta)


@pytest.mark.parametrize("noise", [0.0, 1.27, 4.5])
def test_a_plan_can_be_registered(noise: float) -> None:
    plan = planned(replace(AIM, noise=noise))
    assert list(plan.kept) == sorted(set(plan.kept))
    assert len(plan.kept) == len(plan.weights) == len(plan.priors)
    for shares in (plan.weights, *plan.priors):
        assert math.fsum(shares) == pytest.approx(1.0, abs=1e-12)
        assert all(share >= 0.01 and round(share, 2) == share for share in shares)
    assert plan.sizes[0] == plan.batch
    assert sum(plan.sizes) * AIM.sites >= 0.9 * AIM.units
    assert planned(replace(AIM, noise=noise)) == plan


def test_batches_and_bets_follow_the_noise() -> None:
    none, some, much = (planned(replace(AIM, noise=noise)) for noise in (0.0, 1.27, 4.5))
    assert none.batch < some.batch < much.batch
    assert leaning(none) > leaning(some) > leaning(much)
    assert planned(replace(AIM, releases=1)).batch < some.batch
    assert planned(replace(AIM, objective="acceptance")).sizes == (5000,)
    assert planned(replace(AIM, units=40)).sizes == (10,)


def test_the_forecast_knows_hope_and_noise() -> None:
    def expected(aim: Aim, populations: Populations) -> float:
        return plan_open(populations, aim, np.random.default_rng(7))[1].certified

    few = replace(AIM, units=800)
    assert expected(few, known(150, 0.1)) > 0.95
    assert expected(replace(few, noise=40.0), known(150, 0.1)) < 0.05
    assert expected(replace(few, min_acceptance=0.95), known(150, 0.1)) < 0.05
    scores, losses = drawn(150)
    blind = from_answers(*masses(scores, losses[::-1]), np.random.default_rng(3))
    assert expected(few, blind) < 0.05


def test_a_risk_at_the_target_is_rarely_certified() -> None:
    """At a risk of 0.2 some threshold is certified in at most 4.5% of 4,000 runs, and five standard deviations more
    (false alarm below 1e-6); where noise is not accounted for, in many."""
    rng, runs = np.random.default_rng(11), 4000
    plan = planned(replace(AIM, units=20_000, noise=20.0))
    accepted = rng.binomial(AIM.sites * np.array(plan.sizes), 0.5, (runs, len(plan.sizes)))
    u = rng.binomial(accepted, 0.2).cumsum(axis=1)[..., None] * np.ones(len(plan.kept))
    s = accepted.cumsum(axis=1)[..., None] - u
    normals = rng.standard_normal((2, *u.shape))
    false = plan.decide(u + plan.noise(normals[0]), s + plan.noise(normals[1])).any(axis=(1, 2)).mean()
    assert false <= 0.045 + 5 * math.sqrt(0.045 / runs)
    deaf = replace(plan, aim=replace(plan.aim, noise=0.0))
    assert deaf.decide(u + plan.noise(normals[0]), s + plan.noise(normals[1])).any(axis=(1, 2)).mean() > 0.1
