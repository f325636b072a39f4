"""Seal a registration: one bet per threshold, registered looks, and noise shaped for both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from fedsrc.errors import FedsrcError
from fedsrc.maths.contrasts import ContrastCode, rounded
from fedsrc.maths.shape import Weights, shaped
from fedsrc.protocol.judgements import Betting, in_decimals
from fedsrc.protocol.protection import Noised
from fedsrc.protocol.registration import Registration

Cut = tuple[tuple[float, ...], tuple[float, ...]]  # thresholds of a block, and their weights
FINENESS = 1 << 24  # lattice units of a diameter: noise is then far coarser than the lattice at every epsilon in use
SECOND, ACCEPTED = 1 / 16, 0.05  # what the variance of second moments and of accepted mass matters beside contrasts


@dataclass(frozen=True)
class Seal:
    """What a sealed registration fixes beside an open one.

    others      thresholds and their weights, of every block but the first
    targets     risk, share of the risk budget, and a bet for each threshold or none; the first is the claim's
    looks       round, and share of the risk budget
    unlabelled  the release of every site's unlabelled units
    """

    thresholds: tuple[float, ...]
    weights: tuple[float, ...]
    targets: tuple[tuple[float, float, tuple[float, ...]], ...]
    looks: tuple[tuple[int, float], ...] = ((1, 1.0),)
    line: str = "exact"
    unlabelled: tuple[Noised, ...] | None = None
    others: tuple[Cut, ...] = ()

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """Thresholds and their weights, of every block."""
        return (self.thresholds, self.weights), *self.others

    @property
    def free(self) -> bool:
        """Whether no bet is registered."""
        return not self.targets[0][2]


@lru_cache(maxsize=1024)
def encoding_of(
    mass_grid: int, weights: tuple[float, ...], targets: tuple[tuple[Fraction, float], ...],
    *, free: bool = False, unlabelled: bool = False,
) -> ContrastCode:  # fmt: skip
    """Shape the noise for thresholds of these weights and targets (risk, share), on an integer lattice.

    Accepted mass is released where neither unlabelled records nor the second moments of single binary answers show it.
    """
    risks, each, accepted = tuple(risk for risk, _ in targets), np.asarray(weights), not unlabelled
    w = np.concatenate([share * each for _, share in targets])
    if free and accepted:  # exact counts have no noise to shape
        rows = np.eye(w.size, dtype=np.int64).tolist()
        return ContrastCode(risks, mass_grid, tuple(map(tuple, rows)), (), (1,) * each.size)
    accepted = accepted and mass_grid > 1
    metric = shaped(
        [float(risk) for risk in risks],
        Weights(w, 0 * w if free else SECOND * w, ACCEPTED * each if accepted else 0 * each),
    )
    return rounded(metric, risks, mass_grid, FINENESS, accepted=accepted, second=not free)


def put_cuts(fields: dict[str, Any], cuts: Sequence[Cut]) -> dict[str, Any]:
    """Put thresholds and weights into the fields of a registration: of every block, or one for all."""
    claims, plain = fields["claims"], [{"values": values, "weights": weights} for values, weights in cuts]
    fields["thresholds"] |= plain[0]
    if claims["kind"] == "groups" and len(cuts) > 1:
        claims["own"] = plain
    if claims["kind"] == "scores":
        claims["others"] = [{**other, **cut} for other, cut in zip(claims["others"], plain[1:], strict=True)]
    return fields


def _on_average(cuts: Sequence[Cut]) -> tuple[float, ...]:
    """Return what thresholds weigh over all blocks, in hundredths: the noise is shaped for that."""
    if len(cuts) == 1:
        return cuts[0][1]
    whole = np.rint(100.0 * np.mean([weights for _, weights in cuts], axis=0)).astype(int)
    return tuple((np.maximum(whole, 1) / 100.0).tolist())


def seal(base: Registration, plan: Seal) -> Registration:
    """Return an open registration of the default preset as a sealed one: same claim, sites, privacy and batch."""
    if not isinstance(base.judgement, Betting):
        raise FedsrcError("only a registration of the default preset can be sealed")
    targets = tuple((in_decimals(risk), share) for risk, share, _ in plan.targets)
    code = encoding_of(
        base.privacy.mass_grid, _on_average(plan.cuts), targets, free=plan.free, unlabelled=plan.unlabelled is not None
    )  # fmt: skip
    method, fields = base.judgement, base.model_dump()
    put_cuts(fields, plan.cuts)
    fields["certificate"] = {
        "method": "sealed",
        "risk_budget": method.risk_budget,
        "acceptance_budget": method.acceptance_budget,
        "refusal_budget": method.refusal_budget,
        "targets": [{"risk": risk, "share": share, "bets": bets} for risk, share, bets in plan.targets],
        "looks": [{"round": round, "share": share} for round, share in plan.looks],
        "line": plan.line,
        "centres": method.centres.model_dump(),
    }
    fields["encoding"] = {"kind": "contrasts", "matrix": code.R, "second": code.second, "accepted": code.accepted}
    fields["unlabelled"], policy = plan.unlabelled, fields["schedule"]["policy"]
    fields["schedule"] |= {"rounds": plan.looks[-1][0], "policy": "first" if policy == "enough" else policy}
    return Registration.of(fields, "this cannot be sealed")
