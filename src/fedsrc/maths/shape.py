"""Noise shaped for few thresholds: the covariance that costs least at a given diameter.

Notation
    m, r     thresholds, and one or more target risks; a row is one target at one threshold, target by target
    u, s     unsupported and supported mass of one unit at each threshold, falling in j; u + s <= 1
    d        contrast r s - (1-r) u of every row; positive is good
    q        shifted second moment d^2 + (1-2r) d of every row: equal, r (1-r), at both ends of d
    A        accepted mass u + s of every threshold
    X, c, y  the squared distance of two units is (d-d') X (d-d') + sum c (q-q')^2 + sum y (A-A')^2

Theory: (xiii) Shaped noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedsrc.maths.arrays import Floats

ROUNDS = 4_000  # of the multiplicative update; a hundred give four digits
TIGHT = 1e-6  # the update ends when no pair is farther apart than this beyond the rest


class Types(NamedTuple):
    """What the 2m + 1 one-answer binary units contribute: contrasts, second moments and accepted mass."""

    d: Floats
    q: Floats
    a: Floats


def types(m: int, r: Sequence[float]) -> Types:
    """Nothing accepted; then supported and unsupported answers accepted at thresholds 1..b, for b = 1..m."""
    suffix, none = np.tril(np.ones((m, m))), np.zeros((1, m))
    u, s = np.vstack([none, 0 * suffix, suffix]), np.vstack([none, suffix, 0 * suffix])
    d = np.hstack([each * s - (1.0 - each) * u for each in r])
    return Types(d, d * d + (1.0 - 2.0 * np.repeat(r, m)) * d, u + s)


class Weights(NamedTuple):
    """How much variance matters: of each row's contrast and second moment, and of each threshold's accepted mass."""

    d: Floats
    q: Floats
    a: Floats


class Metric(NamedTuple):
    """X, c and y: what the noise has as its inverse covariance, at a diameter of one."""

    X: Floats
    c: Floats
    y: Floats


def shaped(r: Sequence[float], weights: Weights) -> Metric:
    """Minimise sum wd (X^-1)_ii + sum wq / c + sum wa / y with every two types at a distance of at most one.

    A convex problem. With multipliers mu of the pairs, X = W (W M W)^{-1/2} W, W^2 = diag(wd), M = sum mu delta delta',
    and c^2 = wq / sum mu dq^2: mu grows where pairs are too far apart. At most two targets: a third contrast is a
    combination of the others. Theory: (xiii) Shaped noise.
    """
    points = types(weights.a.size, r)
    one, other = np.triu_indices(len(points.d), 1)
    d, q, a = points.d[one] - points.d[other], points.q[one] - points.q[other], points.a[one] - points.a[other]
    root, mu = np.sqrt(weights.d), np.full(one.size, 1.0 / one.size)
    for step in range(ROUNDS):
        values, vectors = np.linalg.eigh(root[:, None] * ((d * mu[:, None]).T @ d) * root)
        X = root[:, None] * ((vectors * values**-0.5) @ vectors.T) * root
        c, y = _ratio(weights.q, mu @ q**2), _ratio(weights.a, mu @ a**2)
        far = ((d @ X) * d).sum(axis=1) + q**2 @ c + a**2 @ y
        if far.max() <= (1.0 + TIGHT) * float(mu @ far) / float(mu.sum()):
            break
        mu = mu * (np.sqrt(far) if step < 50 else far)
    return Metric(X / far.max(), c / far.max(), y / far.max())


def _ratio(weight: Floats, load: Floats) -> Floats:
    """sqrt(weight / load), and zero where nothing is wanted."""
    return np.sqrt(np.divide(weight, load, out=np.zeros_like(weight), where=weight > 0))
