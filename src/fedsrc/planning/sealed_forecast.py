"""What a sealed certificate should take: runs of several sizes; after an abstention, the size that its rates need."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from scipy.special import ndtri

from fedsrc.planning.reach import Rates
from fedsrc.protocol.registration import Registration
from fedsrc.server import sealed
from fedsrc.simulate.trials import Trials


def smallest(runs: Sequence[Trials]) -> Trials:
    """Return for every trial the smallest of its runs, in order of size, from which on all certify, else the last."""
    certified = np.logical_and.accumulate([each.certified for each in runs[::-1]])[::-1]
    first = np.where(certified.any(axis=0), certified.argmax(axis=0), len(runs) - 1)
    parts = {each.name: np.array([getattr(run, each.name) for run in runs]) for each in fields(Trials)}
    return Trials(**{name: values[first, np.arange(first.size)] for name, values in parts.items()})


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


def outlook(registration: Registration, looks: Sequence[sealed.Seen]) -> Outlook | None:
    """Estimate the size of one look that certifies, at the rates of the last one; None where no size does.

    L grows with the units, and the noise does not; what is not known of the rate grows with the units too.
    """
    look, claim, pace = looks[-1], registration.claim, sealed.pace(registration, looks[-1])
    m, gain, line = len(registration.thresholds.values), pace.gain, pace.line
    mean, r = look.contrast[:m] / look.N, claim.target_risk
    spread = pace.theta**2 * np.maximum((look.second[:m] - (1 - 2 * r) * look.contrast[:m]) / look.N - mean**2, 1e-6)
    able = (look.accepted / look.N >= claim.min_acceptance) & (gain > 0)
    if not able.any():
        return None
    half = np.where(able, line / np.where(able, gain, 1.0), np.inf)
    best = int(np.argmin(half))
    nine = _size(look.N, *(float(each[best]) for each in (gain, spread, pace.noise, line)))
    limit = math.log(1 / claim.failure_probability) / float(gain[able].max())
    return Outlook(float(half[best]), nine, best, limit)


def _size(N: int, gain: float, spread: float, noise: float, line: float) -> float:
    """Return the least n with n gain - z sqrt(n spread + noise + n^2 (spread / N + noise / N^2)) = line, where z is for
    nine in ten: the larger root of a quadratic; inf if what N units leave open outgrows the gain."""
    z2 = float(ndtri(0.9)) ** 2
    a = gain**2 - z2 * (spread / N + noise / N**2)
    b, c = gain * line + z2 * spread / 2, line**2 - z2 * noise
    return math.inf if a <= 0 else (b + math.sqrt(b * b - a * c)) / a
