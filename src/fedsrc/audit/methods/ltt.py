"""Central Learn-then-Test: p-values for "risk above target" on the accepted records, and a rule for many thresholds.

Native assumptions: pooled i.i.d. records, a number of records fixed beforehand, exact counts. Conditioning on the
number accepted is right because accepted losses are then i.i.d. with mean R_j. Angelopoulos et al. (2021), Bates et
al. (2021).

Notation
    Z, A     unsupported and accepted counts; r the target risk; kl the Bernoulli relative entropy

The expected-risk form of conformal risk control bounds a marginal mean and is no certificate of selective risk: see
`conformal_abstention`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import rel_entr

from fedsrc.audit.methods import acceptance
from fedsrc.audit.methods.setting import Aim, Assumption, Evidence, Method, Rule, Verdict, column, verdict
from fedsrc.maths.arrays import Bools, Floats
from fedsrc.maths.binomial import at_most

PValue = Callable[[Floats, Floats, float], Floats]
Family = Callable[[Floats, float], Bools]


def hoeffding(Z: Floats, A: Floats, r: float) -> Floats:
    """exp(-A kl(min(Z/A, r), r)), for losses in [0, 1]; 1 where nothing was accepted."""
    rate = np.minimum(Z / np.maximum(A, 1.0), r)
    return np.asarray(np.exp(-A * (rel_entr(rate, r) + rel_entr(1.0 - rate, 1.0 - r))), dtype=np.float64)


def bentkus(Z: Floats, A: Floats, r: float) -> Floats:
    """e P[Bin(A, r) <= ceil(Z)], at most 1, for losses in [0, 1]."""
    return np.minimum(1.0, np.e * exact(Z, A, r))


def hoeffding_bentkus(Z: Floats, A: Floats, r: float) -> Floats:
    """Return the smaller of `hoeffding` and `bentkus`."""
    return np.minimum(hoeffding(Z, A, r), bentkus(Z, A, r))


def exact(Z: Floats, A: Floats, r: float) -> Floats:
    """P[Bin(A, r) <= Z], for binary losses. Sums that miss an integer by a rounding error count as that integer."""
    return at_most(np.ceil(Z - 1e-9), A, r)


def bonferroni(p: Floats, alpha: float) -> Bools:
    """p_j <= alpha / m."""
    return np.asarray(p <= alpha / p.shape[-1])


def fixed_sequence(p: Floats, alpha: float) -> Bools:
    """From the strictest threshold downwards at level alpha, stopping at the first failure."""
    return np.logical_and.accumulate((p <= alpha)[..., ::-1], axis=-1)[..., ::-1]


def sequence_from(p: Floats, alpha: float, first: int) -> Bools:
    """From one threshold downwards, those above it untested: `fixed_sequence` in an order of development's choice."""
    above = np.arange(p.shape[-1]) > first
    return fixed_sequence(np.where(above, 0.0, p), alpha) & ~above


def of_contrasts(D: Floats, N: Floats, r: float) -> Floats:
    """Hoeffding-Bentkus on r N - D, the sum of r - d, in [0, 1], over N units of any masses (sources and graded losses
    too), whose mean is above r in the null; d = r s - (1-r) u is what a unit adds to D = r A - Z."""
    return hoeffding_bentkus(r * N - D, N, r)


def in_sequence(evidence: Evidence, aim: Aim) -> Verdict:
    """Test from the threshold that development units favour downwards: exact for units of one binary answer."""
    Z, A, r = evidence.unsupported, evidence.accepted, aim.target_risk
    p = exact(Z, A, r) if evidence.binary else of_contrasts(r * A - Z, column(evidence.records), r)
    a = acceptance.fixed_n(evidence, aim)
    assert evidence.first is not None  # what it is given
    return verdict(sequence_from(p, aim.risk_budget, evidence.first) & (a >= aim.min_acceptance), acceptance=a)


P_VALUES: dict[str, PValue] = {
    "hoeffding": hoeffding, "bentkus": bentkus, "hb": hoeffding_bentkus, "exact": exact
}  # fmt: skip
FAMILIES: dict[str, Family] = {"bonferroni": bonferroni, "fixed-sequence": fixed_sequence}


def rule(p_value: PValue, family: Family) -> Rule:
    """Return the test with that p-value and that correction, and Clopper-Pearson for acceptance."""

    def judge(evidence: Evidence, aim: Aim) -> Verdict:
        p = p_value(evidence.unsupported, evidence.accepted, aim.target_risk)
        a = acceptance.fixed_n(evidence, aim)
        return verdict(family(p, aim.risk_budget) & (a >= aim.min_acceptance), acceptance=a)

    return judge


def assumed(p_value: str) -> tuple[Assumption, ...]:
    """Return what the test with that p-value takes for granted."""
    common: tuple[Assumption, ...] = ("i.i.d.", "no shift", "fixed n", "exact counts")
    return (*common, "binary loss") if p_value == "exact" else common


METHODS = tuple(
    Method(
        f"ltt-{p}-{family}", rule(P_VALUES[p], FAMILIES[family]), "textbook", assumed(p),
        role="reference", source="Angelopoulos et al. 2021, arXiv 2110.01052",
    )
    for p in P_VALUES
    for family in FAMILIES
)  # fmt: skip
IN_SEQUENCE = Method(
    "ltt-planned-sequence", in_sequence, "textbook", ("i.i.d.", "no shift", "fixed n", "exact counts"),
    role="reference", source="Angelopoulos et al. 2021, arXiv 2110.01052", given="exact sums and development",
)  # fmt: skip
