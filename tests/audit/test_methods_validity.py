"""Which of the methods hold: by enumeration where outcomes can be listed, by seeded streams where noise forbids it.

Enumerations have no false alarms. Streams: seeds are fixed; limits are such that another seed would fail correct code
with probability at most 1e-6 (for a failure probability of 5%, `limit` below; for controls, as each test says).
Mutants killed: a p-value off by one count; a sequence tested without stopping at its first failure; a bet that sees its
own round; the bias of a private e-value, its factor m or its transfer charge dropped; a mixture at half its variance;
noise ignored or halved, shift ignored, fixed-n rules stopped early (each is run here, as a control that must violate).
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from itertools import product

import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss
from scipy.stats import binom, norm

from fedsrc.audit.methods import METHODS, controls, csa, ltt, private_e_values
from fedsrc.audit.methods.controls import Change
from fedsrc.audit.methods.setting import Aim, Evidence, Unreleased, gather
from fedsrc.maths.arrays import Floats
from fedsrc.maths.basis import covariance
from fedsrc.maths.betting import ladder, log_wealth
from tests.support.evidence import READ_SUMS, fired, simulated
from tests.support.formulas import log_half_normal_mixture

ALPHA = 0.05


# ---------------------------------------------------------------- fixed n, enumerated


@pytest.mark.parametrize("r", [0.1, 0.3, 0.5])
def test_exact_p_values_are_attained(r: float) -> None:
    """At the boundary P(p <= p(z)) = p(z) for every z: no smaller p-value would be valid. The others hold as well."""
    for n in (1, 7, 40):
        z = np.arange(n + 1.0)
        pmf = binom.pmf(z, n, r)
        p = ltt.exact(z, np.full(n + 1, float(n)), r)
        np.testing.assert_allclose(np.cumsum(pmf), p, rtol=1e-10)
        for other in (ltt.hoeffding, ltt.bentkus, ltt.hoeffding_bentkus):
            q = other(z, np.full(n + 1, float(n)), r)
            assert all(pmf[q <= level].sum() <= level + 1e-12 for level in (*q, 0.01, 0.05, 0.2))
        off_by_one = ltt.exact(z - 1, np.full(n + 1, float(n)), r)
        assert any(pmf[off_by_one <= level].sum() > level + 1e-9 for level in off_by_one)


def test_families_hold_their_level() -> None:
    """Two nested thresholds at the boundary, all histograms of 14 records; each tested at alpha does not hold."""
    n, r, alpha = 14, 0.4, 0.3
    law = np.array([1 - r, r, 1 - r, r]) / 2  # lower bin right, wrong; upper bin right, wrong; nothing is rejected
    first = np.array([c for c in product(range(n + 1), repeat=3) if sum(c) <= n])
    counts = np.column_stack([first, n - first.sum(axis=1)])
    logs = math.lgamma(n + 1) - np.vectorize(math.lgamma)(counts + 1.0).sum(axis=1) + counts @ np.log(law)
    weight = np.exp(logs)
    assert weight.sum() == pytest.approx(1)
    A = np.column_stack([np.full(len(counts), n), counts[:, 2] + counts[:, 3]]).astype(float)
    Z = np.column_stack([counts[:, 1] + counts[:, 3], counts[:, 3]]).astype(float)
    p = ltt.exact(Z, A, r)
    assert weight[ltt.bonferroni(p, alpha).any(axis=1)].sum() <= alpha
    assert weight[ltt.fixed_sequence(p, alpha).any(axis=1)].sum() <= alpha
    assert weight[(p <= alpha).any(axis=1)].sum() > alpha


# ---------------------------------------------------------------- all n at once, enumerated


@lru_cache(maxsize=32)
def crossing(name: str, r: float, records: int, every: int = 1) -> tuple[float, float]:
    """Exact probabilities, at the boundary with everything accepted, of ever certifying and of doing so at the end."""
    looks = np.arange(every, records + 1, every)
    Z = np.minimum(np.arange(records + 1.0)[:, None], looks)[..., None]
    A = np.broadcast_to(looks.astype(float)[:, None], Z.shape)
    seen = gather(A, Z, looks, declared=False)
    certified = METHODS[name].judge(seen, Aim(r, failure_probability=ALPHA)).certified[..., 0]
    alive = np.zeros(records + 1)
    alive[0] = 1.0
    step = binom.pmf(np.arange(every + 1), every, r)
    ever = 0.0
    for t in range(looks.size):
        alive = np.convolve(alive, step)[: records + 1]
        ever += alive[certified[:, t]].sum()
        alive[certified[:, t]] = 0.0
    last = binom.pmf(np.arange(records + 1), records, r)[certified[:, -1]].sum()
    return float(ever), float(last)


ANYTIME = [
    "anytime-crc", "yu-liu-spending", "schedule-stitching", "fed-src-c", "fed-src-va", "ratio", "private-sequence",
    "betting", "betting-tilted",
]  # fmt: skip


@pytest.mark.parametrize("name", ANYTIME)
def test_anytime_methods_hold_at_every_look(name: str) -> None:
    ever, _ = crossing(name, 0.3, 400)
    assert ever <= ALPHA


@pytest.mark.parametrize("name", ["ltt-exact-bonferroni", "ltt-hb-bonferroni", "c-rag", "private-fixed-time", "yu-liu"])
def test_fixed_n_methods_hold_at_the_last_look(name: str) -> None:
    ever, last = crossing(name, 0.3, 400)
    assert last <= ALPHA
    assert ever >= last


def test_a_fixed_n_test_does_not_survive_stopping() -> None:
    ever, last = crossing("ltt-exact-bonferroni-after-stopping", 0.3, 400)
    assert last <= ALPHA < ever


def test_the_betting_certificate_is_not_far_from_its_level() -> None:
    """Of the anytime rules it wastes least: the enumeration can tell a bound from a looser one."""
    found = {name: crossing(name, 0.3, 400)[0] for name in ("betting", "private-sequence", "fed-src-c")}
    assert found["betting"] > 0.2 * ALPHA > found["private-sequence"] > found["fed-src-c"]


# ---------------------------------------------------------------- wealth has mean one


def _paths(rounds: int, batch: int, a: float, R: list[float]) -> tuple[Floats, Floats, Floats]:
    """All sequences of (accepted, unsupported) per round with their probabilities; R is the risk of each round."""
    states = [(i, j) for i in range(batch + 1) for j in range(i + 1)]
    laws = [[binom.pmf(i, batch, a) * binom.pmf(j, i, risk) for i, j in states] for risk in R]
    picks = np.array(list(product(range(len(states)), repeat=rounds)))
    weight = np.prod([np.asarray(laws[t])[picks[:, t]] for t in range(rounds)], axis=0)
    sums = np.cumsum(np.asarray(states, dtype=float)[picks], axis=1)
    return sums[..., :1], sums[..., 1:], weight


@pytest.mark.parametrize("mean", csa.MEANS)
def test_csa_wealth_has_mean_one(mean: csa.Mean) -> None:
    rounds, batch, r = 3, 3, 0.3
    A, Z, weight = _paths(rounds, batch, 0.6, [r] * rounds)
    N = np.broadcast_to(np.arange(1.0, rounds + 1)[:, None] * batch, A.shape)
    wealth = np.exp(csa.log_wealth(A, Z, N, r, mean))[..., 0]
    np.testing.assert_allclose(weight @ wealth, 1.0, atol=1e-12)
    lam = csa.bets(A, Z, N, r, mean)
    peeking = np.concatenate([lam[:, 1:], lam[:, -1:]], axis=1)
    dA, dZ = (np.diff(x, axis=1, prepend=0.0) for x in (A, Z))
    seen = np.exp(np.cumsum((dA - dZ) * np.log1p(peeking * r) + dZ * np.log1p(-peeking * (1 - r)), axis=1))[..., 0]
    assert (weight @ seen)[1] > 1.05


def test_csa_does_not_test_the_mixture() -> None:
    """Two rounds, a bad site and then a good one, mixture at the boundary: the adaptive bet has mean above one."""
    r = 0.3
    A, Z, weight = _paths(2, 4, 0.6, [r + 0.2, r - 0.2])
    N = np.broadcast_to(np.array([[4.0], [8.0]]), A.shape)
    wealth = np.exp(csa.log_wealth(A, Z, N, r, "code"))[:, -1, 0]
    assert weight @ wealth > 1.02
    constant = np.exp(Z * np.log1p(-0.5 * (1 - r)) + (A - Z) * np.log1p(0.5 * r))[:, -1, 0]
    assert weight @ constant <= 1


def _released(m: int, eta: float, *, drop: str = "") -> float:
    """Mean private e-value of one release of 3 records with contrast -eta, over records and Gaussian noise."""
    r, a, lam, rho, n = 0.3, 0.6, 0.4, 0.5, 3
    A, Z, weight = _paths(1, n, a, [r - eta / a])
    x, w = hermegauss(60)
    own = Unreleased(
        np.repeat(A, m, axis=2)[:, None], np.repeat(Z, m, axis=2)[:, None],
        np.broadcast_to(x[None, :, None, None], (len(weight), x.size, 1, m)), np.ones((len(weight), x.size, 1)), rho, n,
    )  # fmt: skip
    charged = 0.0 if drop == "eta" else eta
    log_E = private_e_values.log_e(own, np.full((1, 1, 1), float(n)), np.full((1, 1, 1), charged), r, lam)[..., 0, 0]
    if drop == "bias":
        log_E = log_E + private_e_values.scale(r, lam, m, rho) ** 2 / 2
    return float(weight @ np.exp(log_E) @ (w / w.sum()))


def test_private_e_values_have_mean_one() -> None:
    assert _released(1, 0.0) == pytest.approx(1, abs=1e-10)
    assert _released(4, 0.0) == pytest.approx(1, abs=1e-10)
    product_below_one = (1 + 0.4 * 0.06) ** 3 * math.exp(-0.4 * 3 * 0.06)
    assert _released(2, 0.06) == pytest.approx(product_below_one, abs=1e-10)
    assert product_below_one < 1
    assert _released(2, 0.0, drop="bias") > 1.05
    assert _released(2, 0.06, drop="eta") > 1.05


def test_private_e_values_pay_for_every_threshold() -> None:
    """zCDP of the whole release: sum over thresholds of Delta^2 / (2 s^2) is rho, Delta attained by one record, or by
    one in place of another."""
    for r, lam, m in product((0.1, 0.4), (0.2, 1.0), (1, 20)):
        added = [0.0, *(math.log(1 - lam * (loss - r)) for loss in np.linspace(0, 1, 101))]
        changes = {"zero-out": max(map(abs, added)), "replacement": max(added) - min(added)}
        for adjacency, change in changes.items():
            s = private_e_values.scale(r, lam, m, 0.3, adjacency)  # type: ignore[arg-type]
            assert m * change**2 / (2 * s**2) == pytest.approx(0.3)


def test_planned_bets_fall_with_privacy() -> None:
    bets = [private_e_values.planned_bet(0.2, 200, 20, rho) for rho in (math.inf, 1.0, 0.1, 0.01)]
    assert bets == sorted(bets, reverse=True)
    assert bets[-1] < bets[0]
    few, many = (private_e_values.planned_bet(0.2, n, 20, 0.1) for n in (20, 2000))
    assert few < many
    assert private_e_values.planned_bet(0.2, 200, 20, 0.1, "replacement") < bets[2]


def _mixture_mean(v: float, charged: float, rho: float, reach: float) -> float:
    """Mean of the mixture at intrinsic time `charged` over N(0, v), on [-reach, reach]."""
    x = np.linspace(-reach, reach, 400_001)
    log_law = norm.logpdf(x, scale=math.sqrt(v))
    return float(np.trapezoid(np.exp(log_law + log_half_normal_mixture(x, np.array(charged), rho)), x))


def test_the_mixture_of_a_private_sequence_has_mean_one() -> None:
    """For Gaussian sums of variance v exactly; charged with half of it, above one (on part of the line already)."""
    for v, rho in product((0.5, 30.0), (1.0, 20.0)):
        whole = 12 * math.sqrt(v * (v + rho) / rho)
        assert _mixture_mean(v, v, rho, whole) == pytest.approx(1, abs=1e-8)
        assert _mixture_mean(v, v / 2, rho, 12 * math.sqrt(v)) > 1.005


def _mean_wealth(change: Change | None) -> float:
    """Mean betting wealth at the boundary after 3 records with Gaussian noise, charged as the change says."""
    r, v = 0.3, 4.0
    A, Z, weight = _paths(1, 3, 0.6, [r])
    x, w = hermegauss(40)
    noise_U, noise_S = np.meshgrid(math.sqrt(v) * x, math.sqrt(v) * x, indexing="ij")
    U, S = Z[:, :, :1] + noise_U, (A - Z)[:, :, :1] + noise_S
    seen = gather(
        (U + S)[..., None, None], U[..., None, None], [3],
        noise=covariance("complementary", np.full((1, 1), v)), unit=v,
    )  # fmt: skip
    seen = change(seen) if change else seen
    log_E = log_wealth(seen.unsupported, seen.supported, seen.noise, 3.0, eta=0.0, rungs=ladder([r]))[..., 0, 0, 0]
    w = w / w.sum()
    return float(weight @ (np.exp(log_E) @ w @ w))


def test_wealth_has_mean_one_only_if_noise_is_charged_in_full() -> None:
    """The control that halves the variance is shown here: in streams it fires too seldom to tell (see below)."""
    assert _mean_wealth(None) == pytest.approx(1, abs=1e-9)
    assert _mean_wealth(controls.halve_noise) > 1.02
    assert _mean_wealth(controls.ignore_noise) > _mean_wealth(controls.halve_noise)


# ---------------------------------------------------------------- noise and shift: seeded streams at a null

TRIALS, TARGET = 200, 0.2
LIMIT = int(binom.isf(1e-6, TRIALS, ALPHA))  # 27: what a method with 5% exceeds once in a million


@lru_cache(maxsize=4)
def null_stream(sigma: float) -> Evidence:
    """All thresholds at risk 0.205, just above target; 30 rounds of 5 x 200 records; epsilon 1 is sigma 7.57."""
    errors = np.full(21, 0.205)
    return simulated(1, trials=TRIALS, rounds=30, sites=5, m=20, batch=200, sigma=sigma, errors=errors, rho=0.0175)


def violations(name: str, seen: Evidence) -> int:
    return int(fired(METHODS[name], seen, Aim(TARGET)).sum())


PRIVATE = [name for name, method in READ_SUMS.items() if method.private and method.proved]


@pytest.mark.parametrize("name", PRIVATE)
def test_proved_private_methods_do_not_violate(name: str) -> None:
    assert violations(name, null_stream(7.57)) <= LIMIT


BROKEN = [
    ("betting-noise-ignored", 7.57), ("fed-src-c-noise-ignored", 7.57), ("fed-src-va-noise-ignored", 15.0),
    ("naive-ltt-exact-bonferroni", 7.57), ("naive-anytime-crc", 7.57), ("naive-yu-liu", 7.57),
    ("naive-csa-paper", 7.57), ("naive-csa-code", 7.57),
]  # fmt: skip


@pytest.mark.parametrize(("name", "sigma"), BROKEN)
def test_noise_that_is_not_charged_for_violates(name: str, sigma: float) -> None:
    """Each fires in at least 80 of 200; with that rate another seed falls to the limit with probability below 1e-12.

    Halving the variance fires in 21 of 200 for betting, above 5% but not beyond the limit, and never for the stitched
    rules, whose separate budgets leave room for it; neither is asserted.
    """
    assert violations(name, null_stream(sigma)) >= 80 > LIMIT


@pytest.mark.parametrize("name", ["fed-src-c", "fed-src-va", "betting"])
def test_a_shift_that_is_not_charged_for_violates(name: str) -> None:
    """Calibrated at risk 0.02, deployed at 0.3, which a transfer of 0.3 allows: every certificate is then false."""
    seen = simulated(3, trials=50, rounds=30, sites=5, m=20, batch=200, sigma=1.0, errors=np.full(21, 0.02), eta=0.3)
    assert violations(f"{name}-shift-ignored", seen) == 50
    assert violations(name, seen) == 0


def test_naive_counts_look_like_counts() -> None:
    """Rounded, A in [1, N], Z in [0, A], the noise forgotten."""
    noise = covariance("paired", np.full((1, 4), 9.0))
    seen = gather([[-3.2, 40.4, 120.0, 10.0]], [[2.0, 50.0, 7.6, -1.0]], [100], noise=noise, unit=9.0)
    found = controls.clipped(seen)
    assert found.accepted.tolist() == [[1, 40, 100, 10]]
    assert found.unsupported.tolist() == [[1, 40, 8, 0]]
    assert not found.noised


def test_controls_differ_from_their_methods_in_one_thing() -> None:
    """Without noise and shift the controls are the methods; the shift control keeps the noise."""
    clean, noised = simulated(5, batch=300), simulated(5, batch=300, sigma=2.0, eta=0.03)
    for name in ("fed-src-c", "fed-src-va", "betting"):
        whole = METHODS[name].judge(clean, Aim(TARGET)).contrast_upper
        for change in controls.CHANGES:
            found = METHODS[f"{name}-{change}"].judge(clean, Aim(TARGET)).contrast_upper
            np.testing.assert_array_equal(found, whole)
        bare = METHODS[name].judge(replace(noised, eta=np.zeros_like(noised.eta)), Aim(TARGET))
        shifted = METHODS[f"{name}-shift-ignored"].judge(noised, Aim(TARGET))
        np.testing.assert_array_equal(shifted.contrast_upper, bare.contrast_upper)
        full, half, none = (
            METHODS[key].judge(noised, Aim(TARGET)).contrast_upper
            for key in (name, f"{name}-noise-halved", f"{name}-noise-ignored")
        )
        assert (none <= half).all()
        assert (half <= full).all()
        assert (none < full).any()
