"""The card as plain text: of a run folder, part by part; and what a command prints of a certificate it just made."""

from __future__ import annotations

from fedsrc.common.words import neighbour, plain, risk_words
from fedsrc.protocol.certificate import Certificate
from fedsrc.protocol.disclosure import noise_words
from fedsrc.protocol.notices import Revocation
from fedsrc.protocol.registration import Registration
from fedsrc.report import phrases
from fedsrc.report.panels import Takes, panel_table
from fedsrc.report.parts import identity, parts, statistics
from fedsrc.report.pieces import Fact, Part, Table
from fedsrc.report.standing import headline, revoked_sentence, statuses
from fedsrc.report.view import View


def card_text(
    certificate: Certificate,
    *,
    registration: Registration | None = None,
    verify: str = "fedsrc verify run/",
    notes: tuple[str, ...] = (),
    revoked: Revocation | None = None,
    alarm: str = "",
    takes: Takes | None = None,
) -> str:
    """Write the whole card. The registration says how large the noise is in records; `notes` come after the status.
    `alarm`: what stands in its place once its monitor rang. `takes`: what groups without a threshold would take."""
    word, sentence, struck = str(certificate.status), headline(certificate), list[str]()
    if revoked is not None or alarm:
        struck = ["", f"No longer stands: {sentence}"]
        word, sentence = ("ALARM", alarm) if revoked is None else ("REVOKED", revoked_sentence(revoked.model_dump()))
    status = f"Status: {word}  (target risk {certificate.target_risk:g})"
    scale = certificate.privacy.sum_scale or certificate.privacy.scale
    in_integers = f"noise of scale {scale:g} in the release's integers"
    noise = in_integers if registration is None else noise_words(registration)
    carried = [] if alarm and revoked is None else _strongest(certificate, revoked)
    panel = [] if certificate.panel is None else _table(panel_table(certificate, takes, now=not struck))
    head = [[sentence, "", status, *carried, *struck], list(notes), panel, _evidence(certificate)]
    blocks = [
        *head,
        _sites(certificate),
        _privacy(certificate, noise),
        [] if struck else _also(certificate),
        ["Assumptions", *(f"  [{each.how}] {each.what}" for each in certificate.assumptions)],
        ["What this does not say", *(f"  - {line}" for line in certificate.does_not_say)],
        _foot(certificate, verify),
    ]
    return "\n\n".join("\n".join(each) for each in blocks if each)


def view_text(view: View) -> str:
    """Write the card of a run folder, part by part."""
    said = [f"Status: {each.word}: {plain(each.words)}\n{_named(each.said)}".rstrip() for each in statuses(view)]
    claim = f"No longer stands: {view['struck']}" if view["struck"] else view["sentence"]
    found = [part for part in (*parts(view), statistics(view)) if not part.empty]
    return "\n\n".join([*said, _facts(identity(view)), claim, *("\n".join(_part(part)) for part in found)])


def _named(said: tuple[tuple[str, str], ...]) -> str:
    return "\n".join(f"  {name}: {plain(words)}" for name, words in said)


def _facts(facts: tuple[Fact, ...]) -> str:
    wide = max(len(fact.name) for fact in facts)
    said = [(fact, " ".join(filter(None, (plain(fact.words), plain(fact.said))))) for fact in facts]
    return "\n".join(
        f"  {fact.name:<{wide}}  {words}{fact.then} {plain(fact.command)}".rstrip() for fact, words in said
    )


def _part(part: Part) -> list[str]:
    lines = [part.title, *(f"  {line}" for line in part.lines)]
    lines += [_facts(part.facts)] if part.facts else []
    lines += [f"  [{how}] {what}" if how else f"  - {what}" for how, what in part.items]
    for table in part.tables:
        lines += _table(table) if table.rows else []
    return lines


def _table(table: Table) -> list[str]:
    cells = [table.names, *([plain(cell) for cell in row] for row in table.rows)]
    wide = [max(len(row[i]) for row in cells) for i in range(len(table.names))]
    rows = [
        "  " + "  ".join(f"{cell:>{wide[i]}}" if i else f"{cell:<{wide[i]}}" for i, cell in enumerate(row))
        for row in cells
    ]
    said = f" ({plain(table.said)})" if table.said else ""
    return [f"  {table.title}{said}:", *(row.rstrip() for row in rows), *([f"  {table.note}"] if table.note else [])]


def _strongest(certificate: Certificate, notice: Revocation | None) -> list[str]:
    """Name the strongest claim shown, or why nothing stands."""
    words = phrases.strongest_words(certificate)
    if notice is None:
        return [f"Strongest claim shown: {words}"] if words else []
    instead = [f"Superseded by certificate: {notice.superseded_by}"] if notice.superseded_by else []
    return [f"Reason: {plain(notice.reason)}", *instead]


def _evidence(certificate: Certificate) -> list[str]:
    rounds = certificate.evidence
    if not rounds:
        return ["Evidence: no release yet"]
    shown = rounds if len(rounds) <= 8 else (*rounds[:3], None, *rounds[-4:])
    unit = certificate.privacy.unit
    where = "with enough acceptance" if certificate.by_group is None else "with enough acceptance, in any group"
    lines = [f"Evidence by round (smallest risk bound {where})"]
    for row in shown:
        bound = "" if row is None else risk_words(row.risk_upper)
        lines.append("  ..." if row is None else f"  round {row.round:>3}  {row.records:>8,} {unit}s  {bound}")
    progress = phrases.progress_words(certificate)
    return [*lines, *([f"  {progress}"] if progress else [])]


def _sites(certificate: Certificate) -> list[str]:
    unit = certificate.privacy.unit
    used = f"{certificate.records:,} in {phrases.used_words(certificate)}"
    lines = [f"{unit.capitalize()}s: {used} ({phrases.mixture_words(certificate)})"]
    for site in certificate.sites[:20]:
        weight = "" if site.weight is None else f", deployment weight {site.weight:g}"
        charged = f", {site.charged:,} charged as missing" if site.charged else ""
        lines.append(f"  {plain(site.name)}: {site.records:,} ({100 * site.share:.1f}%){weight}{charged}")
    if len(certificate.sites) > 20:
        lines.append(f"  and {len(certificate.sites) - 20} more sites")
    missing = phrases.missing_words(certificate)
    return [*lines, f"  {missing}"] if missing else lines


def _privacy(certificate: Certificate, noise: str) -> list[str]:
    p, together = certificate.privacy, phrases.cohort_words(certificate)
    if p.mechanism == "none":
        return ["Privacy: none (epsilon infinite); exact histograms were released", f"  thresholds: {p.thresholds}"]
    return [
        f"Privacy: every {p.unit} that calibrated has epsilon {p.epsilon:g}, delta {p.delta:g}"
        " (smaller is more private)",
        *([f"  {together}"] if together else []),
        f"  protected against: one {p.unit} {neighbour(p.adjacency, phrases.floor_of(certificate))}",
        f"  {phrases.other_epsilon_words(certificate)}",
        f"  by discrete Gaussian {noise}",
        f"  thresholds: {p.thresholds}",
        f"  for statisticians: {phrases.statistician_words(certificate)}",
    ]


def _also(certificate: Certificate) -> list[str]:
    lines = [
        f"  risk at most {row.target_risk:g}: score >= {row.threshold!r}, acceptance at least"
        f" {phrases.percent_down(row.acceptance_lower)}"
        for row in phrases.also_rows(certificate)
    ]
    head = "Also shown by the same evidence (the risk bound holds for every target at once)"
    return [head, *lines] if lines else []


def _foot(certificate: Certificate, verify: str) -> list[str]:
    renews = phrases.renewal_words(certificate)
    return [
        f"Last calibration {certificate.calibrated or 'none'}; expires {certificate.expires_on or 'never'}",
        f"Registration {certificate.registration}{f', {renews}' if renews else ''}",
        f"Transcript   {certificate.transcript} ({certificate.transcript_lines} lines)",
        f"Check it: {plain(verify)}",
    ]
