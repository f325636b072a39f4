"""Randomised response: its privacy and its bets by enumeration, its counts and its validity by seeded streams.

Chance of a false alarm: none where outcomes are enumerated. Streams have fixed seeds; with another seed, correct code
fails with probability at most 1e-6 (`LIMIT`, six standard deviations, or as a test says).
Mutants killed: kappa with k for k - 1, without its cap, of the other neighbours or of epsilon/m; a decoder that ignores
the channel, has 1/2 for the mean over categories or forgets m/s; a threshold's rank off by one, or blocks in place of
every (m/s)-th threshold; bets that an answer can ruin, or halved; records that were not asked left out of acceptance;
budgets not shared; eta left out; answers not cumulative, of other records, or the same in all trials and looks;
records shown in place of answers, or graded ones answered.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, chi2

from fedsrc.audit.cell import Cell, build
from fedsrc.audit.events import happen
from fedsrc.audit.evidence import exact
from fedsrc.audit.looks import looks
from fedsrc.audit.methods import METHODS, nprr
from fedsrc.audit.methods.setting import Aim, Answers, Evidence, Verdict, gather
from fedsrc.audit.outcomes import Block, rows
from fedsrc.audit.randomised import answered, answers_of, categories
from fedsrc.audit.study import Boundary, Demo, Population, Printed, Setting, Study
from fedsrc.audit.summary import not_met
from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Bools, Floats, Ints
from fedsrc.maths.kinds import Adjacency

ADJACENT: tuple[Adjacency, ...] = ("replacement", "zero-out")
SIZES = [(1, 1), (4, 4), (6, 2), (6, 1), (20, 20)]  # thresholds, and how many a record is asked of


def channel(kappa: float, k: int) -> Floats:
    """Chances of every answer, given every category."""
    return kappa * np.eye(k) + (1.0 - kappa) / k


# ---------------------------------------------------------------- privacy


@pytest.mark.parametrize("k", [2, 3, 41])
@pytest.mark.parametrize("eps", [0.1, 1.0, 4.0, 9.0])
def test_an_answer_costs_epsilon_and_no_less(eps: float, k: int) -> None:
    """Against another category, and (zero-out) against an empty slot's uniform answer: attained, never passed."""
    law = channel(nprr.kept(eps, k, "replacement"), k)
    assert math.log((law.max(axis=0) / law.min(axis=0)).max()) == pytest.approx(eps, abs=1e-12)
    ratio = np.abs(np.log(channel(nprr.kept(eps, k, "zero-out"), k) * k))
    assert ratio.max() == pytest.approx(eps, abs=1e-12)


def test_without_privacy_answers_are_true() -> None:
    for adjacency, k in product(ADJACENT, (3, 41)):
        assert nprr.kept(math.inf, k, adjacency) == 1.0
        assert nprr.kept(1000.0, k, adjacency) == 1.0
        assert nprr.planned_size(math.inf, 20, adjacency) == 20


def test_kappa_and_decoder_are_the_source_s() -> None:
    """Against nprr 0.1.4 on PyPI: r_from_G_eps(k - 1, eps), and nprr_transform at eps 1 on {0, 1/2, 1}."""
    found = {
        (1, 1.0): 0.46211715726000974, (2, 0.5): 0.17779414281640907, (2, 1.0): 0.3641753271487437,
        (6, 2.0): 0.4771849525255875, (40, 1.0): 0.04022357068009043, (40, 4.0): 0.5665877188334563,
    }  # fmt: skip
    for (G, eps), kappa in found.items():
        assert nprr.kept(eps, G + 1, "replacement") == pytest.approx(kappa, rel=1e-13)
    decoded = nprr.decoded(np.array([0.0, 0.5, 1.0]), np.array(0.5), found[2, 1.0])
    np.testing.assert_allclose(decoded, [-0.8729650603039896, 0.5, 1.8729650603039893], rtol=1e-13)


def test_wealth_is_the_source_s() -> None:
    """nprr_gridKelly_mart(z, mu=1/2, r=r_from_G_eps(2, 1), D=5, theta=0) of nprr 0.1.4 after 1, 5 and 12 answers.

    At one threshold and target 1/2 a contrast plus 1/2 lies on the source's grid {0, 1/2, 1}.
    """
    z, kappa = np.array([0, 0.5, 0, 0, 1, 0.5, 0, 1, 0, 0, 0.5, 0]), nprr.kept(1.0, 3, "replacement")
    wrong, right = np.cumsum(z == 1.0)[:, None], np.cumsum(z == 0.0)[:, None]
    told = Answers((wrong + right).astype(float), wrong.astype(float), np.arange(1.0, 13)[:, None], 1, kappa)
    f = nprr.contrasts(1, 1, 0.5, kappa)
    wealth = np.exp(nprr.log_wealth(told, f, kappa * np.arange(1, 6) / 6 / 0.5)).mean(axis=-1)[[0, 4, 11], 0]
    np.testing.assert_allclose(wealth, [1.5, 1.4322530864197531, 3.1093793462315196], rtol=1e-12)


# ---------------------------------------------------------------- what an answer tells


def asked(m: int, s: int, j: int) -> tuple[Ints, int]:
    """The thresholds that a record is dealt with threshold j, and its place among them."""
    with_j = np.arange(j % (m // s), m, m // s)
    return with_j, int(np.flatnonzero(with_j == j)[0])


def told(m: int, s: int, j: int, kappa: float, values: Floats) -> Floats:
    """Mean of values (kinds of answer at threshold j, ...) over dealing and answers, by a record's loss and bin."""
    with_j, place = asked(m, s, j)
    every = np.eye(2 * (m + 1), dtype=np.int64).reshape(-1, 2, m + 1)
    law = categories(every, with_j) @ channel(kappa, 2 * s + 1)
    right, wrong = (law[:, 1 + start + place : 1 + start + s].sum(axis=1) for start in (0, s))
    kinds = [wrong, right, 1.0 - wrong - right] if len(values) == 3 else [wrong + right, 1.0 - wrong - right]
    return np.asarray(s / m * np.stack(kinds, axis=-1) @ values)


@pytest.mark.parametrize(("m", "s"), SIZES)
@pytest.mark.parametrize("r", [0.05, 0.3, 0.5, 0.8])
def test_decoded_answers_are_unbiased(m: int, s: int, r: float) -> None:
    """Of every record, at every threshold: contrast and acceptance exactly."""
    kappa = nprr.kept(1.5, 2 * s + 1, "replacement")
    f, g = nprr.contrasts(m, s, r, kappa), nprr.acceptances(m, s, kappa)
    loss, bin = np.divmod(np.arange(2 * (m + 1)), m + 1)
    for j in range(m):
        accepts = (bin > j).astype(float)
        np.testing.assert_allclose(told(m, s, j, kappa, f[:, j]), accepts * (loss - r), atol=1e-11)
        np.testing.assert_allclose(told(m, s, j, kappa, g[:, j]), accepts, atol=1e-11)


def test_sites_that_differ_lose_wealth() -> None:
    """Contrasts 0.1 and -0.1 at two sites, a record of each: the mean is 1 - (0.1 theta)^2, and 1 with eta charged."""
    r, a, kappa = 0.3, 0.5, nprr.kept(1.0, 3, "replacement")
    f = nprr.contrasts(1, 1, r, kappa)
    theta = nprr.contrast_bets(r, f).theta[0]
    means = [
        np.array([a * R, a * (1 - R), 1 - a]) @ channel(kappa, 3) @ (1.0 - np.outer(f[:, 0], theta))
        for R in (r + 0.1 / a, r - 0.1 / a)
    ]
    np.testing.assert_allclose(means[0] * means[1], 1.0 - (0.1 * theta) ** 2, atol=1e-12)
    assert (means[1] * np.exp(-0.1 * theta) <= 1.0).all()
    assert (means[1] > 1.0).all()


@pytest.mark.parametrize(("m", "s"), SIZES)
def test_no_answer_ruins_a_bet(m: int, s: int) -> None:
    """The worst answer leaves 5% of the wealth of the boldest bet; half of it, where acceptance is at its floor."""
    for r, eps, adjacency in product((0.1, 0.3, 0.7), (0.3, 2.0, math.inf), ADJACENT):
        kappa = nprr.kept(eps, 2 * s + 1, adjacency)
        f, g = nprr.contrasts(m, s, r, kappa), nprr.acceptances(m, s, kappa)
        bets, centres = nprr.contrast_bets(r, f), nprr.acceptance_bets(0.05, g)
        assert (1 - bets.theta * f.max()).min() == pytest.approx(0.05)
        assert (1 + centres.theta * (min(0.0, g.min()) - centres.c)).min() == pytest.approx(0.5)
        assert bets.p.sum() == pytest.approx(1)
        assert centres.p.sum() == pytest.approx(1)


@pytest.mark.parametrize(("m", "s"), SIZES)
def test_wealth_has_mean_one_at_the_boundary(m: int, s: int) -> None:
    """One record of a law with contrast 0 at every threshold: every bet has mean 1.

    A decoder blind to the channel has not: uniform answers are wrong half of the time, which is right above a target of
    one half and cautious below it, so the control has a target of 0.7; nor has it a hold on acceptance.
    """
    r, kappa = 0.7, nprr.kept(1.0, 2 * s + 1, "zero-out")
    share = np.append(0.3, np.full(m, 0.7 / m))
    law, f = np.concatenate([(1 - r) * share, r * share]), nprr.contrasts(m, s, r, kappa)
    theta, blind = nprr.contrast_bets(r, f).theta[0], nprr.contrasts(m, s, r, 1.0)
    for j in range(m):
        silent = 1.0 - s / m  # not asked: the wealth stays
        mean = law @ told(m, s, j, kappa, 1.0 - np.outer(f[:, j], theta)) + silent
        np.testing.assert_allclose(mean, 1.0, atol=1e-12)
        ignored = law @ told(m, s, j, kappa, 1.0 - np.outer(blind[:, j], theta)) + silent
        assert (ignored > 1.0 + 1e-4 * theta).all()


def test_wealth_of_many_records_has_mean_one() -> None:
    """Through `log_wealth`, all counts of 5 records at one threshold; with the rejected left out it has not."""
    r, a, n = 0.3, 0.4, 5
    kappa = nprr.kept(1.0, 3, "replacement")
    f = nprr.contrasts(1, 1, r, kappa)
    law = np.array([a * r, a * (1 - r), 1 - a]) @ channel(kappa, 3)
    every = np.array([c for c in product(range(n + 1), repeat=3) if sum(c) == n], dtype=float)
    weight = np.exp([math.lgamma(n + 1) - sum(math.lgamma(x + 1) for x in c) + c @ np.log(law) for c in every])
    seen = Answers((every[:, 0] + every[:, 1])[:, None], every[:, :1], np.full((len(every), 1), float(n)), 1, kappa)
    theta = nprr.contrast_bets(r, f).theta[0]
    np.testing.assert_allclose(weight @ np.exp(nprr.log_wealth(seen, f, theta))[:, 0], 1.0, atol=1e-12)
    deaf = replace(seen, asked=seen.accepted)
    assert (np.abs(weight @ np.exp(nprr.log_wealth(deaf, f, theta))[:, 0] - 1.0) > 1e-4).any()


# ---------------------------------------------------------------- counts


def test_answers_have_the_law_of_the_channel() -> None:
    """Chi-square on 300,000 answers of one category, to its 1e-7 point; with kappa a tenth larger it is beyond it."""
    n, k, kappa = 300_000, 7, 0.3
    counts = answered(np.random.default_rng(1), np.array([0, 0, n, 0, 0, 0, 0]), kappa)
    assert counts.sum() == n
    for wrong, far in ((1.0, False), (1.1, True)):
        law = n * channel(kappa * wrong, k)[2]
        assert (((counts - law) ** 2 / law).sum() > chi2.isf(1e-7, k - 1)) == far


def records_of(rng: np.random.Generator, shape: tuple[int, ...], law: Floats, batch: int) -> Ints:
    """Records (..., 2, m+1) by loss and bin, `batch` a look."""
    return rng.multinomial(batch, law.ravel(), size=shape).reshape(*shape, *law.shape)


def test_true_answers_are_the_records() -> None:
    own = records_of(np.random.default_rng(2), (3, 4), np.full((2, 6), 1 / 12), 50)
    found = answers_of(np.random.default_rng(3), own, 5, 1.0)
    sums = np.cumsum(np.cumsum(own[..., :0:-1], axis=-1)[..., ::-1], axis=1)
    np.testing.assert_array_equal(found.accepted, sums.sum(axis=2))
    np.testing.assert_array_equal(found.unsupported, sums[:, :, 1])
    np.testing.assert_array_equal(found.asked, np.broadcast_to(50.0 * np.arange(1, 5)[:, None], (3, 4, 5)))


def test_dealt_answers_speak_of_their_own_thresholds() -> None:
    """Six thresholds, two a record: every record is asked once, and 300 looks have decoded means within 6 sd of D."""
    law = np.array([[0.3, 0.1, 0.1, 0.05, 0.1, 0.05, 0.1], [0.1, 0.03, 0.02, 0.02, 0.01, 0.01, 0.01]])
    own, kappa, r = records_of(np.random.default_rng(4), (2, 300), law, 400), 0.6, 0.2
    found = answers_of(np.random.default_rng(5), own, 2, kappa)
    asked_now = np.diff(found.asked, axis=1, prepend=0)
    np.testing.assert_array_equal(asked_now[..., :3], asked_now[..., 3:])
    np.testing.assert_array_equal(asked_now[..., :3].sum(axis=-1), 400.0)
    assert (asked_now[0] != asked_now[1]).any(axis=0).all()
    assert np.ptp(asked_now, axis=1).all()
    wrong, accepted = (np.diff(x, axis=1, prepend=0) for x in (found.unsupported, found.accepted))
    f = nprr.contrasts(6, 2, r, kappa)
    mean = (wrong * f[0] + (accepted - wrong) * f[1] + (asked_now - accepted) * f[2]) / 400
    accepts, errors = np.cumsum(law[:, :0:-1], axis=1)[:, ::-1].sum(axis=0), np.cumsum(law[1, :0:-1])[::-1]
    spread = mean.std(axis=1) / math.sqrt(300)
    assert (np.abs(mean.mean(axis=1) - (errors - r * accepts)) < 6 * spread).all()
    assert spread.max() < 0.01


# ---------------------------------------------------------------- validity, and controls


TRIALS, ALPHA = 200, 0.05
LIMIT = int(binom.isf(1e-6, TRIALS, ALPHA))  # 27: what a method with 5% exceeds once in a million


def stream(seed: int, law: Floats, size: int, kappa: float, *, looks: int = 40, batch: int = 250) -> Evidence:
    own = records_of(np.random.default_rng(seed), (TRIALS, looks), law, batch)
    A, Z = (np.cumsum(np.cumsum(x[..., :0:-1], axis=-1)[..., ::-1], axis=1) for x in (own.sum(axis=2), own[:, :, 1]))
    found = answers_of(np.random.default_rng([seed, 1]), own, size, kappa)
    return replace(gather(A, Z, batch * np.arange(1, looks + 1)), answers=found)


def line(m: int, acceptance: float, risk: float) -> Floats:
    """A law with that risk at every threshold."""
    share = np.append(1.0 - acceptance, np.full(m, acceptance / m))
    return np.stack([(1 - risk) * share, risk * share])


def ever(seen: Evidence, aim: Aim) -> int:
    return int(nprr.judge(seen, aim).certified.any(axis=(1, 2)).sum())


def blind(seen: Evidence) -> Evidence:
    """Answers read as if they were true."""
    assert seen.answers is not None
    return replace(seen, answers=replace(seen.answers, kept=1.0))


@pytest.mark.parametrize(("m", "size"), [(5, 5), (6, 2)])
def test_false_certificates_are_rare_and_not_without_the_channel(m: int, size: int) -> None:
    """Risk 0.705 for a target of 0.7: read as true answers, all 200 trials certify, at epsilon 1 and 10,000 records."""
    kappa, aim = nprr.kept(1.0, 2 * size + 1, "replacement"), Aim(0.7)
    seen = stream(11, line(m, 0.8, 0.705), size, kappa)
    assert ever(seen, aim) <= LIMIT
    assert ever(blind(seen), aim) == TRIALS
    assert ever(stream(12, line(m, 0.8, 0.3), size, kappa), aim) == TRIALS


@pytest.mark.parametrize(("m", "size"), [(5, 5), (6, 2)])
def test_acceptance_holds_and_not_without_the_channel(m: int, size: int) -> None:
    """Acceptance 0.05 of the lowest threshold: uniform answers accept more, and read as true they pass its truth."""
    kappa, law = nprr.kept(1.0, 2 * size + 1, "replacement"), line(m, 0.05, 0.05)
    seen, true = stream(13, law, size, kappa), 0.05 * np.arange(m, 0, -1) / m

    def passed(found: Evidence) -> int:
        return int((nprr.judge(found, Aim(0.3)).acceptance_lower > true + 1e-9).any(axis=(1, 2)).sum())

    assert passed(seen) <= LIMIT
    assert passed(blind(seen)) == TRIALS


def test_bounds_are_those_of_the_mixture() -> None:
    """By hand at one look: the mixture of bets at the bound is m/alpha, with the budget of each bound, less eta."""
    m, size, aim, eta = 6, 2, Aim(0.3, 0.05), 0.01
    seen = stream(14, line(m, 0.6, 0.1), size, 0.5, looks=2, batch=4000).at((slice(0, 1), slice(1, 2)))
    seen = replace(seen, eta=np.full_like(seen.eta, eta))
    told_, N = seen.answers, 8000.0
    assert told_ is not None
    d, a = (bound(seen, told_, aim)[0, 0] for bound in (nprr.contrast_upper, nprr.acceptance_lower))
    f, g = nprr.contrasts(m, size, 0.3, 0.5), nprr.acceptances(m, size, 0.5)
    bets, (c, theta, p) = nprr.contrast_bets(0.3, f), nprr.acceptance_bets(0.05, g)
    wrong, accepted, asked_ = (x[0, 0] for x in (told_.unsupported, told_.accepted, told_.asked))
    for j in range(m):
        kinds = np.array([wrong[j], accepted[j] - wrong[j], asked_[j] - accepted[j]])
        log_W = kinds @ np.log1p(-np.outer(f[:, j], bets.theta[0])) + bets.theta[0] * N * (d[j] - eta)
        assert np.log(bets.p @ np.exp(log_W)) == pytest.approx(math.log(m / aim.risk_budget), abs=1e-6)
        kinds = np.array([accepted[j], asked_[j] - accepted[j], N - asked_[j]])
        value = np.append(g[:, j], 0.0)
        log_W = kinds @ np.log1p(theta * (value[:, None] - c)) - theta * N * (a[j] + eta - c)
        assert np.log(p @ np.exp(log_W)) <= math.log(m / aim.acceptance_budget) + 1e-6
    assert np.log(p @ np.exp(log_W)) == pytest.approx(math.log(m / aim.acceptance_budget), abs=1e-6)
    found = nprr.judge(seen, aim)
    np.testing.assert_allclose(found.risk_upper[0, 0], np.minimum(1.0, 0.3 + np.where(d > 0, d / a, d)))
    assert np.isnan(found.contrast_upper).all()


# ---------------------------------------------------------------- in a study


PRINTED = Printed(name="p", acceptance=(0.7, 0.5, 0.3, 0.1), risk=(0.3, 0.15, 0.05, 0.02), about="")


def cell_of(population: Population = PRINTED, **setting: Any) -> Cell:
    return build(Setting(population="p", **setting), population, seed=1, folder=Path())


def block_of(cell: Cell, trials: int = 40) -> Block:
    return Block(cell, happen(cell, trials=trials, seed=(5, 0)), (5, 0))


def same(one: Verdict, other: Verdict) -> Bools:
    names = ("certified", "risk_upper", "acceptance_lower")
    return np.array([np.allclose(getattr(one, name), getattr(other, name), atol=1e-9) for name in names])


@pytest.mark.parametrize("release", ["paper", "default"])
@pytest.mark.parametrize("weights", ["equal", "as calibrated"])
def test_without_privacy_it_is_betting(release: str, weights: str) -> None:
    cell = cell_of(release=release, weights=weights, dropout=0.3, drift=0.01, rounds=8, batch=100)
    block = block_of(cell)
    for name in nprr.GIVEN:
        assert same(block.judged(METHODS[name]), block.judged(METHODS["betting"])).all()
    assert block.judged(METHODS["nprr"]).certified.any()


def test_neighbours_are_those_registered_or_any_record() -> None:
    """With privacy the two differ under zero-out alone, where an answer tells more."""
    for adjacency in ADJACENT:
        block = block_of(cell_of(epsilon=0.5, adjacency=adjacency, release="default", rounds=8))
        every = [block.seen(METHODS[name]).answers for name in nprr.GIVEN]
        assert every[0] is not None
        assert every[1] is not None
        assert every[0].size == nprr.planned_size(0.5, 4, "replacement") < 4
        assert every[0].kept == nprr.kept(0.5, 2 * every[0].size + 1, "replacement")
        assert every[1].kept == nprr.kept(0.5, 2 * every[1].size + 1, adjacency)
        assert np.array_equal(every[0].accepted, every[1].accepted) == (adjacency == "replacement")


def test_a_study_s_answers_are_of_its_records() -> None:
    """At epsilon 60 an answer is true but for a chance of 1e-24: sums are the exact ones, in either release."""
    for release in ("paper", "default"):
        block = block_of(cell_of(epsilon=60.0, release=release, dropout=0.3, rounds=5))
        seen = block.seen(METHODS["nprr"])
        assert seen.answers is not None
        whole = exact(block.cell, block.events, seed=(5, 0))
        np.testing.assert_array_equal(seen.answers.accepted, whole.accepted)
        np.testing.assert_array_equal(seen.answers.unsupported, whole.unsupported)
        np.testing.assert_array_equal(seen.answers.asked[..., 0], block.events.records)


def test_fewer_certificates_with_privacy() -> None:
    def fired(epsilon: float) -> int:
        block = block_of(cell_of(epsilon=epsilon, target_risk=0.3, rounds=10))
        return int(rows(block, "first", ("nprr",), first=0)["fired"].sum())

    assert [fired(epsilon) for epsilon in (math.inf, 2.0, 0.2)] == [40, 40, 0]


def test_graded_losses_are_refused() -> None:
    cell = cell_of(Boundary(name="p", boundary=True, graded=True))
    block = block_of(cell, 2)
    assert block.seen(METHODS["nprr"]).answers is None
    with pytest.raises(FedsrcError, match="nprr takes binary losses"):
        block.judged(METHODS["nprr"])


def test_looks_show_answers_and_not_records() -> None:
    setting = {"epsilon": 1.0, "rounds": 3}
    study = Study(name="s", trials=2, methods=("nprr",), populations=(PRINTED,), setting=setting)
    cell = build(study.settings[0], study.populations[0], seed=0, folder=Path())
    block = Block(cell, happen(cell, trials=2, seed=(0, 0), per_site=True), (0, 0))
    found, told_ = looks(study, Path(), trials=2), block.seen(METHODS["nprr"]).answers
    assert told_ is not None
    shown = np.array(found["accepted"].to_list()).reshape(told_.accepted.shape)
    np.testing.assert_array_equal(shown, told_.accepted)
    assert (shown != block.evidence("exact sums").accepted).any()


def test_a_withheld_release_is_not_charged_for() -> None:
    withheld = Setting(population="p", release="default", withheld=0.1, epsilon=1.0)
    assert not_met(METHODS["nprr"], withheld) == ["nothing withheld"]


# ---------------------------------------------------------------- how many thresholds a record is asked of


def growth(law: Floats, f: Floats) -> float:
    """The most that a fixed bet on answers of that law gains a record."""
    theta = np.linspace(0.0, 0.999 / f.max(), 4000)
    return float((law @ np.log1p(-np.outer(f, theta))).max())


def needed(law: Floats, r: float, eps: float, s: int) -> float:
    """Records in which the best bet on the best threshold gains log m/alpha, each asked of s thresholds."""
    m = law.shape[-1] - 1
    kappa = nprr.kept(eps, 2 * s + 1, "replacement")
    f, share = nprr.contrasts(m, s, r, kappa), nprr.per_loss(m, s)
    right, wrong = np.cumsum(law[:, :0:-1], axis=1)[:, ::-1]
    chances = [kappa * x + (1 - kappa) * share for x in (wrong, right)]
    kinds = np.stack([*chances, 1.0 - chances[0] - chances[1]], axis=-1)
    return float(math.log(m / ALPHA) / max(s / m * growth(kinds[j], f[:, j]) for j in range(m)))


def apart(law: Floats, r: float, eps: float) -> float:
    """The same with the source's rounding to {0, 1} of every threshold's contrast by itself, at epsilon/m."""
    m = law.shape[-1] - 1
    kappa = nprr.kept(eps / m, 2, "replacement")
    accepts, wrong = np.cumsum(law.sum(axis=0)[:0:-1])[::-1], np.cumsum(law[1, :0:-1])[::-1]
    f = nprr.decoded(np.array([1.0, 0.0]), np.array(0.5), kappa) - r
    ones = kappa * (wrong + r * (1.0 - accepts)) + (1.0 - kappa) / 2.0
    return math.log(m / ALPHA) / max(growth(np.array([p, 1.0 - p]), f) for p in ones)


def test_sizes_are_planned_well() -> None:
    """The figures of the module; what is planned is at most a third worse than the best size, and best at epsilon 4."""
    population = Demo(name="p", demo="qa", score="lift")
    cell = build(Setting(population="p", size=2000), population, seed=114, folder=Path())
    first, wrong = np.mean([np.tensordot(site.law, site.masses, 1) for site in cell.sites], axis=0)
    law = np.stack([first - wrong, wrong])
    for eps, figures in ((4.0, (610, 3_900, 80_000)), (1.0, (150_000, 66_000, 1_300_000))):
        found = [needed(law, 0.3, eps, 20), needed(law, 0.3, eps, 1), apart(law, 0.3, eps)]
        np.testing.assert_allclose(found, figures, rtol=0.02)
    assert needed(law, 0.3, 1.0, 2) == pytest.approx(48_000, rel=0.02)
    for eps in (0.5, 1.0, 2.0, 3.0, 4.0, 8.0):
        every = {s: needed(law, 0.3, eps, s) for s in (1, 2, 4, 5, 10, 20)}
        assert every[nprr.planned_size(eps, 20, "replacement")] <= 1.33 * min(every.values())
    assert [nprr.planned_size(eps, 20, "replacement") for eps in (0.5, 1.0, 4.0)] == [1, 2, 20]
    assert nprr.planned_size(1.0, 7, "zero-out") == 1
