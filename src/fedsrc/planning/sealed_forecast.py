"""What a sealed certificate should take: runs of other sizes, and after an abstention the size that its rates need."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats
from fedsrc.planning.reach import Rates
from fedsrc.protocol.registration import Registration
from fedsrc.server import sealed
from fedsrc.server.state import Replay

SIZES = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the registered batches, that a forecast tries


def scaled(registration: Registration, target_risk: float, epsilon: float, size: float) -> Registration:
    """Return a sealed registration at another epsilon, with all batches times a size."""
    if target_risk != registration.claim.target_risk:
        raise FedsrcError(
            f"a sealed certificate is made for its registered target {registration.claim.target_risk:g}",
            hint="plan anew for another target",
        )
    fields = registration.model_dump()
    fields["privacy"]["epsilon"] = epsilon
    fields["thresholds"] |= {"origin": "declared", "asked": None}
    fields["development"] = None
    fields["schedule"]["batch"] = max(1, math.ceil(size * registration.schedule.batch))
    fields["schedule"]["policy"] = "recruit" if registration.schedule.policy == "recruit" else "first"
    return Registration.model_validate(fields)


@dataclass(frozen=True)
class Outlook:
    """At the rates seen: units for a look that certifies in half of the runs, and in nine of ten; the threshold."""

    half: float
    nine: float
    threshold: int
    limit: float


def rates(registration: Registration, look: sealed.Seen) -> Rates:
    """Estimate rates from what a look saw, as `reach.noised_rates` does from masses."""
    m, N, floor = len(registration.thresholds.values), look.N, registration.claim.min_acceptance
    tests, code, rule = sealed.rows(registration), registration.mechanism.contrasts, registration.mechanism
    r, releases = registration.claim.target_risk, look.before + look.last
    noise = rule.scale**2 * releases
    square = np.maximum(look.second[:m] - (1 - 2 * r) * look.contrast[:m], 0.0)
    return Rates(
        np.clip(-look.contrast[:m] / N, -r, 1 - r),
        np.sqrt(square + noise * (code.inverse[:m] ** 2).sum(axis=1)) / N,
        look.accepted / N,
        np.sqrt(N * floor * (1 - floor) + tests.accepted * releases) / N,
    )


def outlook(replay: Replay) -> Outlook | None:
    """Estimate the size of one look that certifies, at the rates of the last one; None where no size does.

    L grows with the units, and the noise does not; what is not known of the rate grows with the units too.
    """
    if not replay.sealed:
        return None
    look, registration = replay.sealed[-1], replay.registration
    m, tests = len(registration.thresholds.values), sealed.rows(registration)
    theta, noise = tests.theta[:m], tests.variance[:m] * (look.before + look.last)
    gain = (tests.a[:m] * look.contrast[:m] - tests.b[:m] * look.second[:m]) / look.N - theta * look.eta
    mean = look.contrast[:m] / look.N
    r = registration.claim.target_risk
    spread = theta**2 * np.maximum((look.second[:m] - (1 - 2 * r) * look.contrast[:m]) / look.N - mean**2, 1e-6)
    line = sealed.lines(registration, look, np.zeros(tests.theta.size, dtype=np.bool_))[:m]
    enough = look.accepted / look.N >= registration.claim.min_acceptance
    able = enough & (gain > 0)
    if not able.any():
        return None
    half = np.where(able, line / np.where(able, gain, 1.0), np.inf)
    nine = np.array([_size(*each, look.N) for each in zip(gain, spread, noise, line, strict=True)])
    best = int(np.argmin(np.where(able, half, np.inf)))
    limit = math.log(1 / registration.claim.failure_probability) / float(gain[able].max())
    return Outlook(float(half[best]), float(nine[best]), best, limit)


def _size(gain: Floats, spread: Floats, noise: Floats, line: Floats, N: int) -> float:
    """Return the least n with n gain - z sd(n) >= line at nine in ten, by bisection; inf if there is none."""
    z = float(ndtri(0.9))

    def over(n: float) -> float:
        sd = math.sqrt(n * spread + noise + n * n * (spread / N + noise / N**2))
        return float(n * gain - z * sd - line)

    high = 1.0
    while over(high) < 0:
        high *= 2.0
        if high > 1e9:
            return math.inf
    low = high / 2.0
    for _ in range(40):
        middle = (low + high) / 2.0
        low, high = (low, middle) if over(middle) >= 0 else (middle, high)
    return high
