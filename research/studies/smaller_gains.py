"""Smaller gains, measured: recentring by site, exact Gaussian accounting, closed testing, columns of one norm.

Run: python -m research.studies.smaller_gains [TRIALS]; writes docs/results/smaller-gains.md

None of them is in the package; the page states what holds of them, and each function proves it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, logsumexp, ndtr

from fedsrc.maths import betting
from fedsrc.maths.arrays import Bools, Floats, Ints
from fedsrc.maths.basis import Basis, sensitivity_squared
from fedsrc.planning.aim import Aim, reaches_floor
from fedsrc.planning.open_plan import plan_open
from fedsrc.simulate.posterior import from_answers
from research.pages import markdown, publish, words
from research.studies import label_cost
from research.studies.label_cost import CAP, DELTA, DRAWS, SITES, TARGET, R

TRIALS, ALPHA = 400, 0.045
EPSILONS = (8.0, 4.0, 2.0, 1.0)
RISKS = {
    "unlike: 0, 0, .05, .1, .6": (0.0, 0.0, 0.05, 0.1, 0.6),
    "less unlike: .05, .1, .15, .2, .25": (0.05, 0.1, 0.15, 0.2, 0.25),
    "alike: .15 each": (0.15,) * 5,
}
BATCHES = {math.inf: (10, 120), 4.0: (50, 60), 1.0: (150, 40)}  # per site and round, and rounds
KNOWN, ROOM = 20, 0.97  # records of a site that count as seen elsewhere; the largest bet, over 1/(1-r)


def delta_discrete(mu: float, eps: float, h: float) -> float:
    """delta(eps) that discrete Gaussian noise of scale s >= 1 on p coordinates keeps, mu = Delta/s, h = sqrt(p)/s.

    Let one unit change the integers by v, |v| <= Delta. The log-likelihood ratio at x is (2 v.x - |v|^2) / 2 s^2, so
    the smallest delta is P(v.X > eps s^2 - |v|^2/2) - e^eps P(v.X > eps s^2 + |v|^2/2). v.X lies stochastically
    within |v|_1 <= sqrt(p) |v| of N(0, s^2 |v|^2), on either side ((xiii) Exact tail, discrete noise): the formula
    with mu = |v|/s. It grows with mu: its derivative is e^eps phi(eps/mu + mu/2 + h) times
    e^(2 h eps/mu) (eps/mu^2 + 1/2) + 1/2 - eps/mu^2 >= 1.

    At h = 0 it is the continuous Gaussian's.
    """
    return float(ndtr(mu / 2 - eps / mu + h) - math.exp(eps + log_ndtr(-mu / 2 - eps / mu - h)))


def exact_noise(eps: float, lattice: float = 0.0) -> float:
    """The least noise scale over the sensitivity at (eps, DELTA); `lattice` is sqrt(p) over the sensitivity."""
    return float(brentq(lambda x: delta_discrete(1 / x, eps, lattice / x) - DELTA, 0.1, 100.0, xtol=1e-12))


def open_lattice(m: int) -> float:
    """sqrt(p) over the sensitivity of open histograms of m thresholds, in their lattice units."""
    return math.sqrt(2 * m / sensitivity_squared(Basis("suffix", m), "complementary", "replacement"))


def recentred(theta: Floats, lam: Floats, r: float) -> tuple[Floats, Floats, Floats]:
    """What an unsupported, a supported and any unit adds to the logarithm of (lambda + theta d) e^(1 - lambda).

    Its mean is at most e^(theta mu), as (iv) needs, since y e^(1-y) <= 1 at y = lambda + theta mu, with equality at
    lambda = 1 - theta mu. Its logarithm is linear in totals, so noise is paid as in (iv).
    """
    return np.log1p(-theta * (1 - r) / lam), np.log1p(theta * r / lam), np.log(lam) + 1 - lam


def centres(kind: str, U: Floats, risks: Floats, theta: Floats, batch: int) -> Floats:
    """lambda (trials, rounds, sites, bets) of fastest growth: for the known risks, or those of each site's noised past,
    drawn to that of all sites. It solves E 1/(lambda + theta d) = 1, and is one where sites are alike and bets best."""
    if kind == "today":
        return np.ones((*U.shape, theta.size))
    risk = np.broadcast_to(risks, U.shape)
    if kind == "past":
        before, seen = np.cumsum(U, axis=1) - U, batch * np.arange(U.shape[1])[:, None]
        pooled = before.mean(axis=2, keepdims=True) / np.maximum(seen, 1)
        risk = np.clip((before + KNOWN * pooled) / (seen + KNOWN), 0.0, 1.0)
    least = (1 - theta + np.sqrt((1 - theta) ** 2 + 4 * risk[..., None] * theta)) / 2
    found = np.maximum(least + theta * (1 - R), theta * (1 - R) / ROOM)
    if kind == "past":
        found[:, 0] = 1.0
    return np.asarray(found)


def recentring(kind: str, risks: Sequence[float], epsilon: float, trials: int) -> float:
    """Mean records at certification, at one threshold that accepts everything, each site with its own noise."""
    rng, (batch, rounds) = np.random.default_rng(19), BATCHES[epsilon]
    v = 2 * label_cost.noise(epsilon) ** 2
    bad = rng.binomial(batch, risks, (trials, rounds, len(risks))).astype(np.float64)
    noise = rng.normal(0, math.sqrt(v), (2, *bad.shape))
    U, S = bad + noise[0], batch - bad + noise[1]
    theta = betting.ladder([R]).theta[0]
    x, y, z = recentred(theta, centres(kind, U, np.array(risks), theta, batch), R)
    L = U[..., None] * x + S[..., None] * y + batch * z - v / 2 * (x * x + y * y)
    wealth = logsumexp(L.sum(axis=2).cumsum(axis=1), axis=-1) - math.log(theta.size)
    return mean_records(wealth[..., None] >= math.log(1 / ALPHA), batch * len(risks) * np.arange(1, rounds + 1))


def mean_records(done: Bools, used: Ints) -> float:
    """Mean records up to the first certificate; none counts as the last round."""
    shown: Bools = np.any(done, axis=-1)
    return float(np.where(np.any(shown, axis=1), used[shown.argmax(axis=1)], used[-1]).mean())


def closed(wealth: Floats, w: Floats) -> Bools:
    """Reject j where every set that holds j has sum w E >= sum w / alpha: the worst set takes all that fall short.

    With S the thresholds above their target, which a fixed mixture keeps fixed, sum_S w E / sum_S w is at most a
    nonnegative supermartingale from 1: by Ville a false one is ever rejected with probability at most alpha.
    """
    over = w * (np.exp(np.minimum(wealth + math.log(ALPHA), 50.0)) - 1.0)
    short = np.minimum(over, 0.0)
    return np.asarray(over + short.sum(axis=-1, keepdims=True) - short >= 0)


def union(wealth: Floats, w: Floats) -> Bools:
    return np.asarray(wealth >= -np.log(ALPHA * w))


def toeplitz(m: int) -> Floats:
    """Suffix masses from coordinates of the suffix basis with a largest column of norm one, (m, m)."""
    basis = Basis("suffix", m)
    return np.asarray(basis.decode(np.eye(m)).T * math.sqrt(basis.column_norm_squared()))


def even_columns(m: int) -> Floats:
    """The same of the basis whose columns all have norm one."""
    series = toeplitz(m)
    matrix = np.linalg.solve(series, np.triu(np.ones((m, m))))
    return np.asarray(np.triu(np.ones((m, m))) @ np.linalg.inv(matrix / np.linalg.norm(matrix, axis=0)))


class Way(NamedTuple):
    """How population L is certified: noise over sensitivity by epsilon, basis by thresholds, and what rejects."""

    noise: Callable[[float], float] = label_cost.noise
    basis: Callable[[int], Floats] = toeplitz
    reject: Callable[[Floats, Floats], Bools] = union


def over_limit(way: Way, epsilon: float, trials: int) -> float:
    """Geometric mean over ten draws of mean records over the limit: the open plan, one holder, replacement."""
    found = []
    for seed in range(DRAWS):
        draw, rng = label_cost.drawn(seed), np.random.default_rng([19, seed])
        noise = 0.0 if math.isinf(epsilon) else way.noise(epsilon)
        aim = Aim(TARGET, CAP, noise, SITES, objective="records")
        plan, _ = plan_open(from_answers(draw.unsupported, draw.supported, rng), aim, rng)
        kept, w, slots = list(plan.kept), np.array(plan.weights), SITES * np.cumsum(plan.sizes)
        u, s = (each[..., kept] for each in label_cost.events(draw, plan.sizes, trials, rng))
        decode = math.sqrt(2) * noise * way.basis(len(kept))
        noises = rng.standard_normal((2, *u.shape)).cumsum(axis=-2) @ decode.T
        v = np.arange(1, slots.size + 1)[:, None] * (decode**2).sum(axis=1)
        rungs = betting.ladder([R], priors=plan.priors)
        U, S = u + noises[0], s + noises[1]
        wealth = betting.log_wealth(U, S, betting.Covariance(v, 0 * v, v), slots[:, None], eta=0.0, rungs=rungs)
        floor = reaches_floor(aim, U + S, slots[:, None], 2 * v, w)
        found.append(math.log(mean_records(way.reject(wealth[..., 0], w) & floor, slots) / draw.limit))
    return math.exp(float(np.mean(found)))


def recentring_rows(trials: int) -> Iterator[list[str]]:
    for name, risks in RISKS.items():
        for epsilon in BATCHES:
            figures = [recentring(kind, risks, epsilon, trials) for kind in ("today", "past", "known")]
            yield [name, words(epsilon), *(f"{each:,.0f}" for each in figures)]


def accounting_rows(trials: int) -> Iterator[list[str]]:
    for epsilon in EPSILONS:
        zcdp, exact, coarse = label_cost.noise(epsilon), exact_noise(epsilon), exact_noise(epsilon, open_lattice(7))
        records = [over_limit(Way(noise=noise), epsilon, trials) for noise in (label_cost.noise, exact_noise)]
        yield [
            f"{epsilon:g}", *(f"{each:.3f}" for each in (zcdp, exact, coarse)), f"{(zcdp / exact) ** 2:.3f}",
            *(f"{each:.2f}" for each in records),
        ]  # fmt: skip


def basis_rows() -> Iterator[list[str]]:
    for m in (3, 5, 7, 20, 50):
        now, even = ((each(m) ** 2).sum(axis=1) for each in (toeplitz, even_columns))
        yield [str(m), *(f"{each:.2f}" for each in (now.max(), even.max(), now.mean(), even.mean()))]


def label_rows(trials: int) -> Iterator[list[str]]:
    ways = Way(), Way(reject=closed), Way(basis=even_columns)
    for epsilon in (math.inf, 4.0, 1.0):
        yield [words(epsilon), *(f"{over_limit(way, epsilon, trials):.3f}" for way in ways)]


INTRO = r"""# Smaller gains, measured

Four changes that fedsrc does not make, and what each would be worth. The first three are valid: each is stated below in
the symbols of [the theory](../theory.md), and proved beside its function in `research/studies/smaller_gains.py`
(`tests/research/test_smaller_gains.py`). Made by `python -m research.studies.smaller_gains`, in two minutes.

## Recentring by site

For units of one yes-or-no answer [(iv)](../theory/04-betting.md) holds with $(\lambda_k+\theta d)\,e^{1-\lambda_k}$ for
$1+\theta d$, $\lambda_k>\theta(1-r)$ a function of what came before.

Mean records at certification: five sites, each with its own noise, target 0.2, one threshold that accepts everything,
the twelve default bets. A bet is recentred for each site by its risk: estimated from its noised past, or known."""
RECENTRING = r"""If one site of five is far worse than the others, a quarter of the records is saved without privacy, an
eighth at epsilon 4 and a thirtieth at epsilon 1; sites that are alike pay up to 2%. It stays out: it gains only where
sites differ much and noise is small, and bounds would have to keep every site's totals apart.

How much a site's past counts was chosen on these very settings: the other sites weigh as 20 records, the best of 20,
50, 100 and 200, which gave 461, 496, 521 and 556 in the first row. A first rule for the centre gave 507 there.

## Exact Gaussian accounting

Discrete Gaussians of scale $s\ge1$ on $p$ integers, which one unit changes by a norm of at most $\Delta$, are
$(\varepsilon,\delta)$-private with $\mu=\Delta/s$, $h=\sqrt p/s$ and

$$\delta=\bar\Phi\Big(\frac\varepsilon\mu-\frac\mu2-h\Big)-e^\varepsilon\,\bar\Phi\Big(\frac\varepsilon\mu+\frac\mu2+h\Big).$$

Noise scale over sensitivity at delta 1e-6: by zCDP, as released; by the continuous Gaussian's curve; and as proved for
discrete noise in open histograms of seven thresholds. On the finer lattice of sealed releases, what is proved is the
continuous curve to three digits. Records are over the limit (population L, ten draws, the open plan, one holder)."""
ACCOUNTING = r"""zCDP costs 11 to 15% of noise variance, and 1 to 4% of the records. The proof is complete, for a unit
that enters one release. It stays out for now: ledgers, limits and cards add up rho, which this curve has none of.

## Closed testing, and columns of one norm

With a fixed mixture and the registered target, threshold $j$ may be certified when at one time
$\sum_{i\in S}w_iE_i\ge\frac1\alpha\sum_{i\in S}w_i$ for every $S$ that holds $j$.

Records over the limit, as above, if thresholds are certified by weighted averages over all sets of them, and if the
columns of the suffix basis are scaled to one norm."""
CLOSED = """Closed testing saves 8% without privacy, 5% at epsilon 4 and 3% at epsilon 1. It stays out: such a
certificate claims its registered target alone, and an open one is chosen because it claims every target.

Scaled columns change the noise variance of a suffix, at sensitivity one, so:"""
COLUMNS = """They save 16% of the worst suffix' variance, a tenth on average, and 1 to 2% of the records. It stays out:
the matrix is no longer Toeplitz, so that many thresholds could not be encoded by a transform."""


def main() -> None:
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else TRIALS
    accounts = ["epsilon", "zCDP", "continuous", "proved, open", "variance over", "records, zCDP", "records, exact"]
    publish(
        "smaller-gains.md",
        [
            INTRO,
            markdown(["sites' risks", "epsilon", "today", "from the past", "known"], recentring_rows(trials)),
            RECENTRING,
            markdown(accounts, accounting_rows(trials)),
            ACCOUNTING,
            markdown(["epsilon", "today", "closed testing", "columns of one norm"], label_rows(trials)),
            CLOSED,
            markdown(["thresholds", "worst now", "worst, scaled", "mean now", "mean, scaled"], basis_rows()),
            COLUMNS,
        ],
    )


if __name__ == "__main__":
    main()
