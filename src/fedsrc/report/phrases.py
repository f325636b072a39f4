"""Which rows of a view are shown, and their numbers in words: a card stays short however long the run was."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

from fedsrc.common.words import count, moment, risk_words, rounded_up
from fedsrc.protocol.certificate import Certificate, OtherTarget, PanelMember, ThresholdBounds
from fedsrc.protocol.disclosure import beside_words, collusion_words, other_of
from fedsrc.protocol.scale import Scale
from fedsrc.report.standing import stands
from fedsrc.report.view import View

ROUNDS, THRESHOLDS, SITES, TARGETS = 24, 41, 50, 20
TARGET = "--target RISK"
Row = dict[str, Any]
T = TypeVar("T")


class Folded(NamedTuple):
    """Rows to show, and what was left out, in words ("" when nothing was)."""

    rows: list[Row]
    left_out: str


def evidence_rows(view: View) -> Folded:
    """Choose rounds: the first few and the latest."""
    evidence, since = view["evidence"], first_reached(view) if stays_reached(view) else math.inf
    rows = [
        {**row, "shown": value_words(evidence, row["value"]),
         "reached": row["round"] >= since or reached(evidence, row["value"])}
        for row in ends(evidence["rounds"], ROUNDS)
    ]  # fmt: skip
    for row in rows:
        row["risk"] = risk_words(row["risk_upper"])
    return Folded(rows, left_out(len(evidence["rounds"]) - len(rows), "round"))


def stays_reached(view: View) -> bool:
    """Return whether what a round showed stays shown, as for bets on a mixture that does not change. Otherwise each
    round stands alone, and the evidence may fall back behind its line.

    See docs/theory.md, (iv) Ladder.
    """
    return fixed_mixture(view["certificate"]) and view["evidence"]["measure"] == "log-wealth"


def fixed_mixture(certificate: Certificate) -> bool:
    """Return whether all rounds speak of the same mixture of sites."""
    return certificate.mixture == "declared" or len(certificate.sites) == 1


def first_reached(view: View) -> float:
    """Return the first round at the line; infinity while there is none."""
    evidence = view["evidence"]
    return next((row["round"] for row in evidence["rounds"] if reached(evidence, row["value"])), math.inf)


def reached(evidence: View, value: float) -> bool:
    """Return whether a value is on the good side of the line."""
    return bool(value >= evidence["line"] if evidence["measure"] == "log-wealth" else value <= evidence["line"])


def value_words(evidence: View, value: float) -> str:
    """Write a wealth or a contrast in few digits."""
    return wealth_words(value) if evidence["measure"] == "log-wealth" else f"{value:+.3f}"


def line_words(evidence: View) -> str:
    """Say what the line of the bets is made of; "" for a contrast, whose line is 0."""
    made = evidence["line_from"]
    if made is None:
        return ""
    return (
        f"1 / ({made['risk_budget']:g} x {made['share']:.3g}): the failure probability kept for the risk, times this"
        " threshold's share of it"
    )


def left_words(view: View) -> str:
    """Say how many units the sites still have, as far as that is known before they have come."""
    now, unit = view["progress"], view["certificate"].privacy.unit
    if not now["not_there"]:
        return f"{count(now['left'], unit)} left at the sites"
    registered = (
        f"{count(now['registered'], unit)} registered" if now["registered"] is not None else "an unknown number"
    )
    if now["not_there"] == len(view["sites"]):
        return f"no site is there yet; {registered}"
    return f"{count(now['left'], unit)} left at the sites that are there, {registered} at the others"


def share_at(site: Row) -> str:
    """Say what share of the units is one site's, and what weight it was registered with."""
    weight = "" if site["weight"] is None else f", weight {site['weight']:g}"
    return f"{100 * site['share']:.1f}%{weight}"


def state_at(site: Row) -> str:
    """Say what became of the requests to one site, and what it has left, by its own word or as registered."""
    if site["announced"] is None:
        registered = "not known" if site["registered"] is None else f"{site['registered']:,} registered"
        return f"has not been there, {registered}"
    lost = [("absent", site["absent"]), ("refused", site["refused"])]
    if site["cohort"]:
        lost = [("void", site["absent"] + site["refused"])]
    said = [count(site["arrived"], "release"), *(["asked now"] if site["waiting"] else [])]
    unused = site["asked"] if site["asked"] != site["records"] else 0
    more = (("charged as missing", site["charged"]), ("asked for", unused))
    said += [f"{number:,} {word}" for word, number in (*lost, *more) if number]
    return f"{', '.join(said)}, {site['left']:,} left"


def wealth_words(log_wealth: float) -> str:
    """Write exp(log-wealth) in few digits."""
    power = log_wealth / math.log(10)
    if not -3 <= power < 6:
        return f"10^{power:.0f}"
    wealth = math.exp(log_wealth)
    return f"{wealth:,.0f}" if wealth >= 100 else f"{wealth:.2g}"


class Block(NamedTuple):
    """Thresholds that are shown together, the scale they are written on, and the chosen one, if it stands."""

    rows: Sequence[ThresholdBounds]
    scale: Scale
    chosen: float | None
    near: float | None  # the threshold whose evidence is shown


def block_of(view: View, member: PanelMember | None = None) -> Block:
    """Return the thresholds of a group, or those that the card is about: of several scores, of the one picked, or of
    the one that is closest."""
    certificate: Certificate = view["certificate"]
    evidence, rows, chosen = view["evidence"], certificate.thresholds, certificate.threshold
    scale, near = certificate.claim.scale, evidence["threshold"]
    if member is not None:
        near = next((each["threshold"] for each in evidence["groups"] if each["name"] == member.name), None)
    elif certificate.panel is not None and certificate.panel.kind == "scores":
        member = certificate.panel.member(certificate.panel.picked or evidence["score"] or "")
    if member is not None:
        rows, chosen, scale = member.thresholds, member.threshold, member.scale or scale
    return Block(rows, scale, chosen if stands(view) else None, near)


def threshold_rows(block: Block, most: int = THRESHOLDS) -> Folded:
    """Choose thresholds: all, or those around the one whose evidence is shown."""
    rows = [{**row.model_dump(), "chosen": row.threshold == block.chosen} for row in block.rows]
    if len(rows) > most:
        place = next((i for i, row in enumerate(rows) if row["threshold"] == block.near), 0)
        start = min(max(0, place - most // 2), len(rows) - most)
        return Folded(rows[start : start + most], left_out(len(rows) - most, "threshold"))
    return Folded(rows, "")


def site_rows(view: View) -> Folded:
    """Choose sites, in registered order; of very many, those with trouble come first."""
    rows = view["sites"]
    if len(rows) <= SITES:
        return Folded(list(rows), "")
    ordered = sorted(rows, key=lambda row: not (row["absent"] or row["refused"] or row["announced"] is None))
    rest = ordered[SITES:]
    used = sum(row["records"] for row in rest)
    return Folded(ordered[:SITES], f"{left_out(len(rest), 'site')} with {used:,} {view['certificate'].privacy.unit}s")


def renewal_words(certificate: Certificate) -> str:
    """Say which certificate this one renews; "" if none."""
    return f"renews certificate {certificate.renews[:16]}" if certificate.renews else ""


def also_rows(certificate: Certificate) -> list[OtherTarget]:
    """Choose other targets that the same evidence shows: the smallest, and multiples of 0.05."""
    shown = [row for row in certificate.also_certified if row.target_risk != certificate.target_risk]
    if certificate.method == "sealed":
        return shown
    picked = {round(row.target_risk, 2): row for row in shown if round(row.target_risk * 100) % 5 == 0}
    return [*shown[:1], *(row for row in picked.values() if row != shown[0])][:TARGETS]


def strongest_words(certificate: Certificate) -> str:
    """Say the strongest claim that the evidence carries, where it is not the one at the registered target."""
    best = certificate.strongest
    if best is None or certificate.status == "OPEN" or best.target_risk == certificate.target_risk:
        return ""
    accepted = f"accepts at least {percent_down(best.acceptance_lower)}"
    return f"risk at most {best.target_risk:g} at score >= {best.threshold!r}, which {accepted}; a gate may promise it"


def score_of(certificate: Certificate) -> tuple[str, Scale]:
    """Return what the score is called that the threshold is of, and its scale: of several, the one picked."""
    claim, panel = certificate.claim, certificate.panel
    picked = None if panel is None or panel.picked in (None, claim.column) else panel.member(panel.picked or "")
    return (claim.score, claim.scale) if picked is None else (picked.name, picked.scale or claim.scale)


def scale_words(view: View) -> str:
    """Say how the score is written, and what is accepted: 0 (worst) to 100 (best); accepted: at least 55.9."""
    certificate: Certificate = view["certificate"]
    panel, scale, threshold = certificate.panel, score_of(certificate)[1], certificate.threshold
    words = f"{scale.worst:g} (worst) to {scale.best:g} (best)"
    if panel is not None and panel.kind == "scores" and len(panel.members) > 1:
        words += f"; {'one of' if panel.picked is None else 'picked from'} {len(panel.members)} scores"
    if certificate.by_group is not None and certificate.status == "CERTIFIED" and stands(view):
        return f"{words}; accepted: from each group's own threshold on"
    if threshold is None or not stands(view):
        return words
    own = "" if (scale.worst, scale.best) == (0, 1) else f', which is "score >= {threshold!r}" below'
    return f"{words}; accepted: {raw_words(scale, threshold)}{own}"


def raw_words(scale: Scale, threshold: float) -> str:
    """Say what a threshold accepts, on the score's own scale."""
    return f"{side_words(scale)} {scale.value(threshold):.6g}"


def side_words(scale: Scale) -> str:
    """Say on which side of a threshold scores are accepted, on their own scale."""
    return "at least" if scale.best > scale.worst else "at most"


def odds_words(probability: float) -> str:
    """Write a probability as so many of a hundred, or of more where it is not a whole number of them."""
    for many in (100, 1_000, 10_000, 100_000):
        number = probability * many
        if round(number) >= 1 and math.isclose(number, round(number), rel_tol=1e-9):
            return f"{round(number):,} of {many:,}"
    return f"{math.ceil(probability * 1_000_000):,} of 1,000,000"


def sure_words(certificate: Certificate) -> str:
    """Say how often such a certificate is wrong."""
    each = odds_words(certificate.failure_probability)
    words = f"If what it rests on holds, on average at most {each} such runs end in a false sentence."
    if certificate.tries == 1:
        return words
    every = odds_words(certificate.failure_probability_of_all_tries)
    return f"{words} Of all {certificate.tries} registered on these records, at least one is false in at most {every}."


def data_words(certificate: Certificate) -> str:
    """Say whose data it rests on: units, sites, rounds, dates."""
    unit, sites = certificate.privacy.unit, sum(site.records > 0 for site in certificate.sites)
    words = f"{count(certificate.records, unit)} of {count(sites, 'site')}, in {used_words(certificate)}"
    if certificate.expires is None:
        return f"{words}."
    first = moment((certificate.expires - timedelta(days=certificate.claim.validity_days)).isoformat())
    return f"{words}; released from {first} to {moment(certificate.calibrated)}."


def stopped_words(view: View) -> str:
    """Say why a run stopped, or that it goes on."""
    now, unit = view["progress"], view["certificate"].privacy.unit
    if now["ended"] is None:
        return "It has not: the run goes on."
    if now["ended"] == "certified" and now["policy"] == "enough":
        return f"The target was shown, and more {unit}s would have gained little."
    return {
        "certified": "The target was shown, and the registered rule stops there.",
        "rounds used": f"All {now['most_rounds']} registered rounds were over.",
        "units used": f"The sites had too few {unit}s left for another round.",
    }[now["ended"]]


def unused_words(view: View) -> str:
    """Say how many units were not asked for."""
    now, unit = view["progress"], view["certificate"].privacy.unit
    asked = sum(site["asked"] for site in view["sites"])
    if now["not_there"] or now["ended"] is None:
        return f"{left_words(view)[:1].upper()}{left_words(view)[1:]}."
    if not now["left"]:
        return f"None: all {count(asked, unit)} of the sites were asked for."
    return f"{count(now['left'], unit)} of {asked + now['left']:,}; they are not spent."


def tries_words(certificate: Certificate) -> str:
    """Say which try on the same records this is."""
    if certificate.tries == 1:
        return "The first registration on these records, as the sites say."
    return (
        f"Registration {certificate.tries} on the same records, as the sites say; their failure probabilities add up."
    )


def carried_words(view: View) -> str:
    """Say which claim is the strongest that the evidence carries."""
    certificate: Certificate = view["certificate"]
    if certificate.status == "OPEN" or not stands(view):
        return "None at present."
    best = certificate.strongest
    if best is None or best.target_risk == certificate.target_risk:
        return "The sentence above." if certificate.status == "CERTIFIED" else "None."
    reaches = raw_words(certificate.claim.scale, best.threshold)
    return (
        f"Risk at most {best.target_risk:g}, for scores of {reaches}, which accepts"
        f" at least {percent_down(best.acceptance_lower)} of traffic."
    )


def use_words(view: View) -> tuple[str, str]:
    """Say how the certificate is used in production, and with which command ("" where it may not be)."""
    certificate: Certificate = view["certificate"]
    if certificate.status == "OPEN":
        return "Not yet: nothing is certified while the run is open.", ""
    if not stands(view):
        return "Not any more: a gate refuses it, or must be halted.", ""
    command = f"fedsrc gate serve {shlex.quote(view['folder'])} --trust {certificate_key(view)}"
    best = certificate.strongest
    if certificate.status == "CERTIFIED":
        other = f" For a risk among the other targets add {TARGET}." if also_rows(certificate) else ""
        return f"Accept an answer {_when(certificate)}, and no other; {_by_gate(certificate)}.{other}", command
    if best is None:
        return "Not at all: nothing is certified.", ""
    return "Not for the target. For the strongest claim, by a gate that promises it.", f"{command} {TARGET}".replace(
        "RISK", f"{best.target_risk:g}"
    )


def _when(certificate: Certificate) -> str:
    """Say when an answer is accepted."""
    panel, threshold = certificate.panel, certificate.threshold
    if certificate.by_group is not None or threshold is None:
        return "of a certified group when its score reaches that group's threshold (a gate is told the group)"
    reaches = raw_words(score_of(certificate)[1], threshold)
    if panel is None:
        return f"when its score is {reaches}"
    if panel.kind == "groups":
        return f"of a listed group when its score is {reaches} (a gate is told the group)"
    name = "the picked score" if len(panel.members) > 1 else "its score"
    return f"when {name} is {reaches}{', at every checkpoint that it reaches' if _points(certificate) else ''}"


def _points(certificate: Certificate) -> tuple[int, ...]:
    """Return the checkpoints of the score that the threshold is of."""
    panel = certificate.panel
    return () if panel is None else next((each.checkpoints for each in panel.members if each.name == panel.picked), ())


def _by_gate(certificate: Certificate) -> str:
    """Say what accepts no other answer: at checkpoints a stream, and a service that is told one number."""
    if not _points(certificate):
        return "a gate does that"
    return "a gate's stream does that, and the service takes one number, the least of these scores"


def certificate_key(view: View) -> str:
    return view["check"]["key"] or "KEY"


def so_far(view: View) -> str:
    """Say what is shown after the last round: a bound on the risk, or for how many groups the target."""
    rounds, groups = view["evidence"]["rounds"], view["certificate"].by_group
    if groups is None:
        return risk_share(rounds[-1]["risk_upper"] if rounds else 1.0)
    return f"target shown for {rounds[-1]['shown'] if rounds else 0} of {len(groups.members)} groups"


def risk_share(risk_upper: float) -> str:
    """Write a bound on the risk, or that there is none."""
    return "no bound on the risk" if risk_upper >= 1 else f"risk at most {rounded_up(risk_upper)}"


def mixture_words(certificate: Certificate) -> str:
    """Say which mixture of the sites the bounds speak of, and how far the records used are from it."""
    eta = certificate.eta
    if certificate.mixture == "as calibrated":
        return f"mixture as calibrated{f', declared drift {eta:.4g} allowed for' if eta else ''}"
    weights = "declared weights" if certificate.privacy.unit == "record" else "declared weights of sources"
    if eta is None:
        return weights
    gap = f"off by {eta:.4g} (eta: shares used, declared drift), which the bounds allow for" if eta else "met exactly"
    return f"{weights}, {gap}"


def progress_words(certificate: Certificate) -> str:
    """Say what the bounds by round speak of where the mixture changes; "" where they hold at every look."""
    if certificate.every_target:
        return ""
    if certificate.method == "sealed":
        return "Sealed: only registered looks, after registered rounds, decide, and only on registered targets."
    target = f"{certificate.target_risk:g}"
    if certificate.panel is not None and fixed_mixture(certificate):
        return f"Several claims are made from the same records, of the target {target} alone."
    return (
        f"Each round speaks of the sites as mixed up to it, and of the target {target} alone: declared weights"
        " (--weights) show every target, and keep what a round has shown."
    )


def statistician_words(certificate: Certificate) -> str:
    """Name the release and its privacy as the theory does; "" without privacy."""
    p = certificate.privacy
    if p.mechanism == "none":
        return ""
    return f"zCDP rho {p.rho:.4g}, {p.encoding} release, {f'{p.basis} basis' if p.basis else 'noise shaped for it'}"


def other_epsilon_words(certificate: Certificate) -> str:
    """Say epsilon for the kind of neighbour that was not registered."""
    p = certificate.privacy
    epsilon = p.zero_out_epsilon if p.adjacency == "replacement" else p.replacement_epsilon
    return beside_words(p.unit, other_of(p.adjacency), epsilon, floor_of(certificate))


def floor_of(certificate: Certificate) -> str | None:
    """Return what the acceptance floor of groups is a share of; None without a panel."""
    return None if certificate.panel is None else certificate.panel.floor


def cohort_words(certificate: Certificate) -> str:
    """Say whom the registered epsilon holds against in a cohort, and what is left against more; "" without cohorts."""
    p = certificate.privacy
    return "" if p.colluding is None or p.epsilon_among is None else collusion_words(p.colluding, p.epsilon_among)


def used_words(certificate: Certificate) -> str:
    """Say in how many rounds and releases units were used; with cohorts, in how many of their sums."""
    noun = "release" if certificate.privacy.colluding is None else "opened sum"
    return f"{count(certificate.rounds, 'round')}, {count(certificate.releases, noun)}"


def missing_words(certificate: Certificate) -> str:
    """Say how many requests have no release; "" if all have."""
    absent, refused = certificate.absent, certificate.refused
    if not absent and not refused:
        return ""
    if certificate.privacy.colluding is None:
        return f"requests without a release: {absent} absent, {refused} refused"
    return f"void, as not all members of a cohort answered or their sum was refused: {absent} absent, {refused} refused"


def percent_down(share: float) -> str:
    """Write a share as a percentage, rounded down to one decimal."""
    return f"{math.floor(1000 * share) / 10}%"


def left_out(number: int, noun: str) -> str:
    """Say how many rows are not shown."""
    return f"and {count(number, f'more {noun}')}" if number else ""


def ends(values: Sequence[T], most: int) -> list[T]:
    """Return the first three and the latest of a long list."""
    return list(values) if len(values) <= most else [*values[:3], *values[3 - most :]]


def thinned(values: Sequence[T], most: int) -> list[T]:
    """Return at most so many of a long list, evenly spaced, with its last."""
    step = max(1, math.ceil(len(values) / most))
    return [*values[:-1:step], values[-1]] if values else []
