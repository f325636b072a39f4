"""From tally to decision: outward rounding, the certification rule, history, eta, refusal, selection.

Mutants killed: inward rounding, floor not required, history kept where the mixture moves, missing slots dropped from
N, the plausibility limits too tight or absent, risk bound of the paper's rule below the truth on its event.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsrc.maths import betting
from fedsrc.maths.basis import covariance
from fedsrc.maths.betting import Covariance
from fedsrc.protocol.messages import Release
from fedsrc.protocol.registration import Registration
from fedsrc.server.bounds import Look, Sample, down, for_target_only, look, report, sample, up
from fedsrc.server.tally import Charge, Masses, add, empty, implausible, lose, transfer
from tests.support.helpers import gives, registration, table

SITES = table(600, sites=("a", "b"))
METHODS = ["contrast", "variance-adaptive", "ratio"]


def exact(reg: Registration, unsupported: list[float], supported: list[float], N: int, eta: float = 0.0) -> Sample:
    m = len(reg.thresholds.values)
    U, S = np.asarray(unsupported, dtype=np.float64), np.asarray(supported, dtype=np.float64)
    assert U.size == m
    return Sample(Masses(U, S, U + S, covariance("complementary", np.zeros(m))), N, eta)


@given(st.floats(-10, 10))
def test_rounding_is_outward(x: float) -> None:
    assert float(up(np.array(x))) >= x - 1e-15
    assert float(down(np.array(x))) <= x + 1e-15
    assert float(up(np.array(x))) - x < 1.1e-9
    assert x - float(down(np.array(x))) < 1.1e-9


def test_the_certification_rule_needs_risk_and_acceptance() -> None:
    reg = registration(thresholds=3, grid=True, min_acceptance=0.3)
    seen = exact(reg, [300, 10, 1], [600, 500, 100], 1000)
    now = look(reg, seen)
    assert now.risk_upper[0] > 0.2  # accepted enough, too risky
    assert now.risk_upper[1] <= 0.2
    assert now.certified.tolist() == [False, True, False]
    assert now.risk_upper[2] <= 0.2  # safe, but only a tenth is accepted
    assert now.acceptance_lower[2] < 0.3
    assert now.choices(reg) == (1,)


def test_the_choice_has_the_largest_acceptance_bound() -> None:
    now = Look(np.zeros(3), np.array([0.5, 0.9, 0.7]), np.array([True, False, True]))
    reg = registration(thresholds=3, grid=True)
    assert now.choices(reg) == (2,)
    assert Look(np.ones(3), np.ones(3), np.zeros(3, dtype=bool)).choices(reg) == (None,)


def test_nan_never_certifies() -> None:
    reg = registration(thresholds=3, grid=True)
    now = look(reg, exact(reg, [math.nan] * 3, [900, 800, 700], 1000))
    assert not now.certified.any()
    paper = registration(thresholds=3, grid=True, preset="paper")
    assert not look(paper, exact(paper, [math.nan] * 3, [900, 800, 700], 1000)).certified.any()


def test_history_counts_only_for_a_declared_mixture() -> None:
    declared = registration(SITES, thresholds=3, grid=True, weights={"a": 0.5, "b": 0.5})
    moving = registration(SITES, thresholds=3, grid=True)
    for reg, kept in ((declared, True), (moving, False)):
        good = look(reg, exact(reg, [20, 5, 0], [900, 700, 400], 1000))
        bad = look(reg, exact(reg, [900, 700, 400], [20, 5, 0], 1000), good)
        assert good.certified.any()
        assert bad.certified.any() == kept


def test_decision_equals_the_golden_mathematics() -> None:
    """look() on noised sums is betting on the decoded masses with the registered bets and budgets."""
    reg = registration(thresholds=4, grid=True)
    rule = reg.mechanism
    rng = np.random.default_rng(2)
    sums = rule.basis.encode(rng.integers(0, 200, (2, 5)))
    tally = replace(empty(reg), slots=(700,), noises=4, sums=sums)
    seen = sample(reg, tally)
    v = rule.basis.variance_factor() * (rule.scale / rule.grid) ** 2 * 4
    np.testing.assert_allclose(seen.masses.noise.uu, v, rtol=1e-12)
    rungs = betting.ladder(reg.certificate.ladder)  # type: ignore[union-attr]
    log_E = betting.log_wealth(
        seen.masses.unsupported, seen.masses.supported, covariance("complementary", v), 700, eta=0.0, rungs=rungs
    )
    expected = betting.risk_upper(log_E >= -np.log(0.045 / 4), rungs.r)
    assert look(reg, seen).risk_upper.tolist() == expected.tolist()


def test_eta_and_missing_slots_only_cost() -> None:
    reg = registration(thresholds=3, grid=True)
    base = exact(reg, [60, 20, 5], [700, 600, 400], 1000)
    plain = look(reg, base)
    charged = base.masses.plus(Charge(np.full(3, 100.0), np.zeros(3), np.zeros(3)))
    for worse in (replace(base, eta=0.02), replace(base, N=1100, masses=charged)):
        now = look(reg, worse)
        assert (now.risk_upper >= plain.risk_upper).all()
        assert (now.acceptance_lower < plain.acceptance_lower).all()
        assert (now.risk_upper > plain.risk_upper).any()


def test_transfer_counts_charged_slots_and_drift() -> None:
    reg = registration(SITES, weights={"a": 0.5, "b": 0.5}, drift={"a": 0.1})
    tally = replace(empty(reg), slots=(300, 100))
    assert transfer(reg, tally) == pytest.approx(0.25 + 0.05)
    assert transfer(reg, lose(reg, tally, [(1, 200)], 1)) == pytest.approx(0.05)
    as_calibrated = registration(SITES, drift={"a": 0.1})
    assert transfer(as_calibrated, replace(empty(as_calibrated), slots=(300, 100))) == pytest.approx(0.075)
    assert transfer(reg, empty(reg)) == 1.0


@pytest.mark.parametrize("method", METHODS)
def test_the_papers_rules_decide_by_their_formulas(method: str) -> None:
    reg = registration(thresholds=3, grid=True, preset="paper", method=method, epsilon=float("inf"))
    few = look(reg, exact(reg, [20, 4, 0], [500, 400, 300], 1000))
    many = look(reg, exact(reg, [2000, 400, 0], [50_000, 40_000, 30_000], 100_000))
    assert not few.certified.all()
    assert many.certified.all()
    bounds = report(reg, exact(reg, [2000, 400, 0], [50_000, 40_000, 30_000], 100_000), many)
    assert (bounds.contrast_upper <= 0).all()
    assert (bounds.risk_upper <= 0.2).all()
    assert (bounds.privacy_width == 0).all()
    assert (bounds.sampling_width > 0).all()


def test_the_paper_preset_gives_the_papers_widths() -> None:
    """Table "audit": H/N = 0.01624 and G/N = 0.01107 at N = 28875 after 150 releases at epsilon 4, d_j = 4 or 6."""
    reg = registration(thresholds=20, grid=True, preset="paper", target_risk=0.3)
    rng = np.random.default_rng(0)
    sums = np.cumsum(rng.integers(0, 50, (2, 21)), axis=0)
    tally = replace(empty(reg), slots=(28875,), noises=150, sums=sums)
    seen = sample(reg, tally)
    decided = look(reg, seen)
    bounds = report(reg, seen, decided)
    assert bounds.sampling_width.round(5).tolist() == [0.01624] * 20
    assert bounds.privacy_width.round(5)[[14, 16]].tolist() == [0.01107, 0.01107]
    D = 0.7 * seen.masses.unsupported - 0.3 * seen.masses.supported
    widths = bounds.sampling_width + bounds.privacy_width
    np.testing.assert_allclose(bounds.contrast_upper, D / 28875 + widths, atol=2e-9)


@given(st.integers(0, 10**6))
def test_the_contrast_rules_risk_bound_follows_from_its_event(seed: int) -> None:
    """Whenever d <= d_upper and a >= a_lower, the risk is at most the bound reported for it."""
    rng = np.random.default_rng(seed)
    reg = registration(thresholds=3, grid=True, preset="paper", epsilon=float("inf"))
    N = int(rng.integers(100, 100_000))
    S, U = np.sort(rng.random((2, 3)) * N / 2)[:, ::-1]
    now = look(reg, exact(reg, U.tolist(), S.tolist(), N))
    assert now.contrast_upper is not None
    a = now.acceptance_lower + rng.random(3) * (1 - now.acceptance_lower)
    d = now.contrast_upper - rng.random(3) * 0.1
    risk = np.clip(0.2 + d / np.where(a > 0, a, 1), 0, 1)
    assert (risk[a > 0] <= now.risk_upper[a > 0] + 1e-9).all()


def test_report_widths_add_up() -> None:
    reg = registration(thresholds=3, grid=True)
    v = np.array([30.0, 20.0, 10.0])
    base = exact(reg, [60, 20, 5], [700, 600, 400], 1000, eta=0.01)
    seen = replace(base, masses=replace(base.masses, noise=covariance("complementary", v)))
    bounds = report(reg, seen, look(reg, seen))
    D = 0.8 * seen.masses.unsupported - 0.2 * seen.masses.supported
    np.testing.assert_allclose(
        D / 1000 + bounds.sampling_width + bounds.privacy_width + 0.01, bounds.contrast_upper, atol=2e-9
    )
    assert (bounds.privacy_width > 0).all()
    assert bounds.log_wealth is not None


def released(reg: Registration, first: list[int], second: list[int], slots: int = 200) -> Release:
    """A release with those exact masses."""
    rule = reg.mechanism
    pair = [tuple(row) for row in rule.basis.encode(np.array([first, second])).tolist()]
    return Release(
        request="0" * 64, site="local", slots=slots, scale=rule.scale, order="shuffled", time="2026-01-02T03:04:05Z",
        place=1, before="0" * 64, tries=1, first=pair[0], second=pair[1],
    )  # fmt: skip


def test_plausibility_limits_are_the_registered_ones() -> None:
    """theory, Refusal: just inside passes, just outside is refused, per threshold and side."""
    reg = registration(thresholds=3, grid=True)
    v = reg.mechanism.basis.variance_factor() * reg.mechanism.unit_variance
    number, m = 3, 3
    log_term = math.log(3 * m * math.pi**2 * number**2 / (6 * 0.0001))
    low = float(np.sqrt(2 * v * log_term)[2])
    high = float(np.sqrt(4 * v * log_term)[2])
    assert implausible(reg, gives(released(reg, [0, 0, 0, 0], [0, 0, 0, -math.floor(low)])), number) is None
    assert "negative" in (
        implausible(reg, gives(released(reg, [0, 0, 0, 0], [0, 0, 0, -math.ceil(low)])), number) or ""
    )
    assert "negative" in (
        implausible(reg, gives(released(reg, [0, 0, 0, -math.ceil(low)], [0, 0, 0, 0])), number) or ""
    )
    over = 200 + math.floor(high)
    assert implausible(reg, gives(released(reg, [0, 0, 0, over], [0, 0, 0, 0])), number) is None
    assert "more mass" in (implausible(reg, gives(released(reg, [0, 0, 0, over + 1], [0, 0, 0, 0])), number) or "")
    paper = registration(thresholds=3, grid=True, preset="paper")
    assert (
        implausible(paper, gives(released(paper, [0, 0, 0, 10**6], [0, 0, 0, 0])), number) is None
    )  # no budget, no check


def test_the_tally_adds_exactly() -> None:
    reg = registration(SITES, thresholds=3, grid=True)
    one, other = released(reg, [1, 2, 3, 4], [0, 1, 0, 1], 10), released(reg, [5, 0, 0, 1], [0, 0, 0, 2], 8)
    tally = add(empty(reg), [gives(one), gives(other, 1)])
    assert (tally.slots, tally.noises, tally.total) == ((10, 8), 2, 18)
    assert tally.sums.tolist() == (np.array([one.first, one.second]) + np.array([other.first, other.second])).tolist()


@given(st.integers(0, 10**6), st.floats(0.5, 40.0), st.integers(1, 500))
@settings(deadline=None)
def test_a_missing_release_is_charged_with_the_worst_that_passes_for_honest(seed: int, epsilon: float, n: int) -> None:
    """theory (iv), Dropout: whatever plausible release was withheld, folding it would have given no smaller wealth."""
    base = registration(thresholds=3, grid=True, epsilon=epsilon, dropout="adversarial")
    rng = np.random.default_rng(seed)
    reach = int(3 * base.mechanism.scale / 256) + 2
    first, second = rng.integers(-reach, n + reach, (2, 4)).tolist()
    withheld = released(base, first, second, n)
    if implausible(base, gives(withheld), 5) is not None:
        return
    before = add(empty(base), [gives(released(base, [0, 300, 200, 100], [0, 20, 10, 5], 700))])
    charged, folded = (sample(base, t) for t in (lose(base, before, [(0, n)], 5), add(before, [gives(withheld)])))
    assert charged.N == folded.N
    np.testing.assert_array_equal(charged.masses.noise.uu, folded.masses.noise.uu)
    rungs = betting.ladder(base.certificate.ladder)  # type: ignore[union-attr]
    wealth = [
        betting.log_wealth(s.masses.unsupported, s.masses.supported, s.masses.noise, s.N, eta=0.0, rungs=rungs)
        for s in (charged, folded)
    ]
    assert (wealth[0] <= wealth[1] + 1e-9).all()
    assert (charged.masses.accepted <= folded.masses.accepted + 1e-9).all()
    assert (look(base, charged).acceptance_lower <= look(base, folded).acceptance_lower + 1e-9).all()


def test_charging_content_alone_would_be_invalid_under_noise() -> None:
    """The mutant "charge n unsupported units and forget the noise": a plausible release can be worse than that."""
    reg = registration(thresholds=3, grid=True, epsilon=1.0, dropout="adversarial")
    n = 5
    reach = int(math.sqrt(float(sample(reg, replace(empty(reg), noises=1)).masses.noise.ss[0])))
    withheld = released(reg, [0, 0, 0, -3 * reach], [0, 0, 0, 3 * reach], n)
    assert implausible(reg, gives(withheld), 1) is None
    x, y = betting.slopes(0.2, 1.0)
    assert float(x) * 3 * reach - float(y) * 3 * reach < n * float(x)  # worse than all slots unsupported


@given(st.integers(0, 10**6))
def test_acceptance_bounds_fall_with_the_threshold(seed: int) -> None:
    """A higher threshold accepts less, and all bounds hold at once: the noisiest threshold borrows from those above."""
    reg = registration(thresholds=5, grid=True)
    rng = np.random.default_rng(seed)
    accepted = np.sort(rng.uniform(0, 900, 5))[::-1] + rng.normal(0, 40, 5)  # noise breaks the order
    base = exact(reg, [1.0] * 5, [1.0] * 5, 1000)
    now = look(reg, replace(base, masses=replace(base.masses, accepted=accepted)))
    plain = betting.a_lower(
        accepted, np.zeros(5), 1000,
        eta=0.0, bets=betting.centres(0.05), alpha_a=0.0049, w=np.full(5, 0.2),
    )  # fmt: skip
    assert (np.diff(now.acceptance_lower) <= 0).all()
    expected = [max(plain[j:].max(), 0) for j in range(5)]
    np.testing.assert_allclose(now.acceptance_lower, expected, atol=1e-8)


def test_every_bound_gives_way_to_floating_point(monkeypatch: pytest.MonkeyPatch) -> None:
    reg = registration(thresholds=3, grid=True)
    seen = exact(reg, [20, 5, 0], [900, 700, 400], 1000)
    assert seen.float_error == pytest.approx(1e-9 + 1e-15 * 1000 * 3)
    before = look(reg, seen)
    monkeypatch.setattr(Sample, "float_error", 0.01)
    after = look(reg, seen)
    np.testing.assert_allclose(after.acceptance_lower, before.acceptance_lower - 0.01, atol=2e-9)
    monkeypatch.setattr(Sample, "float_error", 1e6)
    assert (look(reg, seen).risk_upper == 1).all()


def test_bounds_for_the_target_alone() -> None:
    reg = registration(thresholds=3, grid=True)
    now = Look(np.array([0.13, 0.2, 0.31]), np.ones(3), np.array([True, True, False]))
    assert for_target_only(reg, now).risk_upper.tolist() == [0.2, 0.2, 1.0]


def test_covariance_of_a_statistic() -> None:
    V = Covariance(np.array([2.0]), np.array([-1.0]), np.array([3.0]))
    assert V.of(1.0, 2.0).tolist() == [2 - 4 + 12]
