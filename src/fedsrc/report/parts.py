"""What a card says, part by part and in order, with an id for every answer: each form of the card shows these."""

from __future__ import annotations

from fedsrc.common.words import count, moment, neighbour
from fedsrc.protocol.certificate import Certificate
from fedsrc.report import panels, phrases
from fedsrc.report.pieces import Fact, Part, Table
from fedsrc.report.standing import stands
from fedsrc.report.view import View


def identity(view: View) -> tuple[Fact, ...]:
    """Whose certificate it is, of what, until when, and whether its signer is known."""
    certificate: Certificate = view["certificate"]
    claim, check, (score, _) = certificate.claim, view["check"], phrases.score_of(certificate)
    whose = "the key is one you named" if check["trusted"] else "not compared with a key you trust: ask the issuer"
    return (
        _stated("system", "System", claim.system),
        Fact("score", "Score", said=score, then=f"; {phrases.scale_words(view)}"),
        *([Fact("column", "Column", said=claim.column)] if claim.column != claim.score == score else []),
        *panels.identity(certificate),
        Fact("loss", "What counts as bad", said=claim.loss),
        Fact("population", "Population", said=claim.population),
        _stated("issuer", "Issuer", claim.issuer),
        _stated("contact", "Contact", claim.contact),
        Fact("calibrated", "Last calibration", moment(certificate.calibrated) or "none yet"),
        Fact("valid-until", "Valid until", moment(certificate.expires_on) or "not yet known"),
        Fact("number", "Certificate", *(_digest(check["number"]) if check["number"] else ("none yet",))),
        *([Fact("signed-by", "Signed by", command=check["key"]), Fact("trust", "Is it their key?", whose)]
          if check["key"] else []),
    )  # fmt: skip


def _stated(id: str, name: str, text: str) -> Fact:
    if text:
        return Fact(id, name, said=text)
    return Fact(id, name, "not stated; its issuer can, with", command=f"--claim {id}=TEXT")


def _digest(number: str) -> tuple[str, str, str, str]:
    return f"{number[:16]}; in full", "", "", number


def parts(view: View) -> tuple[Part, ...]:
    """Return the parts that everybody reads."""
    certificate: Certificate = view["certificate"]
    return (
        _progress(view), *panels.parts(view), _thresholds(view), _plain(view),
        Part("assumptions", "What it rests on", items=tuple((each.how, each.what) for each in certificate.assumptions)),
        Part("limits", "What it does not say", items=tuple(("", line) for line in certificate.does_not_say)),
        _also(view), _sites(view), _check(view),
    )  # fmt: skip


def _progress(view: View) -> Part:
    now = view["progress"]
    if view["certificate"].status != "OPEN":
        return Part("progress", "Where the run stands")
    asked = f"; round {now['open_round']} is open: {now['answered']} answered, {now['waiting']} waiting"
    missing = "nothing but what is registered" if now["reached"] else "no estimate yet"
    missing = "see the groups" if view["outlooks"] else missing
    if view["outlook"] and not now["reached"]:
        missing = f"{view['outlook']['words']}; an estimate"
    away = f", {count(now['not_there'], 'site')} not there yet" if now["not_there"] else ""
    target = f"; the target is {view['certificate'].target_risk:g}"
    facts = [
        Fact(
            "rounds",
            "Rounds",
            f"{now['rounds']} closed of at most {now['most_rounds']}{asked if now['open_round'] else ''}",
        ),
        Fact("so-far", "Shown so far", phrases.so_far(view) + target),
        Fact("missing", "Still missing", f"{missing}; {phrases.left_words(view)}"),
        Fact("dropouts", "Dropouts", f"{now['absent']} absent, {now['refused']} refused{away}"),
        Fact("written", "Last line written", moment(now["changed"] or "") or "none"),
    ]
    if now["turned_away"]:
        facts.insert(4, Fact("turned-away", "Turned away", f"{count(now['turned_away'], 'time')}, lately:",
                             said="; ".join(now["latest"])))  # fmt: skip
    return Part("progress", "Where the run stands", facts=tuple(facts))


def _thresholds(view: View) -> Part:
    certificate: Certificate = view["certificate"]
    block, claim = phrases.block_of(view), certificate.claim
    if certificate.by_group is not None:
        return panels.charted(view)
    if not block.rows:
        return Part("thresholds", "Risk and acceptance", ("No bound yet.",))
    known = "is known" if stands(view) else "was known at the last calibration"
    about = (
        f"What {known} of each threshold: of the accepted answers at most so many are unsupported, and at least so many"
        f" answers are accepted. {panels.about(certificate)}The target is {certificate.target_risk:g}, and at least"
        f" {100 * claim.min_acceptance:g}% must be accepted. Between these thresholds nothing is shown."
    )
    table = panels.numbers(view, block, "threshold-numbers")
    return Part("thresholds", "Risk and acceptance at each threshold", (about,), tables=(table,))


def _plain(view: View) -> Part:
    certificate: Certificate = view["certificate"]
    use, command = phrases.use_words(view)
    facts = [
        Fact("how-sure", "How sure is it?", phrases.sure_words(certificate)),
        Fact("data", "On whose data?", phrases.data_words(certificate)),
        Fact("stopped", "Why did it stop?", phrases.stopped_words(view)),
        Fact("unused", "Unused", phrases.unused_words(view)),
        Fact("tries", "Which try is it?", phrases.tries_words(certificate)),
        Fact("strongest", "Strongest claim carried", phrases.carried_words(view)),
        Fact("use", "How is it used?", use, command=command),
        _if_wrong(view),
        Fact("privacy", "Privacy", _privacy(view)),
    ]
    if view["outlook"] and certificate.status == "ABSTAIN":
        words = f"{panels.slowest(certificate)}{view['outlook']['words']}. An estimate from simulated runs."
        facts.insert(3, Fact("to-certify", "To certify", words))
    return Part("plain", "In plain words", facts=tuple(facts))


def _if_wrong(view: View) -> Fact:
    watched, contact = view["monitor"], view["certificate"].claim.contact
    words = "A monitor of fresh labelled answers rings when the risk has risen (`fedsrc monitor`); none was named here."
    if watched is not None:
        words = f"A monitor watches fresh answers; it says: {watched['state']}."
    words += " The issuer can revoke the certificate; ask whether that was done, as nobody is told by itself."
    words += " Tell the issuer:" if contact else " No contact is stated."
    return Fact("if-wrong", "What if it is wrong?", words, said=contact)


def _privacy(view: View) -> str:
    certificate: Certificate = view["certificate"]
    p = certificate.privacy
    if p.mechanism == "none":
        return f"None (epsilon infinite); exact histograms were released. Thresholds: {p.thresholds}."
    together = phrases.cohort_words(certificate)
    return (
        f"Every {p.unit} asked for has epsilon {p.epsilon:g}, delta {p.delta:g} (smaller is more private)"
        f"{f'; {together}' if together else ''}. It protects against one {p.unit}"
        f" {neighbour(p.adjacency, phrases.floor_of(certificate))}. Each is released once. Thresholds: {p.thresholds}."
    )


def _also(view: View) -> Part:
    certificate: Certificate = view["certificate"]
    if not stands(view) or certificate.status == "OPEN":
        return Part("also", "Other targets")
    scale = certificate.claim.scale
    cells = [
        [f"{row.target_risk:g}", f"{scale.value(row.threshold):.6g}", phrases.percent_down(row.acceptance_lower)]
        for row in phrases.also_rows(certificate)
    ]
    names = ["Risk at most", f"Scores {phrases.side_words(scale)}", "Acceptance at least"]
    table = Table("other-targets", "Other targets", names, cells)
    about = f"The same evidence also shows these, and a gate may promise any of them ({phrases.TARGET}):"
    return Part("also", "Other targets", (about,) if cells else (), tables=(table,))


def _sites(view: View) -> Part:
    certificate: Certificate = view["certificate"]
    found, names = phrases.site_rows(view), ["Site", "Used", "Share", "State"]
    reasons = any(row["reason"] for row in found.rows)
    cells = [
        [row["name"], f"{row['records']:,}", phrases.share_at(row), phrases.state_at(row),
         *([(row["reason"] or "")[:200]] if reasons else [])]
        for row in found.rows
    ]  # fmt: skip
    about = f"{phrases.mixture_words(certificate)}. {phrases.missing_words(certificate)}".strip()
    note = f"{found.left_out}; the JSON has them all" if found.left_out else ""
    outside = (0, len(names)) if reasons else (0,)
    table = Table("site-numbers", "Sites", [*names, *(["Last reason"] if reasons else [])], cells, note, outside)
    return Part("sites", "Sites", (f"{about[:1].upper()}{about[1:]}",), tables=(table,))


def _check(view: View) -> Part:
    certificate: Certificate = view["certificate"]
    renews = phrases.renewal_words(certificate)
    return Part("check", "Check it yourself", facts=(
        Fact("checked", "Checked here", f"{view['check']['words']}."),
        Fact("registration", "Registration", command=certificate.registration),
        *([Fact("renews", "Renewal", renews)] if renews else []),
        Fact("transcript", "Transcript", count(certificate.transcript_lines, "line"), command=certificate.transcript),
        Fact("verify", "Check again", command=view["verify"]),
        *([Fact("version", "Made by", f"fedsrc {view['fedsrc']}")] if view["fedsrc"] else []),
    ))  # fmt: skip


def statistics(view: View) -> Part:
    """Return the part for statisticians: method, bets or contrasts, noise, encodings."""
    certificate: Certificate = view["certificate"]
    method = f"{certificate.method}, failure probability {certificate.failure_probability:g}"
    facts = [Fact("method", "Method", method)]
    if certificate.privacy.mechanism != "none":
        facts += [
            Fact("noise", "Noise", f"discrete Gaussian {view['noise']}; {phrases.other_epsilon_words(certificate)}"),
            Fact("release", "Release", phrases.statistician_words(certificate)),
        ]
    if line := phrases.line_words(view["evidence"]):
        facts.append(Fact("line", "Line of the bets", line))
    if progress := phrases.progress_words(certificate):
        facts.append(Fact("rounds-say", "Rounds", progress))
    return Part("statistics", "For statisticians", facts=tuple(facts), tables=_evidence(view))


def _evidence(view: View) -> tuple[Table, ...]:
    evidence, certificate = view["evidence"], view["certificate"]
    if certificate.by_group is not None:
        return panels.evidence(view)
    found, thresholds = phrases.evidence_rows(view), phrases.threshold_rows(phrases.block_of(view))
    if not found.rows:
        return ()
    bets = evidence["measure"] == "log-wealth"
    line = phrases.value_words(evidence, evidence["line"])
    rounds = [
        [
            str(row["round"]),
            f"{row['records']:,}",
            row["shown"],
            "reached" if row["reached"] else "not reached",
            row["risk"],
        ]
        for row in found.rows
    ]
    contrasts = [
        [repr(row["threshold"]), f"{row['contrast_upper']:+.3f}", f"{row['sampling_width']:.3g}",
         f"{row['privacy_width']:.3g}", *([phrases.wealth_words(row["log_wealth"])] if bets else [])]
        for row in thresholds.rows
    ]  # fmt: skip
    units = f"{certificate.privacy.unit.capitalize()}s"
    return (
        Table("evidence", f"Evidence by round at score >= {evidence['threshold']!r}",
              ["Round", units, "Wealth of bets" if bets else "Contrast at most", f"Line {line}", "Smallest risk bound"],
              rounds, found.left_out, said=evidence["score"] or ""),
        Table("contrasts", "Contrast at each threshold (at most 0 keeps the target)",
              ["Score at least", "Contrast at most", "Sampling", "Noise", *(["Wealth"] if bets else [])],
              contrasts, thresholds.left_out, said=evidence["score"] or ""),
    )  # fmt: skip
