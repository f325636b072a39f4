"""Every look of some trials, or of all, in full: enough to recompute each certificate by hand.

Of the method `registered` there are bounds and no sums: its release holds what decides, not always masses.

Trials are drawn again from the study's seed, so what is here is what the per-trial records came from.

Paper: Appendix "Metrics, communication, and artifact", what is kept of every trial.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fedsrc.audit.cell import Cell, build
from fedsrc.audit.events import Events, happen
from fedsrc.audit.evidence import spent
from fedsrc.audit.methods import METHODS
from fedsrc.audit.methods.setting import Aim, Evidence, Verdict
from fedsrc.audit.outcomes import Block
from fedsrc.audit.study import Study


def looks(study: Study, tables: Path, *, trials: int) -> pl.DataFrame:
    """Return one row per setting, method, trial and look, for the first trials of every setting, or for all of them.

    Lists run over sites (slots, answered, dropped) or over thresholds (sums, variances, bounds), of groups with claims
    of their own one group after the other. Sums and slots are cumulative; `seed` with `trial` is the trial's address
    in the study.
    """
    parts = []
    for index, setting in enumerate(study.settings):
        cell = build(setting, study.by_name[setting.population], seed=study.seed, folder=tables)
        wanted = min(trials, study.trials)
        for number, first in enumerate(range(0, wanted, study.block)):
            parts.append(_block(study, cell, index, number, min(study.block, wanted - first)))
    return pl.concat(parts)


def _block(study: Study, cell: Cell, index: int, number: int, trials: int) -> pl.DataFrame:
    """Return the first trials of one block: it is drawn whole, since its size decides its streams."""
    seed, first = (study.seed, number), number * study.block
    reads = {METHODS[name].reads for name in study.methods}
    size = min(study.block, study.trials - first)
    events = happen(cell, trials=size, seed=seed, per_site=True, reads=reads)
    block = Block(cell, events, seed)
    aim, shape = block.aim, block.evidence("exact sums").accepted.shape
    truth = {name: np.broadcast_to(value, shape) for name, value in vars(block.facts).items()}
    rows = []
    for name in study.methods:
        evidence = block.seen(METHODS[name]).at(slice(0, trials))
        found = METHODS[name].judge(evidence, aim)
        for trial, look in np.ndindex(trials, shape[1]):
            head = {"setting": index, "method": name, "seed": study.seed, "trial": first + trial, "look": look + 1}
            rows.append({**head, **_schedule(cell, events, trial, look), **_sums(evidence, found, aim, trial, look)}
                        | {f"true_{key}": value[trial, look].tolist() for key, value in truth.items()})  # fmt: skip
    return pl.DataFrame(rows, infer_schema_length=None)


def _schedule(cell: Cell, events: Events, trial: int, look: int) -> dict[str, Any]:
    """Return who took part, and what one unit's messages cost."""
    return {
        "slots": events.slots[trial, look].tolist(),
        "answered": events.answered[trial, look].tolist(),
        "dropped": events.dropped[trial, look].tolist(),
        "noise_scale": spent(cell).scale,
        "rho_per_message": spent(cell).rho,
        "epsilon_per_unit": spent(cell).epsilon,
    }


def _sums(evidence: Evidence, found: Verdict, aim: Aim, trial: int, look: int) -> dict[str, Any]:
    """Return what the method saw and said."""
    seen = evidence.answers or evidence
    sums = {
        "accepted": seen.accepted,
        "unsupported": seen.unsupported,
        "noise_variance_accepted": evidence.V_A,
        "noise_variance_contrast": evidence.V_D(aim.target_risk),
    }
    lists = {
        **({} if evidence.server is not None else sums),  # a registered release may hold none of them
        "contrast_upper": found.contrast_upper,
        "risk_upper": found.risk_upper,
        "acceptance_lower": found.acceptance_lower,
        "certified": found.certified,
    }
    scalars = {
        "records": float(evidence.records[trial, look]),
        "eta": float(evidence.eta[trial, look]),
        "least_variance": evidence.unit,  # v0 of the stitched boundaries
    }
    return scalars | {name: value[trial, look].tolist() for name, value in lists.items()}
