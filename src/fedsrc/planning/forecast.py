"""Forecast: how many units and rounds a target and epsilon should take, before labels or privacy are spent.

Runs are simulated on laws of scores and losses: a declared acceptance and risk, or laws drawn anew for every run from
what labelled development records, or after an abstention the noised masses of the transcript, leave open. A forecast is
an estimate, not a guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fedsrc.errors import FedsrcError
from fedsrc.planning.reach import noised_rates, sampled_rates
from fedsrc.planning.sealed_forecast import SIZES, outlook, rates, scaled
from fedsrc.protocol.judgements import Betting, Sealed
from fedsrc.protocol.registration import Registration
from fedsrc.records.development import development_rows
from fedsrc.records.units import Records, Units, units_of
from fedsrc.server.sealed import Seen
from fedsrc.server.state import Replay
from fedsrc.server.tally import masses
from fedsrc.simulate.population import Support, deployment_weights, from_cells, information_limit, truth, uniform
from fedsrc.simulate.posterior import cells_of, from_noised, from_sample
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
        more = f", more than {self.horizon:,} in 1 of 10 runs or more"
        nine = more if self.records_90 is None else f", at most {self.records_90:,} in 9 of 10 runs"
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
    fields["schedule"]["policy"] = "recruit" if registration.schedule.policy == "recruit" else "first"
    if isinstance(registration.certificate, Betting):
        above = (rung for rung in registration.certificate.ladder if rung >= target_risk)  # those below decide nothing
        fields["certificate"]["ladder"] = sorted({*above, target_risk})
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

    `sampled`: the laws are samples, as those of development records are. Each run then has laws of its own, drawn from
    what the samples leave open; where they are too few to tell whether the target can be reached, there is no number.
    """
    sealed = isinstance(registration.judgement, Sealed)
    rounds = registration.schedule.rounds * HORIZON
    aimed = (scaled(registration, target_risk, epsilon, 1.0) if sealed
             else _with_aim(registration, target_risk, epsilon, rounds))  # fmt: skip
    reach = sampled_rates(aimed, sites, _weights(aimed)).reach(aimed.claim.min_acceptance) if sampled else "in reach"
    if reach != "in reach" or math.isinf(information_limit(aimed, sites, _weights(aimed))):
        return _no_number(registration, target_risk, epsilon, too_few=sampled and reach != "out of reach")
    laws = from_sample(aimed, sites, TRIALS, seed) if sampled else sites
    return (_simulated_sealed if sealed else _simulated)(registration, aimed, sites, laws, seed)


def _simulated_sealed(
    registration: Registration, aimed: Registration, sites: Sequence[Support], laws: Sequence[Support], seed: int
) -> Forecast:
    """Do as `_simulated` for a sealed certificate, whose looks are of registered sizes: runs of several sizes."""
    claim, epsilon = aimed.claim, aimed.privacy.epsilon
    runs = {
        size: simulate(scaled(registration, claim.target_risk, epsilon, size), laws, trials=TRIALS, seed=seed)
        for size in SIZES
    }
    share = {size: float(each.certified.mean()) for size, each in runs.items()}
    half, nine = (next((size for size in SIZES if share[size] >= level), None) for level in (0.5, 0.9))
    used = {size: int(np.median(each.records)) for size, each in runs.items()}
    accepted = truth(aimed, sites, _weights(aimed)).acceptance
    chosen = None if half is None else runs[half]
    return Forecast(
        claim.target_risk,
        epsilon,
        None if half is None else used[half],
        None if nine is None else used[nine],
        None if chosen is None else int(np.median(chosen.rounds)),
        None if half is None else math.ceil(used[half] / len(sites)),
        share[1.0],
        None if chosen is None else float(np.median(accepted[chosen.threshold[chosen.certified]])),
        information_limit(aimed, sites, _weights(aimed)),
        int(SIZES[-1] * registration.most_units),
    )


def _simulated(
    registration: Registration, aimed: Registration, sites: Sequence[Support], laws: Sequence[Support], seed: int
) -> Forecast:
    """Summarise runs on `laws`, which may differ from run to run; `sites` are the laws most like what is known."""
    runs = simulate(aimed, laws, trials=TRIALS, seed=seed)
    needed = np.where(runs.certified, runs.records, np.inf)
    rounds = np.where(runs.certified, runs.rounds, np.inf)
    median = _whole(np.quantile(needed, 0.5, method="higher"))
    accepted = truth(aimed, sites, _weights(aimed)).acceptance
    return Forecast(
        aimed.claim.target_risk,
        aimed.privacy.epsilon,
        median,
        _whole(np.quantile(needed, 0.9, method="higher")),
        _whole(np.quantile(rounds, 0.5, method="higher")),
        None if median is None else math.ceil(median / len(sites)),
        float(np.mean(rounds <= registration.schedule.rounds)),
        float(np.median(accepted[runs.threshold[runs.certified]])) if median is not None else None,
        information_limit(aimed, sites, _weights(aimed)),
        _horizon(registration),
    )


def _no_number(registration: Registration, target_risk: float, epsilon: float, *, too_few: bool) -> Forecast:
    """Say that the target is out of reach, or that there are too few units to tell."""
    horizon = _horizon(registration)
    return Forecast(target_risk, epsilon, None, None, None, None, 0.0, None, math.inf, horizon, too_few)


def _weights(registration: Registration) -> list[float]:
    return [float(each) for each in deployment_weights(registration)]


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
    [pooled] = uniform(registration, [_pool(filled)])
    chosen = [found.get(site.name) for site in registration.sites]
    return [uniform(registration, [units])[0] if units is not None and len(units) else pooled for units in chosen]


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
    if replay.sealed is not None:
        return _after_sealed(replay, replay.sealed)
    seen, claim = masses(registration, tally.sums, tally.releases), registration.claim
    epsilon = registration.privacy.epsilon
    reach = noised_rates(registration, seen, tally.arrived).reach(claim.min_acceptance)
    aimed = _with_aim(registration, claim.target_risk, epsilon, registration.schedule.rounds * HORIZON)
    site = from_cells(aimed, *np.split(cells_of(seen, tally.arrived), 2))
    sites = [site] * len(registration.sites)
    if reach != "in reach" or math.isinf(information_limit(aimed, sites, _weights(aimed))):
        return _no_number(registration, claim.target_risk, epsilon, too_few=reach != "out of reach")
    law = from_noised(registration, tally, TRIALS, 0)
    return _simulated(registration, aimed, sites, [law] * len(sites), 0)


def _after_sealed(replay: Replay, looks: Sequence[Seen]) -> Forecast | None:
    """Forecast from what the last look of a sealed run saw."""
    registration = replay.registration
    target, epsilon = registration.claim.target_risk, registration.privacy.epsilon
    if not looks:
        return None
    reach, found = rates(registration, looks[-1]).reach(registration.claim.min_acceptance), outlook(replay)
    if reach != "in reach" or found is None:
        return _no_number(registration, target, epsilon, too_few=reach != "out of reach")
    records, accepted = math.ceil(found.half), looks[-1].accepted[found.threshold] / looks[-1].N
    nine = None if math.isinf(found.nine) else math.ceil(found.nine)
    per_site = math.ceil(records / len(registration.sites))
    return Forecast(
        target, epsilon, records, nine, 1, per_site, 0.0, float(accepted), found.limit, _horizon(registration)
    )


def _horizon(registration: Registration) -> int:
    """Return how many units a forecast looks ahead."""
    return registration.units_in(registration.schedule.rounds * HORIZON)


def _pool(parts: Sequence[Units]) -> Units:
    sizes = np.concatenate([np.diff(units.start) for units in parts])
    start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    score, loss = (np.concatenate([getattr(units, name) for units in parts]) for name in ("score", "loss"))
    return Units(start, score, loss, None)


def _whole(value: float) -> int | None:
    return None if math.isinf(value) else int(value)
