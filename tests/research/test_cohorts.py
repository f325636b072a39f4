"""Sums of discrete Gaussians by exact convolution, what they mean for privacy and for lines, and masks by enumeration.

Mutants killed: the factor k/(k+1) left out of the exponent or 5 replaced by less than 2 (the ratio is passed), sigma
for sigma^2 or a looser bound (it is no longer near), the sum's scale taken as that of one term, the line that supposes
all of the noise, a mask that serves two requests or leaves a pair out. Nothing here is random.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import combinations, product

import mpmath
import numpy as np
import pytest
from scipy.stats import norm

from fedsrc.maths.arrays import Floats
from fedsrc.maths.privacy import least_share
from fedsrc.maths.tail import critical, critical_within
from fedsrc.planning.aim import Aim
from research.studies.cohort_records import Way, sealed_shown, tau, trials_of
from research.studies.label_cost import CAP, TARGET, drawn, noise

SCALES = [1.0, 1.2, 1.5, 2.0]
TERMS, DIGITS = (2, 3, 4, 5, 7, 10, 20, 50), 60


def weights(variance: float, reach: int) -> list[int]:
    """The discrete Gaussian's weights at -reach, ..., reach, as integers of sixty digits."""
    with mpmath.workdps(DIGITS + 10):
        each = [mpmath.mpf(10) ** DIGITS * mpmath.exp(-mpmath.mpf(x * x) / (2 * variance)) for x in range(reach + 1)]
        right = [int(mpmath.nint(x)) for x in each]
    return right[:0:-1] + right


def largest_gaps(sigma: float, terms: tuple[int, ...]) -> Iterator[float]:
    """The largest |log| of the ratio of the sum of so many terms to the discrete Gaussian of scale sqrt(n) sigma, over
    six standard deviations. Sums are cut where what is left out is far below what counts."""
    term = np.array(weights(sigma**2, math.ceil(16 * sigma)), dtype=object)
    wide, total = math.ceil(16 * sigma * math.sqrt(terms[-1])), term
    for n in range(2, terms[-1] + 1):
        total = np.convolve(total, term)
        reach, middle = min(total.size // 2, wide), total.size // 2
        total = total[middle - reach : middle + reach + 1]
        if n not in terms:
            continue
        far = math.ceil(16 * sigma * math.sqrt(n))
        whole = weights(n * sigma**2, far)
        with mpmath.workdps(DIGITS):
            level, inside = mpmath.mpf(sum(whole)) / int(total.sum()), range(math.ceil(6 * sigma * math.sqrt(n)) + 1)
            ratios = [level * int(total[reach + z]) / whole[far + z] for z in inside]
            yield float(max(abs(mpmath.log(each)) for each in ratios))


@pytest.mark.parametrize("sigma", SCALES)
def test_the_sum_is_within_tau_of_one_discrete_gaussian(sigma: float) -> None:
    gaps = list(largest_gaps(sigma, TERMS))
    assert all(gap <= tau(sigma, n) for n, gap in zip(TERMS, gaps, strict=True))
    assert gaps[0] == pytest.approx(0.4 * tau(sigma, 2), rel=1e-3)  # two terms: the ratio is 1 +- 2 q_1


def test_below_its_premise_the_bound_is_passed() -> None:
    """The control: at a scale of 0.2, q_1 is 0.67 and the ratio is far beyond 5 q_1."""
    assert tau(0.2, 2) == math.inf
    assert next(largest_gaps(0.2, (2,))) > 5 * math.exp(-(math.pi**2) * 0.2**2)


def test_it_is_nothing_at_the_least_scale_that_is_registered() -> None:
    assert 1.0 + tau(2.0, 1000) == 1.0
    assert tau(1.0, 1) == 0.0


@pytest.mark.parametrize("epsilon", [0.1, 4.0, 20.0, 100.0])
def test_the_least_share_adds_next_to_nothing_to_delta(epsilon: float) -> None:
    """For many members too. A tenth less would not do where epsilon is large: two lattice units are too few there."""
    p, delta = 40, 1e-6

    def log_added(sigma: float, n: int) -> float:
        return math.log1p(math.exp(-epsilon)) + epsilon + math.log(p) + math.log(math.expm1(tau(sigma, n)))

    least = least_share(p, epsilon, delta)
    for n in (2, 20, 1000):
        assert log_added(least, n) <= math.log(1e-6 * delta)
    assert least == 2.0 or log_added(0.9 * least, 2) > math.log(1e-6 * delta)
    assert (least == 2.0) == (epsilon < 5)


def discrete(scale: float, reach: int = 400) -> Floats:
    found = (
        np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * scale**2)) if scale else np.eye(1, 2 * reach + 1, reach)[0]
    )
    return np.asarray(found / found.sum())


def summed(scales: list[float]) -> Floats:
    """The exact law of a sum of discrete Gaussians."""
    total = discrete(0.0)
    for each in scales:
        total = np.convolve(total, discrete(each), mode="same")
    return total


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("shift", [1, 3])
def test_the_sum_protects_as_one_discrete_gaussian_does(epsilon: float, shift: int) -> None:
    def delta(law: Floats) -> float:
        return float(np.maximum(np.roll(law, shift) - math.exp(epsilon) * law, 0.0).sum())

    one, two = delta(discrete(1.2 * math.sqrt(2.0))), delta(summed([1.2, 1.2]))
    more = (1 + math.exp(epsilon)) * math.expm1(tau(1.2, 2))
    assert two <= one + more
    assert two > delta(discrete(1.2 * math.sqrt(2.2))) + more  # a larger scale is not reached


@pytest.mark.parametrize("scales", [[2.0] * 5, [2.0] * 4 + [0.0], [2.0, 1.0, 0.5, 0.0, 0.0], [0.0] * 5])
@pytest.mark.parametrize("b", [0.01, 0.1, 0.3])
def test_the_proxy_is_the_members_together_and_less_noise_only_helps(scales: list[float], b: float) -> None:
    x = np.arange(-400, 401)
    found = float((summed(scales) * np.exp(b * x - b * b * 5 * 2.0**2 / 2)).sum())
    assert found <= 1 + 1e-12
    if scales == [2.0] * 5:
        assert found == pytest.approx(1.0, abs=1e-9)


def false(c: float, b: float, law: Floats) -> float:
    """The largest P(L + b X >= c) over two-point laws of exp(L) with mean one."""
    x = np.arange(-400, 401)
    return float(max(math.exp(-log_w) * law[log_w + b * x >= c - 1e-12].sum() for log_w in np.linspace(0, c + 2, 2001)))


@pytest.mark.parametrize("noisy", [0, 1, 5, 20])
def test_sealed_lines_hold_however_many_members_add_noise(noisy: int) -> None:
    alpha, b, stated = 0.045, 0.09, 20 * 2.0**2
    line = critical_within(alpha, b * b * stated) + b
    assert false(line, b, summed([2.0] * noisy)) <= alpha
    if noisy == 1:  # the control: the line that supposes all of the noise
        assert false(critical(alpha, b * b * stated), b, summed([2.0])) > 1.3 * alpha


@pytest.mark.parametrize("n", [2, 5, 20])
def test_tails_of_a_sum_are_those_of_gaussian_noise_plus_one(n: int) -> None:
    law, k = summed([1.2] * n), np.arange(-30, 31)
    above = law[::-1].cumsum()[::-1][400 + k]
    assert np.all(above <= math.exp(tau(1.2, n)) * norm.sf((k - 1) / (1.2 * math.sqrt(n))) + 1e-15)


def masked(
    values: tuple[int, ...], answering: tuple[int, ...], modulus: int, *, pairs: int | None = None
) -> Counter[tuple[int, ...]]:
    """How often each set of masked values comes out over all masks of pairs of honest members, of whom some answer."""
    edges = list(combinations(range(len(values)), 2))[:pairs]
    seen: Counter[tuple[int, ...]] = Counter()
    for masks in product(range(modulus), repeat=len(edges)):
        hidden = list(values)
        for (low, high), mask in zip(edges, masks, strict=True):
            hidden[low] += mask
            hidden[high] -= mask
        seen[tuple(hidden[k] % modulus for k in answering)] += 1
    return seen


def test_masked_values_of_all_honest_members_show_their_sum_and_of_some_nothing() -> None:
    everyone = masked((1, 2, 3), (0, 1, 2), 5)
    assert set(everyone) == {each for each in product(range(5), repeat=3) if sum(each) % 5 == 6 % 5}
    assert len(set(everyone.values())) == 1
    some = masked((1, 2, 3), (0, 2), 5)
    assert len(some) == 25
    assert len(set(some.values())) == 1
    assert len(masked((1, 2, 3), (0, 1, 2), 5, pairs=1)) == 5  # the control: a pair without a mask shows a member


def test_a_mask_that_serves_two_requests_shows_how_their_answers_differ() -> None:
    """Why the stream of a pair is keyed by the request: with one stream the difference of two answers is bare."""
    first, second = (1, 2), (4, 2)
    apart = {
        tuple((a - b) % 5 for a, b in zip(*each, strict=True))
        for each in product(masked(first, (0, 1), 5), masked(second, (0, 1), 5))
    }
    reused = {((first[0] + m) - (second[0] + m)) % 5 for m in range(5)}
    assert len(reused) == 1
    assert len({each[0] for each in apart}) == 5


def test_noises_of_a_round() -> None:
    """Cohorts that add up have n / (n - t) noises each; own noise has one a site, one holder one in all."""
    assert [way.noises for way in (Way(5, 0), Way(5, 1), Way(5, 5, 1), Way(100, 20, 5))] == [1, 5, 1.25, 100 / 15]


@pytest.mark.parametrize(("noises", "same"), [(1.0, False), (400.0, True)])
def test_the_line_for_less_noise_asks_for_more_unless_noise_is_large(noises: float, same: bool) -> None:
    draw = drawn(0)
    played = trials_of(draw, 200, np.random.default_rng(0))
    aim = Aim(TARGET, CAP, noise(4.0) * math.sqrt(noises), objective="records")
    exact, cautious = (sealed_shown(draw, aim, played, 0, within=each)[0] for each in (False, True))
    assert exact.any()
    assert np.all(exact | ~cautious)
    assert np.array_equal(exact, cautious) == same
