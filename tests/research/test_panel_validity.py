"""Panels at the boundary: an equality that the proof gives, and a small version of the published figures.

Mean wealth of one unit is computed over its whole law, so there is no chance of a false alarm; every setting has 250
runs, or five times as many where they are quick, and may make a false claim in 0.045 of them: more than the (1 - 1e-8)
quantile of the binomial law is a false alarm of chance 1e-8 at most, 1e-6 over all. A control, of 500 or 3,000 runs,
must exceed that quantile: it does with all but 1e-6 of chance at the shares that are published. Seeds are fixed.

Mutants killed: the group of an answer ignored, an answer of no listed group counted in some group, blocks decoded or
encoded in another order, mass of a source shared by the wrong answers; groups tested at the full level each, weights
passed on over a mixture that moves, the noise term dropped, weights passed on where the releases chose the mixture.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from fedsrc.maths.arrays import Floats
from fedsrc.protocol.registration import Registration
from fedsrc.server.bounds import Sample, look
from fedsrc.server.tally import masses
from fedsrc.simulate.population import Support
from fedsrc.simulate.trials import discrete_gaussian
from research import panel_validity as study
from research.lazy_labels import images

TRIALS, FEW = 500, 250
CONTROLS = {each.name: each for each in study.controls()}
SOUND = [(part, i) for part, made in study.PARTS.items() if made is not study.controls for i in range(len(made()))]


def most(runs: int) -> int:
    return int(binom.isf(1e-8, runs, study.ALPHA))


def one_bet(theta: float) -> Registration:
    fields = study.registered().model_dump()
    fields["certificate"]["bets"] = {"count": 1, "low": theta, "high": 0.95}
    return Registration.of(fields)


def mean_wealth(reg: Registration, law: Support, units: int = 1) -> Floats:
    """The exact mean over the law of one unit, or of two, of the wealth in every row (groups, thresholds)."""
    kinds, chances = images(reg, law.masses), law.law
    if units == 2:
        kinds = (kinds[:, None] + kinds).reshape(-1, *kinds.shape[1:])
        chances = np.outer(chances, chances).ravel()
    wealth = look(reg, Sample(masses(reg, kinds, 0.0), units, 0.0)).wealth
    assert wealth is not None
    return np.asarray(chances @ np.exp(wealth)).reshape(len(study.NAMES), -1)


def contrast(share: Floats, risk: Floats) -> Floats:
    """d = E[u] - r E[A] of every row, from the table that the law was made of."""
    above = np.cumsum(study.ACCEPTED[3][::-1])[::-1][1:]
    return np.asarray(share[:, None] * above * (risk - study.TARGET))


@pytest.mark.parametrize("units", [1, 2])
def test_mean_wealth_of_a_group_is_one_at_its_target_and_known_elsewhere(units: int) -> None:
    """Without noise, with one bet: 1 - theta d for every unit. Groups differ in size and risk, so that no row can
    stand for another, and a tenth of the units is of no listed group."""
    reg, groups = one_bet(0.5), len(study.NAMES)
    share, risk = np.arange(1.0, groups + 1), np.linspace(0.02, 0.4, groups)[:, None] + np.zeros((groups, 3))
    share *= 0.9 / share.sum()
    risk[7] = study.TARGET
    law = study.answers(reg, risk, share)
    found = mean_wealth(reg, law, units)
    assert found[7] == pytest.approx(np.ones(3), abs=1e-8)
    assert found == pytest.approx((1.0 - 0.5 * contrast(share, risk)) ** units, abs=1e-8)


@pytest.mark.parametrize(("span", "masses"), [("shares", (0.25, 0.25)), ("whole", (0.5, 1.0))])
def test_mean_wealth_of_sources_that_span_groups_is_that_of_their_rule(span: str, masses: tuple[float, float]) -> None:
    """With second moments: the mean of exp(theta d - b d^2), enumerated by hand. An answer weighs a quarter, or its
    part of the source's answers in its group."""
    most: dict[str, Any] = {"group_most": 2} if span == "whole" else {}
    reg = study.registered(unit="source", max_answers=4, encoding="moments", thresholds=2, group_span=span, **most)
    fields, theta, r = reg.model_dump(), 0.5, study.TARGET
    fields["certificate"]["bets"] = {"count": 1, "low": theta, "high": 0.95}
    reg = Registration.of(fields)
    risk = np.full(len(study.NAMES), study.GOOD)
    risk[3] = r
    b = -np.log1p(-theta * (1 - r)) / (1 - r) ** 2 - theta / (1 - r)

    def grown(count: int, bad: int, mass: float) -> float:
        d = mass * (r * (count - bad) - (1 - r) * bad)
        return float(np.exp(theta * d - b * d * d)) - 1.0

    def gain(p: float) -> float:
        two = (1 - 1.25 * p) * grown(2, 0, masses[0]) + 0.5 * p * grown(2, 1, masses[0]) + 0.75 * p * grown(
            2, 2, masses[0]
        )  # fmt: skip
        return two + (1 - p) * grown(1, 0, masses[1]) + p * grown(1, 1, masses[1])

    expected = [[1 + gain(p) / 20, 1 + gain(p) / 40] for p in risk]  # half of the sources are above both thresholds
    found = mean_wealth(reg, study.sources(reg, risk))
    assert found == pytest.approx(np.array(expected), abs=1e-8)
    assert (found[3] <= 1.0).all()


def test_noise_of_every_group_has_mean_wealth_one() -> None:
    """Of noise alone, 20,000 releases: six standard errors, a chance of 1e-7 over all rows. Without its term the mean
    is 1.06 or more."""
    fields = study.registered(4.0).model_dump()
    fields["certificate"]["bets"] = {"count": 1, "low": 0.2, "high": 0.95}
    reg, rng = Registration.of(fields), np.random.default_rng(7)
    sums = discrete_gaussian(rng, reg.mechanism.scale, (20_000, *reg.mechanism.shape))
    wealth = look(reg, Sample(masses(reg, sums, 1.0), 1, 0.0)).wealth
    assert wealth is not None
    value = np.exp(wealth)
    error = value.std(axis=0) / np.sqrt(len(value))
    assert (np.abs(value.mean(axis=0) - 1.0) < 6.0 * error).all()
    assert error.max() < 0.005


def test_a_look_whose_mixture_the_releases_chose() -> None:
    """The first tier: with every row's own weight nothing is gained, with weights passed on a group in three runs."""
    control = CONTROLS["sealed, weights passed on at a look whose mixture the releases chose"]
    sound = study.chosen()
    runs, found = study.counted(sound, round(TRIALS / sound.times), 1)
    assert found.claim.sum() <= most(runs)
    runs, found = study.counted(control, round(TRIALS / control.times), 1)
    assert found.claim.sum() > most(runs)


@pytest.mark.thorough
@pytest.mark.parametrize(("part", "index"), SOUND, ids=[f"{part}: {study.PARTS[part]()[i].name}" for part, i in SOUND])
def test_false_group_claims_stay_within_their_budget(part: str, index: int) -> None:
    setting = study.PARTS[part]()[index]
    runs, found = study.counted(setting, round(FEW / min(setting.times, 1.0)), index)
    assert found.claim.sum() <= most(runs)
    assert found.acceptance.sum() <= binom.isf(1e-8, runs, study.ACCEPTANCE)


@pytest.mark.thorough
@pytest.mark.parametrize("name", CONTROLS)
def test_rules_that_leave_a_condition_out_fail_visibly(name: str) -> None:
    setting, wanted = CONTROLS[name], 3_000 if "exact line" in name else TRIALS
    runs, found = study.counted(setting, round(wanted / setting.times), 1)
    assert found.claim.sum() > most(runs)
