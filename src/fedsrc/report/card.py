"""The certificate card as plain text, in a fixed order: sentence, status, evidence, privacy, assumptions, limits."""

from __future__ import annotations

import math
from typing import Any

Body = dict[str, Any]


def card_text(body: Body, *, verify: str = "fedsrc verify run/", notes: tuple[str, ...] = ()) -> str:
    """The whole card. `notes` are printed after the status (what it would have taken, say)."""
    parts = [
        [body["statement"], "", f"Status: {body['status']}  (target risk {body['target_risk']:g})"],
        *([list(notes)] if notes else []),
        _evidence(body),
        _sites(body),
        _privacy(body),
        _also(body),
        ["Assumptions", *(f"  [{each['how']}] {each['what']}" for each in body["assumptions"])],
        ["What this does not say", *(f"  - {line}" for line in body["does_not_say"])],
        _foot(body, verify),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part)


def _evidence(body: Body) -> list[str]:
    rows = body["evidence"]
    if not rows:
        return ["Evidence: no release yet"]
    shown = rows if len(rows) <= 8 else [*rows[:3], None, *rows[-4:]]
    unit = body["privacy"]["unit"]
    lines = ["Evidence by round (smallest risk bound with enough acceptance)"]
    for row in shown:
        lines.append(
            "  ..." if row is None else f"  round {row['round']:>3}  {row['records']:>8,} {unit}s  {_bound(row)}"
        )
    if not body["every_target"]:
        lines.append("  progress only: without declared weights the target alone is claimed")
    return lines


def _bound(row: Body) -> str:
    return "no bound yet" if row["risk_upper"] >= 1 else f"risk at most {row['risk_upper']:.3g}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _sites(body: Body) -> list[str]:
    mixture = (
        "mixture as calibrated" if body["mixture"] == "as calibrated" else f"declared weights, eta {body['eta']:.4g}"
    )
    unit = body["privacy"]["unit"]
    used = f"{body['records']:,} in {_count(body['rounds'], 'round')}, {_count(body['releases'], 'release')}"
    lines = [f"{unit.capitalize()}s: {used} ({mixture})"]
    for site in body["sites"][:20]:
        weight = "" if site["weight"] is None else f", deployment weight {site['weight']:g}"
        charged = f", {site['charged']:,} charged as missing" if site["charged"] else ""
        lines.append(f"  {site['name']}: {site['records']:,} ({100 * site['share']:.1f}%){weight}{charged}")
    if len(body["sites"]) > 20:
        lines.append(f"  and {len(body['sites']) - 20} more sites")
    if body["absent"] or body["refused"]:
        lines.append(f"  requests without a release: {body['absent']} absent, {body['refused']} refused")
    return lines


def _privacy(body: Body) -> list[str]:
    p = body["privacy"]
    if p["mechanism"] == "none":
        return ["Privacy: none (epsilon infinite); exact histograms were released"]
    change = "emptied" if p["adjacency"] == "zero-out" else "replaced"
    return [
        f"Privacy: every {p['unit']} that calibrated has epsilon {p['epsilon']:g}, delta {p['delta']:g}"
        " (smaller is more private)",
        f"  one {p['unit']}'s slot {change}; discrete Gaussian noise, scale {p['scale']:g}, zCDP rho {p['rho']:.4g};"
        f" {p['encoding']} release, {p['basis']} basis",
    ]


def _also(body: Body) -> list[str]:
    rows = body["also_certified"]
    if not rows:
        return []
    shown = [row for row in rows if row["target_risk"] != body["target_risk"]]
    picked = {round(row["target_risk"], 2): row for row in shown if round(row["target_risk"] * 100) % 5 == 0}
    lines = [
        f"  risk at most {row['target_risk']:g}: score >= {row['threshold']!r}, acceptance at least"
        f" {math.floor(1000 * row['acceptance_lower']) / 10}%"
        for row in picked.values()
    ]
    head = "Also shown by the same evidence (the risk bound holds for every target at once)"
    return [head, *lines] if lines else []


def _foot(body: Body, verify: str) -> list[str]:
    return [
        f"Last calibration {body['calibrated'] or 'none'}; expires {body['expires'] or 'never'}",
        f"Registration {body['registration']}",
        f"Transcript   {body['transcript']} ({body['transcript_lines']} lines)",
        f"Check it: {verify}",
    ]
