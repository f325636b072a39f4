"""For tests of panels: runs on people in groups, with several scores, without noise unless asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedsrc.common.signing import Key
from fedsrc.federation.local import certify_table
from fedsrc.planning.register import Choices, register_grid
from fedsrc.planning.sealing import Seal, seal
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.scale import Scale
from fedsrc.records.units import Records
from tests.support.helpers import table

KEY = Key.from_private_bytes(b"p" * 32)
ODD = "<b>night</b> | **x** `y`"  # a name that a registration accepts
NAMES = ("day", ODD, "rare")
SHARES = (0.55, 0.35, 0.02, 0.08)  # of the traffic: the last is in no listed group
RISKS = (0.1, 0.9, 0.1, 0.5)


def people(count: int = 2400, names: tuple[str, ...] = NAMES, risks: tuple[float, ...] = RISKS,
           shares: tuple[float, ...] = SHARES, seed: int = 0) -> Records:  # fmt: skip
    """Answers of listed groups and of one that is not; the further score tells the losses better than the first."""
    rng = np.random.default_rng(seed)
    group = rng.choice(len(shares), count, p=shares)
    loss = (rng.random(count) < np.asarray(risks)[group]).astype(np.float64)
    score, other = (
        np.clip(0.5 + gap * (1 - 2 * loss) + 0.15 * rng.standard_normal(count), 0, 1) for gap in (0.02, 0.25)
    )
    return replace(table(count, seed=seed), score=score, loss=loss, group=group, group_names=(*names, "else"),
                   others=other[:, None])  # fmt: skip


PANELS: dict[str, dict[str, Any]] = {
    "each": {"groups": NAMES},
    "within": {"groups": NAMES, "group_floor": "group"},
    "all": {"groups": ("day", "rare"), "group_claim": "all"},
    "none": {"groups": (ODD,)},
    "scores": {"also_scores": (("grounding", Scale(worst=100, best=0)),), "checkpoints": {"grounding": (20, 40)}},
}


def registered(kind: str, *, sealed: bool = False, bet: float = 0.6, **choices: Any) -> Registration:
    """A panel on a public grid, without noise: what it decides is known. Four rounds, or one look of a sealed run."""
    settings: dict[str, Any] = {"epsilon": np.inf, "rounds": 1 if sealed else 4, **PANELS[kind]}
    settings |= {"batch": 2400 if sealed else 600, "thresholds": 3, "min_acceptance": 0.005, **choices}
    base = register_grid(Choices(0.2, grid=True, policy="final", group_column="ward", **settings), ["local"])
    if not sealed:
        return base
    m, blocks = len(base.thresholds.values), len(base.cuts)
    cut = (base.thresholds.values, (1 / m,) * m)
    others = () if base.panel is None or base.panel.simultaneous else (cut,) * (blocks - 1)
    return seal(base, Seal(*cut, ((0.2, 1.0, (bet,) * m * blocks),), others=others))


def played(folder: Path, reg: Registration, records: Records | None = None) -> Path:
    certify_table(reg, people() if records is None else records, folder / "run", folder / "ledger", KEY)
    return folder / "run"
