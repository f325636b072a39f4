"""Local-only: every site calibrates on its own records with its share of the failure budget.

Native assumptions: those of `ltt` at each site; nothing about other sites. Sites choose thresholds of their own, so
their performance is summarised over sites: unweighted (macro), by the records drawn, and by the sizes of the sites'
populations. The exact test and the equal split of the budget over sites are a reconstruction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedsrc.audit.methods import ltt
from fedsrc.audit.methods.acceptance import exact_lower
from fedsrc.audit.methods.federated import sites_of
from fedsrc.audit.methods.setting import Aim, Evidence, Method, Verdict, column, verdict
from fedsrc.maths.arrays import Floats


@dataclass(frozen=True)
class LocalSummary:
    """Per look: certified acceptance over sites (0 where a site has none), unweighted, by records, by size; sites."""

    macro: Floats
    weighted: Floats
    population: Floats
    certified_share: Floats


def judge_sites(evidence: Evidence, aim: Aim) -> Verdict:
    """Apply the exact test at every site: a verdict with axes (..., T, K, m).

    Paper: Appendix "Baselines", Local-only.
    """
    sites = sites_of(evidence)
    K, m = sites.accepted.shape[-2:]
    own = replace(aim, failure_probability=aim.failure_probability / K)
    p = ltt.exact(sites.unsupported, sites.accepted, aim.target_risk)
    a = exact_lower(sites.accepted, column(sites.records), own.acceptance_budget / m)
    return verdict(ltt.bonferroni(p, own.risk_budget) & (a >= aim.min_acceptance), acceptance=a)


def summary(found: Verdict, evidence: Evidence, sizes: Floats) -> LocalSummary:
    """Each site deploys its own best threshold; means of its certified acceptance. `sizes` are of its population.

    Paper: Appendix "Baselines", Local-only.
    """
    deployed = np.where(found.certified, found.acceptance_lower, 0.0).max(axis=-1)
    return LocalSummary(
        macro=deployed.mean(axis=-1),
        weighted=(shares(evidence) * deployed).sum(axis=-1),
        population=(sizes / sizes.sum() * deployed).sum(axis=-1),
        certified_share=found.certified.any(axis=-1).mean(axis=-1),
    )


def shares(evidence: Evidence) -> Floats:
    """Return each site's share of the records so far; zero before the first."""
    records = sites_of(evidence).records
    return np.asarray(records / np.maximum(1.0, records.sum(axis=-1, keepdims=True)))


def judge(evidence: Evidence, aim: Aim) -> Verdict:
    """A threshold counts when every site certifies it; its acceptance bound is the record-weighted one."""
    found, share = judge_sites(evidence, aim), shares(evidence)[..., None]
    everywhere = np.asarray(found.certified.all(axis=-2))
    return verdict(everywhere, acceptance=(share * found.acceptance_lower).sum(axis=-2))


METHODS = (
    Method(
        "local-only", judge, "reconstruction", ("i.i.d.", "no shift", "fixed n", "exact counts", "binary loss"),
        role="reference",
    ),
)  # fmt: skip
