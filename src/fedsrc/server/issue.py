"""Issue a certificate, or the account of a monitor: a pure function of registration and transcript, to be signed."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import numpy as np

from fedsrc.common.clock import instant
from fedsrc.errors import FedsrcError
from fedsrc.protocol.certificate import (
    Certificate,
    MonitorAccount,
    OtherTarget,
    Panel,
    PanelMember,
    PrivacyLoss,
    SiteShare,
    ThresholdBounds,
)
from fedsrc.protocol.disclosure import epsilon_against, epsilon_among, sum_scale
from fedsrc.protocol.judgements import Betting, Sealed
from fedsrc.protocol.panels import Groups, One, Scores
from fedsrc.protocol.protection import Contrasts
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.transcript import Chain
from fedsrc.server import wording_2 as wording
from fedsrc.server.bounds import Bounds
from fedsrc.server.panel_words import panel_limits
from fedsrc.server.state import Replay


def conclude(registration: Registration, replay: Replay, chain: Chain) -> Certificate | MonitorAccount:
    """Return the certificate of a replayed transcript, or the account of a monitor."""
    done = issue if replay.watch is None else account
    return done(registration, replay, chain)


def issue(registration: Registration, replay: Replay, chain: Chain) -> Certificate:
    """Return the certificate of a replayed transcript, unsigned. A run that has not ended is OPEN."""
    bounds, together = replay.bounds(), _together(registration, replay)
    also = () if bounds is None else _also(registration, bounds)
    return Certificate(
        statement=wording.statement(registration, replay, bounds, together, also),
        target_risk=registration.promised_risk,
        failure_probability=registration.claim.failure_probability,
        tries=replay.tries,
        failure_probability_of_all_tries=together,
        claim=registration.claim,
        **_decision(registration, replay, bounds),
        **_shared(registration, replay, chain),
        eta=None if bounds is None else _number(bounds.eta),
        thresholds=() if bounds is None or _by_member(registration) else _table(registration, bounds),
        every_target=registration.every_target,
        also_certified=also,
        evidence=tuple(replay.trace),
        does_not_say=wording.limits(registration),
        missed=registration.labelling.missed or None,
        renews=registration.renews,
        panel=panel_of(registration, replay, bounds),
        expires=_expiry(min(replay.times, default=""), registration.claim.validity_days),
    )


def account(registration: Registration, replay: Replay, chain: Chain) -> MonitorAccount:
    """Return the account of a monitor, unsigned."""
    watch, groups = replay.watch, registration.groups
    assert watch is not None  # whoever watches has such a registration
    return MonitorAccount(
        **_shared(registration, replay, chain),
        status=watch.status,
        statement=wording.monitor_statement(registration, watch),
        certificate=watch.method.certificate,
        threshold=None if groups is not None and groups.own else registration.thresholds.values[0],
        target_risk=registration.promised_risk,
        alarm_risk=watch.method.risk,
        guarantee=wording.monitor_guarantee(registration, watch),
        log_line=round(watch.line, 9),
        log_evidence=watch.rounds[-1].log_evidence if watch.rounds else None,
        recent_risk_estimate=watch.recent_risk(watch.closest),
        evidence=tuple(watch.rounds),
        alarm=watch.alarm,
        groups=watch.groups,
        does_not_say=(*wording.MONITOR_DOES_NOT_SAY, *panel_limits(registration)),
        expires=None,
    )


def _shared(registration: Registration, replay: Replay, chain: Chain) -> dict[str, Any]:
    """Return what a certificate and the account of a monitor have in common."""
    return {
        "method": registration.judgement.method,
        "records": replay.tally.arrived,
        "rounds": replay.rounds,
        "releases": sum(outcome == "arrived" for outcome in replay.history.values()),
        "absent": replay.absent,
        "refused": replay.refused,
        "sites": _sites(registration, replay),
        "mixture": "as calibrated" if registration.weights is None else "declared",
        "privacy": _privacy(registration),
        "assumptions": wording.assumptions(registration, replay),
        "calibrated": max(replay.times, default=""),
        "registration": registration.digest,
        "transcript": chain.head,
        "transcript_lines": chain.lines,
    }


def _together(registration: Registration, replay: Replay) -> float:
    """Failure probabilities of all registrations on the same records."""
    return min(1.0, _number(registration.claim.failure_probability + replay.others))


def _decision(registration: Registration, replay: Replay, bounds: Bounds | None) -> dict[str, Any]:
    choice = replay.choice if replay.ended else None
    if bounds is None or choice is None:
        none = dict.fromkeys(("threshold", "contrast_upper", "acceptance_lower", "risk_upper"))
        return {"status": replay.status, **none}
    return {
        "status": replay.status,
        "threshold": registration.row_values[choice],
        "contrast_upper": _number(bounds.contrast_upper[choice]),
        "acceptance_lower": _number(bounds.acceptance_lower[choice]),
        "risk_upper": _risk(registration, bounds, choice),
    }


def _by_member(registration: Registration) -> bool:
    """Return whether every row is of one group or score, and stands with it."""
    return registration.panel is not None and not registration.panel.simultaneous


def panel_of(registration: Registration, replay: Replay, bounds: Bounds | None) -> Panel | None:
    """Return what a panel shows of each group or score."""
    claims = registration.claims
    if isinstance(claims, One):
        return None
    rows = () if bounds is None else _table(registration, bounds)
    members = tuple(_member(registration, replay, rows, block) for block in range(len(registration.cuts)))
    if isinstance(claims, Groups):
        return Panel(kind="groups", claim=claims.claim, column=claims.column, floor=claims.floor, span=claims.span,
                     members=members)  # fmt: skip
    row = replay.choice if replay.ended else None
    picked = None if row is None else registration.block_names[row // len(registration.thresholds.values)]
    return Panel(kind="scores", claim="best", column=registration.claim.column, floor="traffic", span="shares",
                 members=members, picked=picked)  # fmt: skip


def _member(
    registration: Registration, replay: Replay, rows: tuple[ThresholdBounds, ...], block: int
) -> PanelMember:  # fmt: skip
    claims, m = registration.claims, len(registration.thresholds.values)
    assert not isinstance(claims, One)
    if not claims.simultaneous:
        rows = rows[block * m : (block + 1) * m]
    able = [row for row in rows if row.certified] if replay.ended else []
    best = max(able, key=lambda row: row.acceptance_lower, default=None)  # the first of equals, as the rule selects
    points = {} if isinstance(claims, Groups) else _score_of(registration, block)
    return PanelMember(
        name=registration.block_names[block],
        status="OPEN" if not replay.ended else "ABSTAIN" if best is None else "CERTIFIED",
        share=claims.shares[block],
        threshold=None if best is None else best.threshold,
        contrast_upper=None if best is None else best.contrast_upper,
        acceptance_lower=None if best is None else best.acceptance_lower,
        risk_upper=None if best is None else best.risk_upper,
        thresholds=() if claims.simultaneous else rows,
        **points,
    )


def _score_of(registration: Registration, block: int) -> dict[str, Any]:
    """Return how a registered score is written, and its checkpoints."""
    claims = registration.claims
    assert isinstance(claims, Scores)
    if block == 0:
        return {"scale": registration.claim.scale, "checkpoints": claims.checkpoints}
    return {"scale": claims.others[block - 1].scale, "checkpoints": claims.others[block - 1].checkpoints}


def _table(registration: Registration, bounds: Bounds) -> tuple[ThresholdBounds, ...]:
    return tuple(
        ThresholdBounds(
            threshold=value,
            contrast_upper=_number(bounds.contrast_upper[j]),
            acceptance_lower=_number(bounds.acceptance_lower[j]),
            risk_upper=_risk(registration, bounds, j),
            sampling_width=_number(bounds.sampling_width[j]),
            privacy_width=_number(bounds.privacy_width[j]),
            certified=bool(bounds.certified[j]),
            log_wealth=None if bounds.log_wealth is None else _number(bounds.log_wealth[j]),
        )
        for j, value in enumerate(registration.row_values[: bounds.certified.size])
    )


def _also(registration: Registration, bounds: Bounds) -> tuple[OtherTarget, ...]:
    """For every target that is shown, the threshold that would be certified: the risk bounds hold for all at once."""
    method, rungs = registration.certificate, tuple[float, ...]()
    if registration.panel is not None:
        return ()
    if isinstance(method, Betting) and registration.every_target:
        rungs = method.ladder
    elif isinstance(method, Sealed):
        rungs = tuple(sorted(target.risk for target in method.targets))
    rows = []
    for rung in rungs:
        able = (bounds.risk_upper <= rung) & (bounds.acceptance_lower >= registration.claim.min_acceptance)
        if able.any():
            j = int(np.argmax(np.where(able, bounds.acceptance_lower, -1.0)))
            value, accepted = registration.thresholds.values[j], _number(bounds.acceptance_lower[j])
            risk = registration.of_answers(rung)
            rows.append(OtherTarget(target_risk=risk, threshold=value, acceptance_lower=accepted))
    return tuple(rows)


def _risk(registration: Registration, bounds: Bounds, j: int) -> float:
    """Return the bound on the risk of the answers at a threshold."""
    return registration.of_answers(_number(bounds.risk_upper[j]))


def _sites(registration: Registration, replay: Replay) -> tuple[SiteShare, ...]:
    return tuple(
        SiteShare(
            name=site.name,
            records=replay.tally.slots[i],
            charged=replay.tally.missing[i],
            share=_number((replay.tally.slots[i] + replay.tally.missing[i]) / max(1, replay.tally.total)),
            weight=site.weight,
            drift=site.drift,
        )
        for i, site in enumerate(registration.sites)
    )


def _privacy(registration: Registration) -> PrivacyLoss:
    settings, rule = registration.privacy, registration.mechanism
    return PrivacyLoss(
        unit=settings.unit,
        adjacency=settings.adjacency,
        mechanism="discrete Gaussian" if settings.private else "none",
        encoding=registration.encoding.kind,
        basis=None if isinstance(registration.encoding, Contrasts) else registration.encoding.basis,
        epsilon=settings.epsilon,
        replacement_epsilon=epsilon_against(registration, "replacement"),
        zero_out_epsilon=epsilon_against(registration, "zero-out"),
        delta=settings.delta if settings.private else 0.0,
        conversion=settings.conversion,
        rho=rule.rho,
        scale=rule.scale,
        thresholds=wording.thresholds_words(registration),
        colluding=None if registration.cohorts is None else registration.cohorts.colluding,
        sum_scale=sum_scale(registration),
        epsilon_among=epsilon_among(registration),
    )


def _expiry(calibrated: str, days: int) -> datetime | None:
    """Counted from the earliest release, so that one clock that is fast extends nothing."""
    if not calibrated:
        return None
    try:
        return instant(calibrated) + timedelta(days=days)
    except OverflowError as error:
        raise FedsrcError(f"a release is dated {calibrated}, too late for a certificate to expire") from error


def _number(value: float) -> float:
    """9 decimals: what the decision compared."""
    return round(float(value), 9) + 0.0
