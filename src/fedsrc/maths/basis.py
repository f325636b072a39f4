"""What a release holds: two mass vectors over bins, in plain bins or in the suffix basis, on an integer lattice.

Notation
    m        thresholds; bins 0..m, bin b holds scores in [lambda_b, lambda_{b+1})
    g        masses lie on Z/g (1 for binary loss)
    k        the suffix basis rounds its public matrix to 2^-k
    f        first row of the Toeplitz matrix M with M M = W (upper triangular ones); fhat its rounding
    ghat     power series (1/(1-z)) / fhat(z): first row of B, with B Mhat = W exactly
    s        noise scale in lattice units

The lattice unit is 1 / (2^k g) in the suffix basis and 1/g in plain bins. Data are never rounded: only the public
matrix is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft

from fedsrc.maths.arrays import Floats, Ints
from fedsrc.maths.betting import Covariance
from fedsrc.maths.kinds import Adjacency, BasisName, Encoding

Number = TypeVar("Number", np.int64, np.float64)


@dataclass(frozen=True)
class Basis:
    """A public linear map from the m+1 bins of one mass vector to the p coordinates that are released."""

    name: BasisName
    m: int
    k: int = 8

    @property
    def unit(self) -> int:
        """Lattice units per unit of mass grid: 2^k in the suffix basis, 1 in plain bins."""
        return 1 << self.k if self.name == "suffix" else 1

    @property
    def p(self) -> int:
        """Released coordinates per mass vector: bins 0..m, or m suffix coordinates (bin 0 enters no suffix)."""
        return self.m if self.name == "suffix" else self.m + 1

    @property
    def rows(self) -> int:
        """Mass vectors in a release: supported and unsupported, or counts and unsupported."""
        return 2

    @property
    def lengths(self) -> tuple[int, int]:
        """How many integers the two parts of a release hold."""
        return self.p, self.p

    def encode(self, x: Ints) -> Ints:
        """Integer coordinates of integer bin masses x (..., m+1), in lattice units.

        Theory: (ii), 2^k g Mhat x. Paper: eqs. (count-hist), (error-hist) in plain bins.
        """
        if self.name == "bins":
            return x
        return _toeplitz(suffix_numerators(self.m, self.k), x[..., 1:])

    def decode(self, y: Floats) -> Floats:
        """Suffix sums (..., m) of bins j..m from coordinates y (..., p) in lattice units over `unit`.

        Theory: (ii), B (Mhat x + z). Paper: eqs. (noisy-A), (noisy-Z) in plain bins.
        """
        if self.name == "bins":
            return np.cumsum(y[..., :0:-1], axis=-1)[..., ::-1]
        return _toeplitz(suffix_series(self.m, self.k), y) / self.unit

    def variance_factor(self) -> Floats:
        """v_j / (s/g)^2: noise variance that suffix j carries per unit of coordinate variance on the mass scale.

        Theory: (ii), sum_k B[j,k]^2 / 4^k. Paper: eq. (noisevar), d_j = m - j + 1 in plain bins.
        """
        if self.name == "bins":
            return np.arange(self.m, 0, -1, dtype=np.float64)
        return np.cumsum(suffix_series(self.m, self.k) ** 2)[::-1] / self.unit**2

    def column_norm_squared(self) -> int:
        """Largest squared norm of a column of the encoding: chat^2 4^k, or 1 in plain bins. Theory: (ii)."""
        if self.name == "bins":
            return 1
        f = suffix_numerators(self.m, self.k)
        return int(f @ f)

    def spread(self, a: Floats) -> Floats:
        """Coordinate weights (p,) of the linear statistic sum_j a_j (suffix j), per lattice unit over `unit`."""
        if self.name == "bins":
            return np.concatenate([[0.0], np.cumsum(a)])
        return np.convolve(suffix_series(self.m, self.k), a)[: self.m] / self.unit


def sensitivity_squared(basis: Basis, encoding: Encoding, adjacency: Adjacency) -> int:
    """Largest squared L2 change of the release when one unit changes, in lattice units for g = 1 (an exact integer).

    zero-out: the unit's contribution against nothing. A unit's contribution is a convex combination of one column
    times (1 - l, l), complementary, or (1, l), paired; the norm is convex, so corners suffice.
    replacement: the unit's contribution against another's. The paper uses the triangle inequality there (2 sqrt 2
    for its paired bins); the exact value is 2.

    Paper: Lemma (sensitivity). Theory: (i), (ii), (v).
    """
    column = basis.column_norm_squared()
    if adjacency == "zero-out":
        return column if encoding == "complementary" else 2 * column
    if encoding == "complementary":
        return 2 * column  # one unit all supported, the other all unsupported: orthogonal blocks
    apart = _column_distance_squared(basis)
    return max(2 * apart, apart + column)


def covariance(encoding: Encoding, v: Floats) -> Covariance:
    """Noise covariance of (U, S) per threshold when each released suffix carries variance v.

    Complementary releases (S, U) itself; paired releases (C, E) with U = E and S = C - E.
    """
    if encoding == "complementary":
        return Covariance(v, np.zeros_like(v), v)
    return Covariance(v, -v, 2.0 * v)


@lru_cache(maxsize=32)
def suffix_numerators(m: int, k: int) -> Ints:
    """2^k fhat(q) for q < m: f(0) = 1, f(q) = f(q-1) (2q-1) / (2q), rounded to integers.

    Theory: (ii).
    """
    q = np.arange(1, m)
    f = np.cumprod(np.concatenate([[1.0], (2 * q - 1) / (2 * q)]))
    return np.asarray(np.rint(f * (1 << k)), dtype=np.int64)


@lru_cache(maxsize=32)
def suffix_series(m: int, k: int) -> Floats:
    """ghat(q) for q < m: the power series (1/(1-z)) / fhat(z).

    Theory: (ii), first row of B.
    """
    fhat = suffix_numerators(m, k) / float(1 << k)
    ghat = np.empty(m)
    for q in range(m):
        ghat[q] = 1.0 - ghat[:q] @ fhat[q:0:-1]
    return ghat


def _toeplitz(row: NDArray[Number], x: NDArray[Number]) -> NDArray[Number]:
    """Upper triangular Toeplitz matrix with first row `row`, times each x (..., m): sum_{k>=j} row(k-j) x_k."""
    m = row.size
    if m <= 256:
        lag = np.arange(m)[:, None] - np.arange(m)[None, :]  # of the transposed matrix
        return np.asarray(x @ np.where(lag >= 0, row[np.abs(lag)], 0))
    if row.dtype == np.int64 and float(np.abs(row).sum()) * float(np.abs(x).max(initial=0)) > 1 << 40:
        flat = x.reshape(-1, m)[:, ::-1]  # too large for a transform to round exactly
        return np.stack([np.convolve(row, each)[:m][::-1] for each in flat]).reshape(x.shape)
    n = next_fast_len(2 * m - 1, real=True)  # below 2^40 the transform's error is far below one half
    product = irfft(rfft(row, n) * rfft(x[..., ::-1], n, axis=-1), n)[..., :m][..., ::-1]
    return np.asarray(np.rint(product) if row.dtype == np.int64 else product, dtype=row.dtype)


def _column_distance_squared(basis: Basis) -> int:
    """Largest squared distance between two columns (bin 0 is the zero column in the suffix basis).

    Columns b and b - h differ by sum_{q<h} f(q)^2 + sum_{q<b-h} (f(q) - f(q+h))^2, which grows with b.
    """
    if basis.name == "bins":
        return 2
    m, f = basis.m, suffix_numerators(basis.m, basis.k)
    overlap = np.correlate(f.astype(np.float64), f.astype(np.float64), "full")[m - 1 :]
    norms = np.cumsum(f * f)
    distances = [int(norms[-1])]  # against bin 0
    distances += [int(norms[-1] + norms[m - h - 1] - 2 * round(overlap[h])) for h in range(1, m)]
    return max(distances)
