"""The card's charts, drawn by matplotlib and made fit for a page: crisp SVG in the page's own colours.

No text from outside enters a chart. Matplotlib is an extra: without it a card shows the charts' tables instead.
"""

from __future__ import annotations

import io
import math
import re
import threading
import xml.etree.ElementTree as ET
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from fedsrc.protocol.certificate import Certificate
from fedsrc.report.phrases import first_reached, reached, stays_reached, thinned, value_words
from fedsrc.report.view import View

INK, MUTED, ACCENT, GRID = "#010101", "#020202", "#030303", "#040404"
VARIABLES = {INK: "var(--ink)", MUTED: "var(--muted)", ACCENT: "var(--accent)", GRID: "var(--grid)"}
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none", "font.size": 10, "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": MUTED,
    "xtick.color": INK, "ytick.color": INK, "grid.color": GRID, "grid.linewidth": 0.6, "axes.grid": True,
    "axes.axisbelow": True, "axes.spines.top": False, "axes.spines.right": False, "lines.linewidth": 1.4,
    "xtick.major.size": 2.5, "ytick.major.size": 2.5,
}  # fmt: skip
ON_PAPER = {"ink": "#1c1e21", "muted": "#565a60", "accent": "#14598f", "grid": "#d9dce0"}  # as in card.css, by day
POINTS = 200
_drawing = threading.Lock()  # matplotlib's settings are global


def can_draw() -> bool:
    return find_spec("matplotlib") is not None


def standalone(svg: str) -> str:
    """Turn a chart of a page into a file of its own, in the page's colours by day."""
    for name, colour in ON_PAPER.items():
        svg = svg.replace(f"var(--{name})", colour)
    head = '<svg xmlns="http://www.w3.org/2000/svg" style="background: #fff; font-family: sans-serif" '
    return svg.replace("<svg ", head, 1)


def evidence_chart(view: View) -> str:
    """Draw the evidence by round against its line; "" when there is none yet."""
    evidence = view["evidence"]
    if not evidence["rounds"]:
        return ""
    rows = thinned(evidence["rounds"], POINTS)
    unit = view["certificate"].privacy.unit
    return _evidence(
        evidence["measure"], float(evidence["line"]), unit,
        tuple((row["records"], float(row["value"])) for row in rows), _evidence_words(view),
    )  # fmt: skip


def _evidence_words(view: View) -> str:
    evidence, first = view["evidence"], first_reached(view)
    values = [row["value"] for row in evidence["rounds"]]
    end = f"reached in round {first}" if math.isfinite(first) else "not reached"
    if math.isfinite(first) and not (stays_reached(view) or reached(evidence, values[-1])):
        end += ", and behind it now"
    line, last = (value_words(evidence, value) for value in (evidence["line"], values[-1]))
    return f"{len(values)} rounds; the latest value is {last}, the line is {line}, {end}."


@lru_cache(maxsize=8)
def _evidence(measure: str, line: float, unit: str, points: tuple[tuple[int, float], ...], words: str) -> str:
    wealth = measure == "log-wealth"
    scale = math.log(10) if wealth else 1.0
    x, y = [records for records, _ in points], [value / scale for _, value in points]

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        if wealth:
            x.insert(0, 0)
            y.insert(0, 0.0)  # bets start with wealth 1
            axes.yaxis.set_major_formatter(lambda value, _: _power(value))
            axes.yaxis.get_major_locator().set_params(integer=True)
        axes.plot(x, y, color=ACCENT, marker="o", markersize=4)
        axes.axhline(line / scale, color=INK, linestyle=(0, (4, 2)))
        label, shift, side = ("above", 3, "bottom") if wealth else ("below", -3, "top")
        axes.annotate(
            f"line: certified {label}", (0.01, line / scale), (0, shift),
            xycoords=("axes fraction", "data"), textcoords="offset points", va=side,
        )  # fmt: skip
        axes.set_xlabel(f"{unit}s so far")
        axes.set_ylabel("wealth of the bets" if wealth else "bound on the contrast")
        axes.margins(y=0.14)
        axes.set_xlim(left=0)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")

    return _svg("evidence-chart", "Evidence by round against its line", words, draw, (4.4, 2.6))


def _power(value: float) -> str:
    if value != round(value):
        return ""
    return f"{10 ** round(value):,}" if 0 <= value <= 5 else f"1e{value:.0f}"


def threshold_chart(view: View) -> str:
    """Draw the bounds on contrast and acceptance per threshold, with the certified one marked; "" without any."""
    certificate: Certificate = view["certificate"]
    chosen = None
    rows = certificate.thresholds
    if not rows:
        return ""
    kept = thinned(rows, POINTS)
    able = sum(row.certified for row in rows)
    words = f"{len(rows)} thresholds; {able} of them pass both lines."
    if certificate.threshold is not None and not view["check"]["revoked"]:
        row = next(each for each in rows if each.threshold == certificate.threshold)
        chosen = row.threshold, row.contrast_upper, row.acceptance_lower
        words += f" Certified: {row.threshold:.4g}, contrast at most {row.contrast_upper:.3f}, acceptance at"
        words += f" least {row.acceptance_lower:.3f}."
    return _thresholds(
        tuple((row.threshold, row.contrast_upper, row.acceptance_lower, row.certified) for row in kept),
        chosen, certificate.claim.min_acceptance, words,
    )  # fmt: skip


@lru_cache(maxsize=8)
def _thresholds(
    rows: tuple[tuple[float, float, float, bool], ...], chosen: tuple[float, ...] | None, floor: float, words: str
) -> str:
    def draw(figure: Any) -> None:
        panels = figure.subplots(2, 1, sharex=True)
        labels = ("contrast, at most", "acceptance, at least")
        for k, (axes, label, line) in enumerate(zip(panels, labels, (0.0, floor), strict=True), start=1):
            axes.plot([row[0] for row in rows], [row[k] for row in rows], color=ACCENT, linewidth=0.8)
            for passed in (True, False):
                some = [row for row in rows if row[3] is passed]
                axes.plot(
                    [row[0] for row in some], [row[k] for row in some], "o", color=ACCENT, markersize=3.5,
                    markerfacecolor=ACCENT if passed else "none",
                )  # fmt: skip
            axes.axhline(line, color=INK, linestyle=(0, (4, 2)), linewidth=1)
            axes.set_ylabel(label, fontsize=9)
            if chosen is not None:
                axes.plot([chosen[0]], [chosen[k]], "*", color=INK, markersize=10)
        if chosen is not None:
            panels[1].annotate(
                "certified", (chosen[0], chosen[2]), (7, 5), textcoords="offset points", ha="left", va="bottom"
            )
        panels[1].set_xlabel("threshold on the score (filled: passes both lines)")

    return _svg("threshold-chart", "Contrast and acceptance per threshold", words, draw, (4.4, 3.3))


def _svg(name: str, title: str, words: str, draw: Any, size: tuple[float, float]) -> str:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    buffer = io.BytesIO()
    with _drawing, mpl.rc_context({**STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _for_a_page(buffer.getvalue(), name, title, words)


def _for_a_page(svg: bytes, name: str, title: str, words: str) -> str:
    """Drop header, metadata and inline styles; make ids unique; take colours from the page's variables."""
    root = ET.fromstring(svg)  # noqa: S314 (our own drawing)
    box = root.get("viewBox", "")
    root.attrib.clear()
    root.attrib |= {
        "viewBox": box, "role": "img", "aria-labelledby": f"{name}-title {name}-words", "class": "chart",
    }  # fmt: skip
    for child in list(root):
        if _tag(child) == "metadata" or (_tag(child) == "defs" and child.find("{*}style") is not None):
            root.remove(child)
    used = set(re.findall(rb'(?:url\(#|href="#)([^")]+)', svg))
    for element in root.iter():
        element.tag = _tag(element)
        element.attrib = _attributes(element.attrib, name, used) if element is not root else element.attrib
        if element.text is not None and not element.text.strip():
            element.text = None
        element.tail = None
    for place, (tag, key, text) in enumerate((("title", "title", title), ("desc", "words", words))):
        child = ET.Element(tag, {"id": f"{name}-{key}"})
        child.text = text
        root.insert(place, child)
    return ET.tostring(root, encoding="unicode")


def _tag(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]


def _attributes(found: dict[str, str], name: str, used: set[bytes]) -> dict[str, str]:
    kept: dict[str, str] = {}
    for key, value in found.items():
        plain = key.rpartition("}")[2]
        if plain == "style":
            pairs = (part.partition(":") for part in value.split(";"))
            kept |= {k.strip(): VARIABLES.get(v.strip(), v.strip()) for k, _, v in pairs if k.strip() != "font-family"}
        elif plain == "id":
            kept |= {"id": f"{name}-{value}"} if value.encode() in used else {}
        elif plain == "href":
            kept["href"] = f"#{name}-{value[1:]}"
        elif plain == "d":
            kept["d"] = " ".join(value.split())
        else:
            kept[plain] = value.replace("url(#", f"url(#{name}-")
    return kept
