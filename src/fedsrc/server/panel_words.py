"""The words of format 2 for panels, which `verify` recomputes: what is claimed of groups, or of the score picked.

They are part of the format, as those of `wording_2` are.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from fedsrc.protocol.panels import Groups, One, Scores
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.scale import Scale
from fedsrc.server.bounds import Bounds

IN_EACH, SHARE = ", in each of these groups: ", ". Acceptance is a share of "
Picked = tuple[int | None, ...]  # the row of every group that has a claim of its own


def claimed_by_group(registration: Registration, picked: Picked, bounds: Bounds, risk: str) -> str:
    """Say what is claimed of every group that is certified, and which are not."""
    groups, names = _groups(registration), registration.block_names
    rows = zip(names, picked, strict=True)
    shown = [f"{name!r} ({_gate(registration, row, bounds)})" for name, row in rows if row is not None]
    said = f"{_of_group(registration, risk)}{IN_EACH}{', '.join(shown)}"
    without = [repr(name) for name, row in zip(names, picked, strict=True) if row is None]
    more = f". No threshold was shown for {', '.join(without)}" if without else ""
    return f"{said}{more}{SHARE}{_base(groups)}"


def claimed_in_all(registration: Registration, gate: str, accepted: str, risk: str) -> str:
    """Say what is claimed of one threshold in all groups."""
    groups = _groups(registration)
    of = "all traffic, in these groups" if groups.floor == "traffic" else "each group's own traffic"
    listed = ", ".join(map(repr, groups.names))
    return f"{_of_group(registration, risk)}, in every one of the groups {listed} ({gate}, at least {accepted} of {of})"


def _of_group(registration: Registration, risk: str) -> str:
    """Say what the risk is a share of: answers, or chances of a random answer of a random source."""
    privacy, graded = registration.privacy, registration.privacy.loss_grid > 1
    if not privacy.sources_alike:
        share = f"on average at most {risk} is" if graded else f"at most {risk} are"
        mixed = " (sites weighted by sources)" if weighs_sources(registration) else ""
        return f"Of the accepted answers of a group, {share} unsupported{mixed}"
    bad = f"it is unsupported with probability at most {risk}"
    if graded:
        bad = f"on average at most {risk} of it is unsupported"
    if _groups(registration).span == "whole":
        pick = "Pick a source at random among those with answers in a group, then one of these at random"
        return f"{pick}: if it is accepted, {bad}"
    return f"Pick a source at random, then one of its answers at random: if it is of a group and accepted, {bad}"


def weighs_sources(registration: Registration) -> bool:
    """Whether sites are mixed by shares of sources, although the claim is about answers.

    Theory: (v), weights.
    """
    privacy = registration.privacy
    return len(registration.sites) > 1 and privacy.unit == "source" and not privacy.sources_alike


def _gate(registration: Registration, row: int, bounds: Bounds) -> str:
    accepted = percent(float(bounds.acceptance_lower[row]), down=True)
    value = registration.row_values[row]
    return f"score >= {value!r}{on_scale(registration.claim.scale, value)}, at least {accepted}"


def _base(groups: Groups) -> str:
    if groups.floor == "group":
        return "the group's own traffic"
    return "all traffic" if groups.span == "shares" else "all sources, by how much of each in the group is accepted"


def _groups(registration: Registration) -> Groups:
    assert registration.groups is not None  # whoever asks has such a registration
    return registration.groups


def score_named(registration: Registration, row: int) -> tuple[str, Scale, tuple[int, ...]]:
    """Return the score that a row is of: its column, its scale and its checkpoints."""
    claims, block = registration.claims, row // len(registration.thresholds.values)
    first = claims.checkpoints if isinstance(claims, Scores) else ()
    if block == 0 or not isinstance(claims, Scores):
        return registration.claim.column, registration.claim.scale, first
    other = claims.others[block - 1]
    return other.column, other.scale, other.checkpoints


def on_scale(scale: Scale, threshold: float) -> str:
    """Say where a threshold lies on the scale that scores are written on; "" if that is 0 to 1."""
    if scale == Scale():
        return ""
    side = "more" if scale.best > scale.worst else "less"
    return f", that is {scale.value(threshold):.6g} or {side} on the scale {scale}"


def watched(registration: Registration, rung: Collection[str] = ()) -> str:
    """Say which scores a monitor watches, in which groups: those that rang, if some did."""
    scale, names = registration.claim.scale, registration.block_names or ("",)
    said = [
        f"{f'in group {name!r} ' if name else ''}with a score of at least {value!r}{on_scale(scale, value)}"
        for name, value in zip(names, registration.row_values, strict=True)
        if name in rung or not rung
    ]
    return f", {'and' if rung else 'or'} ".join(said)


def panel_limits(registration: Registration) -> Iterable[str]:
    """Yield what a panel does not say."""
    claims = registration.claims
    if not isinstance(claims, One) and registration.monitor is None:
        yield "It speaks of the registered target alone; no other one is shown."
    if isinstance(claims, Groups):
        yield "It says nothing of answers in no listed group, nor of a group for which no threshold was shown."
        if claims.simultaneous:
            yield "It bounds the risk in every group at one threshold; it gives no bound of its own for any group."
    if isinstance(claims, Scores) and any((claims.checkpoints, *(each.checkpoints for each in claims.others))):
        yield (
            "A score at checkpoints covers answers that pass every registered checkpoint that they reach. It does not"
            " cover text that was shown before a stop, answers that are generated anew after one, or prefix scores"
            " that are computed otherwise."
        )


def everywhere(registration: Registration) -> str:
    """Say that a declaration is of every group, or of every score."""
    claims = registration.claims
    if isinstance(claims, Scores):
        return " of every score" if claims.others else ""
    return " of every listed group" if isinstance(claims, Groups) else ""


def panel_notes(registration: Registration) -> Iterable[str]:
    """Yield what a panel rests on besides."""
    claims = registration.claims
    if isinstance(claims, Groups):
        yield f"the groups, in column {claims.column!r}, were listed beforehand, and gates are told an answer's group"
    if isinstance(claims, Scores) and claims.others:
        yield "the scores to pick from were listed beforehand"
    if isinstance(claims, Scores) and not claims.others:
        yield "the checkpoints of the score were listed beforehand"


def percent(value: float, *, down: bool = False) -> str:
    """Write a share as a percentage; a lower bound, in tenths, rounded down."""
    scaled = value * 100
    if down:
        scaled = math.floor(scaled * 10) / 10
    return f"{scaled:.6g}%"
