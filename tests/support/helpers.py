"""Small builders that tests share."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedsrc.common.canonical import digest
from fedsrc.planning.register import Choices, development_part, register
from fedsrc.planning.sealing import Seal, seal
from fedsrc.protocol.messages import Link, Release, Request
from fedsrc.protocol.registration import Registration
from fedsrc.records.masses import counted
from fedsrc.records.units import Records, Units
from fedsrc.server.tally import Given
from fedsrc.site.release import make_release
from tests.support import ROOT

FIRST = Link()
GOLDEN = ROOT / "tests" / "golden"


def golden(name: str) -> dict[str, Any]:
    """A file of numbers that must come out."""
    found: dict[str, Any] = json.loads((GOLDEN / name).read_text())
    return found


def table(
    count: int = 400, *, seed: int = 0, sites: tuple[str, ...] = ("local",), base: float = 0.4, ids: bool = False
) -> Records:
    """A checked table of independent records whose score orders their loss well."""
    rng = np.random.default_rng(seed)
    loss = (rng.random(count) < base).astype(np.float64)
    score = np.clip(0.5 + 0.25 * (1 - 2 * loss) + 0.15 * rng.standard_normal(count), 0, 1)
    return Records(
        digest=digest(["table", count, seed, *sites]),
        score=score,
        loss=loss,
        site=np.arange(count) % len(sites),
        site_names=sites,
        source=None,
        source_names=(),
        ids=[f"u{i}" for i in range(count)] if ids else None,
    )


def registration(records: Records | None = None, **choices: Any) -> Registration:
    """A registration from the 20% development part of a table, which is public."""
    records = records or table()
    settings = {"target_risk": 0.2, "epsilon": 4.0, "public_development": True, **choices}
    picked = Choices(**settings)
    return register(picked, records, development_part(records, picked.unit, 0.2))


def gives(release: Release, site: int = 0) -> Given:
    """What a release gives the tally."""
    return Given([(site, release.slots)], (*release.first, *release.second))


def changed(base: Registration, **sections: dict[str, Any]) -> Registration:
    """The registration with some fields of some sections changed."""
    fields = base.model_dump()
    for section, values in sections.items():
        fields[section] = {**fields[section], **values}
    return Registration.model_validate(fields)


def sealed_registration(
    records: Records | None = None,
    *,
    values: Sequence[float] = (0.45, 0.55, 0.65),
    weights: Sequence[float] = (0.2, 0.3, 0.5),
    bets: Sequence[float] = (0.6, 0.6, 0.6),
    looks: Sequence[tuple[int, float]] = ((1, 1.0),),
    targets: Sequence[tuple[float, float]] = ((0.2, 1.0),),
    line: str = "exact",
    **choices: Any,
) -> Registration:
    """A sealed registration of given thresholds, bets, looks (round, share) and targets (risk, share)."""
    settings = {"batch": 200, "target_risk": targets[0][0], **choices}
    base = changed(registration(records, rounds=looks[-1][0], **settings), privacy={"adjacency": "replacement"})
    tests = tuple((risk, share, tuple(bets)) for risk, share in targets)
    return seal(base, Seal(tuple(values), tuple(weights), tests, tuple(looks), line))


def release_of(reg: Registration, request: Request, units: Units, link: Link = FIRST) -> Release:
    """A real release of those units; by itself, a site's first."""
    return make_release(reg, request, counted(reg, units), link, order="shuffled", time="2026-01-02T03:04:05Z")


def single_units(score: list[float], loss: list[float]) -> Units:
    """Records as units."""
    return Units(np.arange(len(score) + 1, dtype=np.int64), np.asarray(score), np.asarray(loss), None)
