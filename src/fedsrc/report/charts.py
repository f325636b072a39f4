"""The card's charts as SVG in the page's own colours: every label has a row or a margin of its own, so none collide.

Only points are drawn: between registered thresholds, and between rounds, nothing is shown. No text from outside enters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

from fedsrc.protocol.certificate import Certificate, PanelMember
from fedsrc.report.phrases import Block, block_of, percent_down, risk_share, so_far, thinned
from fedsrc.report.standing import stands
from fedsrc.report.view import View

ON_PAPER = {"ink": "#1c1e21", "muted": "#565a60", "accent": "#14598f", "grid": "#d9dce0", "paper": "#fff"}  # by day
WIDTH, LEFT, RIGHT, HEIGHT = 360, 48, 62, 92  # of a picture as wide as a phone, and of one panel in it
LETTER = 6.7  # pixels that a letter takes at most, on average
POINTS = 200


class Axis(NamedTuple):
    """Values from `low` to `high`, and the pixels they are drawn between."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


class Point(NamedTuple):
    """A share at a place; whether it passes."""

    place: float
    share: float
    passes: bool


class Panel(NamedTuple):
    """One row of points with a line across: what it shows, and what the line is called in the margin."""

    title: str
    points: Sequence[Point]
    line: float
    line_name: str
    top: float
    stems: bool = False


class Across(NamedTuple):
    """What all panels share: the places, their labels, the name of the axis, and a place that is marked."""

    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    name: str
    marked: tuple[float, str] | None = None


def standalone(svg: str) -> str:
    """Turn a chart of a page into a file of its own, in the page's colours by day."""
    for name, colour in ON_PAPER.items():
        svg = svg.replace(f"var(--{name})", colour)
    head = '<svg xmlns="http://www.w3.org/2000/svg" style="background: #fff; font-family: sans-serif" '
    return svg.replace("<svg ", head, 1)


def threshold_chart(view: View, member: PanelMember | None = None, name: str = "threshold-chart") -> str:
    """Draw risk at most and acceptance at least at each threshold, with target and choice; "" before any bound. With a
    `member`, those of one group."""
    certificate: Certificate = view["certificate"]
    block, target = block_of(view, member), certificate.target_risk
    rows, scale, chosen = block.rows, block.scale, block.chosen
    if not rows:
        return ""
    now = stands(view)
    kept = [row for row in rows if row.threshold == chosen] or []
    kept = sorted({row.threshold: row for row in [*thinned(rows, POINTS), *kept]}.values(), key=lambda r: r.threshold)
    low, high = _room(kept[0].threshold, kept[-1].threshold)
    ends = sorted((scale.value(low), scale.value(high)))
    ticks = [(scale.unit(value), f"{value:g}") for value in _ticks(ends[0], ends[1], 5)]
    marked = None if chosen is None else (chosen, f"chosen: {scale.value(chosen):.4g}")
    risks = [Point(row.threshold, row.risk_upper, row.certified and now) for row in kept]
    shares = [Point(row.threshold, row.acceptance_lower, row.certified and now) for row in kept]
    own = certificate.panel is not None and certificate.panel.floor == "group"
    panels = (
        Panel("Unsupported among accepted, at most", risks, target, "target", min(1.0, 2.5 * target)),
        Panel(f"Share of {'the group' if own else 'traffic'} accepted, at least", shares,
              certificate.claim.min_acceptance, "needed", max(point.share for point in shares), stems=True),
    )  # fmt: skip
    wanted = "lowest" if scale.best > scale.worst else "highest"
    across = Across(low, high, ticks, f"{wanted} score that is accepted", marked)
    return _svg(name, "Risk and acceptance at each threshold", _threshold_words(block, now=now), panels, across)


def round_chart(view: View) -> str:
    """Draw the smallest risk bound after each round against the target; "" before the first."""
    rounds, certificate = thinned(view["evidence"]["rounds"], POINTS), view["certificate"]
    if not rounds:
        return ""
    target, most = certificate.target_risk, max(1, rounds[-1]["records"])
    points = [Point(row["records"], row["risk_upper"], row["risk_upper"] <= target) for row in rounds]
    panel = Panel("Unsupported among accepted, at most", points, target, "target", min(1.0, 2.5 * target))
    if certificate.by_group is not None:
        every = len(certificate.by_group.members)
        points = [Point(row["records"], row["shown"] / every, row["shown"] == every) for row in rounds]
        panel = Panel("Groups for which the target is shown", points, 1.0, "all", 1.0)
    ticks = [(value, f"{value:,.0f}") for value in _ticks(0, most, 4)]
    across = Across(0, 1.04 * most, ticks, f"{certificate.privacy.unit}s used so far")
    words = f"After {len(view['evidence']['rounds'])} rounds: {so_far(view)}; the target is {target:.4g}."
    title = "Risk at most after each round" if certificate.by_group is None else "Groups shown after each round"
    return _svg("round-chart", title, words, (panel,), across)


def _threshold_words(block: Block, *, now: bool) -> str:
    words = f"{len(block.rows)} thresholds"
    words += f"; {sum(row.certified for row in block.rows)} keep the target and accept enough." if now else "."
    for row in block.rows:
        if row.threshold == block.chosen:
            words += f" Chosen: {block.scale.value(row.threshold):.4g}, {risk_share(row.risk_upper)}, acceptance at"
            words += f" least {percent_down(row.acceptance_lower)}."
    return words


def _room(low: float, high: float) -> tuple[float, float]:
    edge = 0.05 * (high - low) or 0.05
    return low - edge, high + edge


def _ticks(low: float, high: float, most: int) -> list[float]:
    """Choose round numbers between two ends, at most so many."""
    raw = (high - low) / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * each for each in (1, 2, 2.5, 5, 10) if power * each >= raw * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(step * k, 12) + 0.0 for k in range(first, last + 1)]


def _svg(name: str, title: str, words: str, panels: Sequence[Panel], across: Across) -> str:
    places, drawn, bottom = Axis(across.low, across.high, LEFT, WIDTH - RIGHT), list[str](), 0.0
    for panel in panels:
        top = bottom + (36 if bottom else 26)
        bottom = top + HEIGHT
        drawn += _panel(panel, places, top, bottom, across.marked)
    for place, label in across.ticks:
        drawn.append(_line(places(place), bottom, places(place), bottom + 4, "muted"))
        drawn.append(_text(places(place), bottom + 16, label, "middle"))
    row = bottom + 32
    if across.marked is not None:
        half = len(across.marked[1]) * LETTER / 2
        drawn.append(
            _text(min(max(places(across.marked[0]), half), WIDTH - half), row, across.marked[1], "middle", bold=True)
        )
        row += 16
    drawn.append(_text((LEFT + WIDTH - RIGHT) / 2, row, across.name, "middle", "muted"))
    notes = _notes(panels)
    drawn += [_text(WIDTH / 2, row + 16 * k, note, "middle", "muted") for k, note in enumerate(notes, start=1)]
    head = f'<svg viewBox="0 0 {WIDTH} {row + 16 * len(notes) + 6:g}" role="img"'
    head += f' aria-labelledby="{name}-title {name}-words" class="chart" font-size="12">'
    about = f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-words">{escape(words)}</desc>'
    return head + about + "".join(drawn) + "</svg>"


def _notes(panels: Sequence[Panel]) -> list[str]:
    """Say what the marks mean, where they differ."""
    above = any(point.share > panel.top * (1 + 1e-9) for panel in panels for point in panel.points)
    mixed = len({point.passes for panel in panels for point in panel.points}) > 1
    return [*(["filled: keeps the target, and enough is accepted"] if mixed and len(panels) > 1 else []),
            *(["triangle: above the picture, or no bound"] if above else [])]  # fmt: skip


def _panel(panel: Panel, places: Axis, top: float, bottom: float, marked: tuple[float, str] | None) -> list[str]:
    ticks = _ticks(0, max(panel.top, panel.line) * 1.1, 4)
    shares = Axis(0, max(ticks[-1], panel.top, panel.line) * 1.06, bottom, top)
    drawn = [_text(0, top - 9, panel.title)]
    for tick in ticks:
        drawn.append(_line(LEFT, shares(tick), WIDTH - RIGHT, shares(tick), "muted" if tick == 0 else "grid"))
        drawn.append(_text(LEFT - 6, shares(tick) + 4, f"{100 * tick:g}%", "end"))
    drawn.append(_line(LEFT, shares(panel.line), WIDTH - RIGHT, shares(panel.line), "ink", "6 3"))
    label = min(max(shares(panel.line), top + 10), bottom - 14)
    for k, words in enumerate((panel.line_name, f"{100 * panel.line:.4g}%")):
        drawn.append(_text(WIDTH - RIGHT + 6, label + 13 * k, words))
    if marked is not None:
        drawn.append(_line(places(marked[0]), top, places(marked[0]), bottom, "ink", "1 3"))
    radius = 3.5 if len(panel.points) <= 60 else 2
    for point in panel.points:
        x, y = places(point.place), shares(min(point.share, panel.top))
        if panel.stems:
            drawn.append(_line(x, bottom, x, y, "accent"))
        if point.share > panel.top * (1 + 1e-9):
            drawn.append(_mark(f'<path d="M{x - 4:.1f} {top + 7:.1f}l4 -7l4 7z"', filled=False))
            continue
        if marked is not None and point.place == marked[0]:
            drawn.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="7" fill="none" stroke="var(--ink)" stroke-width="1.6"/>'
            )
        drawn.append(_mark(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}"', filled=point.passes))
    return drawn


def _mark(start: str, *, filled: bool) -> str:
    return f'{start} fill="var(--{"accent" if filled else "paper"})" stroke="var(--accent)" stroke-width="1.3"/>'


def _line(x: float, y: float, to_x: float, to_y: float, colour: str, dashes: str = "") -> str:
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<path d="M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}" stroke="var(--{colour})"{dashed}/>'


def _text(x: float, y: float, words: str, anchor: str = "start", colour: str = "ink", *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    said = escape(words)
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="var(--{colour})"{weight}>{said}</text>'


CHARTS: dict[str, Callable[[View], str]] = {"thresholds": threshold_chart, "evidence": round_chart}
