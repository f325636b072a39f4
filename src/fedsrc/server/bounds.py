"""Translate the registration's words into the symbols of `maths`, and bounds back into words.

`look` computes the bounds that decide after a round. `report` adds the diagnostics that a reader wants to see. Bounds
give away a margin for floating point and are rounded outward to 9 decimals before they are compared and written, so
that another machine's last digits do not matter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedsrc.maths import betting, contrast, levels, moments, ratio, variance_adaptive
from fedsrc.maths.arrays import Floats
from fedsrc.maths.betting import Covariance
from fedsrc.maths.boundaries import F, G, H
from fedsrc.protocol.judgements import Betting, Sealed, Stitched
from fedsrc.protocol.panels import One
from fedsrc.protocol.registration import Registration
from fedsrc.server import panel
from fedsrc.server.tally import Masses, Tally, masses, transfer

DECIMALS = 1e9
ONE = One()


@dataclass(frozen=True)
class Sample:
    """What a look sees: masses, slots N and eta. Masses may have leading trial axes, and N and eta then (..., 1)."""

    masses: Masses
    N: int
    eta: float

    @property
    def float_error(self) -> float:
        """Given away for floating point: decoding m suffix sums of N units loses far less than this.

        Theory: (ix).
        """
        return 1e-9 + 1e-15 * self.N * int(self.masses.unsupported.shape[-1])


@dataclass(frozen=True)
class Look:
    """Decision bounds per threshold, of a panel block after block; where one is claimed for all groups together, one
    row per threshold. `rejected` carries ladder rejections from round to round, and `wealth` the largest log-wealth of
    every row of a panel."""

    risk_upper: Floats
    acceptance_lower: Floats
    certified: NDArray[np.bool_]
    contrast_upper: Floats | None = None
    rejected: NDArray[np.bool_] | None = None
    wealth: Floats | None = None

    def choices(self, registration: Registration) -> tuple[int | None, ...]:
        """Return the rows that are picked: one, or one for every group; None where none is certified."""
        blocks = len(registration.cuts)
        return panel.choices(registration.claims, self.certified, self.acceptance_lower, blocks)


@dataclass(frozen=True)
class Bounds:
    """Everything that is reported per threshold."""

    contrast_upper: Floats
    acceptance_lower: Floats
    risk_upper: Floats
    certified: NDArray[np.bool_]
    sampling_width: Floats
    privacy_width: Floats
    log_wealth: Floats | None
    eta: float


@dataclass(frozen=True)
class BettingPlan:
    """The registered bets, compiled once."""

    rungs: betting.Ladder
    target: betting.Ladder
    centres: betting.Centres
    weights: Floats


@dataclass(frozen=True)
class Plan:
    """What decides: the claim, the method with its budgets, and the thresholds' weights, block after block.

    v0        least noise variance of the stitched boundaries
    carries   the mixture is fixed, so what an earlier look showed stays shown
    """

    method: Betting | Stitched
    target_risk: float
    min_acceptance: float
    weights: tuple[float, ...]
    v0: float
    carries: bool
    claims: panel.Claims = ONE
    blocks: int = 1


def plan_of(registration: Registration) -> Plan:
    """What a registration decides by."""
    claim, method = registration.claim, registration.certificate
    assert not isinstance(method, Sealed)  # whose looks are `server.sealed`'s
    weights, fixed = registration.row_weights, registration.fixed_mixture
    return Plan(
        method, claim.target_risk, claim.min_acceptance, weights, _v0(registration), fixed, registration.claims,
        len(registration.cuts),
    )  # fmt: skip


@lru_cache(maxsize=64)
def betting_plan(method: Betting, target_risk: float, min_acceptance: float, weights: tuple[float, ...]) -> BettingPlan:
    """Compile the ladder, bets, centres and weights of a betting registration."""
    b, c, w = method.bets, method.centres, np.asarray(weights)
    return BettingPlan(
        betting.ladder(method.ladder, count=b.count, low=b.low, high=b.high, priors=b.priors),
        betting.ladder([target_risk], count=b.count, low=b.low, high=b.high, priors=b.priors),
        betting.centres(min_acceptance, top=c.top, count=c.count, low=c.low, high=c.high),
        w,
    )


def sample(registration: Registration, tally: Tally) -> Sample:
    """Return the sample that a tally holds."""
    seen = masses(registration, tally.sums, tally.noises)
    return Sample(seen.plus(tally.charge), tally.total, transfer(registration, tally))


def look(registration: Registration, seen: Sample, before: Look | None = None) -> Look:
    """Compute the bounds that decide after a round. If the mixture is fixed (declared weights, or one site), what an
    earlier round showed stays shown; otherwise it changes with every round, and each stands alone.

    Theory: (iv), Ladder.
    """
    return decide(plan_of(registration), seen, before)


def decide(plan: Plan, seen: Sample, before: Look | None = None) -> Look:
    """Do what `look` does for a plan: a registration's, or that of a study with budgets of its own."""
    if isinstance(plan.method, Betting):
        return _look_betting(plan, plan.method, seen, before if plan.carries else None)
    return _look_stitched(plan, plan.method, seen)


def for_target_only(registration: Registration, now: Look) -> Look:
    """Drop a look's claim on other targets: if the mixture changed between looks, the ladder is proved for the
    registered target alone.

    Theory: (iv), Ladder.
    """
    target = registration.claim.target_risk
    return replace(now, risk_upper=np.where(now.risk_upper <= target, target, 1.0))


def report(registration: Registration, seen: Sample, decided: Look) -> Bounds:
    """Add contrast, widths and log-wealth to the deciding bounds."""
    plan = plan_of(registration)
    if isinstance(plan.method, Betting):
        return _report_betting(plan, plan.method, seen, decided)
    return _report_stitched(plan, plan.method, seen, decided)


def up(x: Floats) -> Floats:
    """Round up to 9 decimals."""
    return np.asarray(np.ceil(np.asarray(x) * DECIMALS) / DECIMALS, dtype=np.float64)


def down(x: Floats) -> Floats:
    """Round down to 9 decimals."""
    return np.asarray(np.floor(np.asarray(x) * DECIMALS) / DECIMALS, dtype=np.float64)


def _bets(plan: Plan, method: Betting) -> BettingPlan:
    return betting_plan(method, plan.target_risk, plan.min_acceptance, plan.weights)


def _look_betting(plan: Plan, method: Betting, seen: Sample, before: Look | None) -> Look:
    bets, m = _bets(plan, method), seen.masses
    data, weights = _evidence(seen, bets.rungs, m.noise, seen.eta)
    a = panel.acceptance(
        plan.claims, m.accepted, m.unsupported + m.supported, m.noise.of(1.0, 1.0), seen.N,
        eta=seen.eta, bets=bets.centres, alpha_a=method.acceptance_budget, w=bets.weights, blocks=plan.blocks,
    )  # fmt: skip
    acceptance = panel.nested(plan.claims, np.maximum(0.0, down(a - seen.float_error)), plan.blocks)
    if not isinstance(plan.claims, One):
        log_E = betting.log_mixture(data, weights, bets.rungs.p)[..., 0] - _float_error(seen, weights)
        return _look_panel(plan, method, log_E, acceptance, before)
    line = up(-np.log(method.risk_budget * bets.weights)) + _float_error(seen, weights)
    rejected = betting.reaches(data, weights, bets.rungs.p, line)
    if before is not None and before.rejected is not None:
        rejected = rejected | before.rejected
        acceptance = np.maximum(acceptance, before.acceptance_lower)
    risk = betting.risk_upper(rejected, bets.rungs.r)
    certified = (risk <= plan.target_risk) & (acceptance >= plan.min_acceptance)
    return Look(risk, acceptance, certified, rejected=rejected)


def _look_panel(plan: Plan, method: Betting, log_E: Floats, acceptance: Floats, before: Look | None) -> Look:
    """Decide for a panel, on the registered target alone. Where the mixture is fixed, a row's largest wealth counts at
    every look, and weights are passed on. NaN rejects nothing.

    Theory: (xviii) Passing on.
    """
    if before is not None and before.wealth is not None:
        log_E, acceptance = np.fmax(log_E, before.wealth), np.maximum(acceptance, before.acceptance_lower)

    def reaches(weights: Floats) -> NDArray[np.bool_]:
        with np.errstate(divide="ignore"):
            return np.asarray(log_E >= up(-np.log(method.risk_budget * weights)))

    rejected = panel.reject(plan.claims, np.asarray(plan.weights), plan.blocks, reaches, passes=plan.carries)
    risk = np.where(rejected, plan.target_risk, 1.0)
    return Look(risk, acceptance, rejected & (acceptance >= plan.min_acceptance), rejected=rejected, wealth=log_E)


def _evidence(seen: Sample, rungs: betting.Ladder, noise: Covariance, eta: float | Floats) -> tuple[Floats, Floats]:
    """Return what bets multiply and by what: totals, or these with second moments, or levels, as they are released."""
    m, N = seen.masses, seen.N
    if m.second is not None:
        return moments.data(m.unsupported, m.supported, m.second, noise.uu, N, eta), moments.weights(rungs)
    if m.levels is not None:
        g = m.levels.shape[-2] - 1
        v = noise.of(1.0, 1.0) / (g + 1)  # every level carries as much of the noise in accepted mass
        return levels.data(m.levels, v, N, eta), levels.weights(rungs, g)
    return betting.data(m.unsupported, m.supported, noise, N, eta), betting.weights(rungs)


def _float_error(seen: Sample, weights: Floats) -> float:
    """Return what is given away in log-wealth. Second moments are multiplied by more than totals are: the largest of
    these weights, those of noise and transfer apart, says by how much.

    Theory: (ix), (xiv) Release.
    """
    return seen.float_error * (1.0 if seen.masses.second is None else 1.0 + float(np.abs(weights[:-2]).max()))


def _look_stitched(plan: Plan, method: Stitched, seen: Sample) -> Look:
    r, m, N = plan.target_risk, seen.masses, seen.N
    D = (1.0 - r) * m.unsupported - r * m.supported
    A, V_A, V_D = m.accepted, m.noise.of(1.0, 1.0), m.noise.of(1.0 - r, -r)
    budget = {"alpha_s": method.sampling_budget, "alpha_n": method.noise_budget, "v0": plan.v0}
    if method.method == "ratio":
        U_Z, L_A = ratio.mean_bounds(m.unsupported, A, N, m.noise.uu, V_A, **budget)
        risk = up(ratio.risk_upper(U_Z, L_A, eta=seen.eta))
        acceptance = down(np.maximum(0.0, L_A - seen.eta))
        certified = (risk <= r) & (acceptance >= plan.min_acceptance)
        implied = up(np.minimum(1.0 - r, U_Z + seen.eta - r * (L_A - seen.eta)))
        return Look(risk, acceptance, certified, contrast_upper=implied)
    if method.method == "contrast":
        d = contrast.d_upper(D, N, V_D, r_star=r, eta=seen.eta, **budget)
        a = contrast.a_lower(A, N, V_A, eta=seen.eta, **budget)
    else:
        d = variance_adaptive.d_upper(D, A, N, V_D, V_A, r_star=r, eta=seen.eta, **budget)
        a = variance_adaptive.a_lower(A, N, V_A, eta=seen.eta, **budget)
    d, a = up(d), down(a)
    certified = (d <= 0) & (a >= plan.min_acceptance)
    return Look(_risk_of_contrast(d, a, r), a, certified, contrast_upper=d)


def _risk_of_contrast(d: Floats, a: Floats, r: float) -> Floats:
    """R = r + d/a: on the event of Theorem (contrast) at most r + d_upper / a_lower, or r + d_upper if negative."""
    positive = np.where(a > 0, d / np.where(a > 0, a, 1.0), 1.0)
    return np.clip(up(r + np.where(d > 0, positive, d)), 0.0, 1.0)


def _v0(registration: Registration) -> float:
    """v0 = the registered coordinate variance (the smallest admissible one); 1 without noise.

    Paper: Appendix "Privacy, monitoring, and repeated trials".
    """
    rule = registration.mechanism
    return rule.unit_variance / rule.basis.unit**2 or 1.0


def _report_betting(plan: Plan, method: Betting, seen: Sample, decided: Look) -> Bounds:
    bets, m, r = _bets(plan, method), seen.masses, plan.target_risk

    def upper(noise: Covariance) -> Floats:
        if m.second is not None or m.levels is not None:
            data, weights = _evidence(seen, bets.target, noise, 0.0)
            return betting.d_upper_of(
                data @ weights[:, :, 0], seen.N, eta=seen.eta, target=bets.target,
                alpha_d=method.risk_budget, w=bets.weights,
            )  # fmt: skip
        return betting.d_upper(
            m.unsupported, m.supported, noise, seen.N, eta=seen.eta, r_star=r, theta=bets.target.theta[0],
            p=bets.target.p, alpha_d=method.risk_budget, w=bets.weights,
        )  # fmt: skip

    none = np.zeros_like(m.unsupported)
    with_noise, without = upper(m.noise), upper(Covariance(none, none, none))
    D = (1.0 - r) * m.unsupported - r * m.supported
    data, weights = _evidence(seen, bets.target, m.noise, seen.eta)
    log_E = betting.log_mixture(data, weights, bets.target.p)[..., 0] - _float_error(seen, weights)
    sampling, privacy = without - D / seen.N - seen.eta, with_noise - without
    with_noise, sampling, privacy = (
        panel.worst(plan.claims, each, plan.blocks) for each in (with_noise, sampling, privacy)
    )
    if not isinstance(plan.claims, One):  # a row that a passed-on weight rejects has a contrast below zero too
        zero = 0.0 if plan.carries else np.minimum(with_noise, 0.0)  # its level may have been passed on
        with_noise = np.where(np.asarray(decided.rejected), zero, with_noise)
    return Bounds(
        up(with_noise), decided.acceptance_lower, decided.risk_upper, decided.certified, sampling, privacy,
        down(panel.worst(plan.claims, log_E, plan.blocks, largest=False)), seen.eta,
    )  # fmt: skip


def _report_stitched(plan: Plan, method: Stitched, seen: Sample, decided: Look) -> Bounds:
    r, m, N, v0 = plan.target_risk, seen.masses, seen.N, plan.v0
    count, c = m.unsupported.shape[-1], 3 if method.method == "variance-adaptive" else 2
    width = H(N, c=c, m=count, alpha=method.sampling_budget) * np.ones(count)
    if method.method == "variance-adaptive":
        V_A = m.noise.of(1.0, 1.0)
        q = variance_adaptive.q_bar(
            m.accepted, N, V_A, alpha_s=method.sampling_budget, alpha_n=method.noise_budget, v0=v0
        )
        width = F(q, m=count, alpha=method.sampling_budget)
    noise = m.noise.uu if method.method == "ratio" else m.noise.of(1.0 - r, -r)
    privacy = G(noise, c=c, m=count, alpha=method.noise_budget, v0=v0)
    d = decided.contrast_upper
    assert d is not None  # every stitched look carries it
    return Bounds(
        d, decided.acceptance_lower, decided.risk_upper, decided.certified,
        width / N, privacy / N, None, seen.eta,
    )  # fmt: skip
