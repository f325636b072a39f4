"""Widths of the paper's bounds shrink at the corollary's rates, with constants: neither slower nor faster.

Paper: Corollary (width), eqs. (width) and (balanced-width).

Mutants killed (each is run below and must fall out of the band): epochs that grow fourfold, epoch weights that halve
(log N in place of log log N), a budget that is not shared by the thresholds, a width that is not divided by N, a noise
width with the variance in place of its root, a noise width that counts all bins for every threshold, v0 forgotten.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from fedsrc.maths import contrast, ratio, variance_adaptive
from fedsrc.maths.arrays import Floats
from fedsrc.maths.basis import Basis
from fedsrc.maths.boundaries import G, H, ceil_log2, x_q

SAMPLING, NOISE = (math.sqrt(0.5), 1.7), (math.sqrt(2.0), 3.85)  # the hidden constants, at alpha up to 1/2
CASES = [(m, alpha) for m in (1, 20, 1000) for alpha in (0.5, 0.025, 1e-6)]
POWERS = np.exp2(np.arange(50))
COUNTS = np.unique(np.concatenate([np.arange(1.0, 3000.0), POWERS, POWERS + 1.0, POWERS * 1.5]))
VARIANCES = np.concatenate([np.geomspace(1e-4, 1e14, 4000), POWERS, POWERS * (1 + 1e-9)])
Sampling = Callable[[Floats, int, float], Floats]
Noise = Callable[[Floats, int, float, float], Floats]


def sampling(N: Floats, m: int, alpha: float) -> Floats:
    """What sampling adds to a mean."""
    return H(N, c=2, m=m, alpha=alpha) / N


def noise(V: Floats, m: int, alpha: float, v0: float) -> Floats:
    """What noise adds to a sum."""
    return G(V, c=2, m=m, alpha=alpha, v0=v0)


def sampling_ratio(width: Sampling, m: int, alpha: float) -> Floats:
    rate = np.sqrt((math.log(m / alpha) + np.log(np.log(math.e * COUNTS))) / COUNTS)
    return np.asarray(width(COUNTS, m, alpha) / rate)


def noise_ratio(width: Noise, m: int, alpha: float, v0: float) -> Floats:
    V = VARIANCES * v0
    root = np.sqrt(np.maximum(V, v0))
    return np.asarray(width(V, m, alpha, v0) / (root * np.sqrt(math.log(m / alpha) + np.log(np.log(math.e + V / v0)))))


def within(found: Floats, band: tuple[float, float]) -> bool:
    return bool(band[0] <= found.min() and found.max() <= band[1])


@pytest.mark.parametrize(("m", "alpha"), CASES)
def test_the_sampling_width_has_its_rate(m: int, alpha: float) -> None:
    assert within(sampling_ratio(sampling, m, alpha), SAMPLING)


@pytest.mark.parametrize(("m", "alpha"), CASES)
@pytest.mark.parametrize("v0", [1e-3, 1.0, 40.0])
def test_the_noise_width_has_its_rate(m: int, alpha: float, v0: float) -> None:
    assert within(noise_ratio(noise, m, alpha, v0), NOISE)
    assert noise(np.zeros(1), m, alpha, v0)[0] == 0.0


def fourfold(N: Floats, m: int, alpha: float) -> Floats:
    q = np.ceil(ceil_log2(N) / 2)
    return np.asarray(np.sqrt(4.0**q / 2 * x_q(q, c=2, m=m, alpha=alpha)) / N)


def halving(N: Floats, m: int, alpha: float) -> Floats:
    q = ceil_log2(N)
    return np.asarray(np.sqrt(np.exp2(q) / 2 * (math.log(2 * m / alpha) + (q + 1) * math.log(2.0))) / N)


SLOWER: dict[str, Sampling] = {
    "epochs grow fourfold": fourfold,
    "epoch weights halve": halving,
    "not shared by the thresholds": lambda N, m, alpha: sampling(N, 1, alpha),
    "not divided by N": lambda N, m, alpha: sampling(N, m, alpha) * N,
    "the budget is left out": lambda N, m, alpha: sampling(N, m, 0.5),
}


@pytest.mark.parametrize("name", SLOWER)
def test_another_sampling_width_is_seen(name: str) -> None:
    assert not all(within(sampling_ratio(SLOWER[name], m, alpha), SAMPLING) for m, alpha in CASES)


NOISIER: dict[str, Noise] = {
    "variance for its root": lambda V, m, alpha, v0: noise(V, m, alpha, v0) * np.sqrt(np.maximum(V, v0)),
    "v0 forgotten": lambda V, m, alpha, v0: noise(V, m, alpha, 1.0),
    "not shared by the thresholds": lambda V, m, alpha, v0: noise(V, 1, alpha, v0),
    "a constant in place of the logarithms": lambda V, m, alpha, v0: 3.0 * np.sqrt(np.maximum(V, v0)),
}


@pytest.mark.parametrize("name", NOISIER)
def test_another_noise_width_is_seen(name: str) -> None:
    every = [(m, alpha, v0) for m, alpha in CASES for v0 in (1e-3, 1.0, 40.0)]
    assert not all(within(noise_ratio(NOISIER[name], *each), NOISE) for each in every)


def widths(N: int, V: Floats) -> dict[str, Floats]:
    """How far each bound lies from its mean at half acceptance and a quarter of it wrong, without shift."""
    A, Z, r = np.full(V.size, N / 2), np.full(V.size, N / 8), 0.2
    budgets = {"alpha_s": 0.025, "alpha_n": 0.025, "v0": 1.0}
    U_Z, L_A = ratio.mean_bounds(Z, A, N, V, V, **budgets)
    D = Z - r * A
    return {
        "ratio, loss": U_Z - Z / N,
        "ratio, acceptance": A / N - L_A,
        "contrast": contrast.d_upper(D, N, V, r_star=r, eta=0.0, **budgets) - D / N,
        "contrast, acceptance": A / N - contrast.a_lower(A, N, V, eta=0.0, **budgets),
        "variance-adaptive, acceptance": A / N - variance_adaptive.a_lower(A, N, V, eta=0.0, **budgets),
    }


@pytest.mark.parametrize("name", widths(1024, np.ones(1)))
def test_every_bound_is_its_mean_and_these_two_widths(name: str) -> None:
    """Far from the clips, sampling and noise add up, and nothing else is paid."""
    m, c = 20, 3 if name.startswith("variance") else 2
    V = np.arange(m, 0.0, -1) * 500.0
    expected = (H(10**6, c=c, m=m, alpha=0.025) + G(V, c=c, m=m, alpha=0.025, v0=1.0)) / 10**6
    np.testing.assert_allclose(widths(10**6, V)[name], expected, rtol=1e-9)


def balanced(K: int, n: int, t: int, sigma: float, m: int = 20) -> Floats:
    """The noise width of every threshold's mean after t rounds of n records from each of K sites."""
    V = K * t * sigma**2 * Basis("bins", m).variance_factor()
    return np.asarray(noise(V, m, 0.025, sigma**2) / (K * n * t))


def balanced_ratio(found: Floats, K: int, n: int, t: int, sigma: float) -> Floats:
    m = found.size
    d = np.arange(m, 0.0, -1)
    logs = math.log(m / 0.025) + np.log(np.log(math.e + d * K * t))
    return np.asarray(found / (sigma / (n * math.sqrt(K * t)) * np.sqrt(d * logs)))


@pytest.mark.parametrize("K", [1, 5, 64])
@pytest.mark.parametrize("t", [1, 3, 30, 1000])
@pytest.mark.parametrize(("n", "sigma"), [(1, 1.984), (200, 1.984), (200, 14.86)])
def test_balanced_rounds_have_the_balanced_rate(K: int, t: int, n: int, sigma: float) -> None:
    assert within(balanced_ratio(balanced(K, n, t, sigma), K, n, t, sigma), NOISE)


def test_other_balanced_widths_are_seen() -> None:
    """All bins counted for every threshold, noise that does not average over rounds, records or sigma that do not
    count."""
    K, n, t, sigma = 5, 200, 1000, 8.0
    here = balanced(K, n, t, sigma)
    for wrong in (np.full(20, here[0]), here * math.sqrt(t), here * n, here / sigma):
        assert not within(balanced_ratio(wrong, K, n, t, sigma), NOISE)


@pytest.mark.parametrize("N", [1000, 1024, 1025, 30_000])
def test_four_times_the_records_halve_the_sampling_width_up_to_the_epoch(N: int) -> None:
    """Two epochs later: exactly half, times the root of the ratio of the logarithms."""
    q = int(ceil_log2(N))
    logs = x_q(np.array([q, q + 2]), c=2, m=20, alpha=0.025)
    before, after = sampling(np.array([N, 4.0 * N]), 20, 0.025)
    assert after / before == pytest.approx(0.5 * math.sqrt(logs[1] / logs[0]), rel=1e-12)
    assert 0.5 < after / before < 0.53
