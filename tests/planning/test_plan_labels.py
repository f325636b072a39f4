"""Plans and forecasts in labels: what they count, and that a plan for few labels needs fewer.

Mutants killed: labels counted of all units, a second look by another person left out, the lowest threshold never
dropped, a plan that saves labels by never certifying, an objective that labels on demand do not change, a policy that
goes on labelling after the certificate.

Chance of a false alarm: none; populations and plans are drawn by fixed seeds.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from fedsrc.planning.aim import Aim, judged
from fedsrc.planning.forecast import forecast, from_declared
from fedsrc.planning.open_plan import plan_open
from fedsrc.planning.plan import Wish, plan
from fedsrc.planning.register import Choices, for_table, register_grid
from fedsrc.planning.sealed_plan import plan_sealed
from fedsrc.simulate.posterior import Populations, from_answers
from tests.support.helpers import table

CHOICES = Choices(0.2, math.inf, grid=True)
ON_DEMAND = replace(CHOICES, labels="on demand", label_hours=8.0)
UNITS = 2_000


def populations(thresholds: int = 20) -> Populations:
    """Scores that tell supported from unsupported answers as those of a fair detector do."""
    rng = np.random.default_rng(0)
    loss = rng.random(400) < 0.35
    score = rng.beta(np.where(loss, 2, 5), 3)
    above = score[:, None] >= np.arange(1, thresholds + 1) / (thresholds + 1)
    return from_answers(above * loss[:, None], above * ~loss[:, None], rng)


def test_labels_are_of_what_the_lowest_threshold_accepts() -> None:
    aim = Aim(Fraction(1, 5), 100, objective="labels", labels=2.0)
    done = np.zeros((10, 2, 2), dtype=np.bool_)
    done[:8, 0, 1] = done[:8, 1, 1] = done[8, 1, 0] = True
    accepted = np.tile([0.4, 0.2], (10, 1))
    score, found = judged(aim, done, accepted, np.array([50, 100]))
    assert (found.labels, found.labels_90) == (40, 80)
    assert score == pytest.approx(-np.mean([20.0] * 8 + [40.0] * 2) * 2 / 0.9**6)  # two labels each


@pytest.mark.parametrize("epsilon", [math.inf, 4.0])
def test_a_plan_for_few_labels_needs_fewer(epsilon: float) -> None:
    known = populations()
    few, many = (
        (plan_open if math.isinf(epsilon) else plan_sealed)(
            known,
            Aim(Fraction(1, 5), 4_000, noise=0.0 if math.isinf(epsilon) else 1.3, looks=9, objective=objective),
            np.random.default_rng(1),
        )
        for objective in ("labels", "records")
    )
    assert few[1].labels <= 0.7 * many[1].labels
    assert few[1].certified >= many[1].certified - 0.05
    assert few[0].kept[0] > many[0].kept[0]


def test_labels_on_demand_are_to_be_few() -> None:
    known, sizes = populations(), {"north": UNITS}
    there, wanted = (register_grid(choices, ["north"]) for choices in (CHOICES, ON_DEMAND))
    assert plan(there, [known], sizes, Wish()).objective == "acceptance"
    made = plan(wanted, [known], sizes, Wish())
    assert made.objective == "labels"
    assert made.registration.schedule.rounds > 1
    assert plan(wanted, [known], sizes, Wish(objective="acceptance")).objective == "acceptance"
    words = "\n".join(made.lines())
    found = made.expected
    assert (
        f"about {found.labels:,} labels from {round(found.units):,} records, at most {found.labels_90:,} in 9" in words
    )
    assert "It is for few labels" in words
    assert "labels" not in "\n".join(plan(there, [known], sizes, Wish()).lines())
    twice = register_grid(replace(ON_DEMAND, label_twice=0.5), ["north"])
    assert plan(twice, [known], sizes, Wish()).expected.labels == pytest.approx(1.5 * found.labels, abs=2)
    assert for_table(ON_DEMAND, table(100), {}).policy == "first"
    assert for_table(CHOICES, table(100), {}).policy == "enough"


def test_a_forecast_in_labels() -> None:
    there, wanted = (register_grid(choices, ["north"]) for choices in (CHOICES, replace(ON_DEMAND, label_twice=0.1)))
    laws = from_declared(wanted, 0.4, 0.1)
    found = forecast(wanted, laws, 0.2, math.inf)
    assert found.records is not None
    assert found.labels == math.ceil(found.records * 0.4 * 1.1)
    assert f"; about {found.labels:,} labels, at most {found.labels_90:,} (" in found.sentence()
    plain = forecast(there, from_declared(there, 0.4, 0.1), 0.2, math.inf)
    assert (plain.records, plain.labels) == (found.records, None)
    assert "label" not in plain.sentence()
