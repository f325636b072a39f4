"""The membership audit: its statistic, its bounds, and what it sees in real releases and in broken ones.

Chance of a false alarm. A bound above the truth: at most 1e-6 in each of the five audits of real releases, which is
what an audit promises. A broken release that is missed, or an attack on real releases that is felt too little: at most
2e-8 each, by the binomial law of the attack that sees it best. Coins: seven deviations, 3e-12. The rest is exact.

Mutants killed in releases: noise missing, scale halved, variance halved, noise on one vector only (either one), the
same noise in every release, a unit counted twice. In the audit: wrong sign of the evidence, |e|^2 / 2 lost, scale and
variance confused, right and wrong guesses swapped, limits taken from above, a limit at twice or half its failure
probability, no union over attacks, delta dropped or doubled, the divergence at the wrong order or of the wrong law.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from itertools import product
from typing import Any

import dp_accounting
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import logsumexp, ndtr
from scipy.stats import binom

from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats, Ints
from fedsrc.maths.basis import sensitivity_squared
from fedsrc.maths.privacy import delta_gaussian, rho_of_scale
from fedsrc.planning.register import Choices, register_grid
from fedsrc.planning.sealing import Seal, seal
from fedsrc.protocol.registration import Registration
from fedsrc.records.masses import counted, unit_masses
from fedsrc.server.recruiter import make_requests
from fedsrc.site.noise import add_discrete_gaussian
from research import membership
from research.membership import Audit, Guesses, Publish, Worlds
from tests.support.helpers import changed, single_units

pytestmark = pytest.mark.thorough

RELEASES = 10_000
PROBABILITY = st.floats(0.01, 1)


@cache
def small(preset: Any = "default", epsilon: float = 3.0, delta: float = 0.05) -> Registration:
    """Two thresholds and a large delta: the claim then speaks of guesses that come often enough to be counted."""
    return register_grid(Choices(0.2, epsilon, preset=preset, delta=delta, thresholds=2, grid=True), ["a"])


def pair_of(reg: Registration) -> Worlds:
    """The worst change of one unit beside four others."""
    return membership.worlds(reg, counted(reg, single_units([0.1, 0.5, 0.5, 0.9], [1.0, 0.0, 1.0, 0.0])))


def supported(reg: Registration) -> Worlds:
    """A supported answer in the top bin, against nothing."""
    unit = unit_masses(reg, single_units([1.0], [0.0]))[0]
    return membership.worlds(reg, np.zeros_like(unit), (np.zeros_like(unit), unit))


@cache
def real(preset: Any, epsilon: float) -> Audit:
    """An audit of real releases."""
    reg = small(preset, epsilon)
    request = make_requests(reg, [5], number=0, round=1)[0]
    return audited(reg, pair_of(reg), partial(membership.real_releases, reg, request))


def audited(reg: Registration, pair: Worlds, publish: Publish, *, sign: int = 1) -> Audit:
    coins = membership.fair_coins(RELEASES)
    return membership.audit(sign * membership.play(pair, publish, coins), coins, reg.privacy.delta)


# The statistic


def laws(pair: Worlds, scale: float, reach: int) -> tuple[Ints, Floats, Floats]:
    """Points where the worlds can differ, and the exact masses of both worlds there, each normalised on its own."""
    moved = np.argwhere(pair.difference)
    line = np.arange(-reach, reach + 1)
    points = np.broadcast_to(pair.baseline, (line.size ** len(moved), *pair.baseline.shape)).copy()
    steps = np.array(list(product(line, repeat=len(moved))))
    points[:, moved[:, 0], moved[:, 1]] += steps
    both = []
    for shift in (np.zeros(len(moved), dtype=np.int64), pair.difference[tuple(moved.T)]):
        mass = np.ones(len(steps))
        for one, move in zip(steps.T, shift, strict=True):
            wide = np.exp(-((np.arange(-40, 41) - move) ** 2) / (2 * scale**2))
            mass *= np.exp(-((one - move) ** 2) / (2 * scale**2)) / wide.sum()
        both.append(mass)
    return points, both[0], both[1]


def coarse(encoding: str, adjacency: str) -> Registration:
    """Plain bins, where a world is a few integers and can be enumerated."""
    return changed(small("paper"), privacy={"adjacency": adjacency}, encoding={"kind": encoding})


@pytest.mark.parametrize("encoding", ["paired", "complementary"])
@pytest.mark.parametrize("adjacency", ["zero-out", "replacement"])
def test_evidence_is_the_log_ratio_of_exact_masses(encoding: str, adjacency: str) -> None:
    pair = pair_of(coarse(encoding, adjacency))
    points, without, with_unit = laws(pair, pair.scale, 6)
    ratio = np.log(with_unit / without)
    np.testing.assert_allclose(pair.mu * membership.evidence(pair, points), ratio, atol=1e-9)


@given(st.floats(-3, 3), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=50)
def test_no_event_beats_a_threshold_of_the_evidence(level: float, chance: Any) -> None:
    """Neyman and Pearson: P1(E) - e^t P0(E) is largest where the log ratio is at least t."""
    pair = pair_of(coarse("paired", "zero-out"))
    points, without, with_unit = laws(pair, pair.scale, 6)
    gain = with_unit - math.exp(level) * without
    best = gain[pair.mu * membership.evidence(pair, points) >= level].sum()
    other = np.array([chance.random() < 0.5 for _ in gain])
    assert gain[other].sum() <= best + 1e-12


def test_evidence_is_centred_between_the_worlds() -> None:
    for reg in (small(), small("paper"), coarse("complementary", "replacement")):
        pair = pair_of(reg)
        ends = membership.evidence(pair, np.stack([pair.baseline, pair.baseline + pair.difference]))
        np.testing.assert_allclose(ends, [-pair.mu / 2, pair.mu / 2])


@pytest.mark.parametrize("basis", ["bins", "suffix"])
@pytest.mark.parametrize("encoding", ["paired", "complementary"])
@pytest.mark.parametrize("adjacency", ["zero-out", "replacement"])
def test_the_worst_change_reaches_the_registered_sensitivity(basis: str, encoding: str, adjacency: str) -> None:
    base = register_grid(Choices(0.2, 1.0, thresholds=7, grid=True), ["a"])
    fields = {"adjacency": adjacency, "loss_grid": 4}
    reg = changed(base, privacy=fields, encoding={"kind": encoding, "basis": basis})
    rule, pair = reg.mechanism, pair_of(reg)
    squared = sensitivity_squared(rule.basis, reg.histograms.kind, reg.privacy.adjacency)
    assert pair.distance**2 == pytest.approx(squared * rule.grid**2, rel=1e-12)
    assert pair.mu**2 / 2 == pytest.approx(rule.rho, rel=1e-12)


@pytest.mark.parametrize("preset", ["default", "paper"])
def test_the_worst_unit_is_a_record(preset: str) -> None:
    """What is audited is what a site would count for an unsupported answer with the highest score."""
    reg = changed(small(preset), privacy={"adjacency": "zero-out"})
    nothing, unit = membership.worst_change(reg)
    assert not nothing.any()
    np.testing.assert_array_equal(unit, unit_masses(reg, single_units([1.0], [1.0]))[0])


def test_the_worst_pair_is_of_two_records() -> None:
    """By default: a supported and an unsupported answer with the highest score."""
    reg = small()
    pair = {each.tobytes() for each in membership.worst_change(reg)}
    assert pair == {unit_masses(reg, single_units([1.0], [loss]))[0].tobytes() for loss in (0.0, 1.0)}


def test_a_registration_without_noise_is_refused() -> None:
    bare = changed(small(), privacy={"epsilon": math.inf})
    with pytest.raises(FedsrcError, match="claims no privacy"):
        pair_of(bare)
    with pytest.raises(FedsrcError, match="one finite number per coin"):
        membership.audit(np.array([math.nan]), np.array([True]), 0.1)


# The bounds


def spoken(mu: float, t: float) -> tuple[float, float]:
    """c and g of the two-sided attack at t on a Gaussian of that mu."""
    right, wrong = float(ndtr(mu / 2 - t)), float(ndtr(-mu / 2 - t))
    return right / (right + wrong), right + wrong


@given(st.floats(0.1, 3), st.floats(0.05, 4))
@settings(deadline=None)
def test_the_epsilon_bound_is_an_equality_at_the_best_threshold(mu: float, eps: float) -> None:
    """Where the log ratio is epsilon, the bound at delta(epsilon) is epsilon itself; at other thresholds it is less."""
    delta = delta_gaussian(mu, eps)
    assume(delta > 1e-9)
    assert membership.epsilon_bound(*spoken(mu, eps / mu), delta) == pytest.approx(eps, rel=1e-6)
    for t in (0.0, 0.5 * eps / mu, 2.0 * eps / mu):
        assert membership.epsilon_bound(*spoken(mu, t), delta) <= eps * (1 + 1e-6)


def triple(weights: tuple[float, float, float]) -> Floats:
    return np.array(weights) / sum(weights)


def divergences(P: Floats, Q: Floats) -> Floats:
    """D_a(P || Q) / a at the audit's orders."""
    a = membership.ORDERS[:, None]
    return np.asarray(logsumexp(a * np.log(P) + (1 - a) * np.log(Q), axis=1) / (a * (a - 1))[:, 0])


@given(st.tuples(*[PROBABILITY] * 3), st.tuples(*[PROBABILITY] * 3), st.floats(0, 0.2))
@settings(deadline=None)
def test_bounds_hold_for_any_two_laws_of_an_attackers_answer(a: Any, b: Any, delta: float) -> None:
    """Laws of ("in", "out", silent) in the two worlds, however skewed: neither bound exceeds their privacy loss."""
    present, absent = triple(a), triple(b)
    right, wrong = (present[0] + absent[1]) / 2, (absent[0] + present[1]) / 2
    c, g = right / (right + wrong), right + wrong
    eps = membership.epsilon_bound(c, g, delta)
    ways = [(present, absent), (absent, present)]
    assert eps == 0 or max(np.maximum(P - math.exp(eps) * Q, 0).sum() for P, Q in ways) >= delta - 1e-12
    assert membership.rho_bound(c, g) <= max(divergences(P, Q).max() for P, Q in ways) + 1e-9


@given(st.floats(0.5001, 0.99), st.floats(0.01, 0.99))
@settings(deadline=None)
def test_the_rho_bound_is_the_divergence_of_the_swapped_law(c: float, g: float) -> None:
    right, wrong, silent = g * c, g * (1 - c), 1 - g
    expected = divergences(np.array([right, wrong, silent]), np.array([wrong, right, silent])).max()
    assert membership.rho_bound(c, g) == pytest.approx(expected, rel=1e-6, abs=1e-10)


@given(st.floats(0.05, 2.5))
@settings(deadline=None)
def test_the_rho_bound_of_a_gaussian_is_below_its_rho_and_not_far(mu: float) -> None:
    found = [membership.rho_bound(*spoken(mu, t / 4)) / (mu**2 / 2) for t in range(18)]
    assert 0.63 < max(found) < 1  # 2/pi of it at t = 0, as mu falls


@given(st.floats(0.5, 0.99), st.floats(0.01, 0.99), st.floats(0, 0.3), st.floats(0, 0.009))
@settings(deadline=None)
def test_bounds_grow_with_both_rates(c: float, g: float, delta: float, step: float) -> None:
    for more in ((c + step, g), (c, g + step)):
        assert membership.epsilon_bound(*more, delta) >= membership.epsilon_bound(c, g, delta) - 1e-12
        assert membership.rho_bound(*more) >= membership.rho_bound(c, g) - 1e-12


def test_ends_of_the_bounds() -> None:
    assert math.isinf(membership.epsilon_bound(1.0, 0.5, 0.1))
    assert math.isinf(membership.rho_bound(1.0, 0.5))
    assert membership.epsilon_bound(0.9, 0.1, 0.1) == 0
    assert membership.rho_bound(0.5, 1.0) == 0
    assert membership.rho_bound(0.7, 1.0) == pytest.approx(membership.rho_bound(0.7, 1 - 1e-12))
    for nobody in (Guesses(10, 0, 0), Guesses(10, 5, 0), Guesses(0, 0, 0)):
        assert membership.bounds(nobody, 0.1, 0.1) == membership.Bounds(0.0, 0.0)


def test_the_bounds_fail_as_rarely_as_they_say_and_not_much_more_rarely() -> None:
    """All outcomes of 300 guesses at the boundary, where the claim is just true: exact failure probability."""
    n, eps, alarm = 300, 1.0, 0.02
    c = math.exp(eps) / (1 + math.exp(eps))
    found = [membership.bounds(Guesses(n, n, k), 0.0, alarm) for k in range(n + 1)]
    mass = binom.pmf(range(n + 1), n, c)
    for failed in ([b.epsilon > eps for b in found], [b.rho > membership.rho_bound(c, 1.0) for b in found]):
        assert alarm / 4 < mass[failed].sum() <= alarm / 2  # the other half belongs to g


def test_limits_are_where_the_exact_tail_is_half_the_failure_probability() -> None:
    n, made, right, delta, alarm = 500, 200, 150, 0.01, 1e-3
    c = brentq(lambda p: binom.sf(right - 1, made, p) - alarm / 2, 0.01, right / made)
    g = brentq(lambda p: binom.sf(made - 1, n, p) - alarm / 2, 0.01, made / n)
    found = membership.bounds(Guesses(n, made, right), delta, alarm)
    assert found.epsilon == pytest.approx(membership.epsilon_bound(c, g, delta), rel=1e-6)
    assert found.rho == pytest.approx(membership.rho_bound(c, g), rel=1e-6)


def test_every_attack_pays_its_share_of_the_failure_probability() -> None:
    """Evidence of two values, so that the best attack is known: it speaks always and is right 800 times in 1,000."""
    coins = np.arange(1000) % 2 == 0
    seen = np.where(coins ^ (np.arange(1000) % 10 < 2), 0.1, -0.1)
    found = membership.audit(seen, coins, 1e-6, 0.01)
    expected = Guesses(1000, 1000, 800)
    assert found == Audit(membership.bounds(expected, 1e-6, 0.01 / (3 * 18)), expected, expected)


def test_guesses_are_counted_against_the_coins() -> None:
    seen = np.array([-2.0, -1.0, 0.0, 1.0, 2.0, 2.0])
    coins = np.array([False, True, True, False, True, False])
    count = partial(membership.guesses, seen=seen, coins=coins)
    assert count(membership.Attack(-1.0, 1.0)) == Guesses(6, 4, 2)
    assert count(membership.Attack(0.0, 0.0)) == Guesses(6, 6, 3)
    assert count(membership.Attack(-math.inf, 2.0)) == Guesses(6, 2, 1)
    assert count(membership.Attack(-1.5, math.inf)) == Guesses(6, 1, 1)


def test_coins_are_fair_and_fresh() -> None:
    coins = membership.fair_coins(100_001)
    assert coins.shape == (100_001,)
    assert abs(coins.mean() - 0.5) < 7 * 0.5 / math.sqrt(coins.size)
    assert (coins != membership.fair_coins(100_001)).any()


# The reference


@pytest.mark.parametrize("mu", [0.2, 0.8, 2.0])
@pytest.mark.parametrize("delta", [1e-6, 0.05])
def test_epsilon_of_a_gaussian_agrees_with_dp_accounting(mu: float, delta: float) -> None:
    expected = dp_accounting.get_epsilon_gaussian(1 / mu, delta)
    assert membership.epsilon_gaussian(mu, delta) == pytest.approx(expected, abs=1e-6)


def test_no_epsilon_is_needed_where_delta_covers_everything() -> None:
    assert membership.epsilon_gaussian(0.1, 0.5) == 0


def exact_epsilon(pair: Worlds, delta: float) -> float:
    """Smallest epsilon of two enumerated worlds at that delta, both ways (they are mirror images)."""
    _, without, with_unit = laws(pair, pair.scale, 12)
    low, high = 0.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        over = np.maximum(with_unit - math.exp(middle) * without, 0).sum() > delta
        low, high = (middle, high) if over else (low, middle)
    return high


def test_the_gaussian_is_near_the_exact_loss_of_a_fine_lattice_and_not_of_a_coarse_one() -> None:
    fine, rough = (pair_of(small("paper", epsilon)) for epsilon in (1.5, 20.0))
    assert fine.scale > 2 > 0.5 > rough.scale
    assert membership.epsilon_gaussian(fine.mu, 0.05) == pytest.approx(exact_epsilon(fine, 0.05), rel=0.02)
    assert membership.epsilon_gaussian(rough.mu, 0.05) != pytest.approx(exact_epsilon(rough, 0.05), rel=0.02)


# Real releases and broken ones


def sealed(epsilon: float = 3.0) -> Registration:
    """Contrasts of two thresholds, under replacement."""
    fields = {**small(epsilon=epsilon).model_dump(), "schedule": {"rounds": 1}}
    fields["privacy"]["adjacency"] = "replacement"
    plan = Seal((0.4, 0.7), (0.5, 0.5), ((0.2, 1.0, (0.5, 0.5)),))
    return seal(Registration.model_validate(fields), plan)


def finer(encoding: Any, epsilon: float = 3.0) -> Registration:
    """Second moments or levels of losses in quarters at two thresholds, under replacement."""
    choices = Choices(0.2, epsilon, encoding=encoding, loss_grid=4, delta=0.05, thresholds=2, grid=True)
    return register_grid(choices, ["a"])


OTHERS: dict[str, Callable[[], Registration]] = {
    "sealed": sealed, "moments": partial(finer, "moments"), "levels": partial(finer, "levels")
}  # fmt: skip


@pytest.mark.parametrize("adjacency", ["zero-out", "replacement"])
@pytest.mark.parametrize("kind", OTHERS)
def test_the_worst_change_reaches_the_sensitivity(kind: str, adjacency: str) -> None:
    reg = changed(OTHERS[kind](), privacy={"adjacency": adjacency})
    pair = pair_of(reg)
    assert pair.distance == pytest.approx(reg.mechanism.sensitivity, rel=1e-12)
    assert pair.mu**2 / 2 == pytest.approx(reg.mechanism.rho, rel=1e-12)


@pytest.mark.parametrize("kind", OTHERS)
def test_real_releases_of_other_kinds_stay_within_the_claim_and_too_little_noise_is_noticed(kind: str) -> None:
    reg = OTHERS[kind]()
    pair, claim = pair_of(reg), membership.claim_of(reg)
    request = make_requests(reg, [5], number=0, round=1)[0]
    found = audited(reg, pair, partial(membership.real_releases, reg, request))
    true = membership.epsilon_gaussian(pair.mu, claim.delta)
    assert 0.5 * true < found.bounds.epsilon <= true < claim.epsilon
    assert 0.4 * claim.rho < found.bounds.rho <= claim.rho
    assert "rho" in audited(reg, pair, partial(noised, reg, factor=0.5)).refuted(claim)


def test_real_releases_stay_within_the_claim_and_the_attack_is_felt() -> None:
    """Below the true loss, which is below the claim; above half of it, so that the attack is not idle."""
    reg = small()
    pair, claim, found = pair_of(reg), membership.claim_of(reg), real("default", 3.0)
    true = membership.epsilon_gaussian(pair.mu, claim.delta)
    assert true < claim.epsilon
    assert 0.5 * true < found.bounds.epsilon <= true
    assert 0.4 * claim.rho < found.bounds.rho <= claim.rho
    assert found.refuted(claim) == ()


def test_real_releases_of_the_paper_stay_within_their_claim() -> None:
    """A coarse lattice: held against the exact loss of the enumerated worlds."""
    reg = small("paper", 4.0)
    pair, claim, found = pair_of(reg), membership.claim_of(reg), real("paper", 4.0)
    true = exact_epsilon(pair, claim.delta)
    assert true < claim.epsilon
    assert 0.4 * true < found.bounds.epsilon <= true
    assert 0.3 * claim.rho < found.bounds.rho <= claim.rho
    assert found.refuted(claim) == ()


def noised(reg: Registration, histograms: Ints, factor: float) -> Ints:
    """A release whose noise scale is wrong by a factor; zero is no noise."""
    rule = reg.mechanism
    scale = rule.scale * factor
    rho = rho_of_scale(rule.sensitivity**2, scale)
    return add_discrete_gaussian(membership.exact(reg, histograms), scale, sensitivity=rule.sensitivity, rho=rho)


def bare_vector(reg: Registration, histograms: Ints, bare: int) -> Ints:
    """A release with noise on one vector only."""
    released = noised(reg, histograms, 1.0)
    released[:, bare] = reg.mechanism.basis.encode(histograms)[:, bare]
    return released


def same_noise(reg: Registration, histograms: Ints) -> Ints:
    """A release whose noise never changes: one scale up, everywhere."""
    rule = reg.mechanism
    return np.asarray(rule.basis.encode(histograms) + round(rule.scale))


def counted_twice(reg: Registration, histograms: Ints) -> Ints:
    """A release that counts the audited unit twice."""
    pair = pair_of(reg)
    return noised(reg, 2 * histograms - pair.absent, 1.0)


def test_halved_scale_is_detected() -> None:
    for preset, epsilon in (("default", 3.0), ("paper", 4.0)):
        reg = small(preset, epsilon)
        found = audited(reg, pair_of(reg), partial(noised, reg, factor=0.5))
        assert "rho" in found.refuted(membership.claim_of(reg))
        assert preset == "paper" or found.refuted(membership.claim_of(reg)) == ("epsilon", "rho")


@pytest.mark.parametrize(
    "publish",
    [
        partial(noised, factor=math.sqrt(0.5)),
        partial(noised, factor=0.0),
        partial(bare_vector, bare=1),
        same_noise,
        counted_twice,
    ],
    ids=["variance halved", "noise missing", "first vector only", "same noise", "counted twice"],
)
def test_broken_releases_are_detected(publish: Any) -> None:
    reg = small()
    assert "rho" in audited(reg, pair_of(reg), partial(publish, reg)).refuted(membership.claim_of(reg))


def test_noise_on_the_second_vector_only_is_detected_by_a_supported_unit() -> None:
    reg = small()
    found = audited(reg, supported(reg), partial(bare_vector, reg, bare=0))
    assert found.refuted(membership.claim_of(reg)) == ("epsilon", "rho")


def test_an_attack_of_the_wrong_sign_sees_nothing() -> None:
    """So the tests above would fail with it, even on releases without noise."""
    reg = small()
    found = audited(reg, pair_of(reg), partial(noised, reg, factor=0.0), sign=-1)
    assert found.bounds == membership.Bounds(0.0, 0.0)
