"""What a card says of several claims: of every group, of one threshold in all groups, or of the picked score."""

from __future__ import annotations

from collections.abc import Mapping

from fedsrc.common.words import rounded_up
from fedsrc.protocol.certificate import Certificate, Panel, PanelMember
from fedsrc.report import phrases
from fedsrc.report.pieces import Fact, Part, Table
from fedsrc.report.standing import stands
from fedsrc.report.view import View

CHARTED = 20  # groups whose thresholds are shown, each folded
ROWS = 120  # thresholds that are shown of all groups together
BASE = {"traffic": "all traffic", "group": "the group's own traffic"}
TAKES = "What it would take, counted in all traffic, is an estimate at the rates seen, for each by itself."
Takes = Mapping[str, str]  # what a group would take, in short


def identity(certificate: Certificate) -> tuple[Fact, ...]:
    """Say which groups there are, and where tables say them."""
    panel = certificate.panel
    if panel is None or panel.kind != "groups":
        return ()
    return (Fact("group-column", "Groups", f"{len(panel.members)}, listed beforehand; in column", said=panel.column),)


def parts(view: View) -> tuple[Part, ...]:
    """Return the part that a panel adds: its groups, or its scores."""
    certificate: Certificate = view["certificate"]
    if certificate.panel is None:
        return ()
    takes = {name: each["short"] for name, each in view["outlooks"].items()}
    found = panel_table(certificate, takes, now=stands(view))
    if certificate.panel.kind == "scores":
        several = len(certificate.panel.members) > 1
        rule = "All were registered beforehand. The one that accepts most is picked, and the bounds allow for the pick."
        rule = rule if several else "It was registered beforehand, with its checkpoints."
        return (Part("scores", "Scores" if several else "Score", (rule,), tables=(found,)),)
    return (Part("groups", "Groups", (_rule(certificate, certificate.panel),), tables=(found,)),)


def _rule(certificate: Certificate, panel: Panel) -> str:
    """Say what is claimed of groups, and what acceptance is a share of."""
    if panel.claim == "all":
        return f"One threshold is for all of these {len(panel.members)} groups. Of other answers nothing is said."
    return (
        "Every group has a status and a threshold of its own. Of its accepted answers at most so many are unsupported;"
        f" acceptance is a share of {BASE[panel.floor]}. The target is {certificate.target_risk:g}, and at least"
        f" {100 * certificate.claim.min_acceptance:g}% must be accepted. All of it holds together."
    )


def panel_table(certificate: Certificate, takes: Takes | None, *, now: bool) -> Table:
    """List the groups or scores, with the status of each in words; `now`: what was certified stands."""
    panel = certificate.panel
    assert panel is not None  # whoever asks has such a certificate
    if panel.kind == "scores":
        return _scores(certificate, panel, now=now)
    if panel.claim == "all":
        names = [[each.name] for each in panel.members]
        return Table("group-numbers", "The listed groups", ["Group"], names, outside=(0,))
    told = takes is not None and (certificate.status != "OPEN" or bool(takes))
    waits = told and any(each.status != "CERTIFIED" for each in panel.members)
    rows = [
        [each.name, _status(each, now=now), *_bounds(certificate, each, now=now),
         *([_takes(each, takes or {})] if waits else [])]
        for each in panel.members
    ]  # fmt: skip
    side = phrases.side_words(certificate.claim.scale)
    heads = ["Group", "Status", f"Scores {side}", "Risk at most", "Acceptance at least", *(["To certify"] * waits)]
    return Table("group-numbers", "Where each group stands", heads, rows, TAKES if waits else "", (0,))


def _status(member: PanelMember, *, now: bool) -> str:
    if member.status == "CERTIFIED" and not now:
        return "no longer stands"
    shown = member.status == "OPEN" and any(row.certified for row in member.thresholds)
    return f"{member.status}{', shown so far' if shown else ''}"


def _takes(member: PanelMember, takes: Takes) -> str:
    if member.status == "CERTIFIED" or any(row.certified for row in member.thresholds):
        return "-"
    return takes.get(member.name, "no estimate")


def _bounds(certificate: Certificate, member: PanelMember, *, now: bool) -> list[str]:
    """Write a threshold on its own scale, with its bounds."""
    if not now or member.threshold is None or member.risk_upper is None or member.acceptance_lower is None:
        return ["-", "-", "-"]
    value = (member.scale or certificate.claim.scale).value(member.threshold)
    return [f"{value:.4g}", rounded_up(member.risk_upper), phrases.percent_down(member.acceptance_lower)]


def _scores(certificate: Certificate, panel: Panel, *, now: bool) -> Table:
    rows = []
    for each in panel.members:
        passes = each.threshold is not None and now
        word = "PICKED" if each.name == panel.picked and now else "passes" if passes else "-"
        from_, *bounds = _bounds(certificate, each, now=now)
        from_ = from_ if from_ == "-" else f"{phrases.side_words(each.scale or certificate.claim.scale)} {from_}"
        rows.append([each.name, word, from_, *bounds, points_words(each)])
    chosen = next((i for i, each in enumerate(panel.members) if each.name == panel.picked and now), None)
    names = ["Score", "Result", "Accepted from", "Risk at most", "Acceptance at least", "Read at"]
    title = "The registered scores" if len(rows) > 1 else "The registered score"
    return Table("score-numbers", title, names, rows, "", (0,), chosen)


def points_words(member: PanelMember) -> str:
    """Say when a score is read: at its checkpoints, or of the whole answer."""
    points = ", ".join(map(str, member.checkpoints))
    return f"{points} tokens, and the end" if points else "the whole answer"


def about(certificate: Certificate) -> str:
    """Say of what the bounds of a panel's thresholds are; "" where there is one claim."""
    panel = certificate.panel
    if panel is None:
        return ""
    if panel.kind == "scores" and len(panel.members) == 1:
        return ""
    if panel.kind == "scores":
        return f"They are of the score that is {'picked' if panel.picked else 'closest'}. "
    of = "all traffic, over these groups" if panel.floor == "traffic" else "each group's own traffic"
    return f"The risk is bounded in every group; acceptance is a share of {of}. "


def slowest(certificate: Certificate) -> str:
    """Say of what an estimate is, where one threshold is for all groups; "" otherwise."""
    every = certificate.panel is not None and certificate.panel.claim == "all"
    return "its slowest group by itself: " if every else ""


def numbers(
    view: View, block: phrases.Block, id: str, *, said: str = "", most: int = phrases.THRESHOLDS
) -> Table:  # fmt: skip
    """List what is known of each threshold."""
    found = phrases.threshold_rows(block, most)
    chosen = next((i for i, row in enumerate(found.rows) if row["chosen"]), None)
    cells = [
        [f"{block.scale.value(row['threshold']):.4g}",
         "no bound" if row["risk_upper"] >= 1 else rounded_up(row["risk_upper"]),
         phrases.percent_down(row["acceptance_lower"]),
         "CERTIFIED" if row["chosen"] else "passes" if row["certified"] and stands(view) else "-"]
        for row in found.rows
    ]  # fmt: skip
    names = [f"Scores {phrases.side_words(block.scale)}", "Risk at most", "Acceptance at least", "Result"]
    title = "Thresholds of the group" if said else "The numbers of the chart"
    return Table(id, title, names, cells, found.left_out, chosen=chosen, said=said)


def charted(view: View) -> Part:
    """Return what is known of each group's thresholds: folded, each with its chart."""
    members, title = view["certificate"].by_group.members, "Risk and acceptance at each threshold, by group"
    most = max(3, ROWS // len(members))
    tables = tuple(
        numbers(view, phrases.block_of(view, each), f"group-{i}", said=each.name, most=most)
        for i, each in enumerate(members[:CHARTED], start=1)
    )
    if not any(each.rows for each in tables):
        return Part("thresholds", title, ("No bound yet.",))
    known = "is known" if stands(view) else "was known at the last calibration"
    more = f" {phrases.left_out(len(members) - CHARTED, 'group')}: the JSON has them." if len(members) > CHARTED else ""
    return Part("thresholds", title, (f"What {known} of each group's thresholds.{more}",), tables=tables)


def evidence(view: View) -> tuple[Table, ...]:
    """List where the evidence of each group stands, at one threshold of it."""
    said, certificate = view["evidence"], view["certificate"]
    bets = said["measure"] == "log-wealth"
    rows = []
    for each in said["groups"]:
        row = certificate.by_group.member(each["name"]).thresholds[each["row"]]
        wealth = [phrases.wealth_words(each["value"]), phrases.wealth_words(each["line"])] if bets else []
        there = "reached" if phrases.reached({**said, "line": each["line"]}, each["value"]) else "not reached"
        rows.append([
            each["name"], repr(each["threshold"]), *wealth, there,
            f"{row.contrast_upper:+.3f}", f"{row.sampling_width:.3g}", f"{row.privacy_width:.3g}",
        ])  # fmt: skip
    wealth = ["Wealth of bets", "Line"] if bets else []
    names = ["Group", "Score at least", *wealth, "Evidence", "Contrast at most", "Sampling", "Noise"]
    return (Table("evidence", "Evidence of each group, at one threshold", names, rows, outside=(0,)),)
