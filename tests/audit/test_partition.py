"""Dealing units to sites: every unit once, no site empty, and as heterogeneous as asked.

Chance of a false alarm: generators are seeded, so none (hypothesis searches for seeds, and the properties hold for
every one of them; that 1000 Dirichlet draws all leave a site empty there has a chance below 1e-50).
Mutants killed: a unit lost or dealt twice, an empty site, units dealt in order, sizes further than one from their
quota, remainders given to the smallest, concentration divided by the number of sites or inverted, proportions shared
by all classes, spread of log sizes squared or halved, draws without end.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedsrc.audit import partition
from fedsrc.audit.partition import apportioned, dirichlet, iid, log_normal, natural
from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats
from fedsrc.records.order import Positions

SEEDS = st.integers(0, 2**32 - 1)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def check(parts: list[Positions], n: int, sites: int) -> None:
    """Disjoint, complete, sorted, none empty."""
    assert len(parts) == sites
    assert all(part.dtype == np.int64 and part.size > 0 and (np.diff(part) > 0).all() for part in parts)
    assert sorted(np.concatenate(parts).tolist()) == list(range(n))


def sizes(parts: list[Positions]) -> list[int]:
    return [part.size for part in parts]


@st.composite
def counts(draw: st.DrawFn) -> tuple[int, int]:
    """Units and sites, at least one unit each."""
    sites = draw(st.integers(1, 12))
    return draw(st.integers(sites, 200)), sites


@settings(deadline=None)
@given(st.lists(st.integers(-3, 9), min_size=1, max_size=60))
def test_natural_sites_are_the_codes(codes: list[int]) -> None:
    parts = natural(np.asarray(codes))
    check(parts, len(codes), len(set(codes)))
    assert [{codes[i] for i in part} for part in parts] == [{code} for code in sorted(set(codes))]


@settings(deadline=None)
@given(counts(), SEEDS)
def test_an_iid_deal_has_equal_sizes(shape: tuple[int, int], seed: int) -> None:
    n, sites = shape
    parts = iid(n, sites, generator(seed))
    check(parts, n, sites)
    assert max(sizes(parts)) - min(sizes(parts)) <= 1


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=12, max_size=80), st.integers(1, 4), st.sampled_from([10.0, 1.0, 0.3]), SEEDS
)
def test_a_dirichlet_deal_is_a_partition(labels: list[int], sites: int, beta: float, seed: int) -> None:
    check(dirichlet(np.asarray(labels), sites, beta, generator(seed)), len(labels), sites)


@settings(deadline=None)
@given(counts(), st.floats(0, 50), SEEDS)
def test_a_log_normal_deal_is_a_partition(shape: tuple[int, int], sigma: float, seed: int) -> None:
    n, sites = shape
    check(log_normal(n, sites, sigma, generator(seed)), n, sites)


@settings(deadline=None)
@given(counts(), SEEDS)
def test_without_spread_log_normal_sizes_are_equal(shape: tuple[int, int], seed: int) -> None:
    n, sites = shape
    assert sizes(log_normal(n, sites, 0.0, generator(seed))) == sizes(iid(n, sites, generator(seed)))


@settings(deadline=None)
@given(arrays.arrays(np.float64, st.integers(1, 12), elements=st.floats(0.01, 1)), st.integers(0, 500))
def test_apportioned_sizes_are_within_one_of_their_quota(raw: Floats, more: int) -> None:
    shares, n = raw / raw.sum(), raw.size + more
    found, quota = apportioned(n, shares), n * raw / raw.sum()
    assert found.sum() == n
    assert found.min() >= 1
    if quota.min() >= 1:
        assert (np.abs(found - quota) < 1 + 1e-9).all()


def test_apportioned_by_hand() -> None:
    assert apportioned(10, np.array([0.46, 0.27, 0.27])).tolist() == [4, 3, 3]  # remainders .6 .7 .7
    assert apportioned(10, np.array([0.56, 0.27, 0.17])).tolist() == [5, 3, 2]  # remainders .6 .7 .7
    assert apportioned(10, np.array([0.58, 0.25, 0.17])).tolist() == [6, 2, 2]  # remainders .8 .5 .7
    assert apportioned(5, np.array([1.0, 0.0, 0.0])).tolist() == [3, 1, 1]  # the largest fills the empty
    assert apportioned(3, np.array([0.5, 0.5, 0.0])).tolist() == [1, 1, 1]  # rounded to 2, 1, 0 before
    assert apportioned(49, np.full(49, 1 / 49)).tolist() == [1] * 49  # 49 * (1 / 49) is below one


def test_units_are_dealt_at_random() -> None:
    """The mean position at a site is far from what a deal in order gives (100 and 300), and other seeds deal anew."""
    labels = np.zeros(400, dtype=np.int64)
    for parts in (
        iid(400, 2, generator()),
        log_normal(400, 2, 0.1, generator()),
        dirichlet(labels, 2, 50, generator()),
    ):
        assert abs(parts[0].mean() - parts[1].mean()) < 40
    assert iid(400, 2, generator(0))[0].tolist() == iid(400, 2, generator(0))[0].tolist()
    assert iid(400, 2, generator(0))[0].tolist() != iid(400, 2, generator(1))[0].tolist()


def label_distance(labels: Positions, parts: list[Positions]) -> float:
    """Total variation of the sites' label laws from the law of all labels, weighted by size."""
    whole = np.bincount(labels) / labels.size
    laws = [np.bincount(labels[part], minlength=whole.size) / part.size for part in parts]
    return float(
        sum(part.size / labels.size * np.abs(law - whole).sum() / 2 for part, law in zip(parts, laws, strict=True))
    )


def test_heterogeneity_grows_as_concentration_falls() -> None:
    labels = np.arange(6000) % 6
    even = label_distance(labels, iid(labels.size, 5, generator()))
    ten, one, tenth = (label_distance(labels, dirichlet(labels, 5, beta, generator())) for beta in (10.0, 1.0, 0.1))
    assert even < 0.04
    assert 2 * even < ten
    assert 1.5 * ten < one
    assert 1.3 * one < tenth


@pytest.mark.parametrize("beta", [0.5, 1.0, 4.0])
def test_proportions_have_the_dirichlet_variance(beta: float) -> None:
    """(1/K)(1 - 1/K) / (K beta + 1), over 1500 classes of 100 units; rounding adds less than 1e-4."""
    labels, sites = np.repeat(np.arange(1500), 100), 4
    parts = dirichlet(labels, sites, beta, generator())
    shares = np.stack([np.bincount(labels[part], minlength=1500) for part in parts]) / 100
    expected = 1 / sites * (1 - 1 / sites) / (sites * beta + 1)
    assert shares.var(axis=1) == pytest.approx(np.full(sites, expected), rel=0.12)
    assert shares.mean(axis=1) == pytest.approx(np.full(sites, 1 / sites), abs=0.03)


def test_log_sizes_have_the_asked_spread() -> None:
    for sigma in (0.3, 0.8, 1.2):
        spread = np.log(sizes(log_normal(1_000_000, 1000, sigma, generator()))).std()
        assert spread == pytest.approx(sigma, rel=0.08)


def test_size_imbalance_leaves_labels_alone() -> None:
    labels = np.arange(6000) % 6
    assert label_distance(labels, log_normal(labels.size, 5, 1.0, generator())) < 0.04


def test_as_many_sites_as_units() -> None:
    one_each = [[i] for i in range(5)]
    assert sorted(part.tolist() for part in iid(5, 5, generator())) == one_each
    assert sorted(part.tolist() for part in log_normal(5, 5, 3.0, generator())) == one_each
    assert sorted(part.tolist() for part in dirichlet(np.arange(5) % 2, 5, 20.0, generator())) == one_each
    assert [part.tolist() for part in dirichlet(np.arange(5), 1, 0.1, generator())] == [[0, 1, 2, 3, 4]]


def test_too_many_draws_are_an_error_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "TRIES", 20)
    with pytest.raises(FedsrcError, match=r"in 20 draws .* some of the 10 sites got no unit\nhint: use fewer sites"):
        dirichlet(np.zeros(1000, dtype=np.int64), 10, 1e-4, generator())


def test_refusals() -> None:
    none, labels = np.zeros(0, dtype=np.int64), np.arange(6)
    with pytest.raises(FedsrcError, match="no units to deal"):
        natural(none)
    for sites in (0, -1):
        with pytest.raises(FedsrcError, match="cannot hold units"):
            iid(5, sites, generator())
    for deal in (lambda: iid(4, 5, generator()), lambda: log_normal(4, 5, 1.0, generator())):
        with pytest.raises(FedsrcError, match="4 units are too few for 5 sites"):
            deal()
    with pytest.raises(FedsrcError, match="6 units are too few for 7 sites"):
        dirichlet(labels, 7, 1.0, generator())
    for beta in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(FedsrcError, match="concentration"):
            dirichlet(labels, 2, beta, generator())
    for sigma in (-0.1, math.inf, math.nan):
        with pytest.raises(FedsrcError, match="spread"):
            log_normal(6, 2, sigma, generator())
    for shares in ([0.5, 0.6], [1.5, -0.5], [math.nan, 1.0]):
        with pytest.raises(FedsrcError, match="shares"):
            apportioned(6, np.asarray(shares))
