"""Plans for few labels: one threshold, looks as many as they pay for, and a certificate that still comes.

Mutants killed: labels counted at the highest threshold kept, failed runs that cost nothing (the highest threshold would
always win), all thresholds kept, one number of looks whatever the noise. Seeds are fixed.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from fedsrc.planning.aim import Aim
from fedsrc.planning.sealed_plan import SealedPlan, plan_sealed, totals
from fedsrc.simulate.posterior import Populations, from_units

GRID = np.arange(1, 10) / 10


def populations(units: int = 200) -> Populations:
    """Answers whose risk falls with their score."""
    rng = np.random.default_rng(1)
    score = rng.random(units)
    bad = rng.random(units) < (1 - score) ** 2
    above = score[:, None] >= GRID
    return from_units(above & bad[:, None], above & ~bad[:, None], np.random.default_rng(5))


def labels(plan: SealedPlan, known: Populations) -> tuple[float, float]:
    """The share of fresh runs that certify, and the mean labels that they take."""
    rng = np.random.default_rng(8)
    counts = known.samples(plan.units, rng)
    seen = totals(known.unsupported, known.supported, counts, plan.aim.target_risk).at(plan.kept)
    normals = rng.standard_normal((len(counts), len(plan.units), sum(plan.encoding.lengths)))
    shown = plan.decide(seen.plus(plan.noise(normals))).any(axis=-1)
    last = np.where(shown.any(axis=-1), shown.argmax(axis=-1), len(plan.units) - 1)
    used = counts.cumsum(axis=1)[np.arange(len(counts)), last]
    needed = used @ (known.unsupported + known.supported)[:, plan.kept[0]]
    return float(shown.any(axis=-1).mean()), float(needed.mean())


@pytest.mark.parametrize("noise", [1.27, 4.5])
def test_a_plan_for_few_labels_takes_less_than_half_of_them(noise: float) -> None:
    """Against the plan for most acceptance, whose labels are all needed before its one look."""
    known, aim = populations(), Aim(Fraction(1, 5), 800, noise=noise)
    most, _ = plan_sealed(known, aim, np.random.default_rng(7))
    few, _ = plan_sealed(known, replace(aim, objective="labels", looks=15), np.random.default_rng(7))
    (_, many), (certified, needed) = labels(most, known), labels(few, known)
    assert needed < many / 2
    assert certified > 0.9
    assert len(few.kept) <= 2


def test_little_noise_is_looked_at_more_often() -> None:
    aims = [Aim(Fraction(1, 5), 800, noise=noise, objective="labels", looks=15) for noise in (0.65, 9.0)]
    less, more = (plan_sealed(populations(), aim, np.random.default_rng(7))[0] for aim in aims)
    assert len(less.units) > len(more.units)
