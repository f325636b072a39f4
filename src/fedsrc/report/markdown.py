"""The card as Markdown, for a ticket or a repository. Text from outside is written so that no Markdown can be in it."""

from __future__ import annotations

import re

from fedsrc.common.words import ADJACENCY, count, plain
from fedsrc.protocol.certificate import Certificate
from fedsrc.report import phrases
from fedsrc.report.view import View

SPECIAL = re.compile(r"(?<![a-zA-Z0-9])-|-(?![a-zA-Z0-9])|[!-,./:-@\[-`{-~]")


def card_markdown(view: View) -> str:
    """Write the whole card."""
    certificate: Certificate = view["certificate"]
    unit = certificate.privacy.unit
    late = ", EXPIRED" if view["check"]["expired"] else ""
    parts = [
        [f"# {view['sentence']}"],
        [f"**{view['status']}{late}** (target risk {certificate.target_risk:g}): {view['meaning']}."],
        *_notes(view),
        *_evidence(view, unit),
        *_thresholds(view),
        _sites(view, unit),
        *([] if view["check"]["revoked"] else _also(certificate)),
        ["## Assumptions", "", *(f"- *{each.how}*: {each.what}" for each in certificate.assumptions)],
        ["## What this does not say", "", *(f"- {line}" for line in certificate.does_not_say)],
        _registered(certificate),
        _check(view),
    ]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def inert(text: str) -> str:
    """Write every mark of outside text that Markdown could read as a character reference."""
    return SPECIAL.sub(lambda found: f"&#{ord(found[0])};", plain(text))


def _table(names: list[str], cells: list[list[str]], note: str = "") -> list[str]:
    lines = [f"| {' | '.join(row)} |" for row in (names, ["---"] * len(names), *cells)]
    return [*lines, "", note] if note else lines


def _notes(view: View) -> list[list[str]]:
    notes = [[f"**{name}:** {inert(value)}"] for name, value in phrases.revoked_words(view["check"]["revoked"])]
    if (best := phrases.strongest_words(view["certificate"])) and not view["check"]["revoked"]:
        notes.append([f"Strongest claim shown: {best}."])
    if view["monitor"]:
        notes.append([f"**Monitor: {view['monitor']['state']}** {inert(view['monitor']['words'])}"])
    if view["certificate"].status != "OPEN":
        notes.append(
            [f"{'Certificate' if view['check']['certificate'] else 'No certificate'}: {view['check']['words']}."]
        )
    if view["outlook"]:
        notes.append([f"Estimate: {view['outlook']['words']}."])
    if view["certificate"].status == "OPEN":
        now = view["progress"]
        notes.append([f"Round {now['rounds']} of at most {now['most_rounds']} closed; {now['waiting']} requests wait."])
        notes.append([f"{phrases.left_words(view)}.".capitalize()])
    return notes


def _evidence(view: View, unit: str) -> list[list[str]]:
    found = phrases.evidence_rows(view)
    if not found.rows:
        return [["## Evidence by round", "", "No round has closed yet."]]
    evidence = view["evidence"]
    what = "wealth" if evidence["measure"] == "log-wealth" else "contrast"
    line = phrases.value_words(evidence, evidence["line"])
    cells = [
        [str(row["round"]), f"{row['records']:,}", f"{row['shown']} ({'reached' if row['reached'] else 'not reached'})",
         row["risk"]]
        for row in found.rows
    ]  # fmt: skip
    names = ["round", f"{unit}s", f"{what}, line {line}", "smallest risk bound"]
    made = f" The line is {phrases.line_words(evidence)}." if phrases.line_words(evidence) else ""
    head = ["## Evidence by round", "", f"At the threshold {evidence['threshold']!r}.{made}", ""]
    progress = phrases.progress_words(view["certificate"])
    return [[*head, *_table(names, cells, found.left_out), *(["", progress] if progress else [])]]


def _thresholds(view: View) -> list[list[str]]:
    found = phrases.threshold_rows(view)
    if not found.rows:
        return []
    cells = [
        [repr(row["threshold"]), f"{row['contrast_upper']:+.3f}", phrases.percent_down(row["acceptance_lower"]),
         "**CERTIFIED**" if row["chosen"] else "passes" if row["certified"] else ""]
        for row in found.rows
    ]  # fmt: skip
    names = ["threshold", "contrast at most", "acceptance at least", "result"]
    head = ["## Contrast and acceptance per threshold", ""]
    return [[*head, *_table(names, cells, found.left_out)]]


def _sites(view: View, unit: str) -> list[str]:
    certificate: Certificate = view["certificate"]
    privacy, found = certificate.privacy, phrases.site_rows(view)
    used = f"{count(certificate.records, unit)} in {phrases.used_words(certificate)}."
    loss = f"epsilon {privacy.epsilon:g}, delta {privacy.delta:g} (smaller is more private), by {view['noise']}"
    against = ""
    if privacy.mechanism == "none":
        loss = "epsilon infinite: no privacy"
    else:
        beside = phrases.other_epsilon_words(certificate)
        together = phrases.cohort_words(certificate)
        loss += f"; {together}" if together else ""
        against = f" It protects against one {unit} {ADJACENCY[privacy.adjacency]}; {beside}."
    names = ["site", "used", "share", "asked for", "left", "absent", "refused"]
    if privacy.colluding is not None:
        names[-2:] = ["void, absent", "void, refused"]
    cells = [
        [inert(row["name"]), f"{row['records']:,}", f"{100 * row['share']:.1f}%", f"{row['asked']:,}",
         phrases.left_at(row), f"{row['absent']:,}", f"{row['refused']:,}"]
        for row in found.rows
    ]  # fmt: skip
    head = [
        f"## {unit.capitalize()}s and privacy per site",
        "",
        f"{used} Every {unit} asked for has {loss}.{against} Thresholds: {privacy.thresholds}.",
        "",
    ]
    return [*head, *_table(names, cells, found.left_out)]


def _also(certificate: Certificate) -> list[list[str]]:
    cells = [
        [f"{r.target_risk:g}", repr(r.threshold), phrases.percent_down(r.acceptance_lower)]
        for r in phrases.also_rows(certificate)
    ]
    if not cells:
        return []
    head = ["## What else would have been certified", "", "The risk bound holds for every target at once.", ""]
    return [[*head, *_table(["risk at most", "score at least", "acceptance at least"], cells)]]


def _registered(certificate: Certificate) -> list[str]:
    claim = certificate.claim
    return [
        "## What was registered", "",
        f"- Score: {inert(claim.score)}", f"- Loss: {inert(claim.loss)}",
        f"- Population: {inert(claim.population)}",
        f"- Method: {certificate.method}, failure probability {certificate.failure_probability:g}",
    ]  # fmt: skip


def _check(view: View) -> list[str]:
    certificate: Certificate = view["certificate"]
    return [
        "## Check it yourself", "",
        f"- Last calibration {certificate.calibrated or 'none'}; expires {certificate.expires_on or 'never'}",
        f"- Registration {certificate.registration}",
        *([f"- {phrases.renewal_words(certificate).capitalize()}"] if phrases.renewal_words(certificate) else []),
        f"- Transcript {certificate.transcript} ({count(certificate.transcript_lines, 'line')})",
        *([f"- Signed by {view['check']['key']}"] if view["check"]["key"] else []),
        *([f"- fedsrc {view['fedsrc']}"] if view["fedsrc"] else []),
        "", "The command:", "", f"    {plain(view['verify'])}",
    ]  # fmt: skip
