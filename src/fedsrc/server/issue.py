"""The certificate: the decision, its statement, what it rests on, digests and a signature.

Versioned JSON. Everything in it except the signature is a pure function of registration and transcript, so `verify`
recomputes it whole.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta

import numpy as np

from fedsrc.common.clock import TIME
from fedsrc.protocol.certificate import Body
from fedsrc.protocol.formats import FORMAT
from fedsrc.protocol.mechanism import registered_mechanism, replacement_epsilon, thresholds_words
from fedsrc.protocol.registration import Betting, Monitor, Registration
from fedsrc.protocol.transcript import Chain
from fedsrc.server.bounds import Bounds, report, sample
from fedsrc.server.state import Replay


def issue(registration: Registration, replay: Replay, chain: Chain) -> Body:
    """The certificate's body for a replayed transcript. A run that has not ended is OPEN.

    A monitor's body is an account of it and certifies nothing.
    """
    if replay.watch is not None:
        return {**_account(registration, replay, chain), **replay.watch.report(), "expires": ""}
    bounds = None
    if replay.look is not None:
        bounds = report(registration, sample(registration, replay.tally), replay.look)
    choice = replay.choice
    return {
        "status": replay.status,
        "statement": statement(registration, replay, bounds),
        "target_risk": registration.claim.target_risk,
        "failure_probability": registration.claim.failure_probability,
        "tries": replay.tries,
        "failure_probability_of_all_tries": _together(registration, replay),
        "claim": registration.claim.model_dump(),
        **_selected(registration, bounds, choice if replay.ended else None),
        **_account(registration, replay, chain),
        "eta": None if bounds is None else _number(bounds.eta),
        "thresholds": [] if bounds is None else _table(registration, bounds),
        "every_target": registration.fixed_mixture,
        "also_certified": _also(registration, bounds) if bounds is not None and registration.fixed_mixture else [],
        "evidence": [asdict(each) for each in replay.trace],
        "does_not_say": limits(registration),
        "renews": registration.renews,
        "expires": _expiry(min(replay.times, default=""), registration.claim.validity_days),
    }


def _account(registration: Registration, replay: Replay, chain: Chain) -> Body:
    """What a certificate and the account of a monitor both say."""
    return {
        "format": FORMAT,
        "method": registration.certificate.method,
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


def _selected(registration: Registration, bounds: Bounds | None, choice: int | None) -> Body:
    if bounds is None or choice is None:
        return {"threshold": None, "contrast_upper": None, "acceptance_lower": None, "risk_upper": None}
    return {
        "threshold": registration.thresholds.values[choice],
        "contrast_upper": _number(bounds.contrast_upper[choice]),
        "acceptance_lower": _number(bounds.acceptance_lower[choice]),
        "risk_upper": _number(bounds.risk_upper[choice]),
    }


def _table(registration: Registration, bounds: Bounds) -> list[Body]:
    rows = []
    for j, value in enumerate(registration.thresholds.values):
        row = {
            "threshold": value,
            "contrast_upper": _number(bounds.contrast_upper[j]),
            "acceptance_lower": _number(bounds.acceptance_lower[j]),
            "risk_upper": _number(bounds.risk_upper[j]),
            "sampling_width": _number(bounds.sampling_width[j]),
            "privacy_width": _number(bounds.privacy_width[j]),
            "certified": bool(bounds.certified[j]),
        }
        if bounds.log_wealth is not None:
            row["log_wealth"] = _number(bounds.log_wealth[j])
        rows.append(row)
    return rows


def _also(registration: Registration, bounds: Bounds) -> list[Body]:
    """For every rung of the ladder, the threshold that would be certified: the risk bound holds for all at once."""
    if not isinstance(registration.certificate, Betting):
        return []
    rows = []
    for rung in registration.certificate.ladder:
        able = (bounds.risk_upper <= rung) & (bounds.acceptance_lower >= registration.claim.min_acceptance)
        if able.any():
            j = int(np.argmax(np.where(able, bounds.acceptance_lower, -1.0)))
            value, accepted = registration.thresholds.values[j], _number(bounds.acceptance_lower[j])
            rows.append({"target_risk": rung, "threshold": value, "acceptance_lower": accepted})
    return rows


def _sites(registration: Registration, replay: Replay) -> list[Body]:
    return [
        {
            "name": site.name,
            "records": replay.tally.slots[i],
            "charged": replay.tally.missing[i],
            "share": _number((replay.tally.slots[i] + replay.tally.missing[i]) / max(1, replay.tally.total)),
            "weight": site.weight,
            "drift": site.drift,
        }
        for i, site in enumerate(registration.sites)
    ]


def _privacy(registration: Registration) -> Body:
    settings, rule = registration.privacy, registered_mechanism(registration)
    return {
        "unit": settings.unit,
        "adjacency": settings.adjacency,
        "mechanism": "discrete Gaussian" if settings.private else "none",
        "encoding": registration.encoding.kind,
        "basis": registration.encoding.basis,
        "epsilon": settings.epsilon,
        "replacement_epsilon": replacement_epsilon(registration),
        "delta": settings.delta if settings.private else 0.0,
        "conversion": settings.conversion,
        "rho": rule.rho,
        "scale": rule.scale,
        "releases_per_unit": 1,
        "thresholds": thresholds_words(registration),
    }


DOES_NOT_SAY = (
    "It certifies no single answer: it bounds the share of unsupported answers among those accepted.",
    "Supported is not true: it speaks of the declared loss, as labelled; label errors carry over.",
    "It does not cover other traffic, another model, prompt or score, or drift beyond what was declared.",
)


def limits(registration: Registration) -> list[str]:
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
    return [first, *uneven, *others]


def _assumptions(registration: Registration, replay: Replay) -> list[Body]:
    unit, watched = registration.privacy.unit, isinstance(registration.certificate, Monitor)
    of_what = " of sources" if unit == "source" else ""
    mixture = f"deployment mixes the sites by the declared weights{', as shares of sources' if of_what else ''}"
    if registration.weights is None:
        as_given = "rounds do" if watched else f"calibrated (the shares{of_what} above)"
        mixture = f"deployment mixes the sites as {as_given}"
    traffic = "traffic"
    if isinstance(registration.certificate, Monitor) and registration.certificate.sample == "accepted":
        traffic = "accepted answers"
    drift = "without drift at any site" if not any(s.drift for s in registration.sites) else "within declared drift"
    order = "in a recorded shuffle" if replay.orders <= {"shuffled"} else "in the table's own order"
    return [
        {"what": "every request followed the registered rule", "how": "checked"},
        {"what": "requests were written down before their answers came", "how": "declared"},
        _origin_note(registration),
        {"what": f"every {unit} was released once", "how": "declared"},
        *_tries_note(registration, replay),
        {"what": f"{unit}s at a site are independent draws of its {traffic}, used {order}", "how": "not checkable"},
        *_sharing_note(registration),
        {"what": f"{mixture}, {drift}", "how": "declared"},
        _dropout_note(registration, replay),
        {
            "what": f"score, loss and thresholds were fixed before {'monitoring' if watched else 'calibration'}",
            "how": "declared",
        },
        *_development_note(registration),
        *_grid_note(registration),
    ]


def _dropout_note(registration: Registration, replay: Replay) -> Body:
    """What is known of releases, and sites, that are not there. That a site never came is the server's word."""
    if registration.schedule.dropout == "adversarial":
        return {"what": "a release that did not arrive is charged as if withheld on purpose", "how": "checked"}
    if replay.never_came:
        what = "whether a site comes, and whether a release arrives, does not depend on what it holds"
        return {"what": what, "how": "declared"}
    if replay.absent or replay.refused:
        return {"what": "whether a release arrives does not depend on its content", "how": "declared"}
    return {"what": "every requested release arrived", "how": "checked"}


def _tries_note(registration: Registration, replay: Replay) -> list[Body]:
    """How many registrations have had units of the same records: the failure probabilities of certificates add up."""
    if replay.tries == 1 or isinstance(registration.certificate, Monitor):
        return []
    what = f"this is registration {replay.tries} on the same records: failure probabilities of all tries add up"
    return [{"what": what, "how": "declared"}]


def _sharing_note(registration: Registration) -> list[Body]:
    if not registration.privacy.independent:
        return []
    return [{"what": "records that share a source are independent", "how": "declared"}]


def _origin_note(registration: Registration) -> Body:
    if all(site.key is not None for site in registration.sites):
        return {"what": "every release is signed by its site's registered key", "how": "checked"}
    return {"what": "releases are the sites' own (not every site has a registered key)", "how": "declared"}


def _development_note(registration: Registration) -> list[Body]:
    origin = registration.thresholds.origin
    if origin == "noised":
        return [{"what": "thresholds follow from the registered release of development units", "how": "checked"}]
    if origin == "public":
        return [{"what": "development records, whose exact quantiles are published, are public", "how": "declared"}]
    return []


def _grid_note(registration: Registration) -> list[Body]:
    grid = registration.privacy.loss_grid
    if grid == 1:
        return [{"what": "losses are 0 or 1; any fraction between counts as 1", "how": "checked"}]
    return [{"what": f"losses count in steps of 1/{grid}, rounded up", "how": "checked"}]


def _expiry(calibrated: str, days: int) -> str:
    """Counted from the earliest release, so that one clock that is fast extends nothing."""
    if not calibrated:
        return ""
    moment = datetime.strptime(calibrated, TIME).replace(tzinfo=UTC)
    return (moment + timedelta(days=days)).isoformat()


def _number(value: float) -> float:
    """9 decimals: what the decision compared."""
    return round(float(value), 9) + 0.0


def _percent(value: float, *, down: bool = False) -> str:
    scaled = value * 100
    if down:
        scaled = np.floor(scaled * 10) / 10
    return f"{scaled:.6g}%"
