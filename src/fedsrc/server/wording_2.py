"""The words of format 2 that `verify` recomputes: what a certificate and the account of a monitor say to people.

They are part of the format. To change one of them is to change what old certificates must say, so new words come with
a new format, in a module of its own.
"""

from __future__ import annotations

import math

from fedsrc.protocol.certificate import Assumption
from fedsrc.protocol.disclosure import released_development
from fedsrc.protocol.registration import Registration
from fedsrc.server.alarm import Watch
from fedsrc.server.bounds import Bounds
from fedsrc.server.state import Replay

DOES_NOT_SAY = (
    "It certifies no single answer: it bounds the share of unsupported answers among those accepted.",
    "Supported is not true: it speaks of the declared loss, as labelled; label errors carry over.",
    "It does not cover other traffic, another model, prompt or score, or drift beyond what was declared.",
)
MONITOR_DOES_NOT_SAY = (
    "No alarm is not a new certificate: it says that the fresh units do not show a risk above the line.",
    "Risk estimates are noised and bound nothing; only the alarm has a guarantee.",
    "It speaks of the declared loss, as labelled, of units drawn without regard to their labels.",
)


def statement(registration: Registration, replay: Replay, bounds: Bounds | None, fails_together: float) -> str:
    """The one plain sentence."""
    claim, choice = registration.claim, replay.choice
    if replay.status != "CERTIFIED" or bounds is None or choice is None:
        verb = "was" if replay.status == "ABSTAIN" else "is yet"
        return f"No threshold {verb} shown to keep unsupported answers at or below {_percent(claim.target_risk)}."
    threshold = registration.thresholds.values[choice]
    accepted = _percent(bounds.acceptance_lower[choice], down=True)
    fails = f"this statement fails with probability at most {_percent(claim.failure_probability)}"
    said = claimed(registration, f"score >= {threshold!r}", accepted)
    return f"{said}; {fails}{_tries_words(replay, fails_together)}."


def _tries_words(replay: Replay, fails_together: float) -> str:
    """Who tries again until it is certified fails as often as all tries together.

    Theory: (iv), Chain.
    """
    if replay.tries == 1:
        return ""
    return (
        f" by itself; it is registration {replay.tries} on the same records, and one of their statements fails with"
        f" probability at most {_percent(fails_together)}"
    )


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


def assumptions(registration: Registration, replay: Replay) -> tuple[Assumption, ...]:
    """Return what the statement rests on, and how each part of it is known."""
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


def thresholds_words(registration: Registration) -> str:
    """Where the thresholds come from, and whether the units that chose them are protected."""
    origin, release = registration.thresholds.origin, released_development(registration)
    if release is not None:
        settings, other = release.privacy, release.privacy != registration.privacy
        made = f", made for an earlier registration: epsilon {settings.epsilon:g} at delta {settings.delta:g}"
        noun = f"development {settings.unit}{'s' if release.units != 1 else ''}"
        return f"from one noised release of {release.units:,} {noun}{made if other else ', protected like the others'}"
    return {
        "public": "exact quantiles of development records that are declared public, and not protected",
        "development": "exact quantiles of development records, without privacy",
        "grid": "evenly spaced, from no record",
    }.get(origin, "declared")


def monitor_statement(registration: Registration, watch: Watch) -> str:
    """The one plain sentence of a monitor."""
    unit = registration.privacy.unit
    whose = "random answers of random sources" if registration.privacy.sources_alike else "answers"
    gate = f"{whose} with a score of at least {registration.thresholds.values[0]!r}"
    risk = _percent(watch.method.risk)
    if watch.alarm is not None:
        return (
            f"ALARM after {watch.alarm.records:,} fresh {unit}s: among {gate} the share of unsupported ones has gone"
            f" above {risk}; do not rely on the certificate any longer."
        )
    if not watch.rounds:
        return f"Certified, and not monitored yet: no fresh {unit} has been looked at."
    return f"Still supported: {watch.records:,} fresh {unit}s do not show more than {risk} unsupported among {gate}."


def monitor_guarantee(registration: Registration, watch: Watch) -> str:
    """What is guaranteed of false alarms."""
    held = f"While at most {_percent(watch.method.risk)} of accepted answers are unsupported,"
    if watch.method.guarantee == "probability":
        return f"{held} an alarm is ever raised with probability at most {_percent(watch.method.false_alarm)}."
    unit = registration.privacy.unit
    return f"{held} it takes {watch.method.run_length:,} monitored {unit}s or more on average until an alarm."


def _percent(value: float, *, down: bool = False) -> str:
    scaled = value * 100
    if down:
        scaled = math.floor(scaled * 10) / 10
    return f"{scaled:.6g}%"
