"""The paper's printed figures beside ours, setting by setting."""

from __future__ import annotations

from typing import Any

import polars as pl

from fedsrc.audit.page import markdown
from fedsrc.audit.study import Study
from research.studies.catalogue import Paper

OLD = "betting-ladder"  # the old default


def beside(study: Study, table: pl.DataFrame, paper: Paper) -> str:
    """A table of what the paper prints, the paper's rule here, and the old default on its own release."""
    if not paper.rows:
        return f"Beside the paper ({paper.label}): {paper.note}"
    keys = list(dict.fromkeys(key for row in paper.rows for key in row["match"]))
    old = OLD if OLD in study.methods else "betting"
    columns = ("fired", "acceptance", "records")
    head = [*keys, *(f"paper: {name}" for name in columns), *(f"{paper.rule}: {name}" for name in columns),
            *(f"{old}: {name}" for name in columns)]  # fmt: skip
    body = []
    for row in paper.rows:
        here = _at(study, table, row["match"])
        rule, best = _one(here, paper.rule, "paper"), _one(here, old, "default")
        printed = [_cell(row.get(name), name) for name in columns]
        body.append([*(f"{_value(row['match'].get(key, ''))}" for key in keys), *printed,
                     *(_cell(rule.get(name), name) for name in columns),
                     *(_cell(best.get(name), name) for name in columns)])  # fmt: skip
    called = f"{old}, the old default," if old == OLD else f"{old}, the old default with one target,"
    title = f"Beside the paper ({paper.label}); {called} reads its own release where the study has it:"
    return "\n\n".join([title, markdown(head, body), paper.note])


def _at(study: Study, table: pl.DataFrame, match: dict[str, Any]) -> pl.DataFrame:
    wanted = [
        index for index, setting in enumerate(study.settings)
        if all(getattr(setting, key) == value for key, value in match.items())
    ]  # fmt: skip
    return table.filter(pl.col("setting").is_in(wanted))


def _one(table: pl.DataFrame, method: str, release: str) -> dict[str, Any]:
    """The method's row, on that release where the study has both."""
    rows = table.filter(pl.col("method") == method)
    if "release" in rows.columns:
        rows = rows.filter(pl.col("release") == release)
    return rows.row(0, named=True) if rows.height else {}


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _cell(value: Any, name: str) -> str:
    if value is None:
        return "–"
    return {"fired": f"{value:.0f}", "acceptance": f"{value:.3f}", "records": f"{value:,.0f}"}[name]


def scores(table: pl.DataFrame) -> str:
    """Scores side by side: how well each ranks, the least risk it allows, and what both certificates make of it."""
    head = ["score", "AUC", "floor", "fed-src-c: fired", "acceptance", f"{OLD}: fired", "acceptance"]
    body, none = [], {"fed-src-c": 0, OLD: 0}
    for (name,), part in table.group_by(["population"], maintain_order=True):
        sides = {"fed-src-c": _one(part, "fed-src-c", "paper"), OLD: _one(part, OLD, "default")}
        for method, row in sides.items():
            none[method] += row["fired"] == 0
        first = part.row(0, named=True)
        figures = [
            cell
            for row in sides.values()
            for cell in (f"{row['fired']}/{row['trials']}", _cell(row["acceptance"], "acceptance"))
        ]
        body.append([str(name), f"{first['auc']:.3f}", f"{first['oracle_floor']:.3f}", *figures])
    counts = (
        f"Without any certificate: {none['fed-src-c']} of {len(body)} under the paper's rule on its release,"
        f" {none[OLD]} under the old default ({OLD}) on its own."
    )
    return "\n\n".join(["Scores side by side, on the same splits, events and seeds:", markdown(head, body), counts])


def one_tuple(table: pl.DataFrame, first: pl.DataFrame) -> str:
    """The certificate tuple of one trial per epsilon at its last look, beside the one the paper prints."""
    head = [
        "epsilon",
        "records",
        "sampling width",
        "privacy width",
        "eta",
        "1000 d",
        "acceptance bound",
        "risk",
        "acceptance",
        "decision",
    ]
    rows = [["paper's Table audit", "28,875", "0.01624", "0.01107", "0", "6.00", "0.262", "0.228", "0.287", "abstain"]]
    wanted = table.filter((pl.col("method") == "fed-src-c") & (pl.col("release") == "paper"))
    for setting, epsilon in wanted.select("setting", "epsilon").iter_rows():
        row = first.filter((pl.col("setting") == setting) & (pl.col("method") == "fed-src-c")).row(0, named=True)
        rows.append([
            _value(epsilon), f"{row['records']:,}", f"{row['sampling_width']:.5f}", f"{row['privacy_width']:.5f}",
            f"{row['eta']:g}", f"{1000 * row['contrast_upper']:.2f}", f"{row['acceptance_lower']:.3f}",
            f"{row['risk']:.3f}", f"{row['acceptance']:.3f}", "certify" if row["fired"] else "abstain",
        ])  # fmt: skip
    title = "One trial's certificate tuple under the paper's rule (its first trial, at its last look):"
    return "\n\n".join([title, markdown(head, rows)])
