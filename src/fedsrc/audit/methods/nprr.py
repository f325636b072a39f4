"""NPRR (Waudby-Smith, Wu and Ramdas 2023): every record is randomised by itself, and bets are on the answers.

Native assumptions: predictable recruitment, a declared shift, binary losses; the site need not be trusted. Chance deals
every record, whatever it holds, s of the m thresholds. It answers once for them all: its category is "rejected", or its
bin and its loss, k = 2s + 1, and is answered with chance kappa, else any category, all alike.

Privacy. "nprr" is the source's: two categories change an answer's chance by a factor e^eps, epsilon for replacement.
"nprr-as-registered" has the registered neighbours: under zero-out an empty slot answers any category alike, and a
record changes those chances by a factor within e^-eps and e^eps. No slot of a run is empty: its answers would not
decode to nothing.

Proof. E[h(answer) | record] = kappa h(record) + (1-kappa) mean h. So f, the `decoded` contrast times m/s where the
record was asked and 0 elsewhere, has mean D. With bets theta < 1/max f, prod (1 - theta f) / prod (1 - theta d_i) is a
martingale of mean one, d_i the mean contrast at the site of record i, and prod (1 - theta d_i) <= exp(-theta sum d_i):
the mean contrast of all records is ever above `contrast_upper` with probability at most alpha/m (Ville; mixed over
bets). Bets do not follow the data, so sites may differ. Likewise acceptance. At epsilon = inf this is `betting`.

Forms. The source's grid for each threshold by itself costs epsilon m times. On the embedded HaluEval scores (target
0.3, m = 20, replacement) the best bet needs 610 records at epsilon 4 and 48,000 at epsilon 1, with s = 20 and s = 2 as
planned; 610 and 150,000 with s = m; 3,900 and 66,000 with s = 1; 80,000 and 1.3 million with epsilon/m for each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fedsrc.audit.methods.betting import BETS, by_parts
from fedsrc.audit.methods.setting import (
    Aim,
    Answers,
    Assumption,
    Evidence,
    Given,
    Method,
    Verdict,
    column,
    from_contrast,
)
from fedsrc.maths import betting
from fedsrc.maths.arrays import Floats
from fedsrc.maths.kinds import Adjacency
from fedsrc.protocol.panels import One
from fedsrc.server.panel import nested


def kept(eps: float, k: int, adjacency: Adjacency) -> float:
    """kappa = (e^eps - 1) / (e^eps + k - 1) for replacement; min((e^eps - 1) / (k - 1), 1 - e^-eps) for zero-out."""
    own, others = -np.expm1(-eps), (k - 1) * np.exp(-eps)
    return float(own / (max(1.0, others) if adjacency == "zero-out" else 1.0 + others))


def planned_size(eps: float, m: int, adjacency: Adjacency) -> int:
    """Return the divisor s of m with the largest s kappa^2 / q: records asked of a threshold, times what an answer
    tells, over q = (s+1)/(2s+1), the share of categories that a threshold accepts, on average."""

    def worth(s: int) -> float:
        return s * kept(eps, 2 * s + 1, adjacency) ** 2 * (2 * s + 1) / (s + 1)

    return max((s for s in range(m, 0, -1) if m % s == 0), key=worth)


def decoded(h: Floats, mean: Floats, kappa: float) -> Floats:
    """(h - (1-kappa) mean) / kappa: unbiased for h of the record, whose mean over all categories is given."""
    return np.asarray((h - (1.0 - kappa) * mean) / kappa)


def per_loss(m: int, s: int) -> Floats:
    """Return the share of the 2s + 1 categories that a threshold accepts with one loss: rank j // (m/s) among its s."""
    return (s - np.arange(m) // (m // s)) / (2.0 * s + 1.0)


def contrasts(m: int, s: int, r: float, kappa: float) -> Floats:
    """f of an unsupported, a supported and a rejected answer at every threshold, (3, m)."""
    return m / s * decoded(np.array([[1.0 - r], [-r], [0.0]]), (1.0 - 2.0 * r) * per_loss(m, s), kappa)


def acceptances(m: int, s: int, kappa: float) -> Floats:
    """Decoded acceptance, times m/s, of an accepted and a rejected answer at every threshold, (2, m)."""
    return m / s * decoded(np.array([[1.0], [0.0]]), 2.0 * per_loss(m, s), kappa)


def contrast_bets(r: float, f: Floats) -> betting.Ladder:
    """Return the bets of `betting`, as parts of the largest that no answer can ruin."""
    theta = BETS["betting"](r) * (1.0 - r) / f.max()
    return betting.Ladder(np.array([r]), theta[None], np.full(theta.size, 1.0 / theta.size))


def acceptance_bets(a_min: float, g: Floats) -> betting.Centres:
    """Return the centres of `betting` with their bets, as parts of the largest that no answer can ruin."""
    c, theta, p = betting.centres(a_min)
    return betting.Centres(c, theta * c / (c - min(0.0, g.min())), p)


def log_wealth(told: Answers, f: Floats, theta: Floats) -> Floats:
    """Sum of log(1 - theta f) over answers, (..., m, B)."""
    counts = (told.unsupported, told.accepted - told.unsupported, told.asked - told.accepted)
    return np.asarray(sum(n[..., None] * x for n, x in zip(counts, np.log1p(-theta * f[..., None]), strict=True)))


def contrast_upper(evidence: Evidence, told: Answers, aim: Aim) -> Floats:
    """dbar = d + eta, d the root of sum_b p_b exp(log_wealth_b + theta_b N d) = m/alpha."""
    m, N = evidence.thresholds, column(evidence.records)
    f = contrasts(m, told.size, aim.target_risk, told.kept)
    bets = contrast_bets(aim.target_risk, f)
    return betting.d_upper_of(
        log_wealth(told, f, bets.theta[0]), N, eta=column(evidence.eta), target=bets, alpha_d=aim.risk_budget,
        w=np.full(m, 1.0 / m),
    )  # fmt: skip


def acceptance_lower(evidence: Evidence, told: Answers, aim: Aim) -> Floats:
    """Bound floor - acceptance in the same way, by bets 1 + theta (g - c) around centres c, g decoded acceptance."""
    m, N, floor = evidence.thresholds, column(evidence.records), aim.min_acceptance
    g = acceptances(m, told.size, told.kept)
    c, theta, p = acceptance_bets(floor, g)
    x, y = np.log1p(theta * (g[..., None] - c))
    silent = np.log1p(-theta * c)  # of a record that was not asked
    counts = (told.accepted, told.asked - told.accepted, N - told.asked)
    L = sum(n[..., None] * each for n, each in zip(counts, (x, y, silent), strict=True))
    short = betting.d_upper_of(
        np.asarray(L + theta * (c - floor) * N[..., None]), N, eta=column(evidence.eta),
        target=betting.Ladder(np.array([1.0 - floor]), theta[None], p), alpha_d=aim.acceptance_budget,
        w=np.full(m, 1.0 / m),
    )  # fmt: skip
    return nested(One(), floor - short, 1)


def judge(evidence: Evidence, aim: Aim) -> Verdict:
    """Bound contrast and acceptance at every threshold. Contrasts are not told: sampling and noise have one width."""

    def at_once(bound: Callable[[Evidence, Answers, Aim], Floats]) -> Callable[[Evidence], Floats]:
        def of(each: Evidence) -> Floats:
            assert each.answers is not None  # what it is given
            return bound(each, each.answers, aim)

        return of

    d, a = (by_parts(at_once(bound), evidence) for bound in (contrast_upper, acceptance_lower))
    if evidence.declared:
        d, a = np.minimum.accumulate(d, axis=-2), np.maximum.accumulate(a, axis=-2)
    return replace(from_contrast(d, a, aim), contrast_upper=np.full(d.shape, np.nan))


ASSUMED: tuple[Assumption, ...] = ("predictable recruitment", "declared shift", "binary loss", "own release")
GIVEN: dict[str, Given] = {
    "nprr": "randomised records", "nprr-as-registered": "randomised records, as registered",
}  # fmt: skip
METHODS = tuple(
    Method(
        name, judge, "code", ASSUMED, private=True, anytime=True, stops="at any look", given=given,
        source="Waudby-Smith, Wu and Ramdas 2023, ICML; adapter: joint categories, and the bets of `betting`",
    )
    for name, given in GIVEN.items()
)  # fmt: skip
