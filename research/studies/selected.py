"""Held-out answers at the threshold that a study selected, beside what the paper prints of its own."""

from __future__ import annotations

from typing import Any

import polars as pl

from fedsrc.audit.page import markdown
from fedsrc.audit.study import Study
from fedsrc.maths.binomial import clopper_pearson
from research.studies.catalogue import Paper

HEAD = [
    "release", "method", "fired", "held out: accepted", "risk", "95% interval", "trials above target", "95% interval",
]  # fmt: skip
SIDES = (("fed-src-c", "paper"), ("betting-ladder", "default"))
ABOUT = (
    "Held-out answers at the selected threshold: means over the trials that fired. The interval of the risk is exact"
    " for these counts, rounded, as the paper's is. Trials above target are those whose threshold has a held-out risk"
    " above it: all trials are judged on one held-out part. Intervals by threshold, of graded losses too, are on"
    " [a page of their own](../heldout.md)."
)


def selected(study: Study, table: pl.DataFrame, papers: list[Paper]) -> str:
    """Return what held-out answers say of what was selected, and the paper's lines first; nothing without any."""
    keys = [key for key in study.varied if key != "release"]
    shown = [row for row in table.iter_rows(named=True) if (row["method"], row["release"]) in SIDES and row["fired"]]
    if not any(row["heldout_accepted"] is not None for row in shown):
        return ""
    printed = [_printed(row, keys) for paper in papers for row in paper.rows if "heldout_risk" in row]
    return "\n\n".join([ABOUT, markdown([*keys, *HEAD], [*printed, *(_line(row, keys) for row in shown)])])


def _printed(row: dict[str, Any], keys: list[str]) -> list[str]:
    match = row["match"]
    risk, above = (_interval(*row[name]) if name in row else "–" for name in ("heldout_interval", "heldout_exceeds"))
    figures = [f"{row['fired']}", f"{row['heldout_accepted']:.1f}", f"{row['heldout_risk']:.3f}", risk, "–", above]
    return [*(_value(match.get(key, "–")) for key in keys), "paper", "as printed", *figures]


def _line(row: dict[str, Any], keys: list[str]) -> list[str]:
    n, bad = row["heldout_accepted"], row["heldout_unsupported"]
    binary = row["auc"] is not None and round(n) > 0
    return [
        *(_value(row[key]) for key in keys), row["release"], row["method"], f"{row['fired']}", f"{n:.1f}",
        f"{bad / n:.3f}" if n else "–", _interval(*clopper_pearson(round(bad), round(n))) if binary else "–",
        f"{row['heldout_exceeds']}/{row['fired']}",
        _interval(row["heldout_exceeds_low"], row["heldout_exceeds_high"]),
    ]  # fmt: skip


def _interval(low: float, high: float) -> str:
    return f"[{low:.3f}, {high:.3f}]"


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
