"""Someone who sees every noised release withholds those that look bad: the charge must make that useless.

Simulated runs at a true risk of 0.25 against a target of 0.2, two slots a release, epsilon 1. Counting a missing
release as all unsupported and forgetting its noise is the mutant: it gives false claims in nearly every run. Seeds are
fixed, so there is no chance of a false alarm.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedsrc.maths.basis import covariance
from fedsrc.maths.betting import slopes
from fedsrc.protocol.registration import Registration
from fedsrc.server.bounds import Sample, look
from fedsrc.server.tally import Masses, empty, lose, suffix_variance
from tests.support.helpers import registration

SLOTS, RELEASES, RUNS, RISK, TARGET = 2, 600, 300, 0.25, 0.2
Charge = Callable[[Registration, int], tuple[float, float]]


def full_charge(reg: Registration, number: int) -> tuple[float, float]:
    """What `lose` charges at the only threshold: unsupported and supported mass."""
    charge = lose(reg, empty(reg), [(0, SLOTS)], number).charge
    return float(charge.unsupported[0]), float(charge.supported[0])


def content_only(reg: Registration, number: int) -> tuple[float, float]:
    """The mutant: all slots accepted and unsupported, noise forgotten."""
    return float(SLOTS), 0.0


def false_claims(charge: Charge, *, charged_noise: bool) -> float:
    """Share of runs that ever claim a risk of at most 0.2, all answers being accepted."""
    reg = registration(thresholds=1, grid=True, epsilon=1.0, dropout="adversarial")
    v = float(suffix_variance(reg.mechanism)[0])
    x, y = (float(each) for each in slopes(TARGET, 0.1))
    rng, ever = np.random.default_rng(0), np.zeros(RUNS, dtype=bool)
    U, S, noise = np.zeros((3, RUNS, 1))
    for number in range(1, RELEASES + 1):
        bad = rng.binomial(SLOTS, RISK, (RUNS, 1))
        seen_u, seen_s = bad + rng.normal(0, v**0.5, (RUNS, 1)), SLOTS - bad + rng.normal(0, v**0.5, (RUNS, 1))
        withheld = x * seen_u + y * seen_s - (x * x + y * y) * v / 2 < SLOTS * x  # worse than a plain charge
        charged_u, charged_s = charge(reg, number)
        U += np.where(withheld, charged_u, seen_u)
        S += np.where(withheld, charged_s, seen_s)
        noise += np.where(withheld, v if charged_noise else 0.0, v)
        if number % 20 == 0:
            masses = Masses(U, S, U + S, covariance("complementary", noise))
            ever |= look(reg, Sample(masses, number * SLOTS, 0.0)).risk_upper[:, 0] <= TARGET
    return float(ever.mean())


def test_withholding_after_seeing_the_noise_does_not_pay() -> None:
    assert false_claims(full_charge, charged_noise=True) == 0


def test_a_charge_for_content_alone_is_exploited() -> None:
    assert false_claims(content_only, charged_noise=False) > 0.9
