"""What a sealed release counts, in integers: weighed contrasts, second moments and accepted masses.

Notation
    g        masses come as integers u, s over g
    r        target risks, exact fractions over one denominator rd
    d, q     contrast and shifted second moment of every row (a target at a threshold), times g rd and (g rd)^2
    R        X = R'R weighs contrasts; the public matrix is rounded, never the data

Theory: (xiii) Shaped noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from fedsrc.maths.arrays import Floats, Ints
from fedsrc.maths.kinds import Adjacency
from fedsrc.maths.shape import Metric

FEWEST = 256.0  # what the largest weights are at least, so that rounding changes them little


@dataclass(frozen=True)
class ContrastCode:
    """The integer encoding of units: R d, then second moments and accepted masses, each times a weight.

    `accepted` is empty where second moments show accepted mass already (one target, units of one binary answer) or
    unlabelled records do; `second` where contrasts are tested by themselves.
    """

    r: tuple[Fraction, ...]
    g: int
    R: tuple[tuple[int, ...], ...]
    second: tuple[int, ...]
    accepted: tuple[int, ...]

    @property
    def rows(self) -> int:
        return len(self.R)

    @property
    def m(self) -> int:
        return self.rows // len(self.r)

    @property
    def lengths(self) -> tuple[int, int]:
        """How many integers the two parts of a release hold."""
        return self.rows, len(self.second) + len(self.accepted)

    @property
    def unit(self) -> int:
        """g rd: what contrasts are multiples of one over."""
        return self.g * math.lcm(*(each.denominator for each in self.r))

    def encode(self, u: Ints, s: Ints) -> Ints:
        """Integer coordinates (..., p) of integer masses u and s (..., m), each over g.

        Theory: (xiii) Shaped noise.
        """
        rd = self.unit // self.g
        d = np.concatenate([int(each * rd) * s - int(rd - each * rd) * u for each in self.r], axis=-1)
        parts = [d @ np.array(self.R, dtype=d.dtype).T]
        if self.second:
            shift = np.repeat([int(rd - 2 * each * rd) for each in self.r], self.m).astype(d.dtype)
            parts.append((d * d + shift * self.g * d) * np.array(self.second, dtype=d.dtype))
        if self.accepted:
            parts.append((u + s) * np.array(self.accepted, dtype=d.dtype))
        return np.concatenate(parts, axis=-1)

    @cached_property
    def types(self) -> Ints:
        """The 2m + 1 one-answer binary units, encoded exactly, however fine the lattice."""
        suffix = np.tril(np.ones((self.m, self.m), dtype=np.int64)).astype(object) * self.g
        none = suffix[:1] * 0
        return self.encode(np.vstack([none, 0 * suffix, suffix]), np.vstack([none, suffix, 0 * suffix]))

    def sensitivity_squared(self, adjacency: Adjacency) -> int:
        """Largest squared distance of two units (replacement), or of a unit from one below every threshold (zero-out).

        Over one-answer binary types; over all units where `covers_masses`. Theory: (xiii) Shaped noise.
        """
        others = self.types if adjacency == "replacement" else self.types[:1]
        return max(int(((one - other) ** 2).sum()) for one in self.types for other in others)

    def covers_masses(self) -> bool:
        """Whether second moments weigh at most twice what the least contrast does: then no shared masses are farther
        apart than one-answer types. Theory: (xiii) Shaped noise, c <= 2 lambda."""
        return max(self.second, default=0) * self.unit <= math.sqrt(2.0) * float(self._lengths[-1]) * (1.0 - 1e-9)

    @property
    def condition(self) -> float:
        """How many times its relative rounding error the inverse of R has: the longest over the least stretch."""
        least = float(self._lengths[-1])
        return float(self._lengths[0]) / least if least > 0 else math.inf

    @cached_property
    def _lengths(self) -> Floats:
        return np.asarray(np.linalg.svd(np.array(self.R, dtype=np.float64), compute_uv=False))

    def largest(self) -> int:
        """A bound on every coordinate of one unit, whatever masses it has."""
        contrast = self.unit * max(sum(map(abs, row)) for row in self.R)
        return max(contrast, self.unit**2 * max(self.second, default=0), self.g * max(self.accepted, default=0))

    @cached_property
    def inverse(self) -> Floats:
        """R^-1 over `unit`: contrasts in units of mass from weighed ones."""
        return np.asarray(np.linalg.inv(np.array(self.R, dtype=np.float64)) / self.unit)

    @cached_property
    def second_unit(self) -> Floats:
        """What one lattice unit of a second moment is in units of mass; nothing where none are released."""
        if not self.second:
            return np.zeros(self.rows)
        return 1.0 / (np.array(self.second, dtype=np.float64) * float(self.unit) ** 2)

    @cached_property
    def accepted_unit(self) -> Floats:
        """What one lattice unit of accepted mass is, per threshold; nothing where none is shown."""
        if self.accepted:
            return 1.0 / (np.array(self.accepted, dtype=np.float64) * self.g)
        r = float(self.r[0])
        return self.second_unit[: self.m] / (r * (1.0 - r))

    def decode(self, sums: Floats) -> tuple[Floats, Floats, Floats]:
        """Contrasts, second moments and accepted masses (a lower bound on them where second moments show them), from
        sums (..., p); zeros for what is not released. Theory: (xiii) Acceptance."""
        contrast, rest = sums[..., : self.rows] @ self.inverse.T, sums[..., self.rows :]
        second = rest[..., : self.rows] if self.second else np.zeros_like(contrast)
        accepted = rest[..., len(self.second) :] if self.accepted else second[..., : self.m]
        return contrast, second * self.second_unit, accepted * self.accepted_unit


def rounded(
    metric: Metric, r: tuple[Fraction, ...], g: int, fineness: int, *, accepted: bool, second: bool = True
) -> ContrastCode:
    """Round a metric to integers, with a diameter of at least about `fineness` lattice units, and more where masses are
    so fine that weights would be few. Second moments of masses that are shared (g > 1) weigh no more than the
    enumeration of types covers."""
    unit = g * math.lcm(*(each.denominator for each in r))
    K = max(FEWEST, fineness / unit**2)
    R = np.rint(K * unit * np.linalg.cholesky(metric.X).T)
    least = float(np.linalg.svd(R, compute_uv=False)[-1]) / (K * unit)
    c = metric.c if g == 1 else np.minimum(metric.c, 2.0 * least**2 * (1.0 - 1e-6))
    q = np.maximum(1.0, np.floor(K * np.sqrt(c)))
    top = np.maximum(1.0, np.rint(K * unit * (unit // g) * np.sqrt(metric.y)))
    weights = [tuple(map(int, each)) if there else () for each, there in ((q, second), (top, accepted))]
    return ContrastCode(r, g, tuple(tuple(map(int, row)) for row in R), *weights)
