"""What a plan is made for, and what it lets expect."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from fedsrc.maths import betting
from fedsrc.maths.arrays import Bools, Floats, Ints
from fedsrc.maths.kinds import Adjacency
from fedsrc.maths.panels import Layout

Objective = Literal["acceptance", "records", "labels", "rounds"]
WORTH = 6  # percent more labels that a certificate is worth which is one percent likelier


@dataclass(frozen=True)
class Aim:
    """What a plan is for: `units` calibrate, at so many sites. `noise` is the noise scale over the sensitivity,
    sqrt(1 / (2 rho)), zero without privacy, and one round has that of so many `releases`; `within`: or less, as a
    cohort's members may add it. `moving`: the mixture of sites may change between looks. `exact`: counts have neither
    noise nor drift, and are of one site. `acceptance`: bounds on it at every threshold, from unlabelled records.
    `labels`: how many an answer at or above the lowest threshold takes, times the answers of a unit. `layout`: of the
    panel that the plan is a part of, and `counts`: how many thresholds it may have there."""

    target_risk: Fraction
    units: int
    noise: float = 0.0
    sites: int = 1
    releases: float = 1
    within: bool = False
    looks: int = 1
    objective: Objective = "acceptance"
    risk_budget: float = 0.045
    acceptance_budget: float = 0.0049
    min_acceptance: float = 0.05
    mass_grid: int = 1
    adjacency: Adjacency = "replacement"
    drift: float = 0.0
    moving: bool = False
    exact: bool = False
    acceptance: tuple[tuple[float, float], ...] | None = None
    labels: float = 1.0
    layout: Layout | None = None
    counts: tuple[int, ...] | None = None

    @property
    def free(self) -> bool:
        """Whether contrasts are tested by themselves: single binary answers, with unlabelled records or exact counts.

        Theory: (xiii) Half-lines, Exact counts.
        """
        return self.layout is None and self.mass_grid == 1 and (self.exact or self.acceptance is not None)


class Expected(NamedTuple):
    """The chance to certify, the mean acceptance (none counts as zero), and the mean units up to the first certificate
    (all where there is none), with the labels that these take in half and in nine of ten runs."""

    certified: float
    acceptance: float
    units: float
    labels: int
    labels_90: int


def judged(aim: Aim, done: Bools, accepted: Floats, slots: Ints) -> tuple[float, Expected]:
    """Return how well a plan does by its objective, and its forecast, from what it certified in every population
    (draws, looks, thresholds), their acceptance (draws, thresholds), and the units used up to each look.
    """
    shown = done.any(axis=-1)
    ever, first = shown.any(axis=-1), shown.argmax(axis=-1)
    used, rounds = np.where(ever, slots[first], slots[-1]), np.where(ever, first + 1, len(slots))
    acceptance = float((accepted * done[:, -1]).max(axis=-1).mean())
    labels = aim.labels * used * accepted[:, 0]
    half, nine = (math.ceil(np.quantile(labels, q)) for q in (0.5, 0.9))
    forecast = Expected(float(ever.mean()), acceptance, float(used.mean()), half, nine)
    if aim.objective == "acceptance":
        return acceptance, forecast
    if aim.objective == "labels":
        chance = max(forecast.certified, 0.5 / ever.size)
        return -float(labels.mean()) / chance**WORTH, forecast
    cost, none = {"records": (used, aim.units), "rounds": (rounds, len(slots) + 1)}[aim.objective]
    return -float(np.where(ever, cost, none).mean()), forecast  # all there is, where nothing is certified


def reaches_floor(aim: Aim, accepted: Floats, slots: Ints, variance: Floats, shares: Floats) -> Bools:
    """Return where noised accepted masses (..., looks, thresholds) show the acceptance floor, each with its share of
    the budget; a higher threshold accepts no more, so what it shows serves those below it.
    """
    shape = np.broadcast_shapes(np.shape(slots), np.shape(variance), np.shape(shares))
    key = [tuple(np.broadcast_to(each, shape).ravel().tolist()) for each in (slots, variance, shares)]
    shown = accepted >= _least_accepted(aim.min_acceptance, aim.acceptance_budget, aim.drift, *key).reshape(shape)
    return np.logical_or.accumulate(shown[..., ::-1], axis=-1)[..., ::-1]


@lru_cache(maxsize=4096)
def _least_accepted(
    floor: float, budget: float, drift: float, slots: tuple[int, ...], variance: tuple[float, ...],
    shares: tuple[float, ...],
) -> Floats:  # fmt: skip
    """Return the least accepted masses that show the floor: the bound rises with them, so they are bisected."""
    N, v, w = (np.array(each, dtype=np.float64) for each in (slots, variance, shares))
    low, high, bets = np.zeros_like(N), 2.0 * N, betting.centres(floor)
    for _ in range(40):
        middle = (low + high) / 2.0
        shown = betting.a_lower(middle, v, N, eta=drift, bets=bets, alpha_a=budget, w=w) >= floor
        low, high = np.where(shown, low, middle), np.where(shown, middle, high)
    return high


def two_digits(value: float) -> float:
    """Round down to two significant digits: a plan is public."""
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return round(math.floor(value / step) * step, 12)
