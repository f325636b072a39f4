"""Forecast: how many units and rounds a target and epsilon should take, before labels or privacy are spent.

Runs are simulated on laws of scores and losses: a declared acceptance and risk, or laws drawn anew for every run from
what labelled development records, or after an abstention the noised masses of the transcript, leave open. A forecast is
an estimate, not a guarantee.

Development records give a number only where they are at least EVIDENCE times the information limit at their own rates:
at failure probability 0.05 the likelihood of the best threshold is then exp(12) times that at the target. With less,
much of what looks best is luck, and takes more than it promises (docs/results/forecast-coverage.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats
from fedsrc.maths.label_error import on_labels
from fedsrc.planning.alone import alone
from fedsrc.planning.reach import known_units, noised_rates, sampled_rates
from fedsrc.planning.sealed_forecast import outlook, rates, smallest
from fedsrc.protocol.judgements import Betting, Sealed
from fedsrc.protocol.panels import Scores
from fedsrc.protocol.registration import OnDemand, Registration
from fedsrc.records.development import development_rows, units_for
from fedsrc.records.units import Records
from fedsrc.server.sealed import Seen
from fedsrc.server.state import Replay
from fedsrc.server.tally import masses
from fedsrc.simulate.population import Support, deployment_weights, from_cells, information_limit, truth, uniform
from fedsrc.simulate.posterior import from_samples, from_tally
from fedsrc.simulate.trials import simulate

HORIZON = 4  # look this many times beyond the registered rounds
SIZES = (0.25, 0.5, 1.0, 2.0, HORIZON)  # of the registered batches, that a forecast of a sealed certificate tries
TRIALS = 60
EVIDENCE = 4  # times the information limit


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
    labels: int | None = None  # of single answers that are labelled on demand, those that need it
    labels_90: int | None = None
    blocks: tuple[tuple[str, Forecast], ...] = ()  # of every group or score of a panel

    def sentence(self) -> str:
        """Say it in words; of a panel, for every group or score."""
        if self.blocks:
            return "\n".join(f"{name!r}, {each.sentence()}" for name, each in self.blocks)
        head = f"target {self.target_risk:g} at epsilon {self.epsilon:g}"
        if self.too_few:
            return f"{head}: too few units to tell how many it takes, or whether the target can be reached"
        if math.isinf(self.limit):
            return f"{head}: out of reach; no threshold with enough acceptance has a risk below the target"
        floor = f"without privacy, told the best threshold, not the sites: {self.limit:,.0f}"
        if self.records is None:
            return f"{head}: more than {self.horizon:,} units ({floor})"
        more = f", more than {self.horizon:,} in 1 of 10 runs or more"
        nine = more if self.records_90 is None else f", at most {self.records_90:,} in 9 of 10 runs"
        most = "" if self.labels_90 is None else f", at most {self.labels_90:,}"
        labels = "" if self.labels is None else f"; about {self.labels:,} labels{most}"
        return (
            f"{head}: about {self.records:,} units in {self.rounds} {'round' if self.rounds == 1 else 'rounds'}{nine}"
            f"{labels} ({floor})"
        )


def _with_aim(registration: Registration, target_risk: float, epsilon: float, size: float) -> Registration:
    """Return the registration with another target, on labels, and epsilon, some times as large, and its thresholds.

    The looks of a sealed certificate are registered, so its batches grow; else there are more rounds.
    """
    sealed, fields = isinstance(registration.judgement, Sealed), registration.model_dump()
    if sealed and target_risk != registration.claim.target_risk:
        raise FedsrcError(
            f"a sealed certificate is made for its registered target {registration.promised_risk:g}",
            hint="plan anew for another target",
        )
    grows, schedule = "batch" if sealed else "rounds", fields["schedule"]
    schedule[grows] = max(1, math.ceil(size * schedule[grows]))
    schedule["policy"] = "recruit" if registration.schedule.policy == "recruit" else "first"
    fields["claim"]["target_risk"] = target_risk
    fields["privacy"]["epsilon"] = epsilon
    if math.isinf(epsilon) and registration.cohorts is not None:
        fields["aggregation"] = {"kind": "own"}  # without noise, nothing is shared
    fields["thresholds"] |= {"origin": "declared", "asked": None}
    fields["development"] = None
    if isinstance(registration.certificate, Betting):
        above = (rung for rung in registration.certificate.ladder if rung >= target_risk)  # those below decide nothing
        fields["certificate"]["ladder"] = [target_risk] if registration.panel else sorted({*above, target_risk})
    return Registration.of(fields, f"epsilon {epsilon:g} cannot be forecast")


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
    Every block of a panel is forecast by itself.
    """
    if registration.panel is not None:
        return _by_block(registration, sites, target_risk, epsilon, seed=seed, sampled=sampled)
    aimed = _with_aim(registration, on_labels(target_risk, registration.labelling.missed), epsilon, HORIZON)
    if not sampled:
        return _simulated(registration, aimed, sites, sites, seed)
    weights = _weights(aimed)
    if sampled_rates(aimed, sites, weights).reach(aimed.claim.min_acceptance) == "out of reach":
        return _no_number(aimed, too_few=False)
    if not known_units(sites, weights) >= EVIDENCE * information_limit(aimed, sites, weights):
        return _no_number(aimed, too_few=True)
    laws = from_samples(aimed, sites, TRIALS, seed)
    return _simulated(registration, aimed, sites, laws, seed)


def _by_block(
    registration: Registration,
    sites: Sequence[Support],
    target_risk: float,
    epsilon: float,
    *,
    seed: int,
    sampled: bool,
) -> Forecast:
    """Forecast every block, and with it the panel: until all groups are certified, or the best score is."""
    risk = on_labels(target_risk, registration.labelling.missed)
    aimed, found = _with_aim(registration, risk, epsilon, 1.0), list[Forecast]()
    for block in range(len(registration.cuts)):
        laws = [replace(each, masses=each.masses[:, block]) for each in sites]
        one = alone(aimed, block)
        if registration.groups is not None and registration.groups.floor == "group":  # whose first threshold is 0
            one = alone(aimed, block, float(truth(one, laws, _weights(one)).acceptance[0]))
        each = forecast(one, laws, target_risk, one.privacy.epsilon, seed=seed, sampled=sampled)
        found.append(replace(each, epsilon=epsilon))
    pick = min if isinstance(registration.claims, Scores) else max
    whole = pick(found, key=_slowness)
    return replace(whole, blocks=tuple(zip(registration.block_names, found, strict=True)))


def _slowness(found: Forecast) -> tuple[float, ...]:
    """Order forecasts by the records that they take, in half and in nine of ten runs: slowest is what is out of reach,
    and before it what there are too few units to tell of."""
    half, nine = (math.inf if each is None else each for each in (found.records, found.records_90))
    return half, 0.0 if found.too_few else 1.0, nine, found.limit, -found.certified_within_schedule


def _simulated(
    registration: Registration, aimed: Registration, sites: Sequence[Support], laws: Sequence[Support], seed: int
) -> Forecast:
    """Summarise runs on `laws`, which may differ from run to run; `sites` are the laws most like what is known."""
    claim, epsilon, limit = aimed.claim, aimed.privacy.epsilon, information_limit(aimed, sites, _weights(aimed))
    if math.isinf(limit):
        return _no_number(aimed, too_few=laws is not sites)
    if isinstance(registration.judgement, Sealed):
        every = [_with_aim(registration, claim.target_risk, epsilon, size) for size in SIZES]
        runs = smallest([simulate(each, laws, trials=TRIALS, seed=seed) for each in every])
        within = runs.records <= registration.most_units
    else:
        runs = simulate(aimed, laws, trials=TRIALS, seed=seed)
        within = runs.rounds <= registration.schedule.rounds
    needed, rounds = (np.where(runs.certified, each, np.inf) for each in (runs.records, runs.rounds))
    median, nine = (_whole(np.quantile(needed, q, method="higher")) for q in (0.5, 0.9))
    accepted = truth(aimed, sites, _weights(aimed)).acceptance
    labels, labels_90 = (_labels(aimed, records, accepted) for records in (median, nine))
    return Forecast(
        aimed.promised_risk,
        epsilon,
        median,
        nine,
        _whole(np.quantile(rounds, 0.5, method="higher")),
        None if median is None else math.ceil(median / len(sites)),
        float(np.mean(runs.certified & within)),
        float(np.median(accepted[runs.threshold[runs.certified]])) if median is not None else None,
        limit,
        aimed.most_units,
        labels=labels,
        labels_90=labels_90,
    )


def _labels(aimed: Registration, records: int | None, accepted: Floats) -> int | None:
    """Return how many labels so many records take on demand: those at or above the lowest threshold."""
    if records is None or not isinstance(aimed.labelling, OnDemand) or aimed.privacy.unit == "source":
        return None
    return math.ceil(records * float(accepted[0]) * (1 + aimed.labelling.twice))


def _no_number(aimed: Registration, *, too_few: bool) -> Forecast:
    """Say that the target is out of reach, or that there are too few units to tell."""
    target, epsilon = aimed.promised_risk, aimed.privacy.epsilon
    return Forecast(target, epsilon, None, None, None, None, 0.0, None, math.inf, aimed.most_units, too_few)


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
    units = {name: units_for(registration, records, name, keep) for name in records.site_names}
    found = {name: uniform(registration, [each])[0] for name, each in units.items() if len(each)}
    if not found:
        raise FedsrcError("there are no development records to forecast from")
    every = np.concatenate([each.masses for each in found.values()])
    pooled = Support(every, np.full(len(every), 1.0 / len(every)))
    return [found.get(site.name, pooled) for site in registration.sites]


def from_declared(registration: Registration, acceptance: float, risk: float) -> list[Support]:
    """Return laws from one declared operating point: this acceptance and risk at one threshold, no help elsewhere."""
    if not (0 < acceptance <= 1 and 0 <= risk <= 1):
        raise FedsrcError("declared acceptance must be in (0, 1] and declared risk in [0, 1]")
    if len(registration.cuts) > 1:
        raise FedsrcError("one acceptance and one risk say nothing of groups or several scores", hint="give a table")
    m = len(registration.thresholds.values)
    supported, unsupported = np.zeros(m + 1), np.zeros(m + 1)
    place = min(m, max(1, round((m + 1) * (1 - acceptance))))  # where quantile thresholds put that acceptance
    supported[place], unsupported[place] = acceptance * (1 - risk), acceptance * risk
    unsupported[0] = 1 - acceptance
    law = from_cells(registration, supported, unsupported)
    if registration.panel is not None:  # of one score
        law = replace(law, masses=law.masses[:, None])
    return [law] * len(registration.sites)


def after_abstention(replay: Replay) -> Forecast | None:
    """Forecast what the target would have taken at the rates seen: post-processing, which costs no privacy.

    Only where the noised masses plainly put some threshold below the target is there something to estimate, and only
    where they plainly put none there is it out of reach.
    """
    registration, tally, claim = replay.registration, replay.tally, replay.registration.claim
    if tally.arrived == 0:
        return None
    aimed = _with_aim(registration, claim.target_risk, registration.privacy.epsilon, HORIZON)
    if replay.sealed is not None:
        return _after_sealed(replay, aimed, replay.sealed)
    seen = masses(registration, tally.sums, tally.noises)
    reach = noised_rates(registration, seen, tally.arrived).reach(claim.min_acceptance)
    if reach != "in reach":
        return _no_number(aimed, too_few=reach == "too few")
    law, sites = from_tally(registration, tally, TRIALS, 0), len(registration.sites)
    mean = replace(law, law=law.law.mean(axis=0))
    return _simulated(registration, aimed, [mean] * sites, [law] * sites, 0)


def _after_sealed(replay: Replay, aimed: Registration, looks: Sequence[Seen]) -> Forecast | None:
    """Forecast from what the last look of a sealed run saw."""
    registration = replay.registration
    if not looks:
        return None
    reach, found = rates(registration, looks[-1]).reach(registration.claim.min_acceptance), outlook(registration, looks)
    if reach != "in reach" or found is None:
        return _no_number(aimed, too_few=reach != "out of reach")
    records, accepted = math.ceil(found.half), float(looks[-1].accepted[found.threshold] / looks[-1].N)
    return replace(
        _no_number(aimed, too_few=False), records=records, records_90=_whole(found.nine), rounds=1,
        records_per_site=math.ceil(records / len(registration.sites)), acceptance=accepted, limit=found.limit,
    )  # fmt: skip


def _whole(value: float) -> int | None:
    return None if math.isinf(value) else math.ceil(value)
