"""Evidence of simulated records, for tests of the methods."""

from __future__ import annotations

import math

import numpy as np

from fedsrc.audit.methods import METHODS
from fedsrc.audit.methods.setting import Aim, Evidence, Method, Sites, Unreleased, gather
from fedsrc.maths.arrays import Bools, Floats
from fedsrc.maths.basis import covariance

READ_SUMS = {  # all that `simulated` has
    name: method for name, method in METHODS.items() if method.given in (None, "released e-values")
}


def simulated(
    seed: int = 0, *, trials: int = 3, rounds: int = 4, sites: int = 2, m: int = 5, batch: int = 60, sigma: float = 0.0,
    errors: Floats | None = None, acceptance_of_bins: Floats | None = None, eta: float = 0.0, rho: float = 0.27,
) -> Evidence:  # fmt: skip
    """Evidence from records that are independent over bins 0..m with those error rates; paired noise of scale sigma."""
    rng = np.random.default_rng(seed)
    share = np.full(m + 1, 1 / (m + 1)) if acceptance_of_bins is None else acceptance_of_bins
    rates = np.linspace(0.7, 0.02, m + 1) if errors is None else errors
    counts = rng.multinomial(batch, share, size=(trials, rounds, sites))
    wrong = rng.binomial(counts, rates)
    per_site = [_cumulative(x.astype(np.float64)) for x in (counts, wrong)]
    A, Z = (x.sum(axis=2) for x in per_site)
    N = np.broadcast_to(np.arange(1.0, rounds + 1)[:, None] * batch, (trials, rounds, sites))
    noise = [_cumulative(sigma * math.sqrt(sites) * rng.standard_normal((trials, rounds, m + 1))) for _ in range(2)]
    releases = np.arange(1.0, rounds + 1) * sites
    own = Unreleased(
        A, Z, np.cumsum(rng.standard_normal((trials, rounds, m)) * math.sqrt(sites), axis=1),
        np.broadcast_to(releases, (trials, rounds)), rho, float(batch),
    )  # fmt: skip
    v = np.arange(m, 0.0, -1) * releases[:, None] * sigma**2
    return gather(
        A + noise[0], Z + noise[1], N.sum(axis=-1), noise=covariance("paired", v), unit=sigma**2 or 1.0, eta=eta,
        sites=Sites(per_site[0], per_site[1], N), unreleased=own,
    )  # fmt: skip


def fired(method: Method, seen: Evidence, aim: Aim) -> Bools:
    """Whether the method certifies a threshold at a look where it may stop."""
    since = -1 if method.stops == "at the last look" else 0
    return np.asarray(method.judge(seen, aim).certified[..., since:, :].any(axis=(-2, -1)))


def _cumulative(x: Floats) -> Floats:
    """Suffix sums over bins, cumulative over rounds (axis 1)."""
    suffix = np.cumsum(x[..., :0:-1], axis=-1)[..., ::-1]
    return np.cumsum(suffix, axis=1)
