"""The noise that leaves a site: the exact discrete Gaussian, at the registered scale, seen through real releases.

Chance of a false alarm: each statistical check compares a p-value with 1e-7, or a statistic with 5.5 standard
errors (4e-8 two-sided); eight such checks stay below 1e-6.
Mutants killed: scale x 0.7 and x 1.3, continuous or rounded noise in place of the discrete Gaussian at small scales,
the noise term dropped or doubled in the wealth of a real release, seeded noise.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chisquare

from fedsrc.errors import FedsrcError
from fedsrc.maths import betting
from fedsrc.maths.betting import Covariance
from fedsrc.protocol.registration import Registration
from fedsrc.records.masses import histogram
from fedsrc.server.bounds import sample
from fedsrc.server.recruiter import make_requests
from fedsrc.server.tally import add, empty
from fedsrc.site.noise import add_discrete_gaussian
from tests.support.helpers import changed, gives, registration, release_of, single_units

Floats = NDArray[np.float64]
ALARM = 1e-7
SIGMAS = 5.5
pytestmark = pytest.mark.entropy


def draws(scale: float, count: int) -> NDArray[np.int64]:
    zeros = np.zeros(count, dtype=np.int64)
    return add_discrete_gaussian(zeros, scale, sensitivity=1.0, rho=1 / (2 * scale**2))


def fit(values: NDArray[np.int64], scale: float) -> float:
    """p-value of the draws under the exact discrete Gaussian; cells with at least 20 expected draws."""
    reach = int(6 * scale) + 2
    z = np.arange(-reach, reach + 1)
    p = np.exp(-(z**2) / (2 * scale**2))
    p /= p.sum()
    inner = z[p * values.size >= 20]
    observed = [int((values == each).sum()) for each in inner]
    expected = [float(p[z == each][0]) * values.size for each in inner]
    rest = values.size - sum(observed), values.size - sum(expected)
    return float(chisquare([*observed, rest[0]], [*expected, rest[1]]).pvalue)


@pytest.mark.parametrize("scale", [0.6895, 2.5])
def test_noise_is_the_discrete_gaussian_at_its_scale(scale: float) -> None:
    values = draws(scale, 20_000)
    assert fit(values, scale) > ALARM
    assert fit(values, 0.7 * scale) < ALARM
    assert fit(values, 1.3 * scale) < ALARM


def test_the_fit_rejects_rounded_continuous_noise_at_small_scales() -> None:
    rounded = np.rint(np.random.default_rng(0).normal(0, 0.6895, 20_000)).astype(np.int64)
    assert fit(rounded, 0.6895) < ALARM


@pytest.mark.parametrize("scale", [0.3, 0.6895, 1.3, 460.0])
def test_noise_is_sub_gaussian_with_its_scale_as_proxy(scale: float) -> None:
    """E exp(theta Z - theta^2 s^2 / 2) <= 1 by exact summation, and nearly one: a smaller proxy fails."""
    z = np.arange(-int(40 * scale) - 3, int(40 * scale) + 4)
    p = np.exp(-(z**2) / (2 * scale**2))
    p /= p.sum()
    thetas = np.linspace(0.01, 12, 60) / scale
    factors = np.array([np.exp(t * z - t * t * scale**2 / 2) @ p for t in thetas])
    assert factors.max() <= 1 + 1e-9
    assert factors.max() > 0.95
    wrong = np.array([np.exp(t * z - t * t * (0.7 * scale) ** 2 / 2) @ p for t in thetas])
    assert wrong.max() > 2


def small_registration() -> Registration:
    """Few thresholds and weak privacy, so that noise is felt and can be averaged quickly."""
    base = registration(thresholds=3, grid=True, epsilon=3.0)
    return changed(base, privacy={"epsilon": 3.0}, encoding={"basis": "suffix"})


def test_released_coordinates_carry_the_registered_scale() -> None:
    """Variance of 400 real releases around the exact histogram; off by 30% either way is rejected."""
    reg = registration(thresholds=20, grid=True)
    rule = reg.mechanism
    units = single_units([0.2, 0.6, 0.9], [1.0, 0.0, 0.0])
    request = make_requests(reg, [3], number=0, round=1)[0]
    releases = [release_of(reg, request, units) for _ in range(400)]
    values = np.array([[each.first, each.second] for each in releases], dtype=np.float64)
    exact = rule.basis.encode(histogram(reg, units))
    ratio = ((values - exact) ** 2).mean() / rule.scale**2
    tolerance = SIGMAS * np.sqrt(2 / values.size)
    assert abs(ratio - 1) < tolerance
    for wrong in (0.7, 1.3):
        assert abs(ratio / wrong**2 - 1) > tolerance
    assert len({each.first for each in releases}) == len(releases)


def test_mean_wealth_of_real_releases_at_the_boundary() -> None:
    """The whole path, records to wealth, with real noise: mean wealth one; wrong noise terms are rejected.

    Each trial: 4 fresh binary units at risk exactly r, one real release, wealth of one bet at each threshold.
    """
    reg, trials, r, rng = small_registration(), 4000, 0.2, np.random.default_rng(11)
    rule = reg.mechanism
    rungs = betting.Ladder(np.array([r]), np.array([[0.32]]), np.ones(1))
    request = make_requests(reg, [4], number=0, round=1)[0]
    logs: dict[float, list[Floats]] = {1.0: [], 0.0: [], 2.0: []}
    for _ in range(trials):
        units = single_units(rng.random(4).tolist(), (rng.random(4) < r).astype(float).tolist())
        tally = add(empty(reg), [gives(release_of(reg, request, units))])
        seen = sample(reg, tally).masses
        for factor, log in logs.items():
            V = Covariance(*(factor * v for v in seen.noise))
            log.append(betting.log_wealth(seen.unsupported, seen.supported, V, 4, eta=0.0, rungs=rungs)[:, 0])
    assert rule.scale > 0
    assert _is_one(logs[1.0])
    for wrong in (0.0, 2.0):  # 16 and 19 standard errors off; half the variance is caught by enumeration
        assert not _is_one(logs[wrong]), wrong


def _is_one(logs: list[Floats]) -> bool:
    """Mean wealth over trials within 5.5 standard errors of one, at the first threshold (the noisiest)."""
    wealth = np.exp(np.array(logs))[:, 0]
    return bool(abs(wealth.mean() - 1) < SIGMAS * wealth.std() / np.sqrt(wealth.size))


def test_too_little_noise_is_refused_before_anything_is_drawn() -> None:
    with pytest.raises(FedsrcError, match="nothing was released"):
        add_discrete_gaussian(np.zeros(3, dtype=np.int64), 1.0, sensitivity=2.0, rho=0.5)


def test_without_privacy_the_release_is_exact() -> None:
    values = np.arange(5)
    assert add_discrete_gaussian(values, 0.0, sensitivity=1.0, rho=np.inf) is values
