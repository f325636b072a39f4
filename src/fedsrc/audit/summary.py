"""From per-trial records to a study's table: one row per setting and method.

Violations are counted over all trials, whether or not one fired; failures of what was selected have two denominators,
all trials and those that fired. Intervals of counts are exact (Clopper-Pearson), differences between methods come from
the same trials and have paired bootstrap intervals.

Paper: Appendix "Metrics and uncertainty".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fedsrc.audit.cell import Cell, build
from fedsrc.audit.evidence import spent
from fedsrc.audit.methods import METHODS, NATIVE
from fedsrc.audit.methods.setting import Method
from fedsrc.audit.study import Setting, Study
from fedsrc.audit.study_folder import read_trials
from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats
from fedsrc.maths.binomial import clopper_pearson
from fedsrc.simulate.population import information_limit

ALPHA, RESAMPLES, BOOTSTRAP = 0.05, 2000, 21
COUNTS = {"violations": "missed", "failures": "failed", "boundary_certificates": "at_boundary", "fired": "fired"}
GIVEN_FIRING = (
    "acceptance", "risk", "look", "records", "touched", "payload_bytes", "acceptance_lower", "contrast_upper",
    "risk_upper", "sampling_width", "privacy_width", "eta", "heldout_accepted", "heldout_unsupported",
)  # fmt: skip
RENAMED = {"look": "mean_looks"}
OVER_ALL = ("local_macro", "local_weighted", "local_population", "local_sites")
NATIVE_MEANS = ("coverage_low", "coverage_high", "coverage", "size")


@dataclass(frozen=True)
class Tables:
    """What a study found: selective-risk methods, and native ones in their own terms (empty without any)."""

    methods: pl.DataFrame
    native: pl.DataFrame


def summarise(folder: Path, tables: Path) -> tuple[Study, Tables]:
    """Return the study in a folder and its tables; `tables` is where the study's own tables lie."""
    study, frame = read_trials(folder)
    return study, Tables(summary(study, frame, cells(study, tables)), native_summary(study, frame))


def cells(study: Study, tables: Path) -> list[dict[str, Any]]:
    """Return what is known of every setting before a trial is run."""
    return [known(study, index, tables) for index in range(len(study.settings))]


def known(study: Study, index: int, tables: Path) -> dict[str, Any]:
    """Return what is known of one setting: its populations' facts, and what a unit's messages cost."""
    each = study.settings[index]
    return _cell(build(each, study.by_name[each.population], seed=study.seed, folder=tables))


def summary(study: Study, frame: pl.DataFrame, facts: list[dict[str, Any]]) -> pl.DataFrame:
    """Return one row per setting and method, in the study's order; `facts` is what `cells` gives."""
    made = []
    weights = bootstrap_weights(study.trials, study.seed)
    for index, setting in enumerate(study.settings):
        trials = _trials(study, frame, index, study.methods)
        for name, part in trials.items():
            against = compared(part, trials[study.methods[0]], weights)
            method = METHODS[name]  # what a reader must know of it before comparing: controls are never ranked
            about = {
                **_place(study, index, name), "role": method.role, "reads": method.reads,
                "assumes": ", ".join(method.assumptions), "not_met": ", ".join(not_met(method, setting)),
            }  # fmt: skip
            found = {**facts[index], **row(part), **heldout(part, setting.target_risk), **against}
            if clash := set(about) & set(found):
                raise FedsrcError(f"{min(clash)} is a key of the study and a column of its table")
            made.append({**about, **found})
    return pl.DataFrame(made, infer_schema_length=None)


def native_summary(study: Study, frame: pl.DataFrame) -> pl.DataFrame:
    """Return promised and true coverage, and size, per setting and native method; never ranked with the others."""
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
    """Return every method's records of a setting; each must have one for every trial."""
    here = frame.filter(pl.col("setting") == index)
    found = {name: here.filter(pl.col("method") == name) for name in names}
    for name, part in found.items():
        if part.height != study.trials or part["trial"].n_unique() != study.trials:
            raise FedsrcError(f"setting {index}, {name}: {part.height} records for {study.trials} trials")
    return found


def not_met(method: Method, setting: Setting) -> list[str]:
    """Return the method's assumptions that the setting breaks on purpose."""
    uneven, exact = setting.partition in ("natural", "dirichlet"), method.reads.startswith("exact")
    broken = {
        "no shift": bool(setting.moved or setting.drift),
        "independent participation": setting.policy == "recruit",
        "homogeneous sites": uneven,
        "i.i.d.": uneven and setting.weights == "as calibrated",
        "fixed n": method.stops == "at any look" and setting.policy != "final",
        "exact counts": method.reads == "released sums" and not math.isinf(setting.epsilon),
    }
    unsaid = {
        "labels are right": setting.label_missed or setting.label_invented,
        "nothing withheld": setting.withheld and (exact or "own release" in method.assumptions),
        "fresh units": setting.reading == "as fresh",
    }
    said = [name for name in method.assumptions if broken.get(name)]
    return [*said, *(name for name, here in unsaid.items() if here)]


def _cell(cell: Cell) -> dict[str, Any]:
    charged, one = spent(cell), cell.registration.panel is None
    limit = information_limit(cell.registration, cell.sites, cell.weights.tolist()) if one else None
    return {
        "surrogate": cell.surrogate,
        "conditional": cell.setting.thresholds_from == "support",
        "units": sum(site.law.size for site in cell.sites) if cell.items else None,
        "auc": cell.auc,
        "oracle_floor": cell.oracle_floor(),
        "information_limit": limit,
        "rho_per_message": charged.rho,
        "epsilon_per_unit": charged.epsilon,
    }


def row(part: pl.DataFrame) -> dict[str, Any]:
    """Return counts with exact intervals, and means over the trials that fired (None where none did)."""
    n, fired = part.height, part.filter(pl.col("fired"))
    found: dict[str, Any] = {"trials": n}
    for name, column in COUNTS.items():
        count = int(part[column].sum())
        found |= {name: count, **_interval(name, count, n)}
    found |= _interval("failures_given_firing", found["failures"], fired.height)
    found["zero_certificate_rate"] = 1.0 - fired.height / n
    found["deployed_acceptance"] = float(_deployed(part).mean())
    found |= {RENAMED.get(name, name): _mean(fired, name) for name in GIVEN_FIRING}
    found |= {name: _mean(part, name) for name in OVER_ALL}
    if "groups_certified" in part.columns:
        found["groups_certified"] = _mean(part, "groups_certified")
    found["reuse"] = found["records"] / found["touched"] if found["touched"] else None
    return found


def heldout(part: pl.DataFrame, target_risk: float) -> dict[str, Any]:
    """Count the trials that fired with a threshold whose held-out risk is above target, with exact interval.

    Paper: Table (hecurve), held-out failure.
    """
    if "heldout_accepted" not in part.columns:
        return {"heldout_exceeds": None, **_interval("heldout_exceeds", 0, 0)}
    fired = part.filter(pl.col("fired"))
    over = int((fired["heldout_unsupported"] > target_risk * fired["heldout_accepted"] + 1e-9).sum())
    return {"heldout_exceeds": over, **_interval("heldout_exceeds", over, fired.height)}


def _interval(name: str, count: int, n: int) -> dict[str, float | None]:
    """Return the exact interval of a share; none of nothing."""
    low, high = clopper_pearson(count, n, ALPHA) if n else (None, None)
    return {f"{name}_low": low, f"{name}_high": high}


def _mean(part: pl.DataFrame, column: str) -> float | None:
    if column not in part.columns or part.height == 0:
        return None
    values = part[column].drop_nulls().drop_nans()
    return float(values.mean()) if values.len() else None  # type: ignore[arg-type]


def _deployed(part: pl.DataFrame) -> Floats:
    """Return the acceptance of what is deployed: nothing, where a trial abstains."""
    return np.where(part["fired"].to_numpy(), part["acceptance"].to_numpy(), 0.0)


def compared(part: pl.DataFrame, base: pl.DataFrame, weights: Floats) -> dict[str, Any]:
    """Compare with the study's first method on the same trials: deployed acceptance, records until firing or end."""
    gains = {
        "acceptance_gain": _deployed(part) - _deployed(base),
        "records_gain": (part["records"] - base["records"]).to_numpy().astype(np.float64),
    }
    return {
        f"{name}{end}": value
        for name, values in gains.items()
        for end, value in zip(("", "_low", "_high"), difference(values, weights), strict=True)
    }


def bootstrap_weights(trials: int, seed: int) -> Floats:
    """Return resampled weights of the trials, (RESAMPLES, trials): the same for all methods."""
    rng = np.random.default_rng([seed, BOOTSTRAP])
    return rng.multinomial(trials, np.full(trials, 1.0 / trials), size=RESAMPLES) / trials


def difference(values: Floats, weights: Floats) -> tuple[float, float, float]:
    """Return the mean and the percentile bootstrap interval of paired differences."""
    means = weights @ values
    low, high = np.quantile(means, [ALPHA / 2.0, 1.0 - ALPHA / 2.0])
    return float(values.mean()), float(low), float(high)
