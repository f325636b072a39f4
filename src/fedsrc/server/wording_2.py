"""The words of format 2 that `verify` recomputes: what a certificate and the account of a monitor say to people.

They are part of the format. To change one of them is to change what old certificates must say, so new words come with
a new format, in a module of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedsrc.maths.label_error import on_labels
from fedsrc.protocol.certificate import Assumption, OtherTarget
from fedsrc.protocol.disclosure import released_development
from fedsrc.protocol.judgements import Sealed
from fedsrc.protocol.panels import Scores
from fedsrc.protocol.protection import Privacy
from fedsrc.protocol.registration import Holder, OnDemand, Registration
from fedsrc.server import panel_words
from fedsrc.server.alarm import Watch
from fedsrc.server.bounds import Bounds
from fedsrc.server.panel_words import percent as _percent
from fedsrc.server.panel_words import weighs_sources
from fedsrc.server.state import Replay

DOES_NOT_SAY = (
    "It does not certify any single answer. It bounds the share of unsupported answers among the accepted ones.",
    "Supported does not mean true. It is about the declared loss, as labelled, and labelling errors carry over.",
    "It does not cover other traffic, a different model, prompt or score, or more drift than was declared.",
)
MONITOR_DOES_NOT_SAY = (
    "The absence of an alarm is not a new certificate. It says that the fresh units do not show a risk above the line.",
    "Risk estimates contain noise and are not bounds. Only the alarm has a guarantee.",
    "It is about the declared loss, as labelled, on units that were drawn without regard to their labels.",
)


def statement(
    registration: Registration,
    replay: Replay,
    bounds: Bounds | None,
    fails_together: float,
    also: Sequence[OtherTarget] = (),
) -> str:
    """Return the one plain sentence; of an abstention, with the strongest claim that its evidence carries.

    Theory: (iv), Ladder.
    """
    target, choice = registration.promised_risk, replay.choice
    if replay.status == "CERTIFIED" and bounds is not None:
        if choice is None:
            said = panel_words.claimed_by_group(registration, replay.choices, bounds, _percent(target))
            return _failing(registration, replay, f"{said}{_as_labelled(registration, target)}", fails_together)
        threshold, accepted = registration.row_values[choice], float(bounds.acceptance_lower[choice])
        shown = OtherTarget(target_risk=target, threshold=threshold, acceptance_lower=accepted)
        return _failing(registration, replay, claimed(registration, shown, choice), fails_together)
    verb = "was" if replay.status == "ABSTAIN" else "has yet been"
    none = f"No threshold {verb} shown to keep unsupported answers at or below {_percent(target)}."
    if replay.status != "ABSTAIN" or not also:
        return none
    weaker = _failing(registration, replay, claimed(registration, also[0]), fails_together)
    return f"{none} The strongest claim that the evidence carries: {weaker[0].lower()}{weaker[1:]}"


def _failing(registration: Registration, replay: Replay, said: str, fails_together: float) -> str:
    """Say how often a claim fails. Whoever tries again until it is certified fails as often as all together.

    Theory: (iv), Chain.
    """
    fails = f"this statement fails with probability at most {_percent(registration.claim.failure_probability)}"
    if replay.tries == 1:
        return f"{said}; {fails}."
    together = f"at least one of their statements fails with probability at most {_percent(fails_together)}"
    return f"{said}; taken alone, {fails}. It is registration {replay.tries} on the same records; {together}."


def claimed(registration: Registration, shown: OtherTarget, row: int = 0) -> str:
    """What is claimed of risk and acceptance: shares of answers, or chances of a random answer of a random source."""
    privacy, risk = registration.privacy, _percent(shown.target_risk)
    column, scale, _ = panel_words.score_named(registration, row)
    name = column if isinstance(registration.claims, Scores) else "score"
    gate = f"{name} >= {shown.threshold!r}{panel_words.on_scale(scale, shown.threshold)}"
    accepted = _percent(shown.acceptance_lower, down=True)
    if registration.groups is not None:
        said = panel_words.claimed_in_all(registration, gate, accepted, risk)
        return f"{said}{_as_labelled(registration, shown.target_risk)}"
    graded = privacy.loss_grid > 1
    if not privacy.sources_alike:
        share = f"on average at most {risk} is" if graded else f"at most {risk} are"
        mixed = " (sites weighted by sources)" if weighs_sources(registration) else ""
        mixed += _as_labelled(registration, shown.target_risk)
        return f"Of the answers accepted ({gate}, at least {accepted} of traffic), {share} unsupported{mixed}"
    bad = f"on average at most {risk} of it is unsupported"
    if not graded:
        bad = f"it is unsupported with probability at most {risk}"
    pick = "Pick a source at random, then one of its answers at random"
    labelled = _as_labelled(registration, shown.target_risk)
    return f"{pick}: if it is accepted ({gate}; at least {accepted} are), {bad}{labelled}"


def _as_labelled(registration: Registration, risk: float) -> str:
    """Say how a risk of answers comes about, where labels miss a declared share of what is unsupported.

    Theory: (xvi) Label errors.
    """
    missed = registration.labelling.missed
    if not missed:
        return ""
    labelled, share = _percent(on_labels(risk, missed)), _percent(missed)
    return f" (labels show at most {labelled}; by declaration they miss at most {share} of what is unsupported)"


def limits(registration: Registration) -> tuple[str, ...]:
    """What a certificate does not say."""
    first, *others = DOES_NOT_SAY
    if registration.labelling.missed:
        others[0] = others[0].replace("labelling errors", "labelling errors beyond the declared ones")
    privacy, uneven = registration.privacy, []
    if privacy.sources_alike:
        uneven = [
            "It gives every source the same weight, however many answers the source has. If sources with many answers"
            " are worse, the share of unsupported answers among all accepted answers can be higher."
        ]
    elif privacy.max_answers > 1:
        uneven = [f"If a source has more than {privacy.max_answers} answers, only {privacy.max_answers} of them count."]
    if weighs_sources(registration):
        uneven.append(
            "The sites' shares are shares of sources, not of answers. If sites differ in answers per source, mixing"
            " them by answers gives a different mixture, which can have a higher risk."
        )
    labelling = registration.labelling
    if isinstance(labelling, OnDemand) and labelling.hours is None and privacy.private:
        uneven.append("When a release left its site shows how long labelling took. That is not protected.")
    if registration.cohorts is not None:
        uneven.append(
            "It does not check any site by itself. Only a cohort's sum can be read: a member that counts wrongly moves"
            " it as far as all slots of the cohort allow."
        )
    if isinstance(registration.judgement, Sealed) and registration.panel is None:
        uneven.append("It speaks of the registered targets, and so of higher ones; no lower target is shown.")
    return (first, *uneven, *panel_words.panel_limits(registration), *others)


def assumptions(registration: Registration, replay: Replay) -> tuple[Assumption, ...]:
    """Return what the statement rests on, and how each part of it is known."""
    unit, monitor = registration.privacy.unit, registration.monitor
    traffic = "accepted answers" if monitor is not None and monitor.sample == "accepted" else "traffic"
    order = "in a recorded shuffled order" if replay.orders <= {"shuffled"} else "in the order of the table"
    draws = f"{unit}s at a site are independent draws from its {traffic}, used {order}"
    step = "calibration" if monitor is None else "monitoring"
    return (
        _checked("every request followed the registered rule"),
        _declared("every request was recorded before its answer arrived"),
        _origin_note(registration),
        *(
            [_declared("one holder has the records of all sites; each round is one release")]
            if registration.held
            else []
        ),
        *_cohort_notes(registration),
        _declared(f"no {unit} was released more than once"),
        *_tries_note(registration, replay),
        Assumption(what=draws, how="not checkable"),
        *([_declared("records that share a source are independent")] if registration.privacy.independent else []),
        _declared(_mixture(registration)),
        _dropout_note(registration, replay),
        *_labelling_notes(registration),
        *_sealed_note(registration),
        _declared(f"the score, the loss and the thresholds were fixed before {step}"),
        *map(_declared, panel_words.panel_notes(registration)),
        *_development_note(registration),
        *_missed_note(registration),
        _grid_note(registration.privacy.loss_grid),
    )


def _checked(what: str) -> Assumption:
    return Assumption(what=what, how="checked")


def _declared(what: str) -> Assumption:
    return Assumption(what=what, how="declared")


def _mixture(registration: Registration) -> str:
    sources = registration.privacy.unit == "source"
    if registration.weights is not None:
        mixed = f"by the declared weights{', as shares of sources' if sources else ''}"
    elif registration.monitor is not None:
        mixed = "as the rounds do"
    else:
        mixed = f"as calibration did (the shares{' of sources' if sources else ''} above)"
    drift = (
        "within the declared drift" if any(site.drift for site in registration.sites) else "with no drift at any site"
    )
    return f"deployment mixes the sites {mixed}, {drift}"


def _sealed_note(registration: Registration) -> list[Assumption]:
    """Say what a sealed certificate needs beside the others. Theory: (xiii), what is registered."""
    method = registration.judgement
    if not isinstance(method, Sealed):
        return []
    looks = "the looks, their shares of the failure probability, targets and bets were registered before calibration"
    closed = "a round was closed before any of its releases was read"
    arrivals = (
        "whether and when a release arrives depends neither on the units nor on the noise of any release of the run"
    )
    noise = [] if method.line == "within" or not registration.privacy.private else ["every site added the stated noise"]
    free = method.line == "hybrid" or registration.schedule.dropout == "adversarial" or registration.must_answer
    notes = [_checked(looks), *map(_declared, [closed, *noise, *([] if free else [arrivals])])]
    if registration.unlabelled is None:
        return notes
    units, unit = sum(each.units for each in registration.unlabelled), registration.privacy.unit
    shown = f"how many are accepted follows from one noised release of {units:,} unlabelled {unit}s"
    shown += _protected(registration.unlabelled[0].privacy, registration.privacy)
    drawn = f"unlabelled {unit}s are drawn like those that calibrate, and their registered release is what they gave"
    return [*notes, _checked(shown), _declared(drawn)]


def _dropout_note(registration: Registration, replay: Replay) -> Assumption:
    """Say what is known of releases and sites that are missing. That a site never came is the server's word."""
    if registration.cohorts is not None:
        return _void_note(registration, replay)
    if registration.schedule.dropout == "adversarial":
        return _checked("a release that did not arrive is charged as if it had been withheld on purpose")
    if replay.never_came:
        return _declared(
            "whether a site takes part, and whether a release arrives, does not depend on what it contains"
        )
    if replay.absent or replay.refused:
        return _declared("whether a release arrives does not depend on its content")
    return _checked("every requested release arrived")


def _void_note(registration: Registration, replay: Replay) -> Assumption:
    """Say what became of rounds that a member of a cohort missed. Theory: (xvii) Voids."""
    if registration.schedule.dropout == "adversarial":
        return _checked(
            "a round that a member of a cohort did not answer is void for the whole cohort: its units are spent, and"
            " charged as if they had been withheld on purpose"
        )
    if not (replay.absent or replay.refused or replay.never_came):
        return _checked("every member of every cohort answered every round")
    return _declared(
        "whether a round is void for a cohort, since one member did not answer, depends on nothing that its members"
        " released: neither the server nor any member chose it"
    )


def _cohort_notes(registration: Registration) -> list[Assumption]:
    """Say what sums of cohorts rest on. Theory: (xvii) Privacy, Validity."""
    if registration.cohorts is None:
        return []
    most = registration.cohorts.colluding
    side = f"at most {most} {'member sides' if most == 1 else 'members side'}" if most else "no member sides"
    return [
        _checked("every sum of a cohort is that of one masked release of each member, and its masks cancel"),
        _declared(f"in every cohort {side} with the server, and all others add their share of the noise"),
        _declared("no member's release depends on what the others released"),
        Assumption(
            what="masks hide releases as long as X25519, HKDF-SHA256 and ChaCha20 do, and mask keys stay secret",
            how="not checkable",
        ),
    ]


def _labelling_notes(registration: Registration) -> list[Assumption]:
    """Say how labels came, where people gave them on demand. Theory: (xvi) Lazy labels."""
    labelling = registration.labelling
    if not isinstance(labelling, OnDemand):
        return []
    double = f" ({_percent(labelling.twice)} of those that people labelled by two, drawn by hash)"
    differ = {"worse": "the worse label counts", "third": "a third person decides"}[labelling.disagreement]
    notes = [
        "a round's units were fixed and spent before anybody labelled them; answers at or above the lowest threshold"
        f" were labelled{double if labelling.twice else ''}, and one without a label, or with an unsure one, counts as"
        " unsupported",
        "a label depends on the answer and on who labels it, not on how the run stands",
    ]
    if labelling.twice or labelling.disagreement == "third":
        notes[0] += f"; where labels differ, {differ}"
    if labelling.hours is not None:
        notes.append(
            f"a site releases {labelling.hours:g} hours after it opened a round, by itself, whatever its labels"
        )
    return [*map(_declared, notes)]


def _tries_note(registration: Registration, replay: Replay) -> list[Assumption]:
    if replay.tries == 1 or registration.monitor is not None:  # an alarm adds no failure probability
        return []
    again = f"this is registration {replay.tries} on the same records"
    return [_declared(f"{again}, and the failure probabilities of all of them add up")]


def _origin_note(registration: Registration) -> Assumption:
    if isinstance(registration.aggregation, Holder):
        if registration.aggregation.key is not None:
            return _checked("every release is signed by the holder's registered key")
        return _declared("the releases come from the holder itself (it has no registered key)")
    if all(site.key is not None for site in registration.sites):
        return _checked("every release is signed by its site's registered key")
    return _declared("the releases come from the sites themselves (not every site has a registered key)")


def _development_note(registration: Registration) -> list[Assumption]:
    origin = registration.thresholds.origin
    if origin == "noised":
        return [_checked("the thresholds follow from the registered release of the development units")]
    if origin == "public":
        return [_declared("the development records, whose exact quantiles are published, are public")]
    return []


def _missed_note(registration: Registration) -> list[Assumption]:
    missed = registration.labelling.missed
    if not missed:
        return []
    where = f"at or above any threshold{panel_words.everywhere(registration)}, at any site and in deployment"
    return [_declared(f"of what is unsupported {where}, at most {_percent(missed)} is labelled supported")]


def _grid_note(grid: int) -> Assumption:
    if grid == 1:
        return _checked("losses are 0 or 1; any value in between counts as 1")
    return _checked(f"losses are counted in steps of 1/{grid}, rounded up")


def thresholds_words(registration: Registration) -> str:
    """Where the thresholds come from, and whether the units that chose them are protected."""
    origin, release = registration.thresholds.origin, released_development(registration)
    whose = "people" if registration.development is None else registration.development.labels
    labels = {"people": "", "none": " (scores alone)", "judge": " with a judge's labels"}[whose]
    if release is not None:
        noun = f"development {release.privacy.unit}{'s' if release.units != 1 else ''}{labels}"
        protected = _protected(release.privacy, registration.privacy)
        return f"from one noised release of {release.units:,} {noun}{protected}"
    return {
        "public": f"exact quantiles of development records{labels}, which are declared public and are not protected",
        "development": f"exact quantiles of development records{labels}, without privacy",
        "grid": "evenly spaced; no record was used",
    }.get(origin, "declared")


def _protected(made: Privacy, registered: Privacy) -> str:
    """How the units of an earlier release are protected: as registered now, or as they were then."""
    if made == registered:
        return ", protected like the others"
    also = "" if made.adjacency == registered.adjacency else f", for {made.adjacency}"
    return f", made for an earlier registration: epsilon {made.epsilon:g} at delta {made.delta:g}{also}"


def monitor_statement(registration: Registration, watch: Watch) -> str:
    """The one plain sentence of a monitor."""
    unit = registration.privacy.unit
    whose = "random answers of random sources" if registration.privacy.sources_alike else "answers"
    gate = f"{whose} {panel_words.watched(registration, () if watch.alarm is None else watch.alarm.groups or ())}"
    risk, missed = _percent(watch.method.risk), registration.labelling.missed
    if watch.alarm is not None:
        ones = "those labelled unsupported" if missed else "unsupported ones"
        return (
            f"ALARM after {watch.alarm.records:,} fresh {unit}s: among {gate}, the share of {ones} has risen"
            f" above {risk}. Do not rely on the certificate any longer."
        )
    if not watch.rounds:
        return f"Certified, but not monitored yet: no fresh {unit} has been examined."
    bad = "labelled unsupported" if missed else "unsupported"
    return f"Still supported: {watch.records:,} fresh {unit}s do not show more than {risk} {bad} among {gate}."


def monitor_guarantee(registration: Registration, watch: Watch) -> str:
    """What is guaranteed of false alarms."""
    unit, missed = registration.privacy.unit, registration.labelling.missed
    bad = "labelled unsupported" if missed else "unsupported"
    groups = registration.groups is not None
    where, together = ("In groups in which", ", all of them taken together") if groups else ("While", "")
    held = f"{where} at most {_percent(watch.method.risk)} of accepted answers are {bad},"
    if watch.method.guarantee == "probability":
        after = f"the probability that an alarm is ever raised is at most {_percent(watch.method.false_alarm)}"
    else:
        after = f"an alarm comes after {watch.method.run_length:,} monitored {unit}s or more on average"
    after += together
    if not missed:
        return f"{held} {after}."
    promised, most = _percent(registration.promised_risk), _percent(missed)
    return f"{held} {after}. The certificate promises {promised}: labels may miss {most} of what is unsupported."
