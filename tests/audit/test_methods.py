"""The methods we compare with: formulas against their fixtures and outside implementations, one interface for all.

Chance of a false alarm: none. Fixtures and enumerations are exact; generators are seeded.
Mutants killed: any constant, level or correction in a formula; a count off by one; a bet that sees its own round; a sum
over the wrong axis (batch and single trial agree); a method that accepts evidence it is not valid for.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mapie.risk_control.methods import compute_hoeffding_bentkus_p_value
from scipy.stats import beta, binom

from fedsrc.audit.methods import (
    METHODS,
    NATIVE,
    anytime_crc,
    betting,
    c_rag,
    capital,
    csa,
    fedcp_qq,
    local_only,
    ltt,
    private_sequence,
    schedule,
    yu_liu,
)
from fedsrc.audit.methods.setting import Aim, Evidence, Sites, Unreleased, Verdict, gather
from fedsrc.audit.outcomes import chosen
from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats
from fedsrc.maths.basis import covariance
from fedsrc.maths.betting import Covariance, Ladder, log_wealth
from fedsrc.records.units import units_of
from fedsrc.server.bounds import Look, Sample, look
from fedsrc.server.tally import masses, transfer
from fedsrc.simulate.population import uniform
from fedsrc.simulate.trials import discrete_gaussian, streams
from tests.support.evidence import READ_SUMS, fired, simulated
from tests.support.formulas import log_half_normal_mixture
from tests.support.helpers import changed, golden, registration, table

AIM = Aim(target_risk=0.2)
NOISY = {name for name, method in METHODS.items() if method.reads in ("released sums", "released e-values")}


def single(A: float, Z: float, N: float, m: int = 20) -> Evidence:
    """One look at m equal thresholds."""
    return gather(np.full((1, m), A), np.full((1, m), Z), np.array([N]))


# ---------------------------------------------------------------- fixtures


def test_learn_then_test_fixture() -> None:
    Z, A = np.array([10.0]), np.array([100.0])
    assert ltt.hoeffding(Z, A, 0.2)[0] == pytest.approx(0.0255019, abs=5e-8)
    assert ltt.bentkus(Z, A, 0.2)[0] == pytest.approx(0.0154844, abs=5e-8)
    assert ltt.exact(Z, A, 0.2)[0] == pytest.approx(0.00569638, abs=5e-9)
    assert ltt.hoeffding_bentkus(Z, A, 0.2)[0] == ltt.bentkus(Z, A, 0.2)[0]


def test_learn_then_test_against_mapie() -> None:
    """MAPIE takes n times the rate, which can miss an integer from above; those pairs are left out."""
    n, z = (x.ravel() for x in np.meshgrid(np.arange(1, 151, 7), np.arange(0, 151)))
    keep = (z <= n) & (np.ceil(n * (z / n)) == z)
    A, Z = n[keep].astype(float), z[keep].astype(float)
    assert keep.sum() > 1000
    for r in (0.05, 0.2, 0.3):
        graded = compute_hoeffding_bentkus_p_value(Z / A, A, r)[:, 0]
        binary = compute_hoeffding_bentkus_p_value(Z / A, A, r, binary=True)[:, 0]
        np.testing.assert_allclose(ltt.hoeffding_bentkus(Z, A, r), np.minimum(1, graded), rtol=1e-9, atol=1e-300)
        ours = np.minimum(ltt.hoeffding(Z, A, r), ltt.exact(Z, A, r))
        np.testing.assert_allclose(ours, binary, rtol=1e-9, atol=1e-300)


def test_p_values_at_the_edges() -> None:
    none = np.array([0.0])
    for p in ltt.P_VALUES.values():
        assert p(none, none, 0.2)[0] == 1.0
        assert p(np.array([7.0]), np.array([7.0]), 0.2)[0] == pytest.approx(1.0)
    assert ltt.exact(np.array([3 + 1e-12]), np.array([9.0]), 0.2)[0] == ltt.exact(np.array([3.0]), np.array([9.0]), 0.2)
    assert ltt.exact(np.array([2.5]), np.array([9.0]), 0.2)[0] == pytest.approx(binom.cdf(3, 9, 0.2))


def test_families() -> None:
    p = np.array([[0.001, 0.2, 0.04, 0.01], [0.001, 0.001, 0.001, 0.06]])
    assert ltt.bonferroni(p, 0.05).tolist() == [[True, False, False, True], [True, True, True, False]]
    assert ltt.fixed_sequence(p, 0.05).tolist() == [[False, False, True, True], [False] * 4]


@pytest.mark.parametrize(("r", "delta", "first"), [(0.05, 0.10, 325), (0.30, 0.05, 61), (0.20, 0.05, 95)])
def test_anytime_crc_first_size(r: float, delta: float, first: int) -> None:
    assert anytime_crc.m_star(r, delta) == first
    scan = [m for m in range(1, 400) if anytime_crc.boundary(r * (1 - r) * m, m, delta=delta) / m <= r]
    assert scan[0] == first
    assert scan == list(range(first, 400))


def test_anytime_crc_margins() -> None:
    assert anytime_crc.gamma(650, 0.05, 0.10) == pytest.approx(0.0310250, abs=5e-8)
    assert anytime_crc.gamma(19015, 0.20, 0.05) == pytest.approx(0.0120131, abs=5e-8)


def test_csa_fixture() -> None:
    """Every record is a round, all are accepted; 20 thresholds share the budget."""
    good = np.random.default_rng(1).random(500) > 0.15
    assert (~good).sum() == 73
    Z = np.repeat(np.cumsum(~good)[:, None].astype(float), 20, axis=1)
    A = np.repeat(np.arange(1.0, 501)[:, None], 20, axis=1)
    log_E = csa.log_wealth(A, Z, A, 0.3, "code")
    assert log_E[-1, 0] == pytest.approx(19.977304, abs=5e-7)
    reached = METHODS["csa-code"].judge(gather(A, Z, A[:, 0]), Aim(0.3, acceptance_share=0.9)).certified
    assert int(reached[:, 0].argmax()) == 137
    assert reached[137:].all()


def test_csa_means_differ_only_in_their_denominator() -> None:
    seen = simulated(4)
    A, Z, N = seen.accepted, seen.unsupported, seen.records[..., None]
    paper, code = (csa.bets(A, Z, N, 0.2, mean) for mean in csa.MEANS)
    assert (paper[:, 0] == 0).all()
    inside = (code > 0) & (code < 1 / (2 * 0.8))
    before = np.roll(A / N, 1, axis=1)
    np.testing.assert_allclose(paper[inside], (code * before)[inside])
    assert inside.any()


def test_yu_liu_fixture() -> None:
    level = 0.05 / (16 * 20)
    assert yu_liu.contrast_upper(60, 600, 2000, 0.2, level) == pytest.approx(-0.00096122, abs=5e-9)
    found = METHODS["yu-liu"].judge(single(600, 60, 2000), AIM)
    assert found.contrast_upper[0, 0] == pytest.approx(-0.00096122, abs=5e-9)
    assert found.acceptance_lower[0, 0] == pytest.approx(0.26377880, abs=5e-9)
    assert found.certified.all()
    losses = np.repeat([1.0, 0.0], [60, 540])
    contrast = np.concatenate([losses - 0.2, np.zeros(1400)])
    width = math.sqrt(2 * contrast.var(ddof=1) * math.log(4 / level) / 2000) + 7 * math.log(4 / level) / (3 * 1999)
    assert yu_liu.contrast_upper(60, 600, 2000, 0.2, level) == pytest.approx(contrast.mean() + width, abs=1e-14)


def test_yu_liu_spends_its_budget_over_the_looks() -> None:
    seen = simulated(2, rounds=6, batch=400)
    found = METHODS["yu-liu-spending"].judge(seen, AIM)
    shares = [6 / (math.pi**2 * t**2) for t in range(1, 7)]
    assert math.fsum(shares) < 1
    for t, share in enumerate(shares):
        once = METHODS["yu-liu"].judge(seen, Aim(0.2, failure_probability=0.05 * share))
        np.testing.assert_allclose(found.contrast_upper[:, t], once.contrast_upper[:, t])
        np.testing.assert_allclose(found.acceptance_lower[:, t], once.acceptance_lower[:, t])


def test_fedcp_qq_fixture() -> None:
    assert fedcp_qq.coverage(3, 7, 5, 8) == pytest.approx(0.7923316151, abs=5e-11)


def test_fedcp_qq_is_the_combinatorial_sum() -> None:
    """For K = 5, n = 8, in exact rationals: P(U > q-th smallest) = sum_s (coefficient of s) / ((nK+1) C(nK, s))."""
    K, n = 5, 8
    for q, k in product(range(1, K + 1), range(1, n + 1)):
        above = Fraction(0)
        for j in range(q, K + 1):
            terms = [1]
            for site in range(K):
                inside = range(k, n + 1) if site < j else range(k)
                terms = _times(terms, [math.comb(n, i) if i in inside else 0 for i in range(n + 1)])
            weights = [Fraction(c, (n * K + 1) * math.comb(n * K, s)) for s, c in enumerate(terms)]
            above += math.comb(K, j) * sum(weights, Fraction(0))
        assert fedcp_qq.coverage(q, k, K, n) == pytest.approx(float(1 - above), abs=2e-13)


def _times(a: list[int], b: list[int]) -> list[int]:
    out = [0] * (len(a) + len(b) - 1)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            out[i + j] += x * y
    return out


def test_fedcp_qq_coverage_of_many_records() -> None:
    """The split quadrature agrees with a fine trapezoid; orders are the best of all."""
    u = np.linspace(0, 1, 200_001)
    for K, n, q, k in [(5, 300, 3, 250), (4, 2000, 4, 1700), (7, 40, 1, 39)]:
        inner = beta.cdf(u, k, n - k + 1)
        fine = 1 - np.trapezoid(beta.cdf(inner, q, K - q + 1), u)
        assert fedcp_qq.coverage(q, k, K, n) == pytest.approx(fine, abs=1e-8)
    best = fedcp_qq.orders(5, 12, 0.2)
    every = [fedcp_qq.coverage(q, k, 5, 12) for q in range(1, 6) for k in range(1, 13)]
    assert best is not None
    assert best.coverage == min(c for c in every if c >= 0.8)
    assert fedcp_qq.orders(1, 3, 0.2) is None


def test_tilted_bets_are_bets() -> None:
    """The e-process of exponential tilts is the betting process: fixture with and without noise."""
    r, lam, U, S = 0.3, 1.0, 40.0, 300.0
    phi = r * math.exp(-lam * (1 - r)) + (1 - r) * math.exp(lam * r)
    assert phi == pytest.approx(1.0938767564, abs=5e-11)
    assert math.log(phi) == pytest.approx(0.0897280436, abs=5e-11)
    theta = betting.tilted(lam, r)
    assert math.log1p(-theta * (1 - r)) == pytest.approx(-(lam * (1 - r) + math.log(phi)), abs=1e-14)
    assert math.log1p(theta * r) == pytest.approx(lam * r - math.log(phi), abs=1e-14)
    one = Ladder(np.array([r]), np.array([[theta]]), np.array([1.0]))
    for v, expected in [(0.0, 31.4924652), (6 * 5 * 1.193519**2, 17.2215635)]:
        noise = covariance("complementary", np.array([v]))
        found = log_wealth(np.array([U]), np.array([S]), noise, 1000.0, eta=0.0, rungs=one)
        assert found[0, 0] == pytest.approx(expected, abs=5e-8)
    charge = math.exp(lam * r) - math.exp(-lam * (1 - r))
    assert theta == pytest.approx(charge / phi, abs=1e-15)


# ---------------------------------------------------------------- thin methods: golden numbers and the real run

CASES = golden("certificates.json")["cases"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"m{case['inputs']['m']}-N{case['inputs']['N']}")
def test_golden_certificates(case: dict[str, Any]) -> None:
    inputs, derived = case["inputs"], case["derived"]
    aim = Aim(inputs["target_risk"], inputs["min_acceptance"], 0.05)
    A, Z = (np.asarray(inputs[k])[None, :] for k in ("accepted", "unsupported"))

    def judged(name: str, noise: Covariance) -> Verdict:
        seen = gather(A, Z, [inputs["N"]], noise=noise, unit=derived["v0"], eta=inputs["eta"])
        return METHODS[name].judge(seen, aim)

    paired = covariance("paired", np.asarray(derived["V_A"]))
    for name, key in [("fed-src-c", "contrast"), ("fed-src-va", "variance_adaptive")]:
        found = judged(name, paired)
        np.testing.assert_allclose(found.contrast_upper[0], case[key]["d_upper"], atol=1e-9, rtol=0)
        np.testing.assert_allclose(found.acceptance_lower[0], case[key]["a_lower"], atol=1e-9, rtol=0)
    found = judged("ratio", paired)
    np.testing.assert_allclose(found.risk_upper[0], case["ratio"]["risk_upper"], atol=1e-9, rtol=0)
    found = judged("betting", covariance("complementary", np.asarray(derived["v"])))
    np.testing.assert_allclose(found.contrast_upper[0], case["betting"]["d_upper"], atol=1e-9, rtol=0)
    nested = np.maximum.accumulate(np.asarray(case["betting"]["a_lower"])[::-1])[::-1]
    np.testing.assert_allclose(found.acceptance_lower[0], nested, atol=1e-9, rtol=0)


@pytest.mark.parametrize("name", ["ratio", "fed-src-c", "fed-src-va", "betting"])
def test_thin_methods_decide_as_a_real_run_does(name: str) -> None:
    words = {"ratio": "ratio", "fed-src-c": "contrast", "fed-src-va": "variance-adaptive"}
    records = table(900, sites=("a", "b"))
    if name == "betting":
        reg = registration(records, batch=150, rounds=8)
        reg = changed(reg, certificate={"ladder": (0.2,), "acceptance_budget": 0.005, "refusal_budget": 0.0})
    else:
        reg = registration(records, preset="paper", batch=2000, rounds=8)
        reg = changed(reg, certificate={"method": words[name]})
    looks, evidence = _real_looks(reg, records)
    aim = Aim(0.2, reg.claim.min_acceptance, reg.claim.failure_probability)
    found = METHODS[name].judge(evidence, aim)
    certified = np.stack([each.certified for each in looks], axis=1)
    assert certified.any()
    assert not certified.all()
    np.testing.assert_array_equal(found.certified, certified)
    lower = np.stack([each.acceptance_lower for each in looks], axis=1)
    np.testing.assert_allclose(found.acceptance_lower, lower, atol=1e-8)


def _real_looks(reg: Any, records: Any) -> tuple[list[Look], Evidence]:
    """Looks of the real rule on noised streams of four trials, and the same streams as evidence."""
    rule, rng = reg.mechanism, np.random.default_rng(5)
    sites = uniform(reg, [units_of(records, name, "record") for name in ("a", "b")])
    noise: Any = np.zeros((4, 2, rule.basis.p), dtype=np.int64)
    seen, looks, before, releases = [], [], None, 0.0
    for tally, total in streams(reg, sites, trials=4, seed=3):
        for _ in range(round(tally.noises - releases)):
            noise = noise + discrete_gaussian(rng, rule.scale, noise.shape)
        releases = tally.noises
        one = Sample(masses(reg, rule.basis.encode(total) + noise, releases), tally.total, transfer(reg, tally))
        before = look(reg, one, before)
        seen.append(one)
        looks.append(before)
    shape = (len(seen), rule.basis.m)
    evidence = gather(
        np.stack([s.masses.accepted for s in seen], axis=1), np.stack([s.masses.unsupported for s in seen], axis=1),
        [s.N for s in seen], eta=[s.eta for s in seen], unit=rule.unit_variance / rule.basis.unit**2,
        noise=Covariance(*(np.stack(v).reshape(shape) for v in zip(*(s.masses.noise for s in seen), strict=True))),
        declared=reg.weights is not None,
    )  # fmt: skip
    return looks, evidence


# ---------------------------------------------------------------- the other formulas


def test_c_rag_decides_as_learn_then_test() -> None:
    seen = simulated(3, trials=20, rounds=5, batch=100)
    bound, test = (METHODS[name].judge(seen, AIM) for name in ("c-rag", "ltt-hb-bonferroni"))
    np.testing.assert_array_equal(bound.certified, test.certified)
    assert bound.certified.any()
    level = AIM.risk_budget / seen.thresholds
    Z, A, a = seen.unsupported, seen.accepted, c_rag.risk_upper(seen.unsupported, seen.accepted, level)
    inside = (a < 1) & (A > 0)
    p = np.minimum(np.exp(-A * _kl(np.clip(Z / np.maximum(A, 1), 0, 1), a)), math.e * binom.cdf(Z, A, np.minimum(a, 1)))
    np.testing.assert_allclose(p[inside], level, rtol=1e-6)


def _kl(p: Floats, q: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        first = np.where(p > 0, p * np.log(p / q), 0.0)
        return np.asarray(first + np.where(p < 1, (1 - p) * np.log((1 - p) / (1 - q)), 0.0))


def test_schedule_epochs() -> None:
    q, end = schedule.epoch_ends(6)
    assert q.tolist() == [0, 1, 2, 2, 3, 3]
    assert end.tolist() == [0, 1, 3, 3, 5, 5]


def test_fixed_time_is_tighter_than_stitching() -> None:
    seen = simulated(1, rounds=8, batch=500, sigma=2.0)
    fixed, stitched, planned = (
        METHODS[name].judge(seen, AIM) for name in ("private-fixed-time", "fed-src-c", "schedule-stitching")
    )
    assert (fixed.contrast_upper < stitched.contrast_upper).all()
    assert (fixed.contrast_upper < planned.contrast_upper).all()
    assert (fixed.acceptance_lower >= stitched.acceptance_lower).all()


def _one(**settings: Any) -> Evidence:
    """Four looks at two thresholds: N = 1000 t, A = 500 t and 250 t, Z a tenth of A, V = 40 t and 20 t."""
    t = np.arange(1.0, 5.0)[:, None]
    A = t * np.array([500.0, 250.0])
    noise = covariance("paired", t * np.array([40.0, 20.0]))
    return gather(A, A / 10, 1000 * t[:, 0], noise=noise, unit=10.0, eta=0.01, **settings)


def test_widths_by_hand() -> None:
    """Last look, second threshold: N = 4000, A = 1000, Z = 100, D = -100, V_A = 80, V_D = 1.04 * 80, eta = 0.01."""
    seen, log_term = _one(), math.log(2 * 2 / 0.025)
    found = METHODS["private-fixed-time"].judge(seen, AIM)
    sampling = math.sqrt(4000 / 2 * log_term)
    d = (-100 + sampling + math.sqrt(2 * 83.2 * log_term)) / 4000 + 0.01
    a = (1000 - sampling - math.sqrt(2 * 80 * log_term)) / 4000 - 0.01
    assert found.contrast_upper[-1, 1] == pytest.approx(d, abs=1e-13)
    assert found.acceptance_lower[-1, 1] == pytest.approx(a, abs=1e-13)
    found = METHODS["schedule-stitching"].judge(seen, AIM)
    for t in (3, 4):  # both in epoch 2, which ends with look 4
        x = math.log(2 * 2 / 0.025 * math.pi**2 * 9 / 6)
        d = (-25 * t + math.sqrt(4000 / 2 * x) + math.sqrt(2 * 83.2 * x)) / (1000 * t) + 0.01
        a = (250 * t - math.sqrt(4000 / 2 * x) - math.sqrt(2 * 80 * x)) / (1000 * t) - 0.01
        assert found.contrast_upper[t - 1, 1] == pytest.approx(d, abs=1e-13)
        assert found.acceptance_lower[t - 1, 1] == pytest.approx(a, abs=1e-13)
    found = METHODS["private-sequence"].judge(seen, AIM)
    for bound, sign, v, sums, alpha in (
        (found.contrast_upper, 1, 1000 + 83.2, -100, 0.045 / 2),
        (found.acceptance_lower, -1, 1000 + 80, 1000, 0.005 / 2),
    ):
        log_term = 2 * math.log(1 / alpha)
        rho = 1250 / (log_term + math.log(1 + log_term))
        u = math.sqrt(2 * (v + rho) * math.log(math.sqrt(1 + v / rho) / (2 * alpha) + 0.5))
        assert bound[-1, 1] == pytest.approx((sums + sign * u) / 4000 + sign * 0.01, abs=1e-13)


def test_budgets_are_shared_by_the_thresholds() -> None:
    """A threshold certifies exactly where its part of the budget suffices: alpha/m, not alpha."""
    n = 4000
    z = np.arange(n + 1.0)
    seen = gather(np.full((n + 1, 1, 20), float(n)), np.repeat(z[:, None, None], 20, axis=2), np.full((n + 1, 1), n))
    most = int(METHODS["anytime-crc"].judge(seen, AIM).certified[:, 0, 0].sum()) - 1
    v, h = 0.16 * n, math.log(math.pi**2 / 6 * 20 / 0.045)
    h += 2 * math.log(math.log2(v / anytime_crc.m_star(0.2, 0.045 / 20)) + 1)
    assert most == math.floor(n * (0.2 - (1.44 * math.sqrt(v * h) + 2.42 * h) / n))
    lower = METHODS["anytime-crc"].judge(seen, AIM).acceptance_lower[0, 0, 0]
    assert lower == pytest.approx(1 - math.sqrt(4096 / 2 * math.log(20 / 0.005 * math.pi**2 * 169 / 6)) / n)


def test_capital_line() -> None:
    """Contrast -0.2 of every round: with fraction 1 capital is 1.2^t, and the line m |K| / alpha = 2 * 4 / 0.05."""
    t = np.arange(1.0, 61.0)[:, None]
    seen = gather(np.repeat(1000 * t, 2, axis=1), np.zeros((60, 2)), 1000 * t[:, 0])
    first = int(METHODS["capital"].judge(seen, AIM).certified[:, 0].argmax()) + 1
    assert first == math.ceil(math.log(160) / math.log(1.2))


def test_what_betting_showed_stays_shown() -> None:
    """Good rounds, then bad ones: kept while the deployment mixture is declared, lost where it is not."""
    Z = np.array([10.0, 20.0, 700.0])[:, None]
    A = np.array([500.0, 1000.0, 1500.0])[:, None]
    found = [METHODS["betting"].judge(gather(A, Z, [1000, 2000, 3000], declared=d), AIM) for d in (True, False)]
    assert [each.certified[:, 0].tolist() for each in found] == [[True, True, True], [True, True, False]]


def test_capital_by_hand() -> None:
    """Two rounds of 10: contrasts -1 and +4 of them, then noise beyond the truncation."""
    D, N = np.array([[-1.0], [3.0], [43.0]]), np.array([10.0, 20.0, 30.0])
    found = capital.log_capital(D, N, np.zeros(3), np.array([0.5, 1.0]))
    expected = np.log([[1.05, 1.1], [1.05 * 0.8, 1.1 * 0.6], [1.05 * 0.8 * 0.5, 1.0]])
    np.testing.assert_allclose(found[:2, 0], expected[:2])
    assert found[2, 0, 0] == pytest.approx(expected[2, 0])
    assert found[2, 0, 1] == -math.inf
    np.testing.assert_allclose(capital.log_capital(D[:1], N[:1], np.array([0.02]), np.array([1.0])), np.log([[[1.08]]]))


def test_private_sequence_boundary_is_where_the_mixture_has_won() -> None:
    """At the boundary the mixture is at least 1/alpha, and hardly more: the bound is safe and not loose."""
    for alpha, v in product((0.05, 0.002, 1e-5), (0.0, 1.0, 300.0, 1e5)):
        rho = private_sequence.precision(alpha)
        won = log_half_normal_mixture(private_sequence.boundary(np.array(v), rho, alpha), np.array(v), rho)
        assert math.log(1 / alpha) <= won <= math.log(1 / alpha) + 0.05


def test_private_sequence_takes_noise_and_records_together() -> None:
    """The bound solves the mixture at v = N/4 + V, with the paired contrast's V = (1 + r^2) L releases sigma^2."""
    seen, r = simulated(6, sigma=3.0, batch=400), 0.2
    found = METHODS["private-sequence"].judge(seen, AIM)
    alpha = AIM.risk_budget / seen.thresholds
    L, releases = np.arange(seen.thresholds, 0.0, -1), np.arange(1, 5)[:, None] * 2.0
    v = seen.records[..., None] / 4 + (1 + r**2) * L * releases * 9.0
    S = found.contrast_upper * seen.records[..., None] - seen.contrast(r)
    inside = found.contrast_upper < 1 - r
    won = log_half_normal_mixture(S, v, private_sequence.precision(alpha))[inside]
    assert inside.any()
    assert ((won >= math.log(1 / alpha) - 1e-9) & (won <= math.log(1 / alpha) + 0.05)).all()


def test_local_only_summaries() -> None:
    """Two sites, one certifies its second threshold and one nothing; records 1 : 3, populations 4 : 1."""
    certified = np.array([[[False, True, True], [False, False, False]]])
    lower = np.array([[[0.9, 0.6, 0.2], [0.9, 0.5, 0.3]]])
    none = np.full_like(lower, np.nan)
    A = np.zeros((1, 2, 3))
    seen = gather(A.sum(axis=1), A.sum(axis=1), [400], sites=Sites(A, A, np.array([[100.0, 300.0]])))
    found = local_only.summary(Verdict(certified, none, none, lower), seen, np.array([40.0, 10.0]))
    assert found.macro[0] == pytest.approx(0.3)
    assert found.weighted[0] == pytest.approx(0.15)
    assert found.population[0] == pytest.approx(0.48)
    assert found.certified_share[0] == 0.5


def test_local_only_is_the_central_test_at_every_site() -> None:
    seen = simulated(8, sites=3, batch=300)
    sites = seen.sites
    assert sites is not None
    found = local_only.judge_sites(seen, AIM)
    own = Aim(0.2, failure_probability=0.05 / 3)
    for k in range(3):
        one = gather(sites.accepted[:, :, k], sites.unsupported[:, :, k], sites.records[:, :, k])
        np.testing.assert_array_equal(
            found.certified[:, :, k], METHODS["ltt-exact-bonferroni"].judge(one, own).certified
        )
    assert found.certified.any()
    np.testing.assert_array_equal(METHODS["local-only"].judge(seen, AIM).certified, found.certified.all(axis=2))


def test_federated_pools_to_the_central_test() -> None:
    seen = simulated(9)
    for p, family in product(("hb", "exact"), ltt.FAMILIES):
        one, other = (METHODS[f"{where}-{p}-{family}"].judge(seen, AIM) for where in ("ltt", "federated"))
        np.testing.assert_array_equal(one.certified, other.certified)


# ---------------------------------------------------------------- native guarantees


def test_conformal_abstention_by_hand() -> None:
    seen = gather(np.array([[90.0, 60.0, 30.0]]), np.array([[25.0, 19.0, 2.0]]), [99])
    found = NATIVE["conformal-abstention"].report(seen, AIM)
    assert found.threshold.tolist() == [1]  # (19 + 1)/100 is the target exactly
    assert found.size[0] == pytest.approx(60 / 99)
    strict = NATIVE["conformal-abstention"].report(seen, Aim(0.02))
    assert strict.threshold.tolist() == [3]
    assert strict.size[0] == 0


def test_fcp_by_hand() -> None:
    """N = 98 over two sites: the 80th smallest nonconformity, so at most 18 unsupported answers stay, not 19."""
    A = np.array([[[45.0, 30.0, 10.0], [45.0, 30.0, 10.0]]])
    Z = np.array([[[10.0, 10.0, 1.0], [9.0, 8.0, 1.0]]])
    seen = gather(A.sum(axis=1), Z.sum(axis=1), [98], sites=Sites(A, Z, np.array([[49.0, 49.0]])))
    found = NATIVE["fcp"].report(seen, AIM)
    assert found.threshold.tolist() == [1]
    assert found.coverage_low[0] == pytest.approx(0.8)
    assert found.coverage_high[0] == pytest.approx(0.82)
    assert found.size[0] == pytest.approx(60 / 98)


def test_fedcp_qq_covers_what_it_says() -> None:
    """Enumerated: three sites of three records on bins 0..2 with laws known exactly; coverage is at least M(q, k)."""
    K, n, law = 3, 3, np.array([0.5, 0.3, 0.2])  # of the nonconformity's bin: 0 is supported or below all thresholds
    states = [s for s in product(range(n + 1), repeat=3) if sum(s) == n]
    weight = [math.factorial(n) * math.prod(law[b] ** s[b] / math.factorial(s[b]) for b in range(3)) for s in states]
    for alpha in (0.2, 0.3, 0.45):
        chosen = fedcp_qq.orders(K, n, alpha)
        assert chosen is not None
        picks = list(product(range(len(states)), repeat=K))
        Z = np.array([[[states[i][1] + states[i][2], states[i][2]] for i in pick] for pick in picks], dtype=float)[
            :, None
        ]
        A = np.zeros_like(Z) + 1.0
        sites = Sites(A, Z, np.full((len(picks), 1, K), float(n)))
        seen = gather(A.sum(axis=2), Z.sum(axis=2), np.full((len(picks), 1), n * K), sites=sites)
        found = NATIVE["fedcp-qq"].report(seen, Aim(alpha))
        covered = np.cumsum(law)[found.threshold[:, 0]]
        mean = sum(math.prod(weight[i] for i in pick) * c for pick, c in zip(picks, covered, strict=True))
        assert found.coverage_low[0, 0] == chosen.coverage
        assert chosen.coverage - 1e-12 <= mean


# ---------------------------------------------------------------- one interface


def test_registry_says_what_it_is() -> None:
    for name, method in METHODS.items():
        assert method.name == name
        assert method.assumptions
        if method.role in ("control", "heuristic"):
            assert not method.proved
        else:
            assert method.proved
            assert (method.stops == "at any look") == method.anytime
            assert method.private == ("exact counts" not in method.assumptions)
            assert ("fixed n" in method.assumptions) == (not method.anytime)
        if method.role == "control":
            assert not method.private or "stopping" in name
    assert {m.provenance for m in METHODS.values()} >= {"paper", "code", "second-hand", "textbook", "reconstruction"}
    assert not METHODS["capital"].proved


def evidence_for(name: str, seed: int = 0, **settings: Any) -> Evidence:
    return simulated(seed, sigma=1.5 if name in NOISY else 0.0, **settings)


@pytest.mark.parametrize("name", READ_SUMS)
def test_a_batch_is_its_trials(name: str) -> None:
    seen = evidence_for(name, batch=300, eta=0.01 if name in NOISY else 0.0)
    whole = METHODS[name].judge(seen, AIM)
    assert whole.certified.shape == seen.accepted.shape
    for i in range(3):
        one = METHODS[name].judge(seen.at(i), AIM)
        for part in ("certified", "risk_upper", "contrast_upper", "acceptance_lower"):
            np.testing.assert_allclose(getattr(one, part), getattr(whole, part)[i], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", NATIVE)
def test_a_native_batch_is_its_trials(name: str) -> None:
    seen = simulated(1)
    whole = NATIVE[name].report(seen, AIM)
    for i in range(3):
        one = NATIVE[name].report(seen.at(i), AIM)
        np.testing.assert_array_equal(one.threshold, whole.threshold[i])
        np.testing.assert_array_equal(one.size, whole.size[i])


def test_every_certificate_can_fire() -> None:
    """On easy evidence everything certifies, except the heuristic, whose capital compounds per round."""
    for name, method in READ_SUMS.items():
        seen = simulated(1, rounds=40, batch=1000, sigma=0.3 if name in NOISY else 0.0)
        assert fired(method, seen, Aim(0.3)).all() or name == "capital", name
    long = simulated(1, rounds=400, batch=50, errors=np.full(6, 0.01))
    assert METHODS["capital"].judge(long, Aim(0.4)).certified.any()


def test_selection() -> None:
    certified = np.array([[True, False, True], [False, True, False]])
    lower, none = np.tile([0.3, 0.2, 0.4], (2, 1)), np.full((2, 3), np.nan)
    assert chosen(Verdict(certified, none, none, lower)).tolist() == [2, 1]
    assert chosen(Verdict(certified, none, none, none)).tolist() == [0, 1]


def test_refusals() -> None:
    noised, exact = simulated(sigma=1.0), simulated()
    bare = gather(exact.accepted, exact.unsupported, exact.records)
    for name, method in METHODS.items():
        if method.given is not None:
            with pytest.raises(FedsrcError, match=f"{name} reads {method.given}, which this evidence does not hold"):
                method.judge(bare, AIM)
        elif name not in NOISY:
            with pytest.raises(FedsrcError, match="exact counts"):
                method.judge(noised, AIM)
    for name in ("federated-hb-bonferroni", "local-only"):
        with pytest.raises(FedsrcError):
            METHODS[name].judge(bare, AIM)
    graded = gather(exact.accepted, exact.unsupported, exact.records, binary=False)
    METHODS["ltt-hb-bonferroni"].judge(graded, AIM)
    with pytest.raises(FedsrcError, match="binary"):
        METHODS["ltt-exact-bonferroni"].judge(graded, AIM)
    with pytest.raises(FedsrcError, match="exact counts"):
        NATIVE["fcp"].report(noised, AIM)
    uneven = Sites(np.ones((1, 2, 3)), np.zeros((1, 2, 3)), np.array([[5.0, 6.0]]))
    with pytest.raises(FedsrcError, match="equally large"):
        NATIVE["fedcp-qq"].report(gather(np.ones((1, 3)), np.zeros((1, 3)), [11], sites=uneven), AIM)
    for bad in (np.nan, np.inf):
        with pytest.raises(FedsrcError, match="finite"):
            gather(np.full((1, 2), bad), np.zeros((1, 2)), [5])
    with pytest.raises(FedsrcError, match="no records"):
        gather(np.ones((1, 2)), np.zeros((1, 2)), [0])
    with pytest.raises(FedsrcError, match="looks, thresholds"):
        gather(np.ones((1, 2)), np.zeros((1, 3)), [5])
    with pytest.raises(FedsrcError, match="outside"):
        Aim(1.2)


# ---------------------------------------------------------------- properties


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), extra=st.integers(1, 40), batch=st.sampled_from([40, 400]))
def test_more_errors_never_certify_more(seed: int, extra: int, batch: int) -> None:
    """Errors added to the last round, at every threshold alike, site by site; accepted counts unchanged."""
    rng = np.random.default_rng(seed)
    for name, method in READ_SUMS.items():
        seen = evidence_for(name, seed, trials=2, batch=batch)
        more = _with_errors(seen, rng.integers(0, extra + 1, size=(2, 2)))
        before, after = method.judge(seen, AIM).certified[:, -1], method.judge(more, AIM).certified[:, -1]
        sticky = name.removeprefix("naive-").startswith(("csa", "capital", "betting"))
        kept = method.judge(seen, AIM).certified[:, -2] if sticky else np.zeros_like(before)
        assert not (after & ~before & ~kept).any(), name


def _with_errors(seen: Evidence, extra: Any) -> Evidence:
    sites, own = seen.sites, seen.unreleased
    assert sites is not None
    assert own is not None
    grown = sites.unsupported.copy()
    grown[:, -1] = np.minimum(grown[:, -1] + extra[..., None], sites.accepted[:, -1])
    added = (grown - sites.unsupported).sum(axis=2)
    return gather(
        seen.accepted, seen.unsupported + added, seen.records, noise=seen.noise, unit=seen.unit, eta=seen.eta,
        sites=Sites(sites.accepted, grown, sites.records),
        unreleased=Unreleased(own.accepted, own.unsupported + added, own.normals, own.releases, own.rho, own.batch),
    )  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), factor=st.floats(1.0, 30.0), noise=st.sampled_from([0.0, 2.0]))
def test_more_records_at_the_same_rates_never_hurt(seed: int, factor: float, noise: float) -> None:
    """Sums, records and noise variance grown alike. The stitched rules jump at powers of two: there by doubling."""
    seen = simulated(seed, trials=1, sigma=noise)
    for name in ("betting", "betting-tilted", "private-sequence", "fed-src-c", "fed-src-va", "ratio"):
        by = 2.0 if name in ("fed-src-c", "fed-src-va", "ratio") else factor
        few, many = (METHODS[name].judge(_grown(seen, x), AIM) for x in (1.0, by))
        width = "risk_upper" if name == "ratio" else "contrast_upper"
        assert (getattr(many, width) <= getattr(few, width) + 1e-9).all(), name
        assert (many.acceptance_lower >= few.acceptance_lower - 1e-9).all(), name


def _grown(seen: Evidence, by: float) -> Evidence:
    noise = Covariance(*(by * v for v in seen.noise))
    return gather(
        by * seen.accepted, by * seen.unsupported, by * seen.records, noise=noise, unit=seen.unit, declared=False
    )


def test_anytime_crc_margin_falls() -> None:
    for r in (0.05, 0.2, 0.4):
        n = np.arange(anytime_crc.m_star(r, 0.01), 20_000)
        assert (np.diff(anytime_crc.gamma(n, r, 0.01)) < 0).all()
