"""The certificates as shipped: the server's own decision, look by look, with the budgets of an aim.

Native assumptions: predictable recruitment and a declared shift. The paper's certificates (range-only contrast,
variance-adaptive, ratio) give half the budget to sampling and half to noise. The betting certificate decides through
the ladder of targets; unlike in a registration, the refusal budget belongs to acceptance: no release is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np

from fedsrc.audit.methods.setting import Aim, Assumption, Evidence, Method, Rule, Verdict, column, verdict
from fedsrc.maths.betting import Covariance
from fedsrc.protocol.judgements import Betting, Stitched
from fedsrc.server.bounds import Look, Plan, Sample, decide
from fedsrc.server.tally import Masses

Kind = Literal["contrast", "variance-adaptive", "ratio"]


def ladder(aim: Aim) -> Betting:
    """Return the default ladder with the target on it, and the budgets of the aim."""
    rungs = tuple(sorted({*Betting().ladder, aim.target_risk}))
    return Betting(
        risk_budget=aim.risk_budget, acceptance_budget=aim.acceptance_budget, refusal_budget=0.0, ladder=rungs
    )


def halves(kind: Kind, aim: Aim) -> Stitched:
    """Return one of the paper's certificates."""
    half = aim.failure_probability / 2.0
    return Stitched(method=kind, sampling_budget=half, noise_budget=half)


def rule(certificate: Callable[[Aim], Betting | Stitched]) -> Rule:
    """Decide as the server does at every look: look by look where it carries what was shown, else all at once."""

    def judge(evidence: Evidence, aim: Aim) -> Verdict:
        method, m = certificate(aim), evidence.thresholds
        betting = isinstance(method, Betting)
        weights, carries = (1.0 / m,) * m, evidence.declared and betting
        plan = Plan(method, aim.target_risk, aim.min_acceptance, weights, evidence.unit, carries)
        seen = evidence if betting else replace(evidence, worst=None)  # the paper's bounds read U and A alone
        each = [slice(t, t + 1) for t in range(evidence.records.shape[-1])]
        looks: list[Look] = []
        for part in each if carries else [slice(None)]:
            looks.append(decide(plan, sample(seen, part), looks[-1] if looks else None))
        return together(looks, contrast=method.method in ("contrast", "variance-adaptive"))

    return judge


def sample(evidence: Evidence, looks: slice) -> Sample:
    """Return what the server sees at those looks, in all trials at once."""
    U, S, A, *noise = (
        x[..., looks, :] for x in (evidence.unsupported, evidence.supported, evidence.accepted, *evidence.noise)
    )
    N, eta = (column(x[..., looks]) for x in (evidence.records, evidence.eta))
    return Sample(Masses(U, S, A, Covariance(*noise)), N, eta)


def together(looks: list[Look], *, contrast: bool) -> Verdict:
    """Join the looks to one verdict. A ratio implies a contrast bound, and is not judged by it."""
    names = ("risk_upper", "acceptance_lower", *(["contrast_upper"] if contrast else []))
    found = {name.split("_")[0]: np.concatenate([getattr(each, name) for each in looks], axis=-2) for name in names}
    return verdict(np.concatenate([each.certified for each in looks], axis=-2), **found)


def as_registered(evidence: Evidence, _: Aim) -> Verdict:
    """Return what the server decided on the registered releases, with the registered budgets."""
    assert evidence.server is not None  # what it is given
    return evidence.server


ASSUMED: tuple[Assumption, ...] = ("predictable recruitment", "declared shift")
PAPER: dict[str, Kind] = {"fed-src-c": "contrast", "fed-src-va": "variance-adaptive", "ratio": "ratio"}
METHODS = (
    *(
        Method(
            name, rule(partial(halves, kind)), "paper", ASSUMED,
            private=True, anytime=True, stops="at any look",
        )
        for name, kind in PAPER.items()
    ),
    Method(
        "betting-ladder", rule(ladder), "own", ASSUMED,
        private=True, anytime=True, stops="at any look", source="docs/theory.md, (iv) Ladder",
    ),
    Method(
        "registered", as_registered, "own", ASSUMED, given="registered releases",
        private=True, anytime=True, stops="at any look", source="docs/theory.md, (iv), (xiii) and (xiv)",
    ),
)  # fmt: skip
