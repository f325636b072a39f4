"""Issue a certificate, or the account of a monitor: a pure function of registration and transcript, to be signed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from fedsrc.common.clock import TIME
from fedsrc.protocol.certificate import (
    Assumption,
    Certificate,
    MonitorAccount,
    OtherTarget,
    PrivacyLoss,
    SiteShare,
    ThresholdBounds,
)
from fedsrc.protocol.disclosure import replacement_epsilon, thresholds_words
from fedsrc.protocol.methods import Betting
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.transcript import Chain
from fedsrc.server.bounds import Bounds, report, sample
from fedsrc.server.state import Replay


def conclude(registration: Registration, replay: Replay, chain: Chain) -> Certificate | MonitorAccount:
    """What a replayed transcript comes to: the certificate, or of a monitor its account."""
    done = issue if replay.watch is None else account
    return done(registration, replay, chain)


def issue(registration: Registration, replay: Replay, chain: Chain) -> Certificate:
    """The certificate of a replayed transcript, unsigned. A run that has not ended is OPEN."""
    bounds = None
    if replay.look is not None:
        bounds = report(registration, sample(registration, replay.tally), replay.look)
    return Certificate(
        statement=statement(registration, replay, bounds),
        target_risk=registration.claim.target_risk,
        failure_probability=registration.claim.failure_probability,
        tries=replay.tries,
        failure_probability_of_all_tries=_together(registration, replay),
        claim=registration.claim,
        **_decision(registration, replay, bounds),
        **_shared(registration, replay, chain),
        eta=None if bounds is None else _number(bounds.eta),
        thresholds=() if bounds is None else _table(registration, bounds),
        every_target=registration.fixed_mixture,
        also_certified=_also(registration, bounds) if bounds is not None and registration.fixed_mixture else (),
        evidence=tuple(replay.trace),
        does_not_say=limits(registration),
        renews=registration.renews,
        expires=_expiry(min(replay.times, default=""), registration.claim.validity_days),
    )


def account(registration: Registration, replay: Replay, chain: Chain) -> MonitorAccount:
    """The account of a monitor, unsigned."""
    assert replay.watch is not None  # whoever watches has such a registration
    return MonitorAccount(**_shared(registration, replay, chain), **replay.watch.report(), expires=None)


def _shared(registration: Registration, replay: Replay, chain: Chain) -> dict[str, Any]:
    """What a certificate and the account of a monitor both say."""
    return {
        "method": registration.judgement.method,
        "records": replay.tally.arrived,
        "rounds": replay.rounds,
        "releases": replay.tally.releases,
        "absent": replay.absent,
        "refused": replay.refused,
        "sites": _sites(registration, replay),
        "mixture": "as calibrated" if registration.weights is None else "declared",
        "privacy": _privacy(registration),
        "assumptions": _assumptions(registration, replay),
        "calibrated": max(replay.times, default=""),
        "registration": registration.digest,
        "transcript": chain.head,
        "transcript_lines": chain.lines,
    }


def statement(registration: Registration, replay: Replay, bounds: Bounds | None) -> str:
    """The one plain sentence."""
    claim, choice = registration.claim, replay.choice
    if replay.status != "CERTIFIED" or bounds is None or choice is None:
        verb = "was" if replay.status == "ABSTAIN" else "is yet"
        return f"No threshold {verb} shown to keep unsupported answers at or below {_percent(claim.target_risk)}."
    threshold = registration.thresholds.values[choice]
    accepted = _percent(bounds.acceptance_lower[choice], down=True)
    fails = f"this statement fails with probability at most {_percent(claim.failure_probability)}"
    said = claimed(registration, f"score >= {threshold!r}", accepted)
    return f"{said}; {fails}{_tries_words(registration, replay)}."


def _tries_words(registration: Registration, replay: Replay) -> str:
    """Who tries again until it is certified fails as often as all tries together.

    Theory: (iv), Chain.
    """
    if replay.tries == 1:
        return ""
    return (
        f" by itself; it is registration {replay.tries} on the same records, and one of their statements fails with"
        f" probability at most {_percent(_together(registration, replay))}"
    )


def _together(registration: Registration, replay: Replay) -> float:
    """Failure probabilities of all registrations on the same records."""
    return min(1.0, _number(registration.claim.failure_probability + replay.others))


def claimed(registration: Registration, gate: str, accepted: str) -> str:
    """What is claimed of risk and acceptance: shares of answers, or chances of a random answer of a random source."""
    privacy, risk = registration.privacy, _percent(registration.claim.target_risk)
    graded = privacy.loss_grid > 1
    if not privacy.sources_alike:
        share = f"on average at most {risk} is" if graded else f"at most {risk} are"
        mixed = " (sites weighed by sources)" if _weighs_sources(registration) else ""
        return f"Of the answers accepted ({gate}, at least {accepted} of traffic), {share} unsupported{mixed}"
    bad = f"on average at most {risk} of it is unsupported"
    if not graded:
        bad = f"it is unsupported with probability at most {risk}"
    return f"Take a random answer of a random source: if it is accepted ({gate}; at least {accepted} are), {bad}"


def _weighs_sources(registration: Registration) -> bool:
    """Whether sites are mixed by shares of sources, although the claim is about answers.

    Theory: (v), weights.
    """
    privacy = registration.privacy
    return len(registration.sites) > 1 and privacy.unit == "source" and not privacy.sources_alike


def _decision(registration: Registration, replay: Replay, bounds: Bounds | None) -> dict[str, Any]:
    choice = replay.choice if replay.ended else None
    if bounds is None or choice is None:
        none = dict.fromkeys(("threshold", "contrast_upper", "acceptance_lower", "risk_upper"))
        return {"status": replay.status, **none}
    return {
        "status": replay.status,
        "threshold": registration.thresholds.values[choice],
        "contrast_upper": _number(bounds.contrast_upper[choice]),
        "acceptance_lower": _number(bounds.acceptance_lower[choice]),
        "risk_upper": _number(bounds.risk_upper[choice]),
    }


def _table(registration: Registration, bounds: Bounds) -> tuple[ThresholdBounds, ...]:
    return tuple(
        ThresholdBounds(
            threshold=value,
            contrast_upper=_number(bounds.contrast_upper[j]),
            acceptance_lower=_number(bounds.acceptance_lower[j]),
            risk_upper=_number(bounds.risk_upper[j]),
            sampling_width=_number(bounds.sampling_width[j]),
            privacy_width=_number(bounds.privacy_width[j]),
            certified=bool(bounds.certified[j]),
            log_wealth=None if bounds.log_wealth is None else _number(bounds.log_wealth[j]),
        )
        for j, value in enumerate(registration.thresholds.values)
    )


def _also(registration: Registration, bounds: Bounds) -> tuple[OtherTarget, ...]:
    """For every rung of the ladder, the threshold that would be certified: the risk bound holds for all at once."""
    if not isinstance(registration.certificate, Betting):
        return ()
    rows = []
    for rung in registration.certificate.ladder:
        able = (bounds.risk_upper <= rung) & (bounds.acceptance_lower >= registration.claim.min_acceptance)
        if able.any():
            j = int(np.argmax(np.where(able, bounds.acceptance_lower, -1.0)))
            value, accepted = registration.thresholds.values[j], _number(bounds.acceptance_lower[j])
            rows.append(OtherTarget(target_risk=rung, threshold=value, acceptance_lower=accepted))
    return tuple(rows)


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
        basis=registration.encoding.basis,
        epsilon=settings.epsilon,
        replacement_epsilon=replacement_epsilon(registration),
        delta=settings.delta if settings.private else 0.0,
        conversion=settings.conversion,
        rho=rule.rho,
        scale=rule.scale,
        thresholds=thresholds_words(registration),
    )


DOES_NOT_SAY = (
    "It certifies no single answer: it bounds the share of unsupported answers among those accepted.",
    "Supported is not true: it speaks of the declared loss, as labelled; label errors carry over.",
    "It does not cover other traffic, another model, prompt or score, or drift beyond what was declared.",
)


def limits(registration: Registration) -> tuple[str, ...]:
    """What a certificate does not say."""
    first, *others = DOES_NOT_SAY
    privacy, uneven = registration.privacy, []
    if privacy.sources_alike:
        uneven = [
            "It weighs all sources alike, however many answers each has: where sources with many answers are worse,"
            " the share among all accepted answers can be higher."
        ]
    elif privacy.max_answers > 1:
        uneven = [f"Of a source with more than {privacy.max_answers} answers, only so many count."]
    if _weighs_sources(registration):
        uneven.append(
            "The sites' shares are shares of sources, not of answers: where sites differ in answers per source, a"
            " mixture by answers is another one, and can have a higher risk."
        )
    return (first, *uneven, *others)


def _assumptions(registration: Registration, replay: Replay) -> tuple[Assumption, ...]:
    unit, monitor = registration.privacy.unit, registration.monitor
    of_what = " of sources" if unit == "source" else ""
    mixture = f"deployment mixes the sites by the declared weights{', as shares of sources' if of_what else ''}"
    if registration.weights is None:
        as_given = "rounds do" if monitor is not None else f"calibrated (the shares{of_what} above)"
        mixture = f"deployment mixes the sites as {as_given}"
    traffic = "accepted answers" if monitor is not None and monitor.sample == "accepted" else "traffic"
    drift = "without drift at any site" if not any(s.drift for s in registration.sites) else "within declared drift"
    step = "calibration" if monitor is None else "monitoring"
    order = "in a recorded shuffle" if replay.orders <= {"shuffled"} else "in the table's own order"
    return (
        Assumption(what="every request followed the registered rule", how="checked"),
        Assumption(what="requests were written down before their answers came", how="declared"),
        _origin_note(registration),
        Assumption(what=f"every {unit} was released once", how="declared"),
        *_tries_note(registration, replay),
        Assumption(what=f"{unit}s at a site are independent draws of its {traffic}, used {order}", how="not checkable"),
        *_sharing_note(registration),
        Assumption(what=f"{mixture}, {drift}", how="declared"),
        _dropout_note(registration, replay),
        Assumption(what=f"score, loss and thresholds were fixed before {step}", how="declared"),
        *_development_note(registration),
        *_grid_note(registration),
    )


def _dropout_note(registration: Registration, replay: Replay) -> Assumption:
    """What is known of releases, and sites, that are not there. That a site never came is the server's word."""
    if registration.schedule.dropout == "adversarial":
        return Assumption(what="a release that did not arrive is charged as if withheld on purpose", how="checked")
    if replay.never_came:
        what = "whether a site comes, and whether a release arrives, does not depend on what it holds"
        return Assumption(what=what, how="declared")
    if replay.absent or replay.refused:
        return Assumption(what="whether a release arrives does not depend on its content", how="declared")
    return Assumption(what="every requested release arrived", how="checked")


def _tries_note(registration: Registration, replay: Replay) -> list[Assumption]:
    """How many registrations have had units of the same records: the failure probabilities of certificates add up."""
    if replay.tries == 1 or registration.monitor is not None:
        return []
    what = f"this is registration {replay.tries} on the same records: failure probabilities of all tries add up"
    return [Assumption(what=what, how="declared")]


def _sharing_note(registration: Registration) -> list[Assumption]:
    if not registration.privacy.independent:
        return []
    return [Assumption(what="records that share a source are independent", how="declared")]


def _origin_note(registration: Registration) -> Assumption:
    if all(site.key is not None for site in registration.sites):
        return Assumption(what="every release is signed by its site's registered key", how="checked")
    return Assumption(what="releases are the sites' own (not every site has a registered key)", how="declared")


def _development_note(registration: Registration) -> list[Assumption]:
    origin = registration.thresholds.origin
    if origin == "noised":
        return [Assumption(what="thresholds follow from the registered release of development units", how="checked")]
    if origin == "public":
        return [Assumption(what="development records, whose exact quantiles are published, are public", how="declared")]
    return []


def _grid_note(registration: Registration) -> list[Assumption]:
    grid = registration.privacy.loss_grid
    if grid == 1:
        return [Assumption(what="losses are 0 or 1; any fraction between counts as 1", how="checked")]
    return [Assumption(what=f"losses count in steps of 1/{grid}, rounded up", how="checked")]


def _expiry(calibrated: str, days: int) -> datetime | None:
    """Counted from the earliest release, so that one clock that is fast extends nothing."""
    if not calibrated:
        return None
    return datetime.strptime(calibrated, TIME).replace(tzinfo=UTC) + timedelta(days=days)


def _number(value: float) -> float:
    """9 decimals: what the decision compared."""
    return round(float(value), 9) + 0.0


def _percent(value: float, *, down: bool = False) -> str:
    scaled = value * 100
    if down:
        scaled = np.floor(scaled * 10) / 10
    return f"{scaled:.6g}%"
