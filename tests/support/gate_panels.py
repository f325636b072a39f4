"""For tests of the gate: certificates of panels that say anything, signed, as a trusted issuer would."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from fedsrc.protocol.certificate import Panel, PanelMember
from fedsrc.protocol.registration import Claim
from fedsrc.protocol.scale import Scale
from tests.support.gate_certificates import body, certificate, renewed

NONE = dict.fromkeys(("threshold", "contrast_upper", "acceptance_lower", "risk_upper"))
Score = tuple[Scale, float | None, tuple[int, ...]]  # its threshold, and its checkpoints


def by_group(
    thresholds: Mapping[str, float | None],
    *,
    claim: Literal["each", "all"] = "each",
    seconds: int | None = None,
    changes: Mapping[str, Any] | None = None,
    fields: Mapping[str, Any] | None = None,
) -> str:
    """A certificate of groups, each with its threshold or none; `seconds` later than the first, as a renewal."""
    members = tuple(_member(name, threshold) for name, threshold in thresholds.items())
    panel = Panel(kind="groups", claim=claim, column="ward", floor="traffic", span="shares", members=members)
    shown = NONE if claim == "each" else {"threshold": next(iter(thresholds.values()))}
    said = {**shown, "thresholds": [], "panel": {**panel.model_dump(), **(changes or {})}, **(fields or {})}
    return certificate(**said) if seconds is None else renewed(seconds, **said)


def by_score(scores: Mapping[str, Score], picked: str | None, *, seconds: int | None = None, **fields: Any) -> str:
    """A certificate of several scores, one of which was picked."""
    members = tuple(_member(name, value, scale, points) for name, (scale, value, points) in scores.items())
    panel = Panel(kind="scores", claim="best", column=next(iter(scores)), floor="traffic", span="shares",
                  members=members)  # fmt: skip
    claim = claim_on(next(iter(scores.values()))[0], column=panel.column)
    own = dict(scores).get(picked or "", (Scale(), None, ()))[1]
    value = 0.5 if own is None else own
    said = {
        "threshold": value,
        "thresholds": [],
        "claim": claim,
        "panel": {**panel.model_dump(), "picked": picked},
        **fields,
    }
    return certificate(**said) if seconds is None else renewed(seconds, **said)


def claim_on(scale: Scale, **fields: Any) -> dict[str, Any]:
    """The claim of the certificate, with its score on another scale."""
    said = {**body()["claim"], "scale": scale.model_dump(), **fields}
    return Claim.model_validate(said).model_dump()


def _member(
    name: str, threshold: float | None, scale: Scale | None = None, checkpoints: tuple[int, ...] = ()
) -> PanelMember:
    bound = None if threshold is None else 0.15
    return PanelMember(
        name=name, status="ABSTAIN" if threshold is None else "CERTIFIED", share=0.5, threshold=threshold,
        contrast_upper=bound, acceptance_lower=bound, risk_upper=bound, scale=scale, checkpoints=checkpoints,
    )  # fmt: skip
