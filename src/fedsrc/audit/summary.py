"""From per-trial records to a study's table: one row per setting and method.

Violations are counted over all trials, whether or not one fired; failures of what was selected have two denominators,
all trials and those that fired. Intervals of counts are exact (Clopper-Pearson), differences between methods come from
the same trials and have paired bootstrap intervals.

Paper: Appendix "Metrics and uncertainty".
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fedsrc.audit.cell import Cell, build
from fedsrc.audit.engine import read_trials
from fedsrc.audit.evidence import spent
from fedsrc.audit.study import Study
from fedsrc.comparators import METHODS
from fedsrc.errors import FedsrcError
from fedsrc.maths.binomial import clopper_pearson
from fedsrc.maths.boundaries import Floats

ALPHA, RESAMPLES, BOOTSTRAP = 0.05, 2000, 21
COUNTS = {"violations": "missed", "failures": "failed", "boundary_certificates": "at_boundary", "fired": "fired"}
GIVEN_FIRING = {
    "acceptance": "acceptance", "risk": "risk", "rounds": "look", "records": "records", "touched": "touched",
    "payload_bytes": "payload_bytes", "acceptance_lower": "acceptance_lower", "contrast_upper": "contrast_upper",
    "sampling_width": "sampling_width", "privacy_width": "privacy_width", "eta": "eta",
    "heldout_accepted": "heldout_accepted", "heldout_unsupported": "heldout_unsupported",
}  # fmt: skip


def summarise(folder: Path, tables: Path) -> tuple[Study, pl.DataFrame]:
    """The study in a folder and its table; `tables` is where the study's own tables lie."""
    study, frame = read_trials(folder)
    return study, summary(study, frame, tables)


def summary(study: Study, frame: pl.DataFrame, tables: Path) -> pl.DataFrame:
    """One row per setting and method, in the study's order."""
    made = []
    for index, setting in enumerate(study.settings):
        cell = build(setting, study.by_name[setting.population], seed=study.seed, folder=tables)
        here = frame.filter(pl.col("setting") == index)
        trials = {name: here.filter(pl.col("method") == name) for name in study.methods}
        _check_counts(study, index, trials)
        weights = bootstrap_weights(study.trials, study.seed)
        for name, part in trials.items():
            about = {"setting": index, **{key: getattr(setting, key) for key in study.varied}, "method": name}
            against = compared(part, trials[study.methods[0]], weights)
            made.append({**about, **_method(name), **_cell(cell), **row(part), **against})
    return pl.DataFrame(made, infer_schema_length=None)


def _check_counts(study: Study, index: int, trials: dict[str, pl.DataFrame]) -> None:
    for name, part in trials.items():
        if part.height != study.trials or part["trial"].n_unique() != study.trials:
            raise FedsrcError(f"setting {index}, {name}: {part.height} records for {study.trials} trials")


def _method(name: str) -> dict[str, Any]:
    """What a reader must know before comparing it: controls are never ranked."""
    method = METHODS[name]
    return {"role": method.role, "reads": method.reads, "assumes": ", ".join(method.assumptions)}


def _cell(cell: Cell) -> dict[str, Any]:
    charged = spent(cell)
    return {
        "surrogate": cell.surrogate,
        "conditional": cell.setting.thresholds_from == "support",
        "units": sum(site.law.size for site in cell.sites) if cell.items else None,
        "oracle_floor": cell.oracle_floor(),
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
    found["reuse"] = found["records"] / found["touched"] if found["touched"] else None
    return found


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


def write_summary(folder: Path, study: Study, table: pl.DataFrame) -> None:
    """summary.csv, with everything, and summary.md, for reading."""
    table.write_csv(folder / "summary.csv")
    (folder / "summary.md").write_text(markdown(study, table, _cost(folder)), encoding="utf-8")


def _cost(folder: Path) -> str:
    path = folder / "manifest.json"
    if not path.is_file():
        return ""
    cost = json.loads(path.read_text(encoding="utf-8"))["cost"]
    return f"{cost['wall_seconds']:.0f} s, at most {cost['peak_bytes'] / 2**20:,.0f} MiB a process."


def markdown(study: Study, table: pl.DataFrame, cost: str) -> str:
    """The table for reading: validity first, then what it bought."""
    head = [
        *study.varied,
        "method",
        "violations",
        "95% interval",
        "fired",
        "failed",
        "acceptance",
        "risk",
        "records",
        "reuse",
    ]
    lines = [
        head,
        ["---"] * len(head),
        *([*_names(study, each), *_figures(each)] for each in table.iter_rows(named=True)),
    ]
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return (
        "\n\n".join([f"# {study.name}", *([study.about] if study.about else []), *_notes(study, table), body, cost])
        + "\n"
    )


def _notes(study: Study, table: pl.DataFrame) -> list[str]:
    notes = [
        f"{study.trials:,} trials per row, study {study.digest[:16]}. Violations: trials in which any bound, at any"
        " look and threshold, missed the enumerated truth, fired or not. Acceptance, risk, records and reuse are means"
        " over trials that fired; risk and acceptance are those of the certified threshold, enumerated."
    ]
    if table["surrogate"].any():
        names = sorted({each.name for each in study.populations if _surrogate(study, table, each.name)})
        notes.append(f"Surrogate populations, not data: {', '.join(names)}.")
    if table["conditional"].any():
        notes.append(
            "Thresholds are quantiles of the calibration scores, chosen without labels: the guarantee is conditional on"
            " those scores (Paper: Proposition condthresh)."
        )
    controls = [name for name in study.methods if METHODS[name].role == "control"]
    if controls:
        notes.append(f"Invalid on purpose, and not to be ranked: {', '.join(controls)}.")
    return notes


def _surrogate(study: Study, table: pl.DataFrame, name: str) -> bool:
    here = [index for index, setting in enumerate(study.settings) if setting.population == name]
    return bool(table.filter(pl.col("setting").is_in(here))["surrogate"].any())


def _names(study: Study, each: dict[str, Any]) -> list[str]:
    marks = {"control": " (control)", "heuristic": " (unproved)", "reference": " (exact counts)"}
    values = [f"{each[key]:g}" if isinstance(each[key], float) else str(each[key]) for key in study.varied]
    return [*values, each["method"] + marks.get(each["role"], "")]


def _figures(each: dict[str, Any]) -> list[str]:
    def figure(name: str, form: str) -> str:
        return "–" if each[name] is None else format(each[name], form)

    return [
        f"{each['violations']}", f"[{each['violations_low']:.4f}, {each['violations_high']:.4f}]",
        f"{each['fired']}/{each['trials']}", f"{each['failures']}", figure("acceptance", ".3f"),
        figure("risk", ".3f"), figure("records", ",.0f"), figure("reuse", ".1f"),
    ]  # fmt: skip
