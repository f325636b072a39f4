"""One block of a panel as a registration of its own, by which it is forecast."""

from __future__ import annotations

import math

from fedsrc.maths.kinds import Adjacency
from fedsrc.maths.privacy import epsilon_of, rho_of_scale
from fedsrc.protocol.mechanism import sensitivity_of
from fedsrc.protocol.protection import Privacy
from fedsrc.protocol.registration import Registration

BUDGETS = ("risk_budget", "acceptance_budget", "refusal_budget")


def alone(registration: Registration, block: int, traffic: float = 1.0) -> Registration:
    """Return what one group or score would be registered as, with its share of the budgets and the panel's noise: its
    epsilon is what that noise would cost by itself. Nothing is passed on to it, so that it promises no more.

    `traffic` is about the group's share of all, of which its acceptance floor may be a share.
    """
    panel, m = registration.panel, len(registration.thresholds.values)
    assert panel is not None  # whoever asks has one
    fields, cut = registration.model_dump(), registration.cuts[block]
    share = 1.0 if panel.simultaneous else panel.shares[block]
    fields["claims"] = {"kind": "one"}
    fields["thresholds"] |= {"values": cut.values, "weights": cut.weights, "origin": "declared", "asked": None}
    fields["certificate"] |= {name: share * fields["certificate"][name] for name in BUDGETS}
    rows = slice(block * m, (block + 1) * m)
    if fields["certificate"]["method"] == "sealed":
        target = fields["certificate"]["targets"][0]
        fields["certificate"]["targets"] = [{**target, "bets": target["bets"][rows]}]
    elif (bets := fields["certificate"]["bets"]).get("priors") is not None:
        bets["priors"] = bets["priors"][rows]
    fields["privacy"] |= {"epsilon": _own_epsilon(registration), "adjacency": _adjacency(registration.privacy)}
    fields["development"] = None
    fields["claim"]["min_acceptance"] = max(traffic, 1e-6) * _floor(registration)
    return Registration.of(fields, "this group cannot be forecast by itself")


def _adjacency(settings: Privacy) -> Adjacency:
    """Return the neighbours of one block: where all are of one group, any other is of the same."""
    return "replacement" if settings.adjacency == "same-group" else settings.adjacency


def _own_epsilon(registration: Registration) -> float:
    """Return the epsilon at which one block by itself has the noise of the panel."""
    rule, settings = registration.mechanism, registration.privacy
    if not settings.private:
        return math.inf
    squared = sensitivity_of(rule.code, settings.mass_grid, _adjacency(settings))
    return epsilon_of(rho_of_scale(squared, rule.scale), settings.delta, settings.conversion)


def _floor(registration: Registration) -> float:
    """Return the acceptance floor of one block: where one is on all groups together, its part of it."""
    groups, floor = registration.groups, registration.claim.min_acceptance
    together = groups is not None and groups.simultaneous and groups.floor == "traffic"
    return floor / len(registration.cuts) if together else floor
