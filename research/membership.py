"""Membership audit: can an attacker tell from real releases whether one unit was in them, and better than claimed?

A fair coin per release decides whether the unit's contribution is in it. The attacker knows the mechanism, every other
unit and the two contributions to be told apart: everything but the coin and the noise. He says "in", "out" or nothing.
From how often he speaks and how often he is right follow lower confidence bounds on epsilon and on rho: a bound above
the claim refutes the claim. A bound below it proves nothing: an audit can refute privacy, never prove it.

Notation
    y        released integers; x0, x1 the same without noise, without and with the unit; e = x1 - x0
    s        noise scale; mu = |e| / s
    g        probability that the attacker speaks
    c        probability that he is right, given that he speaks

The best attack. The discrete Gaussian around an integer point x has mass exp(-|y - x|^2 / (2 s^2)) / K at y, with the
same K for every x, because a shift by integers permutes the integers. So the log-likelihood ratio is linear in y,

    log P1(y) / P0(y) = (|y - x0|^2 - |y - x1|^2) / (2 s^2) = (2 <y - x0, e> - |e|^2) / (2 s^2),

and by the lemma of Neyman and Pearson no attack that says "in" as often without the unit says it more often with the
unit than one that says "in" above a threshold of this number; likewise for "out" below one. It is the best attack on
the registered noise. Noise broken in another way than its scale could hide from it: noise has tests of its own.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Bools, Floats, Ints
from fedsrc.maths.basis import Basis
from fedsrc.maths.binomial import clopper_pearson
from fedsrc.maths.contrasts import ContrastCode
from fedsrc.maths.privacy import delta_gaussian
from fedsrc.protocol.messages import Link, Request
from fedsrc.protocol.registration import Registration
from fedsrc.records.masses import contrasts
from fedsrc.simulate.population import from_cells
from fedsrc.site.release import make_release

Publish = Callable[[Ints], Ints]  # bins (n, rows, m+1), or contrasts (n, p), to integers (n, rows, p) or (n, p)

ORDERS = 1.0 + np.geomspace(1e-3, 1e3, 61)  # Renyi orders tried for rho; any order gives a valid bound
FINENESS = 16  # evidence is kept to one part in so many: a multiple of 4, as thresholds of attacks are quarters
TIME = "2026-01-01T00:00:00Z"  # the time in a release is public and tells nothing


@dataclass(frozen=True)
class Claim:
    """What a registration says of one release: (epsilon, delta), and rho in zero-concentrated privacy."""

    epsilon: float
    delta: float
    rho: float


@dataclass(frozen=True)
class Worlds:
    """Two neighbouring batches: their histograms, x0, e, and the registered noise scale."""

    absent: Ints
    present: Ints
    baseline: Ints
    difference: Ints
    scale: float

    @property
    def distance(self) -> float:
        """|e|, in lattice units."""
        return math.sqrt(int((self.difference**2).sum()))

    @property
    def mu(self) -> float:
        """|e| / s: how many noise scales the two worlds are apart."""
        return self.distance / self.scale


@dataclass(frozen=True)
class Attack:
    """Say "in" where the evidence is at least `high`, "out" where it is below `low`, nothing between."""

    low: float
    high: float


@dataclass(frozen=True)
class Guesses:
    """How often an attacker spoke, and was right, over so many releases."""

    releases: int
    made: int
    right: int


@dataclass(frozen=True)
class Bounds:
    """Lower confidence bounds on epsilon (at the claim's delta) and on rho."""

    epsilon: float
    rho: float


@dataclass(frozen=True)
class Audit:
    """The largest bounds over all attacks, and the guesses of the attack behind each."""

    bounds: Bounds
    for_epsilon: Guesses
    for_rho: Guesses

    def refuted(self, claim: Claim) -> tuple[str, ...]:
        """Return which statements of the claim cannot be true: none, "epsilon", "rho" or both."""
        beyond = {"epsilon": self.bounds.epsilon > claim.epsilon, "rho": self.bounds.rho > claim.rho}
        return tuple(name for name, found in beyond.items() if found)


def _attacks() -> tuple[Attack, ...]:
    steps = [i / 4 for i in range(18)]
    both = [Attack(-t, t) for t in steps]
    return (*both, *(Attack(-math.inf, t) for t in steps), *(Attack(-t, math.inf) for t in steps))


ATTACKS = _attacks()  # fixed before any release is seen, so that a union over them is honest


def claim_of(registration: Registration) -> Claim:
    """Return the claim that the audit tries to refute; a registration without noise claims nothing."""
    settings = registration.privacy
    if not settings.private:
        raise FedsrcError("a registration without noise claims no privacy", hint="audit a finite epsilon")
    return Claim(settings.epsilon, settings.delta, registration.mechanism.rho)


def worst_change(registration: Registration) -> tuple[Ints, Ints]:
    """Return the two contributions of one unit that are furthest apart: nothing and a unit, or two units.

    A contribution is a convex combination of corners, one bin wholly supported or unsupported; the distance is convex,
    so corners suffice. Among equals the last is taken: an unsupported answer in the top bin.
    """
    bins = np.ones(len(registration.thresholds.values) + 1)
    corners = from_cells(registration, bins, bins).masses
    code = registration.mechanism.code
    if isinstance(code, ContrastCode):
        corners = contrasts(code, corners)
    elif not isinstance(code, Basis):
        corners = code.bins(corners)
    nothing = np.zeros_like(corners[:1])
    starts = nothing if registration.privacy.adjacency == "zero-out" else corners
    images = [exact(registration, each).reshape(len(each), 1, -1) for each in (starts, corners)]
    apart = ((images[1] - images[0].transpose(1, 0, 2)) ** 2).sum(axis=2)
    end, start = divmod(apart.size - 1 - int(np.argmax(apart.ravel()[::-1])), len(starts))
    return starts[start], corners[end]


def exact(registration: Registration, counts: Ints) -> Ints:
    """What a release of these counts holds before noise."""
    code = registration.mechanism.code
    return counts if isinstance(code, ContrastCode) else code.encode(counts)


def worlds(registration: Registration, others: Ints, change: tuple[Ints, Ints] | None = None) -> Worlds:
    """The two worlds of one changed unit among others, whose counts these are; by default the worst change."""
    claim_of(registration)
    rule = registration.mechanism
    before, after = worst_change(registration) if change is None else change
    absent, present = others + before, others + after
    baseline = exact(registration, absent)
    return Worlds(absent, present, baseline, exact(registration, present) - baseline, rule.scale)


def evidence(pair: Worlds, released: Ints) -> Floats:
    """Log-likelihood ratio / mu of releases: under the registered noise, mean -mu/2 or mu/2, deviation 1.

    See the head of this file for why no other statistic attacks better.
    """
    inner = ((released - pair.baseline) * pair.difference).sum(axis=tuple(range(-pair.difference.ndim, 0)))
    return np.asarray(inner / (pair.distance * pair.scale) - pair.mu / 2)


def rounded(seen: Floats) -> Floats:
    """Evidence rounded down to sixteenths: every attack of ATTACKS, whose thresholds are quarters, says the same."""
    return np.asarray(np.floor(seen * FINENESS) / FINENESS)


def fair_coins(count: int) -> Bools:
    """Draw independent fair coins from the operating system's entropy."""
    bits = np.frombuffer(secrets.token_bytes((count + 7) // 8), dtype=np.uint8)
    return np.unpackbits(bits)[:count].astype(np.bool_)


def real_releases(registration: Registration, request: Request, histograms: Ints) -> Ints:
    """Make releases of n counts, each by `make_release` with noise of its own."""
    made = (make_release(registration, request, each, Link(), order="shuffled", time=TIME) for each in histograms)
    found = np.array([(*each.first, *each.second) for each in made], dtype=np.int64)
    return found if histograms.ndim == 2 else found.reshape(*histograms.shape[:2], -1)


def play(pair: Worlds, publish: Publish, coins: Bools) -> Floats:
    """Return the evidence of one release per coin; the unit is in those whose coin is true."""
    return evidence(pair, publish(np.where(coins.reshape(-1, *[1] * pair.present.ndim), pair.present, pair.absent)))


def guesses(attack: Attack, seen: Floats, coins: Bools) -> Guesses:
    """Compare what an attack says of each release with the coins."""
    says_in, says_out = seen >= attack.high, seen < attack.low
    right = np.where(coins, says_in, says_out)
    return Guesses(seen.size, int((says_in | says_out).sum()), int(right.sum()))


def epsilon_bound(c: float, g: float, delta: float) -> float:
    """The smallest epsilon for which (epsilon, delta) allows an attacker who speaks with probability g, right with c.

    Privacy says P("in" | in) <= e^eps P("in" | out) + delta and P("out" | out) <= e^eps P("out" | in) + delta. Half
    their sum, the coin being fair, is g c <= e^eps g (1 - c) + delta, so eps >= log((c - delta/g) / (1 - c)). It grows
    with c and with g, so lower bounds on both give a lower bound.
    """
    if not g * c > delta:
        return 0.0
    return math.inf if c == 1 else max(0.0, math.log((c - delta / g) / (1 - c)))


def rho_bound(c: float, g: float) -> float:
    """Return the smallest rho that allows such an attacker: max over orders a of D_a(P || Q) / a.

    P = (gc, g(1-c), 1-g) and Q = (g(1-c), gc, 1-g) are the laws of (right, wrong, silent) when the attacker's answer
    is held against the coin and against its opposite. Each is the even mixture, over the two worlds, of what
    processing a release gives, so D_a(P || Q) is at most the larger of the divergences between the worlds (D_a is
    jointly quasi-convex and falls under processing), and that is at most a rho. It grows with c >= 1/2 and with g.
    """
    if not (c > 0.5 and g > 0):
        return 0.0
    if c == 1:
        return math.inf
    tilt = (ORDERS - 1) * math.log(c / (1 - c))
    spoken = math.log(g) + np.logaddexp(math.log(c) + tilt, math.log(1 - c) - tilt)
    silent = -math.inf if g == 1 else math.log1p(-g)
    return float(np.max(np.logaddexp(silent, spoken) / (ORDERS * (ORDERS - 1))))


def bounds(found: Guesses, delta: float, failure_probability: float) -> Bounds:
    """Return both bounds from exact binomial limits: `made` of `releases` for g, `right` of `made` for c.

    Releases are independent, so `made` is binomial, and so is `right` once `made` is known; each limit takes half of
    the failure probability.
    """
    if not 0 < found.right <= found.made <= found.releases:
        return Bounds(0.0, 0.0)
    g = clopper_pearson(found.made, found.releases, failure_probability).low  # two-sided: half of it lies below
    c = clopper_pearson(found.right, found.made, failure_probability).low
    return Bounds(epsilon_bound(c, g, delta), rho_bound(c, g))


def audit(seen: Floats, coins: Bools, delta: float, failure_probability: float = 1e-6) -> Audit:
    """Return the best of all attacks. Both bounds hold with probability 1 - failure_probability, by a union."""
    if seen.shape != coins.shape or not np.isfinite(seen).all():
        raise FedsrcError("the audit needs one finite number per coin")
    found = [guesses(attack, seen, coins) for attack in ATTACKS]
    each = [bounds(one, delta, failure_probability / len(ATTACKS)) for one in found]
    by_epsilon = max(range(len(each)), key=lambda i: each[i].epsilon)
    by_rho = max(range(len(each)), key=lambda i: each[i].rho)
    return Audit(Bounds(each[by_epsilon].epsilon, each[by_rho].rho), found[by_epsilon], found[by_rho])


def epsilon_gaussian(mu: float, delta: float) -> float:
    """Return what a continuous Gaussian of that mu costs at delta: how much even a perfect audit could show.

    An approximation: close where the scale is several lattice units, wrong for coarser lattices.
    """
    if delta_gaussian(mu, 0.0) <= delta:
        return 0.0
    high = 1.0
    while delta_gaussian(mu, high) > delta:
        high *= 2.0
    return float(brentq(lambda eps: delta_gaussian(mu, eps) - delta, 0.0, high, xtol=1e-12))
