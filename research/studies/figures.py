"""Figures of the published results, as SVG; shapes as well as colours tell series apart.

Firing against epsilon, records against the information limit, acceptance against target, violations.
"""

from __future__ import annotations

import io
import math
from typing import Any

import polars as pl

from fedsrc.errors import MissingExtraError
from research.studies import sides, today
from research.studies.catalogue import printed
from research.studies.results import FIGURES, Result

INK = {
    "default": ("#1b6ca8", "o"), "old": ("#5a9e4b", "D"), "paper": ("#b5541c", "s"), "printed": ("#6b6b6b", "^"),
    "limit": ("#2f2f2f", "|"),
}  # fmt: skip
SIZE = (7.2, 3.8)
SIDES = {"default": "few", "old": "old", "paper": "paper"}  # what records are counted of
LABELS = {
    "limit": "information limit", "default": "default, for few records", "old": "old default",
    "paper": "the paper's rule",
}  # fmt: skip


def all_figures(results: dict[str, Result]) -> dict[str, bytes]:
    """Every figure whose studies are there, by file name."""
    made: dict[str, bytes] = {}
    for name in ("privacy-curve", "redeep"):
        if name in results:
            made[FIGURES[name]] = firing(name, results[name], results.get(sides.AS_PLANNED[name]))
    if any(name in results for name in sides.STUDIES):
        found = today.rows(results)
        made["records.svg"], made["acceptance.svg"] = records(found), acceptance(found)
    if "stress" in results:
        made[FIGURES["stress"]] = violations(results["stress"])
    return made


def firing(name: str, result: Result, planned: Result | None) -> bytes:
    """Share of trials that certify against epsilon: printed by the paper, its rule on the surrogate, both defaults."""
    table, paper = result.tables().methods, printed(name)[0]
    figure, axes = _axes("epsilon (smaller is more private)", "trials that certify")
    order = [row["match"]["epsilon"] for row in paper.rows]
    places = range(len(order))
    axes.plot(
        places,
        [row["fired"] / result.study.trials for row in paper.rows],
        **_style("printed"),
        label="printed in the paper",
    )
    drawn = [
        ("paper", table.filter(method=sides.PAPER[0], release=sides.PAPER[1]), "the paper's rule, surrogate"),
        ("old", table.filter(method=sides.OLD[0], release=sides.OLD[1]), "old default, surrogate"),
    ]
    if planned is not None:
        drawn.append(("default", planned.tables().methods.filter(case="default"), "default, surrogate"))
    for key, rows, label in drawn:
        shares = {row["epsilon"]: row["fired"] / row["trials"] for row in rows.iter_rows(named=True)}
        axes.plot(places, [shares[epsilon] for epsilon in order], **_style(key), label=label)
    axes.set_xticks(list(places), ["none" if math.isinf(epsilon) else f"{epsilon:g}" for epsilon in order])
    axes.set_ylim(-0.03, 1.05)
    return _svg(figure, axes, f"Firing against epsilon: {result.study.name}")


def records(found: list[dict[str, Any]]) -> bytes:
    """Mean records to certification at target 0.20, without privacy and at epsilon 4, against the information limit."""
    rows = [row for row in found if row["target_risk"] == 0.2 and row["epsilon"] in (math.inf, 4.0)]
    rows = [row for row in rows if math.isfinite(row["information_limit"])]
    figure, axes = _axes("records to certification, target 0.20", "", height=0.36 * len(rows) + 1.4)
    for place, row in enumerate(rows):
        axes.plot([row["information_limit"]], [place], INK["limit"][1], color=INK["limit"][0], markersize=12)
        for key, side in SIDES.items():
            if row[f"{side}_records"] is not None:
                always = row[f"{side}_fired"] == row[f"{side}_trials"]
                axes.plot([row[f"{side}_records"]], [place], **_style(key), fillstyle="full" if always else "none")
    for key, label in LABELS.items():
        axes.plot([], [], INK[key][1], color=INK[key][0], label=label)
    axes.plot([], [], "o", color="#6b6b6b", fillstyle="none", label="open: not in all trials")
    axes.set_xscale("log")
    private = {math.inf: "no privacy", 4.0: "epsilon 4"}
    axes.set_yticks(range(len(rows)), [f"{row['population']}, {private[row['epsilon']]}" for row in rows])
    axes.invert_yaxis()
    return _svg(figure, axes, "Records to certification against the information limit", outside=True)


def acceptance(found: list[dict[str, Any]]) -> bytes:
    """Acceptance certified by the default against target at epsilon 4, per population."""
    figure, axes = _axes("target risk", "acceptance certified by the default, epsilon 4")
    markers = "osD^v<>Px*"
    for place, name in enumerate(dict.fromkeys(row["population"] for row in found)):
        here = [row for row in found if row["population"] == name and row["epsilon"] == 4.0]
        rows = [row for row in here if row["default_acceptance"]]
        if rows:
            axes.plot([row["target_risk"] for row in rows], [row["default_acceptance"] for row in rows],
                      marker=markers[place % len(markers)], label=name)  # fmt: skip
    axes.set_ylim(bottom=0)
    axes.set_xticks(sorted({row["target_risk"] for row in found}))
    return _svg(figure, axes, "Acceptance against target", outside=True)


def violations(result: Result) -> bytes:
    """Share of trials with a violated bound at epsilon 1, per method, with exact intervals."""
    table = result.tables().methods.filter(pl.col("epsilon") == 1.0)
    names = [
        name
        for name in result.study.methods
        if (table.filter(pl.col("method") == name)["reads"] == "released sums").all()
    ]
    figure, axes = _axes("trials with a violated bound, epsilon 1", "", height=0.32 * len(names) + 1.2)
    populations = list(dict.fromkeys(table["population"]))
    for shift, population in enumerate(populations):
        rows = [
            table.filter((pl.col("method") == n) & (pl.col("population") == population)).row(0, named=True)
            for n in names
        ]
        share = [row["violations"] / row["trials"] for row in rows]
        low = [s - row["violations_low"] for s, row in zip(share, rows, strict=True)]
        high = [row["violations_high"] - s for s, row in zip(share, rows, strict=True)]
        places = [place + 0.18 * (2 * shift - 1) for place in range(len(names))]
        axes.errorbar(share, places, xerr=[low, high], fmt="os"[shift % 2], label=population, capsize=2)
    axes.axvline(0.05, color="#2f2f2f", linewidth=0.8, linestyle="--", label="allowed: 0.05")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    return _svg(figure, axes, "Violations at epsilon 1")


def _axes(xlabel: str, ylabel: str, *, height: float | None = None) -> tuple[Any, Any]:
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plots") from error
    mpl.rcParams.update({"svg.hashsalt": "fedsrc", "svg.fonttype": "none", "font.size": 9})
    figure = Figure(figsize=(SIZE[0], height or SIZE[1]), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.grid(visible=True, color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def _style(key: str) -> dict[str, Any]:
    colour, marker = INK[key]
    return {"color": colour, "marker": marker}


def _svg(figure: Any, axes: Any, title: str, *, outside: bool = False) -> bytes:
    axes.set_title(title, fontsize=10)
    if outside:
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    else:
        axes.legend(frameon=False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Title": title, "Creator": "fedsrc"})
    return buffer.getvalue()
