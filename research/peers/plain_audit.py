"""The registered audit as a plain loop: one trial, one round and one site at a time.

What `research/benchmarks/audit.py` compares the engine with, and what `tests/research/test_plain_audit.py` checks it
against. The same cell, the same rules, the same formulas (`fedsrc.maths`) and the same record of each trial. What is
the same in every trial is computed once: schedule, noise variances, bets, truth. Nothing is computed for several trials
together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from fedsrc.audit.cell import Cell
from fedsrc.audit.evidence import aim_of
from fedsrc.audit.methods.setting import Aim
from fedsrc.errors import FedsrcError
from fedsrc.maths import betting, contrast, variance_adaptive
from fedsrc.maths.arrays import Floats, Ints
from fedsrc.maths.basis import covariance
from fedsrc.maths.betting import Covariance
from fedsrc.maths.transfer import eta
from fedsrc.server.recruiter import next_slots
from fedsrc.server.tally import empty, suffix_variance
from fedsrc.simulate.trials import discrete_gaussian

TOLERANCE = 1e-9  # of comparisons with enumerated facts
ENDLESS = 1 << 40


class Bounds(NamedTuple):
    """Upper bound on the contrast and lower bound on acceptance, per threshold."""

    d: Floats
    a: Floats


@dataclass(frozen=True)
class Look:
    """What is known of a round before any trial: slots asked in it, slots so far, and the noise on the sums so far."""

    number: int
    asked: tuple[int, ...]
    slots: tuple[int, ...]
    N: int
    releases: int
    eta: float
    noise: Covariance
    V_D: Floats
    V_A: Floats

    def without_noise(self) -> Look:
        zero = np.zeros_like(self.V_A)
        return replace(self, noise=Covariance(zero, zero, zero), V_D=zero, V_A=zero)


Method = Callable[[Look, Floats, Floats], Bounds]


@dataclass(frozen=True)
class Site:
    """Bin and loss of each unit at a site, and the site's first place among the units of all sites."""

    bins: Ints
    loss: Ints
    first: int


@dataclass(frozen=True)
class Plan:
    """Everything that trials of a cell share. Truth is per threshold, of the declared mixture."""

    aim: Aim
    final: bool
    scale: float
    message_bytes: int
    units: int
    sites: tuple[Site, ...]
    looks: tuple[Look, ...]
    methods: dict[str, Method]
    acceptance: Floats
    risk: Floats
    contrast: Floats

    @property
    def m(self) -> int:
        return self.risk.size


class Seen(NamedTuple):
    """One look of one trial: the released histograms so far, distinct units so far, each method's bounds."""

    released: Ints
    touched: int
    bounds: dict[str, Bounds]


# ---------------------------------------------------------------- once per cell


def plan_of(cell: Cell, methods: Sequence[str] = ("fed-src-c", "fed-src-va", "betting")) -> Plan:
    """What trials of the cell share; a cell that the loop is not written for is refused."""
    _check(cell)
    aim, rule = aim_of(cell.registration), cell.registration.mechanism
    a, z = cell.weights @ cell.acceptance, cell.weights @ cell.unsupported
    risk = np.divide(z, a, out=np.zeros_like(a), where=a > 0)
    known: dict[str, Method] = {
        "fed-src-c": partial(range_bounds, aim, rule.unit_variance or 1.0),
        "fed-src-va": partial(variance_bounds, aim, rule.unit_variance or 1.0),
        "betting": betting_bounds(aim, a.size),
    }
    return Plan(
        aim, cell.setting.policy == "final", rule.scale, 2 * (a.size + 1) * 8, sum(len(s.law) for s in cell.sites),
        tuple(_sites(cell)), tuple(_looks(cell)), {name: known[name] for name in methods},
        a, risk, a * (risk - aim.target_risk),
    )  # fmt: skip


def _check(cell: Cell) -> None:
    """Records with losses 0 and 1, the paper's release, declared weights, independent draws, everyone answers."""
    setting = cell.setting
    plain = setting.release == "paper" and setting.weights == "equal" and setting.draw == "with replacement"
    disturbed = setting.dropout or setting.withheld or setting.moved or setting.label_missed or setting.label_invented
    if not (plain and cell.binary and cell.items and setting.queries == 1) or disturbed:
        raise FedsrcError("the plain loop is written for the registered audit only")


def _sites(cell: Cell) -> Iterator[Site]:
    first = 0
    for site in cell.sites:
        yield Site(site.masses[:, 0].argmax(axis=1), site.masses[:, 1].sum(axis=1), first)
        first += len(site.law)


def _looks(cell: Cell) -> Iterator[Look]:
    """The schedule: it depends on public numbers only, so it is the same in every trial."""
    registration, r = cell.registration, cell.registration.claim.target_risk
    variance = suffix_variance(registration.mechanism)
    drift = np.asarray([site.drift for site in registration.sites])
    tally = empty(registration)
    for number in range(1, registration.schedule.rounds + 1):
        asked = tuple(next_slots(registration, tally, [ENDLESS] * len(cell.sites), round=number))
        slots = tuple(a + b for a, b in zip(tally.slots, asked, strict=True))
        tally = replace(tally, slots=slots, noises=tally.noises + sum(n > 0 for n in asked))
        noise = covariance("paired", variance * tally.noises)
        away = eta(cell.weights, np.asarray(slots, dtype=np.float64), drift)
        yield Look(
            number, asked, slots, sum(slots), round(tally.noises), away, noise, noise.of(1.0 - r, -r),
            noise.of(1.0, 1.0),
        )  # fmt: skip


# ---------------------------------------------------------------- bounds at one look


def range_bounds(aim: Aim, v0: float, look: Look, A: Floats, U: Floats) -> Bounds:
    """Fed-SRC-C."""
    r, half = aim.target_risk, aim.failure_probability / 2.0
    budget = {"alpha_s": half, "alpha_n": half, "v0": v0}
    d = contrast.d_upper(U - r * A, look.N, look.V_D, r_star=r, eta=look.eta, **budget)
    return Bounds(d, contrast.a_lower(A, look.N, look.V_A, eta=look.eta, **budget))


def variance_bounds(aim: Aim, v0: float, look: Look, A: Floats, U: Floats) -> Bounds:
    """Fed-SRC-VA."""
    r, half = aim.target_risk, aim.failure_probability / 2.0
    budget = {"alpha_s": half, "alpha_n": half, "v0": v0}
    d = variance_adaptive.d_upper(U - r * A, A, look.N, look.V_D, look.V_A, r_star=r, eta=look.eta, **budget)
    return Bounds(d, variance_adaptive.a_lower(A, look.N, look.V_A, eta=look.eta, **budget))


def betting_bounds(aim: Aim, m: int) -> Method:
    """The betting certificate with its default bets."""
    theta, w = betting.ladder([aim.target_risk]).theta[0], np.full(m, 1.0 / m)
    p, bets = np.full(theta.size, 1.0 / theta.size), betting.centres(aim.min_acceptance)

    def bounds(look: Look, A: Floats, U: Floats) -> Bounds:
        d = betting.d_upper(
            U, A - U, look.noise, look.N,
            eta=look.eta, r_star=aim.target_risk, theta=theta, p=p, alpha_d=aim.risk_budget, w=w,
        )  # fmt: skip
        a = betting.a_lower(A, look.V_A, look.N, eta=look.eta, bets=bets, alpha_a=aim.acceptance_budget, w=w)
        return Bounds(d, np.maximum.accumulate(a[::-1])[::-1])  # a higher threshold's bound serves those below it

    return bounds


def risk_upper(plan: Plan, bounds: Bounds) -> Floats:
    """R = r + d/a where the contrast may be positive, and r + d where it is not."""
    d, a = bounds
    ratio = np.where(a > 0, d / np.where(a > 0, a, 1.0), 1.0)
    return np.clip(plan.aim.target_risk + np.where(d > 0, ratio, d), 0.0, 1.0)


# ---------------------------------------------------------------- one method in one trial


class Course:
    """One method through the looks of one trial. Weights are declared: betting keeps its best bounds of all looks."""

    def __init__(self, plan: Plan, name: str) -> None:
        self.plan, self.name, self.bounds_at = plan, name, plan.methods[name]
        self.keeps = name == "betting"
        self.best = Bounds(np.full(plan.m, np.inf), np.full(plan.m, -np.inf))
        self.missed = False
        self.row: dict[str, Any] | None = None

    def at(self, look: Look, A: Floats, U: Floats, touched: int) -> Bounds:
        """The bounds of this look, checked against the truth; the row of the trial at the look where it ends."""
        plan, own = self.plan, self.bounds_at(look, A, U)
        if self.keeps:
            self.best = Bounds(np.minimum(self.best.d, own.d), np.maximum(self.best.a, own.a))
        shown = self.best if self.keeps else own
        certified = (shown.d <= 0) & (shown.a >= plan.aim.min_acceptance)
        self.missed = self.missed or misses(plan, shown, certified)
        last = look.number == len(plan.looks)
        if self.row is None and (last or not plan.final) and certified.any():
            j = int(np.where(certified, shown.a, -np.inf).argmax())
            self.row = self._row(look, shown, own, j, (A, U), touched) | {"fired": True}
        if self.row is None and last:
            j = int(own.d.argmin())
            self.row = self._row(look, own, own, j, (A, U), touched) | {"fired": False}
        return shown

    def _row(
        self, look: Look, shown: Bounds, own: Bounds, j: int, sums: tuple[Floats, Floats], touched: int
    ) -> dict[str, Any]:
        """The certificate tuple at threshold j: the certified one, or the nearest to it."""
        plan, (A, U) = self.plan, sums
        clean = float(self.bounds_at(look.without_noise(), A, U).d[j])
        mean = float(U[j] - plan.aim.target_risk * A[j]) / look.N
        return {
            "threshold": j, "acceptance": float(plan.acceptance[j]), "risk": float(plan.risk[j]),
            "contrast_upper": float(shown.d[j]), "risk_upper": float(risk_upper(plan, shown)[j]),
            "acceptance_lower": float(shown.a[j]), "sampling_width": clean - mean - look.eta,
            "privacy_width": float(own.d[j]) - clean, "look": look.number, "records": look.N,
            "releases": look.releases, "payload_bytes": look.releases * plan.message_bytes, "slots": list(look.slots),
            "eta": look.eta, "touched": touched,
        }  # fmt: skip

    def outcome(self) -> dict[str, Any]:
        """The row, with what is true of it."""
        assert self.row is not None
        aim, fired, R, a = self.plan.aim, self.row["fired"], self.row["risk"], self.row["acceptance"]
        false = aim.target_risk + TOLERANCE < R or a < aim.min_acceptance - TOLERANCE
        return self.row | {
            "missed": self.missed, "failed": fired and false, "method": self.name,
            "at_boundary": fired and aim.target_risk - TOLERANCE <= R,
        }  # fmt: skip


def misses(plan: Plan, shown: Bounds, certified: np.ndarray[Any, np.dtype[np.bool_]]) -> bool:
    """Whether a bound at any threshold is on the wrong side of the truth, or a certificate is false."""
    aim, a, R = plan.aim, plan.acceptance, plan.risk
    false = certified & ((aim.target_risk < R - TOLERANCE) | (a < aim.min_acceptance - TOLERANCE))
    wrong = (shown.d < plan.contrast - TOLERANCE) | (risk_upper(plan, shown) < R - TOLERANCE)
    return bool((false | wrong | (shown.a > a + TOLERANCE)).any())


# ---------------------------------------------------------------- trials


def trial(plan: Plan, rng: np.random.Generator, trail: list[Seen] | None = None) -> list[dict[str, Any]]:
    """One trial to the end of the schedule (violations count at every look): a row per method.

    `trail` takes every look, for those who want to check it.
    """
    sums = np.zeros((2, plan.m + 1), dtype=np.int64)
    seen = np.zeros(plan.units, dtype=np.bool_)
    courses = [Course(plan, name) for name in plan.methods]
    for look in plan.looks:
        for site, n in zip(plan.sites, look.asked, strict=True):
            if n > 0:
                sums += release(plan, site, n, rng, seen)
        A, U = np.cumsum(sums[:, :0:-1], axis=1)[:, ::-1].astype(np.float64)
        touched = int(np.count_nonzero(seen))
        found = {course.name: course.at(look, A, U, touched) for course in courses}
        if trail is not None:
            trail.append(Seen(sums.copy(), touched, found))
    return [course.outcome() for course in courses]


def release(
    plan: Plan, site: Site, n: int, rng: np.random.Generator, seen: np.ndarray[Any, np.dtype[np.bool_]]
) -> Ints:
    """Counts and losses per bin of n units drawn with replacement, with noise: (2, m+1). Marks the units as seen."""
    picked = rng.integers(0, site.bins.size, n)
    seen[site.first + picked] = True
    bins, bad = site.bins[picked], site.loss[picked] > 0
    exact = np.stack([np.bincount(bins, minlength=plan.m + 1), np.bincount(bins[bad], minlength=plan.m + 1)])
    if plan.scale == 0:
        return exact
    return exact + discrete_gaussian(rng, plan.scale, exact.shape)


def run(plan: Plan, *, trials: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Trials one after the other: a row per trial and method."""
    return [row | {"trial": number} for number in range(trials) for row in trial(plan, rng)]


def audit(
    cell: Cell, *, trials: int, seed: Sequence[int], methods: Sequence[str] = ("fed-src-c", "fed-src-va", "betting")
) -> pl.DataFrame:
    """A row per method and trial, with the engine's columns."""
    rows = run(plan_of(cell, methods), trials=trials, rng=np.random.default_rng(list(seed)))
    return pl.DataFrame(rows, infer_schema_length=None).sort("method", "trial")
