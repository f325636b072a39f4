"""The sealed certificate over a run: what its registered looks see, what they reject, and what passes for honest.

Rows are targets at thresholds, target by target. Bounds give away a margin for floating point and are rounded outward,
as everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.linalg import block_diag

from fedsrc.maths import betting, binomial, half_line, sealed
from fedsrc.maths.arrays import Bools, Floats
from fedsrc.maths.contrasts import ContrastCode
from fedsrc.maths.tail import critical, critical_hybrid, critical_within, criticals, discrete_shift
from fedsrc.protocol.judgements import Sealed
from fedsrc.protocol.mechanism import Mechanism
from fedsrc.protocol.registration import Registration
from fedsrc.server import panel
from fedsrc.server.bounds import Bounds, Look, down, up
from fedsrc.server.tally import Given, Tally, transfer
from fedsrc.server.unlabelled import acceptance


@dataclass(frozen=True)
class Rows:
    """The registered tests, compiled once: L = slope . sums - theta N eta, and what one release adds to its noise.

    Where the best bet is free, L is the contrast itself: theta = a = 1, b = 0, and eta is in the line.

    least, most     what one unit adds to L
    slope           of the released integers, block after block; variance and shift follow from it
    accepted        noise variance that one release adds to accepted mass, per threshold
    rounding        what floats may add to L, per unit
    """

    risk: Floats
    weight: Floats
    theta: Floats
    a: Floats
    b: Floats
    least: Floats
    most: Floats
    slope: Floats
    variance: Floats
    shift: Floats
    accepted: Floats
    rounding: Floats


@lru_cache(maxsize=64)
def rows_of(method: Sealed, weights: tuple[float, ...], rule: Mechanism) -> Rows:
    """Compile the tests of a sealed registration. Theory: (xiii), (xviii)."""
    code, blocks = rule.contrasts, rule.blocks
    r = np.repeat([each.risk for each in method.targets], blocks * code.m)
    theta, a, b = np.ones(r.size), np.ones(r.size), np.zeros(r.size)
    least, most = r - 1.0, r
    if not method.free:
        bets = [(each.risk, theta) for each in method.targets for theta in each.bets]
        theta, a, b = np.array([sealed.bet(*each) for each in bets]).T
        least, most = np.array([(sealed.least(*each), sealed.most(*each)) for each in bets]).T
    slope = block_diag(*(_slope(code, *each) for each in zip(np.split(a, blocks), np.split(b, blocks), strict=True)))
    return Rows(
        risk=r,
        weight=np.concatenate([target.share * np.asarray(weights) for target in method.targets]),
        theta=theta,
        a=a,
        b=b,
        least=least,
        most=most,
        slope=slope,
        variance=rule.scale**2 * (slope**2).sum(axis=1),
        shift=discrete_shift(slope) if rule.scale else np.zeros(r.size),
        accepted=np.tile((rule.scale * code.accepted_unit) ** 2, blocks),
        rounding=1e-15 * r.size * (1.0 + np.abs(a) + b) * code.condition,
    )


def _slope(code: ContrastCode, a: Floats, b: Floats) -> Floats:
    """Return what the integers of one block add to L of its rows."""
    second = np.diag(-b * code.second_unit)[:, : len(code.second)]
    return np.hstack([a[:, None] * code.inverse, second, np.zeros((a.size, len(code.accepted)))])


def rows(registration: Registration) -> Rows:
    """Return the compiled tests of a registration."""
    return rows_of(method_of(registration), registration.row_weights, registration.mechanism)


def decoded(registration: Registration, sums: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Return released sums in one row, and contrasts, second moments and accepted masses, block after block."""
    rule, lead = registration.mechanism, sums.shape[: sums.ndim - len(registration.mechanism.shape)]
    parts = (each.reshape(*lead, -1) for each in (sums, *rule.contrasts.decode(sums)))
    flat, D, Q, A = parts
    return flat, D, Q, A


def method_of(registration: Registration) -> Sealed:
    """Return the sealed method; whoever asks has such a registration."""
    method = registration.judgement
    assert isinstance(method, Sealed)
    return method


@dataclass(frozen=True)
class Seen:
    """What a look sees: L of every row and the totals behind it, how much noise was added before the last round and in
    it, how much acceptance is shown, and what it is at most (or, where counts are exact, was)."""

    share: float
    N: int
    eta: float
    L: Floats
    contrast: Floats
    second: Floats
    accepted: Floats
    before: float
    last: float
    acceptance: Floats
    abar: Floats


def due(registration: Registration, round: int, *, over: bool) -> float | None:
    """Return the share of the look after a round, or None if there is none. Where no unit is left, the looks to come
    would see the same, and their shares join.

    Theory: (xiii) Looks and recycling.
    """
    looks = method_of(registration).looks
    shares = [look.share for look in looks if (look.round >= round if over else look.round == round)]
    return math.fsum(shares) if shares else None


def see(registration: Registration, tally: Tally, before: float, share: float) -> Seen:
    """Take a look at a tally; `before` is how much noise it held before the last round. Its sums may have leading
    trial axes, and so has all that follows."""
    tests, method, eta = rows(registration), method_of(registration), transfer(registration, tally)
    sums, D, Q, A = decoded(registration, tally.sums.astype(np.float64))
    L = sums @ tests.slope.T - (0.0 if method.free else tests.theta * tally.total * eta)
    most = A
    for slots, number, noise in tally.lost:
        margin = margins(registration, number, slots, noise)
        L = L + slots * tests.least - margin.L
        A, most = A - margin.A, most + slots + margin.A
    L = down(L - tests.shift * tally.noises - 1e-9 - tests.rounding * tally.total)
    if registration.unlabelled is None:
        shown = _accepted(registration, tally, A, most, eta)
        if method.free:  # missing releases count as accepted and unsupported
            lost = sum(each.slots for each in tally.lost)
            A, D = np.rint(A) + lost, D - (1.0 - tests.risk) * lost
            L = _exact_counts(registration, L, A)
        abar = A / max(tally.total, 1)
    else:
        found = acceptance(registration, tally, share)
        shown, abar = (np.broadcast_to(each, A.shape) for each in (found.lower - eta, found.upper))
        A = np.broadcast_to(found.middle * tally.total, A.shape)
        Q = tests.risk * (1 - tests.risk) * np.tile(A, len(method.targets)) if method.free else Q
    shown = np.maximum(0.0, down(shown - 1e-9 - 1e-15 * tally.total * tests.theta.size))
    bound = panel.nested(registration.claims, shown, len(registration.cuts))
    return Seen(share, tally.total, eta, L, D, Q, A, before, tally.noises - before, bound, abar)


def _accepted(registration: Registration, tally: Tally, A: Floats, most: Floats, eta: float) -> Floats:
    """Bound acceptance by the accepted mass of the units that calibrate. Theory: (xiii) Acceptance."""
    method, tests = method_of(registration), rows(registration)
    centres = method.centres
    bets = betting.centres(
        registration.claim.min_acceptance, top=centres.top, count=centres.count, low=centres.low, high=centres.high
    )
    return panel.acceptance(
        registration.claims, A, most, tests.accepted * tally.noises, tally.total, eta=eta, bets=bets,
        alpha_a=method.acceptance_budget, w=np.asarray(registration.row_weights), blocks=len(registration.cuts),
    )  # fmt: skip


def _exact_counts(registration: Registration, L: Floats, A: Floats) -> Floats:
    """Return log surprises at exact counts of contrasts and of accepted answers.

    Theory: (xiii) Exact counts.
    """
    r, accepted = rows(registration).risk, np.tile(A, len(method_of(registration).targets))
    return down(binomial.log_surprise(np.rint(r * accepted - L), accepted, r) - 1e-9)


def decide(registration: Registration, seen: Sequence[Seen]) -> Look:
    """Decide after the last of some looks. If the mixture is fixed, the weights of what any of them rejects are passed
    on at all of them; otherwise each look stands alone.

    Theory: (xiii) Looks and recycling.
    """
    tests, claim, looks = rows(registration), registration.claim, seen if registration.fixed_mixture else seen[-1:]
    rejected, targets = reject(registration, looks), len(method_of(registration).targets)
    risk = tests.risk[: rejected.shape[-1]]
    risk = np.where(rejected, risk, 1.0).reshape(*rejected.shape[:-1], targets, -1).min(axis=-2)
    acceptance = np.maximum.reduce([look.acceptance for look in looks])
    certified = (risk <= claim.target_risk) & (acceptance >= claim.min_acceptance)
    return Look(risk, acceptance, certified, rejected=rejected)


def reject(registration: Registration, looks: Sequence[Seen]) -> Bools:
    """Return the rows that some look rejects, with the weights that earlier rejections passed on: not where releases
    may choose the mixture of a look, and with it which nulls are true."""

    def reaches(weights: Floats) -> Bools:
        return np.asarray(np.any([lines(registration, look, weights) <= look.L for look in looks], axis=0))

    weights, blocks = rows(registration).weight, len(registration.cuts)
    return panel.reject(registration.claims, weights, blocks, reaches, passes=_passes(registration))


def _passes(registration: Registration) -> bool:
    """Return whether weights are passed on at a look. Theory: (xviii) Passing on."""
    return registration.fixed_mixture or method_of(registration).line != "hybrid"


def lines(registration: Registration, look: Seen, weights: Floats) -> Floats:
    """Return what L must reach at a look for each row that has some weight left. Theory: (xiii) Exact tail."""
    if weights.ndim > 1:
        sets, which = np.unique(weights.reshape(-1, weights.shape[-1]), axis=0, return_inverse=True)
        return np.stack([lines(registration, look, each) for each in sets])[which].reshape(weights.shape)
    tests, method = rows(registration), method_of(registration)
    line, left = np.full(weights.size, np.inf), np.flatnonzero(weights)
    levels, noise = method.risk_budget * look.share * weights, tests.variance * (look.before + look.last)
    if method.free:
        line[left] = np.log(1.0 / levels[left])
        if registration.unlabelled is not None:
            line[left] = half_line.half_line(
                levels[left], tests.risk[left], look.N, _every(look.abar, weights.size)[left], noise[left],
                eta=look.eta, within=method.line == "within",
            )  # fmt: skip
        return up(line)
    for i in left:
        if method.line == "hybrid":
            line[i] = critical_hybrid(levels[i], tests.variance[i] * look.before, tests.variance[i] * look.last)
        else:
            line[i] = (critical if method.line == "exact" else critical_within)(float(levels[i]), float(noise[i]))
    return up(line)


def _every(values: Floats, rows: int) -> Floats:
    """Repeat a value per threshold for every target; trials share it where it comes from unlabelled records."""
    first = values.reshape(-1, values.shape[-1])[0]
    return np.tile(first, rows // first.size)


def report(registration: Registration, look: Seen, decided: Look) -> Bounds:
    """Add contrasts and widths of the claimed target to the deciding bounds.

    With failure probability at most the row's level, the mean contrast is at least (L - line) / (theta N). Of a
    rejected row no more than that is claimed: its level has been passed on.
    Theory: (xiii) Exact tail.
    """
    tests, m, blocks = rows(registration), len(registration.row_weights), len(registration.cuts)
    rejected = np.asarray(decided.rejected)
    weights = _left(registration, rejected)
    line = np.where(weights > 0, lines(registration, look, weights), look.L)
    scale = (tests.theta * look.N)[:m]
    gap = (line - look.L)[:m] / scale
    if method_of(registration).free:
        gap = _free_gap(registration, look, rejected)[:m]
    upper = np.minimum(1.0 - registration.claim.target_risk, up(gap))
    noise = np.sqrt(tests.variance * (look.before + look.last))[:m] / scale
    width = np.maximum(0.0, upper + look.contrast[:m] / look.N - look.eta - noise)
    upper, width, noise = (panel.worst(registration.claims, each, blocks) for each in (upper, width, noise))
    return Bounds(
        upper, decided.acceptance_lower, decided.risk_upper, decided.certified, width, noise, None, look.eta
    )  # fmt: skip


def _left(registration: Registration, rejected: Bools) -> Floats:
    """Return the weights of all rows after some rejections."""
    if not _passes(registration):
        return np.where(rejected, 0.0, rows(registration).weight)
    return panel.left(registration.claims, rows(registration).weight, len(registration.cuts), rejected)


def _free_gap(registration: Registration, look: Seen, rejected: Bools) -> Floats:
    """Return what the mean of -d is at most, row by row, where the best bet is free; 0 where it is rejected.

    Theory: (xiii) Half-lines, Exact counts.
    """
    tests, method = rows(registration), method_of(registration)
    weights = _left(registration, rejected)
    levels = np.maximum(method.risk_budget * look.share * weights, 1e-12)
    if registration.unlabelled is None:
        accepted = np.tile(np.rint(look.accepted), len(method.targets))
        highest = binomial.risk_upper(np.rint(tests.risk * accepted - look.contrast), accepted, levels)
        return np.where(rejected, 0.0, np.maximum(0.0, highest - tests.risk))
    abar, noise = _every(look.abar, rejected.size), tests.variance * (look.before + look.last)
    within = method.line == "within"
    least = half_line.least_contrast(look.L, levels, tests.risk, look.N, abar, noise, within=within)
    return np.where(rejected, 0.0, look.eta - least)


@dataclass(frozen=True)
class Pace:
    """How the claimed target's tests went, per threshold: what L gained per unit, its bet and noise, and its line."""

    gain: Floats
    theta: Floats
    noise: Floats
    line: Floats


def pace(registration: Registration, look: Seen) -> Pace:
    """Return the pace of a look; where the best bet is free, that of the best bet at its size."""
    tests, m = rows(registration), len(registration.row_weights)
    noise = tests.variance[:m] * (look.before + look.last)
    if not method_of(registration).free:
        theta = tests.theta[:m]
        gain = (tests.a * look.contrast - tests.b * look.second)[:m] / look.N - theta * look.eta
        return Pace(gain, theta, noise, lines(registration, look, tests.weight)[:m])
    levels, r = (method_of(registration).risk_budget * look.share * tests.weight)[:m], registration.claim.target_risk
    theta = half_line.best_bet(levels, r, look.N, look.abar, noise, look.eta)
    at = np.argmin(np.abs(half_line.THETA - theta[:, None]), axis=1)
    lost = half_line.log_mean(r, look.abar, look.eta)[np.arange(m), at]
    noise = theta**2 * noise
    return Pace(
        theta * look.contrast[:m] / look.N - lost,
        theta,
        noise,
        criticals(levels, noise, within=method_of(registration).line == "within"),
    )


@dataclass(frozen=True)
class Margins:
    """How far the noise of one honest release may reach: in L, contrasts, second moments and accepted mass, and in what
    contrasts and second moments may differ from their bounds by accepted mass."""

    L: Floats
    D: Floats
    Q: Floats
    A: Floats
    low: Floats
    high: Floats
    most: Floats


def margins(registration: Registration, number: int, slots: int, noise: float = 1.0) -> Margins:
    """Return the registered plausibility margins of request `number`, of so many times the noise of one release, and
    what floats may add over its slots.

    Theory: (xiii) Refusal, sqrt(2 v log(M/q_s)) with M = 9 rows + 2m and q_s = 6 alpha_f / (pi^2 s^2).
    """
    rule, tests = registration.mechanism, rows(registration)
    code, m, blocks = rule.contrasts, len(registration.row_weights), rule.blocks
    events = 9 * tests.theta.size + 2 * m
    log_term = math.log(events * math.pi**2 * number**2 / (6 * method_of(registration).refusal_budget))

    error = 1e-9 + slots * float(tests.rounding.max())

    def reach(variance: Floats) -> Floats:
        return np.sqrt(2 * noise * variance * log_term) + error

    D = np.tile(rule.scale**2 * (code.inverse**2).sum(axis=1), blocks)
    Q = np.tile((rule.scale * code.second_unit) ** 2, blocks)
    A = np.tile(tests.accepted, len(code.r))
    r = tests.risk
    return Margins(
        reach(tests.variance), reach(D), reach(Q), reach(tests.accepted), reach(D + (1 - r) ** 2 * A),
        reach(D + r**2 * A), reach(Q + (r * (1 - r)) ** 2 * A),
    )  # fmt: skip


def implausible(registration: Registration, given: Given, number: int) -> str | None:
    """Return why the answer to request `number` is refused, or None. An honest one ever is with probability alpha_f.

    Theory: (xiii) Refusal.
    """
    if method_of(registration).refusal_budget == 0:
        return None
    tests, n = rows(registration), given.slots
    margin = margins(registration, number, n, given.noise)
    code, shape = registration.mechanism.contrasts, registration.mechanism.shape
    sums, D, Q, A = decoded(registration, np.asarray(given.numbers, dtype=np.float64).reshape(shape))
    L, r = tests.slope @ sums, tests.risk
    beyond = [
        n * tests.least - margin.L > L, n * tests.most + margin.L < L,
        -(1 - r) * n - margin.D > D, r * n + margin.D < D,
        -n * (1 - 2 * r) ** 2 / 4 - margin.Q > Q, r * (1 - r) * n + margin.Q < Q,
        A < -margin.A, n + margin.A < A,
    ]  # fmt: skip
    if code.accepted:
        every = np.tile(A, len(code.r))
        beyond += [-(1 - r) * every - margin.low > D, r * every + margin.high < D]
        beyond += [r * (1 - r) * every + margin.most < Q] if code.second else []
    return "no units can have given its numbers, whatever the noise" if any(map(np.any, beyond)) else None
