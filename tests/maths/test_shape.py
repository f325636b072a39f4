"""Shaped noise: the least variance at a unit diameter, on integers; the sensitivity is reached and never passed.

Mutants killed: a pair of types left out (the diameter is passed), the second moment without its shift (its ends differ,
and the diameter grows), data rounded instead of the matrix, the cap on second moments left out (control), weights of
contrasts and second moments exchanged, variances in another unit.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsrc.maths.arrays import Ints
from fedsrc.maths.contrasts import ContrastCode, rounded
from fedsrc.maths.shape import Metric, Weights, shaped, types

RISKS = [Fraction(1, 5), Fraction(1, 10), Fraction(3, 20), Fraction(1, 2), Fraction(7, 10)]


def even(m: int, second: float = 0.0625, top: float = 0.05, targets: int = 1) -> Weights:
    rows = targets * m
    return Weights(np.full(rows, 1 / rows), np.full(rows, second / rows), np.full(m, top / m))


def encoding(m: int, *r: Fraction, g: int = 60) -> ContrastCode:
    made = shaped([float(each) for each in r], even(m, targets=len(r)))
    return rounded(made, r, g, 1 << 32, accepted=True)


def units(m: int, g: int, count: int, seed: int) -> tuple[Ints, Ints]:
    """Random sources of one to six answers, each answer of one of 2m + 1 types, as masses over g."""
    rng = np.random.default_rng(seed)
    answers = rng.integers(1, 7, count)
    laws = rng.dirichlet(np.full(2 * m + 1, 0.3), count)
    held = np.array([rng.multinomial(k, law) * (g // k) for k, law in zip(answers, laws, strict=True)])
    suffix = np.triu(np.ones((m, m), dtype=np.int64)).T
    return held[:, m + 1 :] @ suffix, held[:, 1 : m + 1] @ suffix


@pytest.mark.parametrize(("m", "least"), [(1, 1.0), (2, 1.309), (3, 1.536), (5, 1.883)])
def test_contrasts_alone_cost_what_the_statement_says(m: int, least: float) -> None:
    metric = shaped([0.2], even(m, 0.0, 0.0))
    assert np.diag(np.linalg.inv(metric.X)).mean() == pytest.approx(least, abs=1e-3)
    assert np.all(metric.c == 0)
    assert np.all(metric.y == 0)


@pytest.mark.parametrize("m", [1, 2, 4])
@pytest.mark.parametrize("r", [0.1, 0.2, 0.5])
def test_no_other_metric_is_better(m: int, r: float) -> None:
    """Perturbed metrics, scaled back to a unit diameter, cost no less; the problem is convex."""
    weights, points, rng = even(m), types(m, [r]), np.random.default_rng(m)

    def cost(metric: Metric) -> float:
        d, q, a = (each[:, None] - each[None] for each in points)
        far = np.einsum("ijk,kl,ijl->ij", d, metric.X, d) + (q**2) @ metric.c + (a**2) @ metric.y
        spread = (
            np.diag(np.linalg.inv(metric.X)) @ weights.d + (weights.q / metric.c).sum() + (weights.a / metric.y).sum()
        )
        return float(spread * far.max())

    best = shaped([r], weights)
    for _ in range(50):
        push = rng.normal(0, 0.03, (m, m))
        other = Metric(
            (np.eye(m) + push) @ best.X @ (np.eye(m) + push).T,
            best.c * np.exp(rng.normal(0, 0.05, m)),
            best.y * np.exp(rng.normal(0, 0.05, m)),
        )
        assert cost(other) >= cost(best) * (1 - 2e-5)


@pytest.mark.parametrize("r", [*((each,) for each in RISKS), (Fraction(1, 5), Fraction(1, 10))])
@pytest.mark.parametrize("m", [1, 2, 3, 5])
def test_sensitivity_is_reached_and_never_passed(m: int, r: tuple[Fraction, ...]) -> None:
    made = encoding(m, *r)
    assert made.covers_masses()
    found = made.encode(*units(m, 60, 500, seed=m)).astype(object)
    none = np.zeros((1, found.shape[1]), dtype=object)
    assert farthest(found) <= made.sensitivity_squared("replacement")
    assert ((found - none) ** 2).sum(axis=1).max() <= made.sensitivity_squared("zero-out")
    ends = np.vstack([np.zeros((1, m)), np.tril(np.ones((m, m)))]).astype(np.int64) * 60
    nothing = np.zeros_like(ends)
    corners = np.vstack([made.encode(ends, nothing), made.encode(nothing, ends)]).astype(object)
    assert farthest(corners) == made.sensitivity_squared("replacement")
    assert (corners**2).sum(axis=1).max() == made.sensitivity_squared("zero-out")
    assert max(map(abs, found.ravel())) <= made.largest()


def farthest(points: np.ndarray[tuple[int, ...], np.dtype[np.object_]]) -> int:
    """The largest squared distance, exactly; candidates by floats, then integers."""
    rough = points.astype(np.float64)
    norms = (rough**2).sum(axis=1)
    far = norms[:, None] + norms[None] - 2 * rough @ rough.T
    near_top = np.argwhere(far >= far.max() * (1 - 1e-9))[:50]
    return max(int(((points[i] - points[j]) ** 2).sum()) for i, j in near_top)


@pytest.mark.parametrize("r", [Fraction(1, 10), Fraction(1, 5)])
def test_heavier_second_moments_are_passed_by_shared_masses(r: Fraction) -> None:
    """The control: beyond the cap, sources that share their mass lie farther apart than any one-answer types."""
    made = encoding(3, r)
    heavy = replace(made, second=tuple(6 * each for each in made.second))
    assert not heavy.covers_masses()
    assert farthest(heavy.encode(*units(3, 60, 500, seed=0)).astype(object)) > 1.3 * heavy.sensitivity_squared(
        "replacement"
    )


@settings(max_examples=25)
@given(st.lists(st.sampled_from(RISKS), min_size=1, max_size=2, unique=True), st.integers(1, 4), st.integers(0, 10**6))
def test_what_is_encoded_is_what_was_counted(risks: list[Fraction], m: int, seed: int) -> None:
    """Integers in, integers out, linear in units: contrasts, second moments and accepted mass come back."""
    made = encoding(m, *risks, g=12)
    u, s = (each // 5 for each in units(m, 60, 5, seed))
    total = made.encode(u, s).sum(axis=0)
    d = [
        [r * Fraction(int(y), 12) - (1 - r) * Fraction(int(x), 12) for r in risks for x, y in zip(a, b, strict=True)]
        for a, b in zip(u, s, strict=True)
    ]
    rows, r = range(len(risks) * m), [each for each in risks for _ in range(m)]
    contrast = [sum(row[i] for row in d) for i in rows]
    second = [sum(row[i] ** 2 + (1 - 2 * r[i]) * row[i] for row in d) for i in rows]
    weighed = [sum(w * x for w, x in zip(row, contrast, strict=True)) * made.unit for row in made.R]
    assert [int(x) for x in total[: len(rows)]] == weighed
    assert [int(x) for x in total[len(rows) : -m]] == [
        w * x * made.unit**2 for w, x in zip(made.second, second, strict=True)
    ]
    assert total[-m:].tolist() == (np.array(made.accepted) * (u + s).sum(axis=0)).tolist()
    D, Q, A = made.decode(total.astype(np.float64))
    assert pytest.approx([float(x) for x in contrast], abs=1e-9) == D
    assert pytest.approx([float(x) for x in second], abs=1e-9) == Q
    assert pytest.approx((u + s).sum(axis=0) / 12, abs=1e-9) == A


def test_binary_units_show_accepted_mass_in_their_second_moments() -> None:
    """A = Q / (r (1-r)) for one binary answer, and is no more than that for shared masses."""
    made = rounded(shaped([0.2], even(3)), (Fraction(1, 5),), 1, 1 << 32, accepted=False)
    accepted = made.decode(np.asarray(made.types, dtype=np.float64))[2]
    assert accepted == pytest.approx(types(3, [0.2]).a, abs=1e-9)
    shared = replace(encoding(3, Fraction(1, 5)), accepted=())
    u, s = units(3, 60, 300, seed=5)
    assert np.all(shared.decode(shared.encode(u, s).astype(np.float64))[2] <= (u + s) / 60 + 1e-9)
