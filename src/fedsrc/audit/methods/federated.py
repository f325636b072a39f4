"""Federated, non-private: the sites' exact histograms are added up and tested as if they were pooled records.

Native assumptions: those of `ltt`. Adding exact counts loses nothing, so this isolates what privacy costs; sites that
differ are covered only when their counts are those of an i.i.d. sample of the mixture.
"""

from __future__ import annotations

from dataclasses import replace

from fedsrc.audit.methods import ltt
from fedsrc.audit.methods.setting import Aim, Evidence, Method, Rule, Sites, Verdict
from fedsrc.errors import FedsrcError


def sites_of(evidence: Evidence) -> Sites:
    """Return the per-site sums; refuse evidence without them."""
    if evidence.sites is None:
        raise FedsrcError("evidence has no sums per site", hint="pass sites= to gather")
    return evidence.sites


def pooled(evidence: Evidence) -> Evidence:
    """Add the sums up over sites."""
    sites = sites_of(evidence)
    A, Z, N = sites.accepted.sum(axis=-2), sites.unsupported.sum(axis=-2), sites.records.sum(axis=-1)
    return replace(evidence, accepted=A, unsupported=Z, records=N)


def rule(inner: Rule) -> Rule:
    """Apply a central rule to the pooled histograms."""

    def judge(evidence: Evidence, aim: Aim) -> Verdict:
        return inner(pooled(evidence), aim)

    return judge


METHODS = tuple(
    Method(
        f"federated-{p}-{family}", rule(ltt.rule(ltt.P_VALUES[p], ltt.FAMILIES[family])), "textbook",
        (*ltt.assumed(p), "homogeneous sites"), role="reference", source="Angelopoulos et al. 2021, arXiv 2110.01052",
    )
    for p in ("hb", "exact")
    for family in ltt.FAMILIES
)  # fmt: skip
