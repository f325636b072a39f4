"""Exact discrete Gaussian noise from the operating system's entropy (OpenDP). Nothing here can be seeded."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import opendp.prelude as dp

from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Ints

dp.enable_features("contrib")


def add_discrete_gaussian(values: Ints, scale: float, *, sensitivity: float, rho: float) -> Ints:
    """Integers plus independent discrete Gaussians of that scale; scale 0 adds nothing.

    OpenDP's own privacy map must confirm rho for the sensitivity before anything is drawn.
    """
    if scale == 0:
        return values
    mechanism = _mechanism(values.size, scale)
    if not mechanism.map(sensitivity) <= rho * (1 + 1e-9):
        raise FedsrcError("the noise scale does not give the registered privacy; nothing was released")
    return np.asarray(mechanism(values.ravel().tolist()), dtype=np.int64).reshape(values.shape)


@lru_cache(maxsize=8)
def _mechanism(size: int, scale: float) -> dp.Measurement:
    domain = dp.vector_domain(dp.atom_domain(T="i64"), size=size)
    return dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=scale)
