"""Labels on demand: what is counted is dominated by what is true, nothing reads a loss below the lowest threshold, a
unit's labels move a release as the unit does, and declared label errors are charged in full.

Mutants killed: second moments compared with their own value at the true labels in place of the product (not monotone),
a bound that reads bin 0 or a width that reads losses, missing labels at loss 0, a label rung of r - beta or r / (1 -
beta), a share of supported answers added to the risk without its factor. Draws have fixed seeds: no false alarms.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import digamma, gammaln

from fedsrc.maths import betting, levels, moments, sealed
from fedsrc.maths.arrays import Floats
from fedsrc.maths.binomial import log_surprise
from fedsrc.maths.levels import LevelCode
from fedsrc.maths.moments import MomentCode
from fedsrc.maths.privacy import rho_tight
from fedsrc.planning.register import Choices, register_grid
from fedsrc.protocol.registration import Registration
from fedsrc.records.masses import contrasts, counted, unit_masses
from fedsrc.records.units import Units
from fedsrc.server.bounds import Sample, look
from fedsrc.server.tally import masses
from tests.support.helpers import sealed_registration, single_units

RISKS, BETS = st.floats(0.02, 0.7), st.floats(0.01, 0.97)
PAPER = ("contrast", "variance-adaptive", "ratio")
ANSWERS = 4  # of a source
SCORES = (0.1, 0.5, 0.75, 0.95)


def counted_more(rng: np.random.Generator, count: int = 40) -> tuple[Floats, Floats, Floats]:
    """Unsupported masses of sources that are all accepted, those that are counted once labels are withheld, and what
    is accepted."""
    accepted = rng.integers(0, ANSWERS + 1, count)
    true = rng.binomial(accepted, 0.3)
    more = true + rng.binomial(accepted - true, rng.random(count))
    return true / ANSWERS, more / ANSWERS, accepted / ANSWERS


@given(RISKS, BETS, st.integers(0, 2**32))
def test_no_choice_of_missing_labels_brings_a_bet_above_the_true_product(r: float, share: float, seed: int) -> None:
    """Totals, second moments (open and sealed) and levels, as the server computes them without noise."""
    rungs = betting.ladder([r])
    rungs = rungs._replace(theta=np.full_like(rungs.theta, share / (1 - r)))
    theta = share / (1 - r)
    u, more, a = counted_more(np.random.default_rng(seed))
    product = math.fsum(np.log1p(theta * (r * (a - u) - (1 - r) * u)))
    U, S, none = np.array([more.sum()]), np.array([(a - more).sum()]), np.zeros(1)
    data = betting.data(U, S, betting.Covariance(none, none, none), len(u), 0.0)
    totals = data @ betting.weights(rungs)[:, :, 0]
    parts = (np.array([x.sum()]) for x in (more**2, more * (a - more), (a - more) ** 2))
    squares = moments.Seconds(*parts, *[none] * 3)
    second = moments.data(U, S, squares, none, len(u), 0.0) @ moments.weights(rungs)[:, :, 0]
    d, bet = r * (a - more) - (1 - r) * more, sealed.bet(r, theta)
    looked = bet.a * d.sum() - bet.b * (d**2 + (1 - 2 * r) * d).sum()
    assert max(totals.max(), second.max(), looked) <= product + 1e-9
    whole = a == 1  # one graded answer each, in quarters
    C = np.array([[(whole & (more == k / ANSWERS)).sum()] for k in range(ANSWERS + 1)], dtype=np.float64)
    graded = levels.data(C, none, int(whole.sum()), 0.0) @ levels.weights(rungs, ANSWERS)[:, :, 0]
    assert graded.max() <= math.fsum(np.log1p(theta * (r - u[whole]))) + 1e-9


@given(RISKS, BETS)
def test_second_moments_are_monotone_in_labels_exactly_for_small_bets(r: float, share: float) -> None:
    theta = share / (1 - r)
    turn = 2 * sealed.kappa(share) * theta * r
    d = np.linspace(-(1 - r), r, 20_001)
    bet = sealed.bet(r, theta)
    rises = np.diff(bet.a * d - bet.b * (d * d + (1 - 2 * r) * d))
    if turn < 1:
        assert rises.min() > -1e-12
    elif turn > 1 + 1e-3:
        assert rises[-1] < 0


def test_a_withheld_label_can_raise_second_moments_and_stays_below_the_product() -> None:
    """Target 0.5, the largest bet: a source with one label of four withheld counts for more than one all supported."""
    bet = sealed.bet(0.5, 0.95 / 0.5)
    true, withheld = (bet.a * d - bet.b * d * d for d in (0.5, 0.25))
    assert true < withheld < math.log1p(bet.theta * 0.25) < math.log1p(bet.theta * 0.5)


def test_exact_counts_are_less_surprising_with_labels_missing() -> None:
    A = np.arange(1, 60)[:, None]
    U = np.arange(0, 60)
    found = np.where(U <= A, log_surprise(np.minimum(U, A), A, 0.2), np.nan)
    assert np.nanmax(np.diff(found, axis=1)) <= 0


def registrations() -> dict[str, Registration]:
    def grid(**more: Any) -> Registration:
        return register_grid(Choices(0.2, 4.0, grid=True, thresholds=3, **more), ["a"])

    sources: dict[str, Any] = {"unit": "source", "max_answers": ANSWERS}
    return {
        "histograms": grid(), "sources": grid(**sources), "moments": grid(encoding="moments", **sources),
        "levels": grid(encoding="levels", loss_grid=4),
        **{name: grid(preset="paper", method=name, adjacency="replacement") for name in PAPER},
        "sealed": sealed_registration(values=(0.25, 0.6, 0.9)),
    }  # fmt: skip


CASES = registrations()


def below(units: Units, loss: float) -> Units:
    """The same units, with this loss wherever the score is below every threshold."""
    return replace(units, loss=np.where(units.score < 0.2, loss, units.loss))


@pytest.mark.parametrize("name", CASES)
def test_no_bound_reads_the_loss_of_an_answer_below_every_threshold(name: str) -> None:
    reg, rng = CASES[name], np.random.default_rng(3)
    score = rng.choice(SCORES, 400)
    loss = (rng.random(400) < 0.1).astype(np.float64)
    units = single_units(score.tolist(), loss.tolist())
    if reg.privacy.unit == "source":
        units = Units(np.arange(0, 401, ANSWERS), units.score, units.loss, None)
    found = [counted(reg, below(units, each)) for each in (0.0, 1.0)]
    if name == "sealed":
        assert (found[0] == found[1]).all()
        return
    encoded = [reg.mechanism.basis.encode(each) for each in found]
    if reg.mechanism.basis.name == "suffix":
        assert (encoded[0] == encoded[1]).all()
    seen = [look(reg, Sample(masses(reg, each, 1), len(units), 0.0)) for each in encoded]
    assert (seen[0].risk_upper == seen[1].risk_upper).all()
    assert (seen[0].acceptance_lower == seen[1].acceptance_lower).all()


@pytest.mark.parametrize("name", CASES)
def test_a_unit_and_its_labels_move_a_release_by_at_most_the_sensitivity(name: str) -> None:
    """All pairs of units, each with every set of its labels missing, which counts as unsupported; some pair attains it
    where labels alone differ."""
    reg = CASES[name]
    size = ANSWERS if reg.privacy.unit == "source" else 1
    rng = np.random.default_rng(4)
    top = np.full((2**size, size), SCORES[-1])
    score = np.concatenate([top, rng.choice(SCORES, (200, size))])
    loss = (np.arange(len(score))[:, None] >> np.arange(size) & 1).astype(np.float64)
    missing = rng.random(score.shape) < 0.5
    missing[: 2**size] = False
    units = Units(np.arange(0, score.size + 1, size), score.ravel(), np.where(missing, 1.0, loss).ravel(), None)
    rule, each = reg.mechanism, unit_masses(reg, units)
    if name == "sealed":
        image = contrasts(rule.contrasts, each)
    else:
        bins = rule.code.bins(each) if isinstance(rule.code, MomentCode | LevelCode) else each
        image = rule.basis.encode(bins).reshape(len(units), -1)
    apart = ((image[:, None] - image) ** 2).sum(axis=-1).max()
    assert apart <= rule.sensitivity**2 * (1 + 1e-9)
    labels = ((image[: 2**size, None] - image[: 2**size]) ** 2).sum(axis=-1).max()
    assert labels == pytest.approx(apart, rel=1e-5) or reg.encoding.kind == "paired"


@given(st.floats(0.0, 0.5), st.floats(0.0, 0.9), st.floats(0.05, 0.9), st.floats(0.0, 1.0), st.floats(0.0, 0.5))
def test_label_errors_at_their_declared_share_bring_the_risk_exactly_to_its_bound(
    R: float, beta: float, a: float, e: float, f: float
) -> None:
    """R from what labels show, for each declaration of the table, with misses at their limit; and the rung to show."""
    U = R * a
    seen = (1 - beta) * U / a
    assert math.isclose(seen / (1 - beta), R, abs_tol=1e-12)
    missed = min(e * a, U)
    assert (U - missed) / a + e + 1e-12 >= R
    shown = max(0.0, (U - f * a) / (1 - f))  # U - shown = f (a - shown)
    assert f + (1 - f) * shown / a + 1e-12 >= R
    assert U - 0.2 * a <= (U - missed) - 0.2 * a + e * a + 1e-12


def test_the_null_of_the_truth_is_the_null_of_the_labels() -> None:
    """Sites of any risk that miss up to a share beta each: where the mixture's risk is at least r, labels' is at least
    r (1 - beta)."""
    rng = np.random.default_rng(5)
    for _ in range(2_000):
        shares, a, R = rng.dirichlet(np.ones(4)), rng.random(4), rng.random(4)
        beta, r = rng.random() * 0.9, float((shares * a * R).sum() / (shares * a).sum())
        labelled = R * (1 - beta * rng.random(4))
        assert (shares * a * (labelled - r * (1 - beta))).sum() >= -1e-12


def test_looking_again_at_unsupported_answers_alone_misses_more_than_one_look() -> None:
    p, rng = 0.1, np.random.default_rng(6)
    loss = rng.random(400_000) < 0.2
    first, second = (loss ^ (rng.random(loss.size) < p) for _ in range(2))
    one_sided = np.where(first, second, first)
    assert one_sided[loss].mean() == pytest.approx((1 - p) ** 2, abs=0.005)  # 5 standard deviations
    assert (first | second)[loss].mean() == pytest.approx(1 - p * p, abs=0.005)


@pytest.mark.parametrize("c", [1.0, 0.4])
def test_seven_waits_may_tell_more_than_epsilon_one(c: float) -> None:
    """theory (xvi), What labels tell: the normal approximation, and the relative entropy of gamma times."""
    n = 7
    few, more = n / c**2, (n + 1) / c**2
    entropy = (more - few) * digamma(more) - gammaln(more) + gammaln(few)
    assert rho_tight(1.0, 1e-6) < entropy < 1 / (2 * n * c**2)
