"""A study's tables as a Markdown page: validity first, then what it bought, then what each method takes for granted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl

from fedsrc.audit.methods import METHODS
from fedsrc.audit.study import Binormal, Boundary, Printed, Study
from fedsrc.audit.summary import NATIVE_MEANS, Tables
from fedsrc.common.durable import write_whole

HEAD = ["method", "violations", "95% interval", "fired", "failed", "acceptance", "risk", "records", "reuse"]
POPULATION_HEAD = ["population", "kind", "score", "what it is"]
METHOD_HEAD = ["method", "role", "formula from", "reads", "assumes"]
NATIVE_HEAD = ["method", "guarantee", "coverage from", "coverage to", "coverage, enumerated", "share accepted"]
NATIVE_NOTE = (
    "Guarantees of another kind, in their own terms. Covered means: not both accepted and unsupported. None of these"
    " bounds the share of unsupported answers among those accepted."
)


def write_summary(folder: Path, study: Study, tables: Tables) -> None:
    """Write summary.csv (and native.csv) with everything, and summary.md, for reading."""
    tables.methods.write_csv(folder / "summary.csv")
    if tables.native.height:
        tables.native.write_csv(folder / "native.csv")
    cost = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["cost"]
    write_whole(folder / "summary.md", page(study, tables, cost_line(cost)).encode())


def cost_line(cost: dict[str, Any]) -> str:
    """Say what a study took, from its manifest."""
    return f"{cost['wall_seconds']:.0f} s, at most {cost['peak_bytes'] / 2**20:,.0f} MiB a process."


def page(study: Study, tables: Tables, cost: str) -> str:
    """Return the page."""
    figures = [[*_names(study, each), *_figures(each)] for each in tables.methods.iter_rows(named=True)]
    notes = notes_on(study, tables.methods)
    parts = [f"# {study.name}", study.about, *notes, markdown([*study.varied, *HEAD], figures)]
    if tables.native.height:
        native = [
            [*_names(study, each), each["guarantee"], *(_figure(each[name], ".4f") for name in NATIVE_MEANS)]
            for each in tables.native.iter_rows(named=True)
        ]
        parts += [NATIVE_NOTE, markdown([*study.varied, *NATIVE_HEAD], native)]
    parts += ["Populations:", markdown(POPULATION_HEAD, [_population(each) for each in study.populations])]
    methods = [(name, METHODS[name]) for name in study.methods]
    about = [[name, each.role, each.provenance, each.reads, ", ".join(each.assumptions)] for name, each in methods]
    parts += ["What each method takes for granted:", markdown(METHOD_HEAD, about)]
    return "\n\n".join([part for part in (*parts, cost) if part]) + "\n"


def markdown(head: list[str], body: list[list[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *body])


def notes_on(study: Study, table: pl.DataFrame) -> list[str]:
    """Return what a reader of the table must know."""
    notes = [
        f"{study.trials:,} trials per row, study {study.digest[:16]}. Violations: trials in which any bound, at any"
        " look and threshold, missed the enumerated truth, fired or not. Acceptance, risk, records and reuse are means"
        " over trials that fired; risk and acceptance are those of the certified threshold, enumerated."
    ]
    if not study.names_release:
        notes.append(
            'The study names no release, so every method reads the paper\'s: `release = "default"` audits the release'
            " of the default preset."
        )
    kinds = {each.name: type(each) for each in study.populations}
    if surrogates := [name for name, kind in kinds.items() if kind in (Binormal, Printed)]:
        notes.append(f"Surrogate populations, not data: {', '.join(surrogates)}.")
    if any(isinstance(each, Boundary) and each.bad is None for each in study.populations):
        notes.append(
            "At the boundary of the null every certificate counts as false (with any more risk it would be): there,"
            " read 'fired' as false certificates."
        )
    if any(setting.groups == "each" for setting in study.settings):
        notes.append(
            "Of groups, a violation or failure in any counts; acceptance adds up over groups, and risk is the worst"
            " group's."
        )
    if table["conditional"].any():
        notes.append(
            "Thresholds are quantiles of the calibration scores, chosen without labels: the guarantee is conditional on"
            " those scores (Paper: Proposition condthresh)."
        )
    if any(setting.draw == "once" for setting in study.settings):
        notes.append(
            "Where each unit is drawn once, violations are counted against the finite population that is used up. The"
            " guarantee is about the law that units come from: those counts are a description, not a test of it. One"
            " split, drawn by the study's seed, serves all trials, which differ in the order of use and in the noise:"
            " they say nothing of other splits."
        )
    if any(setting.policy == "recruit" and not setting.dropout for setting in study.settings):
        notes.append(
            "With equal weights and without dropout, recruitment asks the sites in turn: matched, it sees the same"
            " events as the other policies and fires when a turn is complete."
        )
    if controls := [name for name in study.methods if METHODS[name].role == "control"]:
        notes.append(f"Invalid on purpose, and not to be ranked: {', '.join(controls)}.")
    if (table["not_met"] != "").any():
        notes.append("A dagger marks a method whose own assumptions the setting does not meet.")
    return notes


def _names(study: Study, each: dict[str, Any]) -> list[str]:
    marks = {"control": " (control)", "heuristic": " (unproved)"}
    exact = " (exact counts)" if each.get("reads", "").startswith("exact") else ""
    values = [f"{each[key]:g}" if isinstance(each[key], float) else str(each[key]) for key in study.varied]
    dagger = " †" if each.get("not_met") else ""
    return [*values, each["method"] + marks.get(each.get("role", ""), "") + exact + dagger]


def _figures(each: dict[str, Any]) -> list[str]:
    return [
        f"{each['violations']}", f"[{each['violations_low']:.4f}, {each['violations_high']:.4f}]",
        f"{each['fired']}/{each['trials']}", f"{each['failures']}", _figure(each["acceptance"], ".3f"),
        _figure(each["risk"], ".3f"), _figure(each["records"], ",.0f"), _figure(each["reuse"], ".1f"),
    ]  # fmt: skip


def _population(each: Any) -> list[str]:
    kinds: dict[type[Any], str] = {Binormal: "surrogate", Printed: "surrogate", Boundary: "null"}
    return [each.name, kinds.get(type(each), "real"), getattr(each, "score", "–"), each.about or "–"]


def _figure(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)
