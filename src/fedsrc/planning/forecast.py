"""Forecast: how many units and rounds a target and epsilon should take, before labels or privacy are spent.

Runs are simulated on a law of scores and losses: labelled development records, a declared acceptance and risk, or,
after an abstention, the noised masses of the transcript. A forecast is an estimate, not a guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats
from fedsrc.planning.reach import noised_rates, sampled_rates
from fedsrc.protocol.judgements import Betting
from fedsrc.protocol.registration import Registration
from fedsrc.records.development import development_rows
from fedsrc.records.units import Records, Units, units_of
from fedsrc.server.state import Replay
from fedsrc.server.tally import Masses, masses
from fedsrc.simulate.population import Support, from_cells, information_limit, truth, uniform
from fedsrc.simulate.trials import simulate

HORIZON = 4  # look this many times beyond the registered rounds
TRIALS = 60


@dataclass(frozen=True)
class Forecast:
    """What one target and epsilon should take. Records and rounds are None where the horizon was not enough.

    `limit` is for methods that do not use which site a unit is from; with known sites it can be lower.
    """

    target_risk: float
    epsilon: float
    records: int | None
    records_90: int | None
    rounds: int | None
    records_per_site: int | None
    certified_within_schedule: float
    acceptance: float | None
    limit: float
    horizon: int
    too_few: bool = False  # too few units to tell whether the target can be reached

    def sentence(self) -> str:
        """Say it in words."""
        head = f"target {self.target_risk:g} at epsilon {self.epsilon:g}"
        if self.too_few:
            return f"{head}: too few units to tell whether a threshold that accepts enough has a risk below the target"
        if math.isinf(self.limit):
            return f"{head}: out of reach; no threshold with enough acceptance has a risk below the target"
        floor = f"without privacy, told the best threshold, not the sites: {self.limit:,.0f}"
        if self.records is None:
            return f"{head}: more than {self.horizon:,} units ({floor})"
        nine = f", at most {self.records_90:,} in 9 of 10 runs" if self.records_90 else ""
        return (
            f"{head}: about {self.records:,} units in {self.rounds} {'round' if self.rounds == 1 else 'rounds'}{nine}"
            f" ({floor})"
        )


def _with_aim(registration: Registration, target_risk: float, epsilon: float, rounds: int) -> Registration:
    """Return the registration with another target, epsilon and number of rounds, and the same thresholds."""
    fields = registration.model_dump()
    fields["claim"]["target_risk"] = target_risk
    fields["privacy"]["epsilon"] = epsilon
    fields["thresholds"] |= {"origin": "declared", "asked": None}
    fields["development"] = None
    fields["schedule"]["rounds"] = rounds
    fields["schedule"]["policy"] = "first" if registration.schedule.policy == "final" else registration.schedule.policy
    if isinstance(registration.certificate, Betting):
        fields["certificate"]["ladder"] = sorted({*registration.certificate.ladder, target_risk})
    return Registration.model_validate(fields)


def forecast(
    registration: Registration,
    sites: Sequence[Support],
    target_risk: float,
    epsilon: float,
    *,
    seed: int = 0,
    sampled: bool = False,
) -> Forecast:
    """Simulate runs of that target and epsilon on the sites' laws, past the registered rounds if need be.

    `sampled`: the laws are samples, as those of development records are, so no threshold is ruled out lightly.
    """
    schedule = registration.schedule.rounds
    aimed = _with_aim(registration, target_risk, epsilon, schedule * HORIZON)
    weights = registration.weights or [1.0 / len(sites)] * len(sites)
    limit = information_limit(aimed, sites, weights)
    horizon = _horizon(registration)
    if math.isinf(limit):
        too_few = sampled and sampled_rates(aimed, sites, weights).reach(aimed.claim.min_acceptance) != "out of reach"
        return Forecast(target_risk, epsilon, None, None, None, None, 0.0, None, limit, horizon, too_few)
    runs = simulate(aimed, sites, trials=TRIALS, seed=seed)
    needed = np.where(runs.certified, runs.records, np.inf)
    rounds = np.where(runs.certified, runs.rounds, np.inf)
    median = _whole(np.quantile(needed, 0.5, method="higher"))
    accepted = truth(aimed, sites, weights).acceptance
    return Forecast(
        target_risk,
        epsilon,
        median,
        _whole(np.quantile(needed, 0.9, method="higher")),
        _whole(np.quantile(rounds, 0.5, method="higher")),
        None if median is None else math.ceil(median / len(sites)),
        float(np.mean(rounds <= schedule)),
        float(np.median(accepted[runs.threshold[runs.certified]])) if median is not None else None,
        limit,
        horizon,
    )


def forecasts(
    registration: Registration,
    sites: Sequence[Support],
    targets: Sequence[float],
    epsilons: Sequence[float],
    *,
    sampled: bool = False,
) -> Iterator[Forecast]:
    """Yield a forecast for every target at every epsilon."""
    for target in targets:
        for epsilon in epsilons:
            yield forecast(registration, sites, target, epsilon, sampled=sampled)


def from_development(registration: Registration, records: Records) -> list[Support]:
    """Return laws from labelled development records: each site's own where it has some, else all of them pooled.

    Where the table that calibrates holds the development part, only that part of any table is looked at.
    """
    development, settings = registration.development, registration.privacy
    keep = None
    if development is not None and development.inside:
        keep = development_rows(records, development, settings.unit)
    answers = settings.max_answers
    found = {
        name: units_of(records, name, settings.unit, max_answers=answers, keep=keep) for name in records.site_names
    }
    filled = [units for units in found.values() if len(units)]
    if not filled:
        raise FedsrcError("there are no development records to forecast from")
    pooled = _pool(filled)
    chosen = [found.get(site.name) for site in registration.sites]
    return uniform(registration, [units if units is not None and len(units) else pooled for units in chosen])


def from_declared(registration: Registration, acceptance: float, risk: float) -> list[Support]:
    """Return laws from one declared operating point: this acceptance and risk at one threshold, no help elsewhere."""
    if not (0 < acceptance <= 1 and 0 <= risk <= 1):
        raise FedsrcError("declared acceptance must be in (0, 1] and declared risk in [0, 1]")
    m = len(registration.thresholds.values)
    supported, unsupported = np.zeros(m + 1), np.zeros(m + 1)
    place = min(m, max(1, round((m + 1) * (1 - acceptance))))  # where quantile thresholds put that acceptance
    supported[place], unsupported[place] = acceptance * (1 - risk), acceptance * risk
    unsupported[0] = 1 - acceptance
    return [from_cells(registration, supported, unsupported)] * len(registration.sites)


def after_abstention(replay: Replay) -> Forecast | None:
    """Forecast what the target would have taken at the rates seen: post-processing, which costs no privacy.

    Only where the noised masses plainly put some threshold below the target is there something to estimate, and only
    where they plainly put none there is it out of reach.
    """
    registration, tally = replay.registration, replay.tally
    if tally.arrived == 0:
        return None
    seen, claim = masses(registration, tally.sums, tally.releases), registration.claim
    reach = noised_rates(registration, seen, tally.arrived).reach(claim.min_acceptance)
    if reach == "in reach":
        site = _law(registration, seen, tally.arrived)
        found = forecast(
            registration, [site] * len(registration.sites), claim.target_risk, registration.privacy.epsilon
        )
        if not math.isinf(found.limit):
            return found
    horizon = _horizon(registration)
    too_few = reach != "out of reach"
    return Forecast(
        claim.target_risk, registration.privacy.epsilon, None, None, None, None, 0.0, None, math.inf, horizon, too_few
    )


def _law(registration: Registration, seen: Masses, units: int) -> Support:
    """Return the law that the noised masses of so many units show."""
    cells = [-np.diff(as_falling(each, units), append=0.0) for each in (seen.supported, seen.unsupported)]
    rejected = max(0.0, units - float(cells[0].sum() + cells[1].sum()))
    return from_cells(registration, np.append(0.0, cells[0]), np.append(rejected, cells[1]))


def as_falling(noised: Floats, units: int) -> Floats:
    """Noised suffix masses as masses that fall with the threshold, between none and all of the units: midway between
    the lowest falling line above them and the highest below. Noise does not add up, as it would bin by bin."""
    above = np.maximum.accumulate(noised[::-1])[::-1]
    return np.clip((above + np.minimum.accumulate(noised)) / 2, 0.0, units)


def _horizon(registration: Registration) -> int:
    """Return how many units a forecast looks ahead."""
    return registration.most_units * HORIZON


def _pool(parts: Sequence[Units]) -> Units:
    sizes = np.concatenate([np.diff(units.start) for units in parts])
    start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    score, loss = (np.concatenate([getattr(units, name) for units in parts]) for name in ("score", "loss"))
    return Units(start, score, loss, None)


def _whole(value: float) -> int | None:
    return None if math.isinf(value) else int(value)
