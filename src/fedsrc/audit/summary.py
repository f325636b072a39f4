"""From per-trial records to a study's table: one row per setting and method.

Violations are counted over all trials, whether or not one fired; failures of what was selected have two denominators,
all trials and those that fired. Intervals of counts are exact (Clopper-Pearson), differences between methods come from
the same trials and have paired bootstrap intervals.

Paper: Appendix "Metrics and uncertainty".
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fedsrc.audit.cell import Cell, build
from fedsrc.audit.evidence import spent
from fedsrc.audit.folder import read_trials
from fedsrc.audit.methods import METHODS, NATIVE
from fedsrc.audit.methods.setting import Method
from fedsrc.audit.study import Binormal, Boundary, Printed, Setting, Study
from fedsrc.common.durable import write_whole
from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats
from fedsrc.maths.binomial import clopper_pearson
from fedsrc.simulate.population import information_limit

HEAD = ["method", "violations", "95% interval", "fired", "failed", "acceptance", "risk", "records", "reuse"]
POPULATION_HEAD = ["population", "kind", "score", "what it is"]
METHOD_HEAD = ["method", "role", "formula from", "reads", "assumes"]
NATIVE_HEAD = ["method", "guarantee", "coverage from", "coverage to", "coverage, enumerated", "share accepted"]
NATIVE_NOTE = (
    "Guarantees of another kind, in their own terms. Covered means: not both accepted and unsupported. None of these"
    " bounds the share of unsupported answers among those accepted."
)
ALPHA, RESAMPLES, BOOTSTRAP = 0.05, 2000, 21
COUNTS = {"violations": "missed", "failures": "failed", "boundary_certificates": "at_boundary", "fired": "fired"}
GIVEN_FIRING = {
    "acceptance": "acceptance",
    "risk": "risk",
    "mean_looks": "look",
    "records": "records",
    "touched": "touched",
    "payload_bytes": "payload_bytes",
    "acceptance_lower": "acceptance_lower",
    "contrast_upper": "contrast_upper",
    "risk_upper": "risk_upper",
    "sampling_width": "sampling_width",
    "privacy_width": "privacy_width",
    "eta": "eta",
    "heldout_accepted": "heldout_accepted",
    "heldout_unsupported": "heldout_unsupported",
}
OVER_ALL = ("local_macro", "local_weighted", "local_sites")
NATIVE_MEANS = ("coverage_low", "coverage_high", "coverage", "size")  # fmt: skip


@dataclass(frozen=True)
class Tables:
    """What a study found: selective-risk methods, and native ones in their own terms (empty without any)."""

    methods: pl.DataFrame
    native: pl.DataFrame


def summarise(folder: Path, tables: Path) -> tuple[Study, Tables]:
    """The study in a folder and its tables; `tables` is where the study's own tables lie."""
    study, frame = read_trials(folder)
    return study, Tables(summary(study, frame, cells(study, tables)), native_summary(study, frame))


def cells(study: Study, tables: Path) -> list[dict[str, Any]]:
    """What is known of every setting before a trial is run."""
    return [known(study, index, tables) for index in range(len(study.settings))]


def known(study: Study, index: int, tables: Path) -> dict[str, Any]:
    """What is known of one setting: its populations' facts, and what a unit's messages cost."""
    each = study.settings[index]
    return _cell(build(each, study.by_name[each.population], seed=study.seed, folder=tables))


def summary(study: Study, frame: pl.DataFrame, facts: list[dict[str, Any]]) -> pl.DataFrame:
    """One row per setting and method, in the study's order; `facts` is what `cells` gives."""
    made = []
    weights = bootstrap_weights(study.trials, study.seed)
    for index, setting in enumerate(study.settings):
        trials = _trials(study, frame, index, study.methods)
        for name, part in trials.items():
            against = compared(part, trials[study.methods[0]], weights)
            about = {**_place(study, index, name), **_method(METHODS[name], setting)}
            found = {**facts[index], **row(part), **heldout(part, setting.target_risk), **against}
            if clash := set(about) & set(found):
                raise FedsrcError(f"{min(clash)} is a key of the study and a column of its table")
            made.append({**about, **found})
    return pl.DataFrame(made, infer_schema_length=None)


def native_summary(study: Study, frame: pl.DataFrame) -> pl.DataFrame:
    """Promised and true coverage, and size, per setting and native method. Never ranked with the others."""
    made = []
    for index in range(len(study.settings)):
        for name, part in _trials(study, frame, index, study.native).items():
            means = {column: _mean(part, column) for column in NATIVE_MEANS}
            about = {"guarantee": NATIVE[name].guarantee, "assumes": ", ".join(NATIVE[name].assumptions)}
            made.append({**_place(study, index, name), **about, "trials": part.height, **means})
    return pl.DataFrame(made, infer_schema_length=None)


def _place(study: Study, index: int, method: str) -> dict[str, Any]:
    setting = study.settings[index]
    return {"setting": index, **{key: getattr(setting, key) for key in study.varied}, "method": method}


def _trials(study: Study, frame: pl.DataFrame, index: int, names: tuple[str, ...]) -> dict[str, pl.DataFrame]:
    """Every method's records of a setting; each must have one for every trial."""
    here = frame.filter(pl.col("setting") == index)
    found = {name: here.filter(pl.col("method") == name) for name in names}
    for name, part in found.items():
        if part.height != study.trials or part["trial"].n_unique() != study.trials:
            raise FedsrcError(f"setting {index}, {name}: {part.height} records for {study.trials} trials")
    return found


def _method(method: Method, setting: Setting) -> dict[str, Any]:
    """What a reader must know before comparing it: controls are never ranked, nor is what a setting does not suit."""
    return {
        "role": method.role,
        "reads": method.reads,
        "assumes": ", ".join(method.assumptions),
        "not_met": ", ".join(not_met(method, setting)),
    }


def not_met(method: Method, setting: Setting) -> list[str]:
    """The method's assumptions that the setting breaks on purpose."""
    shifted, mislabelled = bool(setting.moved or setting.drift), bool(setting.label_missed or setting.label_invented)
    uneven = setting.partition in ("natural", "dirichlet")
    broken = {
        "no shift": shifted,
        "independent participation": setting.policy == "recruit",
        "homogeneous sites": uneven,
        "i.i.d.": uneven and setting.weights == "as calibrated",
        "fixed n": method.stops == "at any look" and setting.policy != "final",
        "exact counts": method.reads == "released sums" and not math.isinf(setting.epsilon),
    }
    silent = setting.withheld and (method.reads == "exact sums" or "own release" in method.assumptions)
    unsaid = {"labels are right": mislabelled, "nothing withheld": silent, "fresh units": setting.reading == "as fresh"}
    return [
        *(name for name in method.assumptions if broken.get(name)),
        *(name for name, here in unsaid.items() if here),
    ]


def _cell(cell: Cell) -> dict[str, Any]:
    charged = spent(cell)
    return {
        "surrogate": cell.surrogate,
        "conditional": cell.setting.thresholds_from == "support",
        "units": sum(site.law.size for site in cell.sites) if cell.items else None,
        "auc": cell.auc,
        "oracle_floor": cell.oracle_floor(),
        "information_limit": information_limit(cell.registration, cell.sites, cell.weights.tolist()),
        "rho_per_message": charged.rho,
        "epsilon_per_unit": charged.epsilon,
    }


def row(part: pl.DataFrame) -> dict[str, Any]:
    """Counts with exact intervals, and means over the trials that fired (None where none did)."""
    n, fired = part.height, part.filter(pl.col("fired"))
    found: dict[str, Any] = {"trials": n}
    for name, column in COUNTS.items():
        count = int(part[column].sum())
        low, high = clopper_pearson(count, n, ALPHA)
        found |= {name: count, f"{name}_low": low, f"{name}_high": high}
    given = clopper_pearson(found["failures"], fired.height, ALPHA) if fired.height else (None, None)
    found |= {"failures_given_firing_low": given[0], "failures_given_firing_high": given[1]}
    found["zero_certificate_rate"] = 1.0 - fired.height / n
    found["deployed_acceptance"] = float(_deployed(part).mean())
    found |= {name: _mean(fired, column) for name, column in GIVEN_FIRING.items()}
    found |= {name: _mean(part, name) for name in OVER_ALL}
    found["reuse"] = found["records"] / found["touched"] if found["touched"] else None
    return found


def heldout(part: pl.DataFrame, target_risk: float) -> dict[str, Any]:
    """Trials that fired, and of these the ones whose threshold has a held-out risk above target, with exact interval.

    Paper: Table (hecurve), held-out failure.
    """
    if "heldout_accepted" not in part.columns:
        return {"heldout_exceeds": None, "heldout_exceeds_low": None, "heldout_exceeds_high": None}
    fired = part.filter(pl.col("fired"))
    over = int((fired["heldout_unsupported"] > target_risk * fired["heldout_accepted"] + 1e-9).sum())
    low, high = clopper_pearson(over, fired.height, ALPHA) if fired.height else (None, None)
    return {"heldout_exceeds": over, "heldout_exceeds_low": low, "heldout_exceeds_high": high}


def _mean(part: pl.DataFrame, column: str) -> float | None:
    if column not in part.columns or part.height == 0:
        return None
    values = part[column].drop_nulls().drop_nans()
    return float(values.mean()) if values.len() else None  # type: ignore[arg-type]


def _deployed(part: pl.DataFrame) -> Floats:
    """Acceptance of what is deployed: nothing, where a trial abstains."""
    return np.where(part["fired"].to_numpy(), part["acceptance"].to_numpy(), 0.0)


def compared(part: pl.DataFrame, base: pl.DataFrame, weights: Floats) -> dict[str, Any]:
    """Against the study's first method, on the same trials: deployed acceptance, records until firing or the end."""
    acceptance = difference(_deployed(part) - _deployed(base), weights)
    records = difference((part["records"] - base["records"]).to_numpy().astype(np.float64), weights)
    return {
        **{f"acceptance_gain{end}": value for end, value in zip(("", "_low", "_high"), acceptance, strict=True)},
        **{f"records_gain{end}": value for end, value in zip(("", "_low", "_high"), records, strict=True)},
    }


def bootstrap_weights(trials: int, seed: int) -> Floats:
    """Resampled weights of the trials, (RESAMPLES, trials): the same for all methods."""
    rng = np.random.default_rng([seed, BOOTSTRAP])
    return rng.multinomial(trials, np.full(trials, 1.0 / trials), size=RESAMPLES) / trials


def difference(values: Floats, weights: Floats) -> tuple[float, float, float]:
    """Mean and percentile bootstrap interval of paired differences."""
    means = weights @ values
    low, high = np.quantile(means, [ALPHA / 2.0, 1.0 - ALPHA / 2.0])
    return float(values.mean()), float(low), float(high)


def write_summary(folder: Path, study: Study, tables: Tables) -> None:
    """summary.csv (and native.csv) with everything, and summary.md, for reading."""
    tables.methods.write_csv(folder / "summary.csv")
    if tables.native.height:
        tables.native.write_csv(folder / "native.csv")
    write_whole(folder / "summary.md", text(study, tables, _cost(folder)).encode())


def _cost(folder: Path) -> str:
    cost = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["cost"]
    return f"{cost['wall_seconds']:.0f} s, at most {cost['peak_bytes'] / 2**20:,.0f} MiB a process."


def text(study: Study, tables: Tables, cost: str) -> str:
    """The tables for reading: validity first, then what it bought, then what each method takes for granted."""
    figures = [[*_names(study, each), *_figures(each)] for each in tables.methods.iter_rows(named=True)]
    parts = [
        f"# {study.name}",
        study.about,
        *notes_on(study, tables.methods),
        markdown([*study.varied, *HEAD], figures),
    ]
    if tables.native.height:
        native = [[*_names(study, each), *_native(each)] for each in tables.native.iter_rows(named=True)]
        parts += [NATIVE_NOTE, markdown([*study.varied, *NATIVE_HEAD], native)]
    parts += ["Populations:", markdown(POPULATION_HEAD, [_population(each) for each in study.populations])]
    parts += ["What each method takes for granted:", markdown(METHOD_HEAD, [_about(name) for name in study.methods])]
    return "\n\n".join([part for part in (*parts, cost) if part]) + "\n"


def markdown(head: list[str], body: list[list[str]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *body])


def notes_on(study: Study, table: pl.DataFrame) -> list[str]:
    """What a reader of the table must know."""
    notes = [
        f"{study.trials:,} trials per row, study {study.digest[:16]}. Violations: trials in which any bound, at any"
        " look and threshold, missed the enumerated truth, fired or not. Acceptance, risk, records and reuse are means"
        " over trials that fired; risk and acceptance are those of the certified threshold, enumerated."
    ]
    if not study.names_release:
        notes.append(
            'The study names no release, so every method reads the paper\'s: `release = "default"` audits the release'
            " that fedsrc makes unless told otherwise."
        )
    kinds = {each.name: type(each) for each in study.populations}
    if surrogates := [name for name, kind in kinds.items() if kind in (Binormal, Printed)]:
        notes.append(f"Surrogate populations, not data: {', '.join(surrogates)}.")
    if Boundary in kinds.values():
        notes.append(
            "At the boundary of the null every certificate is false: there, read 'fired' as false certificates."
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
    exact = " (exact counts)" if each.get("reads") == "exact sums" else ""
    values = [f"{each[key]:g}" if isinstance(each[key], float) else str(each[key]) for key in study.varied]
    dagger = " †" if each.get("not_met") else ""
    return [*values, each["method"] + marks.get(each.get("role", ""), "") + exact + dagger]


def _figures(each: dict[str, Any]) -> list[str]:
    return [
        f"{each['violations']}", f"[{each['violations_low']:.4f}, {each['violations_high']:.4f}]",
        f"{each['fired']}/{each['trials']}", f"{each['failures']}", _figure(each["acceptance"], ".3f"),
        _figure(each["risk"], ".3f"), _figure(each["records"], ",.0f"), _figure(each["reuse"], ".1f"),
    ]  # fmt: skip


def _native(each: dict[str, Any]) -> list[str]:
    return [each["guarantee"], *(_figure(each[name], ".4f") for name in NATIVE_MEANS)]


def _about(name: str) -> list[str]:
    method = METHODS[name]
    return [name, method.role, method.provenance, method.reads, ", ".join(method.assumptions)]


def _population(each: Any) -> list[str]:
    kinds: dict[type[Any], str] = {Binormal: "surrogate", Printed: "surrogate", Boundary: "null"}
    return [each.name, kinds.get(type(each), "real"), getattr(each, "score", "–"), each.about or "–"]


def _figure(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)
