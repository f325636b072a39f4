"""The plain loop and the engine are the same audit: so a comparison of their speeds means something.

Chance of a false alarm. Exact comparisons: none, up to the shipped rounding of bounds to 1e-9 (1e-7 in risk, a ratio of
two). Distributions, over the choice of seeds (they are fixed, so in fact none): at most 1e-6 in all, shared by 12
comparisons of loop and engine (Fisher's exact test of
how many fire, the exact two-sample Kolmogorov test of contrast bounds and looks, both valid with ties), two of the
noise and six of the draws (Dvoretzky-Kiefer-Wolfowitz, 2 exp(-2 n t^2)).

Mutants killed in the loop: suffix sums that start one bin early, counts and losses swapped, a contrast with the wrong
sign, budgets swapped or whole, the noise variance of one release at all looks, noise missing, at 0.85 of its scale, on
one vector only, the same on both or in every round, eta dropped, running bounds lost or kept by the wrong method, a
threshold's acceptance bound not passed down, misses looked for at the last look or before firing only, the contrast's
or the acceptance's truth not looked at, a false acceptance that is no failure, `final` that stops early, the highest
certified threshold in place of the best, recruitment that is not matched, earlier looks' bounds in the row of a trial
that never fired, a unit that is never drawn, a unit counted at another site.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.stats import fisher_exact, ks_2samp

from fedsrc.audit.cell import Cell, build
from fedsrc.audit.events import Events, happen
from fedsrc.audit.evidence import transfer
from fedsrc.audit.methods import METHODS
from fedsrc.audit.methods.setting import Evidence, gather
from fedsrc.audit.outcomes import Block, rows
from fedsrc.audit.study import Binormal, Setting
from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats
from fedsrc.server.tally import masses
from research.peers import plain_audit

pytestmark = pytest.mark.thorough

NAMES = ("fed-src-c", "fed-src-va", "betting")
POPULATION = Binormal(name="P", records=300, unsupported=0.3, auc=0.9, seed=1, about="a small surrogate")
SETTING = Setting(
    population="P",
    target_risk=0.3,
    min_acceptance=0.4,
    thresholds=6,
    sites=3,
    batch=100,
    rounds=8,
    matched=True,
    development_share=0.2,
)
POLICIES = ("final", "first", "recruit")
EPSILONS = (math.inf, 4.0, 0.5)
FACTS = ((1.0, 1.0), (1.0, 1.25), (1.0, 1.6), (1.0, 2.5), (0.8, 1.0), (0.4, 1.0))  # the truth first
CHANCE = 1e-6 / 20


def cell_of(**changes: Any) -> Cell:
    """The small setting with other values."""
    return build(SETTING.model_copy(update=changes), POPULATION, seed=5, folder=Path())


def told(cell: Cell, kept: float, wrong: float) -> Cell:
    """The same cell, said to accept that much of what it does, and so many times more of it wrong: bounds may miss."""
    acceptance = kept * cell.acceptance
    return replace(cell, acceptance=acceptance, unsupported=np.minimum(acceptance, wrong * kept * cell.unsupported))


@dataclass(frozen=True)
class Played:
    """Trials of the loop with all their looks, and the engine's block on the very same releases."""

    loop: pl.DataFrame
    trails: list[list[plain_audit.Seen]]
    block: Block

    def bounds(self, name: str, which: str) -> Floats:
        """The loop's bounds (trials, looks, m)."""
        return np.array([[getattr(look.bounds[name], which) for look in trail] for trail in self.trails])


def play(cell: Cell, trials: int = 4) -> Played:
    plan, trails, found = plain_audit.plan_of(cell), [], []
    for number in range(trials):
        trail: list[plain_audit.Seen] = []
        rng = np.random.default_rng([7, number])
        found += [row | {"trial": number} for row in plain_audit.trial(plan, rng, trail)]
        trails.append(trail)
    events = events_of(cell, trails)
    block = Block(cell, events, (1,), {"released sums": evidence_of(cell, events)})
    return Played(pl.DataFrame(found).sort("method", "trial"), trails, block)


def events_of(cell: Cell, trails: list[list[plain_audit.Seen]]) -> Events:
    """The loop's releases as events; who is asked comes from the engine's own schedule."""
    engine = happen(cell, trials=len(trails), seed=(0,))
    released = np.array([[look.released for look in trail] for trail in trails])
    touched = np.array([[look.touched for look in trail] for trail in trails])
    return replace(engine, masses=released, touched=touched)


def evidence_of(cell: Cell, events: Events) -> Evidence:
    """What the server decodes from those releases."""
    registration, rule = cell.registration, cell.registration.mechanism
    releases = np.cumsum(events.answered.sum(axis=-1), axis=1)[..., None]
    seen = masses(registration, events.masses, releases)
    return gather(
        seen.accepted, seen.unsupported, events.records, noise=seen.noise, unit=rule.unit_variance or 1.0,
        eta=transfer(registration, events.slots),
    )  # fmt: skip


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_every_look_has_the_comparators_bounds(epsilon: float, policy: str) -> None:
    played = play(cell_of(epsilon=epsilon, policy=policy, drift=0.01, thresholds=20), trials=3)
    for name in NAMES:
        found = METHODS[name].judge(played.block.seen(METHODS[name]), played.block.aim)
        np.testing.assert_allclose(played.bounds(name, "d"), found.contrast_upper, rtol=0, atol=2e-9)
        np.testing.assert_allclose(played.bounds(name, "a"), found.acceptance_lower, rtol=0, atol=2e-9)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("facts", FACTS)
def test_rows_are_the_engines(facts: tuple[float, float], epsilon: float, policy: str) -> None:
    played = play(told(cell_of(epsilon=epsilon, policy=policy), *facts))
    engine = rows(played.block, policy, NAMES, first=0).sort("method", "trial")
    assert set(engine.columns) == {*played.loop.columns, "dropped"}
    for column in played.loop.columns:
        mine, its = (np.array(frame[column].to_list()) for frame in (played.loop, engine))
        same = np.array_equal(mine, its) if mine.dtype.kind in "biU" else np.allclose(mine, its, rtol=0, atol=1e-7)
        assert same, column


def test_the_small_setting_has_all_kinds_of_trials() -> None:
    """Otherwise the comparison of rows would say little."""
    cells = [cell_of(epsilon=epsilon, policy="first") for epsilon in EPSILONS]
    frame = pl.concat([play(told(cell, *facts)).loop for cell in cells for facts in FACTS])
    kinds = frame.select("fired", "missed", "failed").unique().rows()
    assert sorted(kinds) == [(False, False, False), (False, True, False), (True, False, False), (True, True, False),
                             (True, True, True)]  # fmt: skip
    assert frame.filter(pl.col("fired"))["look"].n_unique() > 3
    assert frame["threshold"].n_unique() > 2


@pytest.mark.parametrize(
    "changes", [{"release": "default"}, {"dropout": 0.1}, {"draw": "once"}, {"weights": "as calibrated"}]
)
def test_other_settings_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(FedsrcError, match="registered audit only"):
        plain_audit.plan_of(cell_of(**changes))


# Distributions


@pytest.mark.parametrize(
    ("name", "epsilon", "policy"),
    [("betting", 1.0, "final"), ("betting", 1.0, "first"), ("fed-src-c", 2.0, "first"), ("fed-src-va", 4.0, "recruit")],
)
def test_loop_and_engine_have_one_distribution(name: str, epsilon: float, policy: str) -> None:
    cell = cell_of(epsilon=epsilon, policy=policy)
    loop = plain_audit.audit(cell, trials=300, seed=[4], methods=[name])
    engine = rows(Block(cell, happen(cell, trials=300, seed=(3,)), (3,)), policy, (name,), first=0)
    table = [[int(frame["fired"].sum()), int((~frame["fired"]).sum())] for frame in (loop, engine)]
    assert 20 < table[1][0] < 280
    assert fisher_exact(table).pvalue >= CHANCE
    for column in ("contrast_upper", "look"):
        assert ks_2samp(loop[column].to_numpy(), engine[column].to_numpy(), method="exact").pvalue >= CHANCE


def reach(draws: int) -> float:
    """How far an empirical distribution function of so many draws is from the law, but for the chance."""
    return math.sqrt(math.log(2.0 / CHANCE) / (2.0 * draws))


def farthest(values: Floats, law: Floats, points: Floats) -> float:
    """Largest distance of the empirical distribution function from the law's, at the law's points."""
    empirical = np.searchsorted(np.sort(values), points, side="right") / values.size
    return float(np.abs(empirical - np.cumsum(law)).max())


def test_noise_has_the_law_of_the_engines() -> None:
    plan = plain_audit.plan_of(cell_of(epsilon=4.0))
    one = replace(plan.sites[0], bins=np.array([2]), loss=np.array([1]))
    rng, exact = np.random.default_rng(8), np.zeros((2, plan.m + 1), dtype=np.int64)
    exact[:, 2] = 5
    noise = [plain_audit.release(plan, one, 5, rng, np.zeros(1, dtype=np.bool_)) - exact for _ in range(2_000)]
    support = np.arange(-60.0, 61.0)
    law = np.exp(-(support**2) / (2.0 * plan.scale**2))
    law /= law.sum()
    assert farthest(np.ravel(noise), law, support) <= reach(np.size(noise))
    apart = np.ravel([first - second for first, second in noise])  # the two vectors' noise is independent
    assert farthest(apart, np.convolve(law, law), np.arange(-120.0, 121.0)) <= reach(apart.size)


def test_draws_have_the_law_of_the_site() -> None:
    cell = cell_of(epsilon=math.inf)
    plan, rng = plain_audit.plan_of(cell), np.random.default_rng(10)
    draws = 50_000
    for site, support in zip(plan.sites, cell.sites, strict=True):
        seen = np.zeros(plan.units, dtype=np.bool_)
        found = plain_audit.release(plan, site, draws, rng, seen)
        for mine, law in zip(found, np.tensordot(support.law, support.masses, 1), strict=True):
            assert np.abs(np.cumsum(mine) / draws - np.cumsum(law)).max() <= reach(draws)
        assert np.flatnonzero(seen).tolist() == list(range(site.first, site.first + support.law.size))
