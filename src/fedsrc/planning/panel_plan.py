"""A plan for a panel: every block is planned by itself on its own evidence, with the noise that all of them share.

Blocks have as many thresholds each, and one schedule. What weights are passed on is left out: a plan that counts on
less certifies no less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np

from fedsrc.planning.aim import Aim, Expected
from fedsrc.planning.open_plan import OpenPlan, plan_open
from fedsrc.planning.sealed_plan import SealedPlan, bets_for, plan_sealed
from fedsrc.planning.sealing import Cut
from fedsrc.protocol.judgements import Betting
from fedsrc.protocol.panels import Groups, Scores
from fedsrc.protocol.registration import Registration
from fedsrc.simulate.posterior import Populations

P = TypeVar("P", SealedPlan, OpenPlan)
COUNTS = (1, 2, 3, 4)  # thresholds of a sealed block
Draws = Callable[[], np.random.Generator]  # every block is planned in draws that begin alike
EVEN = 0.3  # of the failure budget, what is shared equally
TOTAL = 0.02  # what the threshold weighs that accepts a whole group, and shows its total


@dataclass(frozen=True)
class PanelPlan(Generic[P]):
    """The plans of all blocks with their shares of the budgets, what to expect of each, and of the panel: on average
    over groups, in the worst of them where one threshold is for all, or by the best score."""

    plans: tuple[P, ...]
    shares: tuple[float, ...]
    expected: tuple[Expected, ...]
    whole: Expected

    def cuts(self, base: Registration) -> list[Cut]:
        """Return thresholds and weights of every block; where one threshold is for all groups, once."""
        found = zip(base.cuts, self.plans, strict=True)
        made = [(tuple(cut.values[j] for j in plan.kept), plan.weights) for cut, plan in found]
        return made[:1] if _panel(base).simultaneous else made


def plan_sealed_panel(
    base: Registration, known: Sequence[Populations], aim: Aim, draws: Draws
) -> PanelPlan[SealedPlan]:
    """Return the sealed plans of all blocks: with as many thresholds each as does best on the whole, and larger shares
    for the blocks that are likelier to be certified."""
    m, even = known[0].supported.shape[1] - _shows_total(base), _panel(base).shares
    tried = [_sealed(base, known, replace(aim, counts=(count,)), even, draws) for count in COUNTS if count <= m]
    found = max(tried, key=lambda each: each.whole.acceptance)
    if _panel(base).simultaneous:
        return found
    return _sealed(base, known, found.plans[0].aim, _likely(base, found.expected), draws)


def _sealed(
    base: Registration, known: Sequence[Populations], aim: Aim, shares: tuple[float, ...], draws: Draws
) -> PanelPlan[SealedPlan]:
    def adopt(mine: Populations, worst: SealedPlan) -> SealedPlan:
        return replace(worst, bets=bets_for(mine, worst))  # the worst group decides on thresholds, each on its bets

    return _blocks(base, known, aim, shares, lambda each, mine: plan_sealed(each, mine, draws()), adopt)


def plan_open_panel(base: Registration, known: Sequence[Populations], aim: Aim, draws: Draws) -> PanelPlan[OpenPlan]:
    """Return the open plans of all blocks, with larger shares for those that are likelier to be certified."""
    found = _open(base, known, aim, _panel(base).shares, draws)
    return found if _panel(base).simultaneous else _open(base, known, aim, _likely(base, found.expected), draws)


def _open(
    base: Registration, known: Sequence[Populations], aim: Aim, shares: tuple[float, ...], draws: Draws
) -> PanelPlan[OpenPlan]:
    return _blocks(
        base, known, aim, shares, lambda each, mine: plan_open(each, mine, draws()), lambda _, worst: worst
    )  # fmt: skip


def _blocks(
    base: Registration, known: Sequence[Populations], aim: Aim, shares: tuple[float, ...],
    make: Callable[[Populations, Aim], tuple[P, Expected]], adopt: Callable[[Populations, P], P],
) -> PanelPlan[P]:  # fmt: skip
    """Plan every block by itself; where one threshold is for all groups, each adopts the plan of the worst."""
    aims, known = _aims(base, known, aim, shares), _planned_for(base, known)
    found = [make(each, mine) for each, mine in zip(known, aims, strict=True)]
    plans, expected = [plan for plan, _ in found], tuple(each for _, each in found)
    if _panel(base).simultaneous:
        worst = plans[min(range(len(plans)), key=lambda i: expected[i].acceptance)]
        plans = [adopt(each, worst) for each in known]
    return PanelPlan(tuple(_with_total(base, plan) for plan in plans), shares, expected, _whole(base, expected, aim))


def _likely(base: Registration, expected: Sequence[Expected]) -> tuple[float, ...]:
    """Return shares of the budgets, in few digits: for groups by their chance to be certified, for scores by what they
    accept, and a part for everybody."""
    scores = isinstance(base.claims, Scores)
    chance = np.array([each.acceptance if scores else each.certified for each in expected])
    even = np.full(chance.size, 1.0 / chance.size)
    shares = even if not chance.sum() > 0 else EVEN * even + (1.0 - EVEN) * chance / chance.sum()
    whole = np.floor(10_000.0 * shares).astype(int)  # at least EVEN / 100 each, so that none is zero
    whole[whole.argmax()] += 10_000 - whole.sum()
    return tuple((whole / 10_000.0).tolist())


def _panel(base: Registration) -> Groups | Scores:
    assert base.panel is not None  # whoever plans one has one
    return base.panel


def _aims(base: Registration, known: Sequence[Populations], aim: Aim, shares: tuple[float, ...]) -> list[Aim]:
    """Return what each block is planned for: with its share of the budgets, and the floor as a share of all traffic."""
    panel, method = _panel(base), base.judgement
    assert isinstance(method, Betting)  # a plan's base
    shares = (1.0,) * len(known) if panel.simultaneous else shares
    floors = [base.claim.min_acceptance] * len(known)
    if isinstance(panel, Groups) and panel.floor == "group":
        floors = [base.claim.min_acceptance * float(each.accepted[:, 0].mean()) for each in known]
    elif panel.simultaneous:  # the floor is on all groups together
        floors = [base.claim.min_acceptance / len(known)] * len(known)
    return [
        replace(aim, risk_budget=share * method.risk_budget, acceptance_budget=share * method.acceptance_budget,
                min_acceptance=max(floor, 1e-6), layout=panel.layout)
        for share, floor in zip(shares, floors, strict=True)
    ]  # fmt: skip


def _with_total(base: Registration, plan: P) -> P:
    """Return a plan with the threshold 0 below its own, where acceptance is a share of the group's own traffic."""
    if not _shows_total(base):
        return plan
    kept, weights = (0, *(j + 1 for j in plan.kept)), (TOTAL, *((1.0 - TOTAL) * each for each in plan.weights))
    if isinstance(plan, SealedPlan):
        return replace(plan, kept=kept, weights=weights, bets=(plan.bets[0], *plan.bets))
    return replace(plan, kept=kept, weights=weights, priors=(plan.priors[0], *plan.priors))


def _shows_total(base: Registration) -> bool:
    """Return whether the first threshold shows a group's total, and others are planned above it."""
    panel = _panel(base)
    return isinstance(panel, Groups) and panel.floor == "group" and len(base.thresholds.values) > 1


def _planned_for(base: Registration, known: Sequence[Populations]) -> list[Populations]:
    """Return the populations at the thresholds to plan with: without that of a group's total."""
    first = int(_shows_total(base))
    return [
        replace(each, unsupported=each.unsupported[:, first:], supported=each.supported[:, first:]) for each in known
    ]


def _whole(base: Registration, expected: Sequence[Expected], aim: Aim) -> Expected:
    """Return what to expect of the panel. Labels are of all blocks, as long as the slowest is asked for: answers of
    several groups are different ones, and those that several scores accept at most as many as of each."""
    units = max(each.units for each in expected)
    labels, most = (
        math.ceil(min(aim.labels * units, sum(getattr(each, name) * units / max(each.units, 1.0) for each in expected)))
        for name in ("labels", "labels_90")
    )
    if isinstance(base.claims, Scores):
        best = max(expected, key=lambda each: each.acceptance)
    elif _panel(base).simultaneous:
        best = min(expected, key=lambda each: each.acceptance)
    else:
        certified, acceptance, *_ = (float(np.mean(each)) for each in zip(*expected, strict=True))
        best = Expected(certified, acceptance, units, labels, most)
    return best._replace(labels=labels, labels_90=most)
