"""The betting certificate for one target, through `fedsrc.maths.betting`, with the default bets or with tilted ones.

Native assumptions: predictable recruitment and a declared shift; any loss in [0, 1].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedsrc.audit.methods.setting import (
    TOLERANCE,
    Aim,
    Bools,
    Evidence,
    Facts,
    Method,
    Quick,
    Rule,
    Screen,
    Verdict,
    column,
    from_contrast,
)
from fedsrc.maths import betting
from fedsrc.maths.arrays import Floats

CACHED = 600  # looks times thresholds whose bets fit the processor's cache
TILTS = np.geomspace(0.05, 8.0, 48)


def tilted(lam: ArrayLike, r: float) -> Floats:
    """The bet that an exponential tilt by lam makes: (e^{lam r} - e^{-lam(1-r)}) / phi, below 1/(1-r).

    phi = r e^{-lam(1-r)} + (1-r) e^{lam r}. Then 1 - theta(1-r) = e^{-lam(1-r)}/phi and 1 + theta r = e^{lam r}/phi:
    the chord-convexity e-process of exponential tilts is this betting process in other parameters.
    """
    lam = np.asarray(lam, dtype=np.float64)
    low, high = np.exp(-lam * (1.0 - r)), np.exp(lam * r)
    return np.asarray((high - low) / (r * low + (1.0 - r) * high), dtype=np.float64)


def default_bets(r: float) -> Floats:
    """The default bets of the product."""
    return np.asarray(betting.ladder([r]).theta[0], dtype=np.float64)


def tilted_bets(r: float) -> Floats:
    """The bets of 48 tilts from 0.05 to 8, geometric."""
    return tilted(TILTS, r)


# ---------------------------------------------------------------- bounds


def contrast_upper(evidence: Evidence, aim: Aim, theta: Floats) -> Floats:
    """dbar per look and threshold, at most zero exactly when the wealth at the target has reached its line."""
    m = evidence.thresholds
    return betting.d_upper(
        evidence.unsupported, evidence.supported, evidence.noise, column(evidence.records),
        eta=column(evidence.eta), r_star=aim.target_risk, theta=theta, p=np.full(theta.size, 1.0 / theta.size),
        alpha_d=aim.risk_budget, w=np.full(m, 1.0 / m),
    )  # fmt: skip


def acceptance_lower(evidence: Evidence, aim: Aim) -> Floats:
    """The mixture bound on acceptance; a higher threshold's bound serves the thresholds below it."""
    m = evidence.thresholds
    a = betting.a_lower(
        evidence.accepted, evidence.V_A, column(evidence.records), eta=column(evidence.eta),
        bets=betting.centres(aim.min_acceptance), alpha_a=aim.acceptance_budget, w=np.full(m, 1.0 / m),
    )  # fmt: skip
    return np.asarray(downwards(np.maximum, a), dtype=np.float64)


def by_trial(bound: Callable[[Evidence], Floats], evidence: Evidence) -> Floats:
    """The bound, a few trials at a time: the work then stays in the processor's cache."""
    shape = evidence.accepted.shape
    if len(shape) != 3:
        return np.stack([bound(evidence.at(trial)) for trial in np.ndindex(shape[:-2])]).reshape(shape)
    size = max(1, CACHED // (shape[1] * shape[2]))
    return np.concatenate([bound(evidence.at(slice(i, i + size))) for i in range(0, shape[0], size)])


def downwards(join: np.ufunc, x: Any) -> Any:
    """Each threshold's value joined with those of the thresholds above it."""
    return join.accumulate(x[..., ::-1], axis=-1)[..., ::-1]


def kept(shown: Bools, evidence: Evidence) -> Bools:
    """With declared weights, what an earlier look showed stays shown."""
    return np.logical_or.accumulate(shown, axis=-2) if evidence.declared else shown


# ---------------------------------------------------------------- without solving for the bounds


def line(evidence: Evidence, budget: float) -> float:
    """log 1/(budget w_j), the weights being equal."""
    return float(np.log(evidence.thresholds / budget))


def excludes(evidence: Evidence, aim: Aim, theta: Floats, d: ArrayLike) -> Bools:
    """Whether the contrast bound of a look alone is at most d."""
    rungs = betting.Ladder(np.array([aim.target_risk]), theta[None], np.full(theta.size, 1.0 / theta.size))
    return betting.wealth_reaches(
        evidence.unsupported, evidence.supported, evidence.noise, column(evidence.records),
        eta=column(evidence.eta) - np.asarray(d), rungs=rungs, line=line(evidence, aim.risk_budget),
    )[..., 0]  # fmt: skip


def accepts(evidence: Evidence, aim: Aim, a: ArrayLike) -> Bools:
    """Whether the acceptance bound of a look alone is at least a."""
    return betting.acceptance_reaches(
        evidence.accepted, evidence.V_A, column(evidence.records), a=column(evidence.eta) + np.asarray(a),
        bets=betting.centres(aim.min_acceptance), line=line(evidence, aim.acceptance_budget),
    )  # fmt: skip


def enough(evidence: Evidence, aim: Aim) -> Bools:
    """Whether acceptance is shown to reach its floor."""
    return kept(downwards(np.logical_or, accepts(evidence, aim, aim.min_acceptance)), evidence)


# ---------------------------------------------------------------- the methods


def rule(bets: Callable[[float], Floats]) -> Rule:
    """The certificate with those bets. With declared weights, what an earlier look showed stays shown."""

    def judge(evidence: Evidence, aim: Aim) -> Verdict:
        theta = bets(aim.target_risk)
        d = by_trial(lambda each: contrast_upper(each, aim, theta), evidence)
        a = by_trial(lambda each: acceptance_lower(each, aim), evidence)
        if evidence.declared:
            d, a = np.minimum.accumulate(d, axis=-2), np.maximum.accumulate(a, axis=-2)
        return from_contrast(d, a, aim)

    return judge


def last(bets: Callable[[float], Floats]) -> Rule:
    """The last look of that rule: of earlier looks, only those whose bounds are better are solved."""

    def judge(evidence: Evidence, aim: Aim) -> Verdict:
        theta, end = bets(aim.target_risk), evidence.at((slice(None), slice(-1, None)))
        d, a = contrast_upper(end, aim, theta), acceptance_lower(end, aim)
        if evidence.declared and evidence.accepted.shape[1] > 1:
            before = evidence.at((slice(None), slice(None, -1)))
            better = (excludes(before, aim, theta, d) | accepts(before, aim, a)).any(axis=-1)
            trial, look = np.nonzero(better)
            rows = before.at((trial, look))
            np.minimum.at(d[:, 0], trial, contrast_upper(rows, aim, theta))
            np.maximum.at(a[:, 0], trial, acceptance_lower(rows, aim))
        return from_contrast(d, a, aim)

    return judge


def quick(bets: Callable[[float], Floats]) -> Quick:
    """Wealth at the target decides, and wealth at the true contrast and acceptance tells whether the bounds miss."""

    def screen(evidence: Evidence, aim: Aim, facts: Facts) -> Screen:
        theta, d = bets(aim.target_risk), facts.contrast(aim.target_risk)
        certified = kept(excludes(evidence, aim, theta, 0.0), evidence) & enough(evidence, aim)
        missed = excludes(evidence, aim, theta, d - TOLERANCE) | accepts(evidence, aim, facts.acceptance + TOLERANCE)
        return Screen(certified, np.asarray(kept(missed, evidence).any(axis=-1)))

    return screen


METHODS = tuple(
    Method(
        name, rule(bets), "own", ("predictable recruitment", "declared shift"),
        private=True, anytime=True, stops="at any look", source="docs/theory.md, (iv)",
        quick=quick(bets), last=last(bets),
    )
    for name, bets in {"betting": default_bets, "betting-tilted": tilted_bets}.items()
)  # fmt: skip
