"""The certificate card as plain text, in a fixed order: sentence, status, evidence, privacy, assumptions, limits."""

from __future__ import annotations

from fedsrc.common.words import ADJACENCY, count, plain, risk_words
from fedsrc.protocol.certificate import Certificate
from fedsrc.protocol.disclosure import noise_words
from fedsrc.protocol.notices import Revocation
from fedsrc.protocol.registration import Registration
from fedsrc.report import phrases
from fedsrc.report.view import View, revoked_sentence


def card_text(
    certificate: Certificate,
    *,
    registration: Registration | None = None,
    verify: str = "fedsrc verify run/",
    notes: tuple[str, ...] = (),
    revoked: Revocation | None = None,
) -> str:
    """Write the whole card. The registration says how large the noise is in records; `notes` come after the status."""
    notice = None if revoked is None else revoked.model_dump()
    sentence = certificate.statement if notice is None else revoked_sentence(notice)
    status = f"Status: {certificate.status if notice is None else 'REVOKED'}  (target risk {certificate.target_risk:g})"
    scale = certificate.privacy.sum_scale or certificate.privacy.scale
    in_integers = f"noise of scale {scale:g} in the release's integers"
    noise = in_integers if registration is None else noise_words(registration)
    head = [[sentence, "", status, *_strongest(certificate, notice)], list(notes), _evidence(certificate)]
    return _whole(head, certificate, [], noise, notice, verify)


def view_text(view: View) -> str:
    """Write the card of a run folder: the same, with the evidence's line, thresholds, and where the run stands."""
    certificate: Certificate = view["certificate"]
    late, notice = ", EXPIRED" if view["check"]["expired"] else "", view["check"]["revoked"]
    status = f"Status: {view['status']}{late}  (target risk {certificate.target_risk:g}): {view['meaning']}"
    top = [view["sentence"], "", status, *_strongest(certificate, notice), *_state(view)]
    head = [top, _rounds(view), _thresholds(view)]
    progress = _progress(view) if certificate.status == "OPEN" else []
    return _whole(head, certificate, progress, view["noise"], notice, view["verify"])


def _whole(
    head: list[list[str]], certificate: Certificate, progress: list[str], noise: str, notice: View | None, verify: str
) -> str:
    parts = [
        *head,
        _sites(certificate),
        progress,
        _privacy(certificate, noise),
        _also(certificate) if notice is None else [],
        ["Assumptions", *(f"  [{each.how}] {each.what}" for each in certificate.assumptions)],
        ["What this does not say", *(f"  - {line}" for line in certificate.does_not_say)],
        _foot(certificate, verify),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part)


def _strongest(certificate: Certificate, notice: View | None) -> list[str]:
    """Name the strongest claim shown, or why nothing stands."""
    words = phrases.strongest_words(certificate)
    if notice is None:
        return [f"Strongest claim shown: {words}"] if words else []
    return [f"{name}: {plain(value)}" for name, value in phrases.revoked_words(notice)]


def _state(view: View) -> list[str]:
    lines = []
    if view["monitor"]:
        lines.append(f"Monitor: {view['monitor']['state']}  {plain(view['monitor']['words'])}".rstrip())
    if view["certificate"].status != "OPEN":
        lines.append(f"{'Certificate' if view['check']['certificate'] else 'No certificate'}: {view['check']['words']}")
    if view["outlook"]:
        lines.append(f"Estimate: {view['outlook']['words']}")
    return lines


def _rounds(view: View) -> list[str]:
    found, evidence, unit = phrases.evidence_rows(view), view["evidence"], view["certificate"].privacy.unit
    if not found.rows:
        return ["Evidence: no round has closed yet"]
    wealth, line = evidence["measure"] == "log-wealth", phrases.value_words(evidence, evidence["line"])
    what = "wealth of the bets" if wealth else "bound on the contrast"
    head = f"Evidence by round at score >= {evidence['threshold']!r} ({what}, reached at {line})"
    lines = [
        f"  round {row['round']:>3}  {row['records']:>8,} {unit}s  {row['shown']:>8}"
        f"  {'reached' if row['reached'] else 'not reached':<11}  {row['risk']}"
        for row in found.rows
    ]
    notes = [
        found.left_out,
        f"the line is {phrases.line_words(evidence)}" if wealth else "",
        phrases.progress_words(view["certificate"]),
    ]
    return [head, *lines, *(f"  {note}" for note in notes if note)]


def _thresholds(view: View) -> list[str]:
    found = phrases.threshold_rows(view)
    if not found.rows:
        return []
    mark = {True: "CERTIFIED", False: ""}
    lines = [
        f"  {row['threshold']:>8.4g}  {row['contrast_upper']:>+8.3f}"
        f"  {phrases.percent_down(row['acceptance_lower']):>10}"
        f"  {mark[row['chosen']] or ('passes' if row['certified'] else '')}".rstrip()
        for row in found.rows
    ]
    head = "Thresholds: contrast at most, acceptance at least (passes: contrast <= 0 is shown with enough acceptance)"
    return [head, *lines, *([f"  {found.left_out}"] if found.left_out else [])]


def _progress(view: View) -> list[str]:
    now = view["progress"]
    at = f"; round {now['open_round']} is open, {now['answered']} answered, {now['waiting']} waiting"
    lines = [
        f"Rounds: {now['rounds']} closed of at most {now['most_rounds']}{at if now['open_round'] else ''}",
        f"  {now['absent']} absent, {now['refused']} refused, {count(now['not_there'], 'site')} not there yet",
        f"  {phrases.left_words(view)}",
    ]
    if now["turned_away"]:
        lines += [
            f"  turned away {count(now['turned_away'], 'time')}, lately",
            *(f"    {plain(x)}" for x in now["latest"]),
        ]
    return lines


def _evidence(certificate: Certificate) -> list[str]:
    rounds = certificate.evidence
    if not rounds:
        return ["Evidence: no release yet"]
    shown = rounds if len(rounds) <= 8 else (*rounds[:3], None, *rounds[-4:])
    unit = certificate.privacy.unit
    lines = ["Evidence by round (smallest risk bound with enough acceptance)"]
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
        f"  protected against: one {p.unit} {ADJACENCY[p.adjacency]}",
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
