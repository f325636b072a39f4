"""A plan: which certificate to register, and all that it fixes, from development evidence and how many units calibrate.

Nothing here looks at a unit that calibrates. What is planned is registered: a bad plan certifies less, and as validly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from fedsrc.common.words import count
from fedsrc.errors import FedsrcError
from fedsrc.maths.privacy import rho_of
from fedsrc.planning.aim import Aim, Expected, Objective
from fedsrc.planning.open_plan import OpenPlan, plan_open
from fedsrc.planning.sealed_plan import SealedPlan, plan_sealed
from fedsrc.planning.sealing import Seal, seal
from fedsrc.protocol.disclosure import released_development
from fedsrc.protocol.judgements import Betting, in_decimals
from fedsrc.protocol.protection import Development, Histograms, Noised
from fedsrc.protocol.registration import MOST_LEVELS, OnDemand, Registration
from fedsrc.records.development import development_rows
from fedsrc.records.masses import above, unit_masses
from fedsrc.records.units import Records, units_of
from fedsrc.server.recruiter import noises
from fedsrc.server.unlabelled import bounded
from fedsrc.simulate.posterior import Populations, either, from_release, from_scores, from_units

Kind = Literal["sealed", "open"]
FEW = 2  # sites that gain little by adding up
MOST_LOOKS, MANY = 20, 15  # more gain nothing, and a plan that tries them takes long
SEED = 19  # plans are drawn by a fixed seed, so that the same evidence gives the same plan


@dataclass(frozen=True)
class Wish:
    """What is wanted of a plan. "plain" is none: equal weights, all bets, and the batches and rounds that are given."""

    certificate: Kind | Literal["plain"] | None = None
    looks: int | None = None
    objective: Objective | None = None  # acceptance; labels, where they are made on demand

    def __post_init__(self) -> None:
        if not 1 <= self.number_of_looks <= MOST_LOOKS:
            raise FedsrcError(f"`looks=` {self.looks} is not between 1 and {MOST_LOOKS}")

    @property
    def number_of_looks(self) -> int:
        """One, where nobody says; many where records or labels are to be few."""
        return self.looks if self.looks is not None else MANY if self.objective in ("records", "labels") else 1


@dataclass(frozen=True)
class Planned:
    """A planned registration, what to expect of it, what the other kind would give, and what the same kind would if
    its sites, which add their own noise, were one cohort."""

    registration: Registration
    kind: Kind
    expected: Expected
    other: Expected
    units: int
    objective: Objective
    together: Expected | None = None

    def lines(self) -> list[str]:
        """Say what was chosen, why, and what the other kind would cost."""
        unit, values = self.registration.privacy.unit, self.registration.thresholds.values
        kinds = {"sealed": "Sealed (registered looks, this target alone)", "open": "Open (any look, every target)"}
        beside: Kind = "open" if self.kind == "sealed" else "sealed"
        why = "privacy adds noise, which registered looks can use exactly"
        if self.kind == "open":
            private = self.registration.privacy.private
            why = "nothing is sealed" if private else "without privacy it can be looked at whenever you like"
        few = f"  It is for few {self.objective}, not for most acceptance: `min_acceptance=` says how little is of use."
        part = self.registration.development
        known = f"as far as the development {unit}s tell"
        if part is not None and part.labels == "none":
            known = f"over scores from poor to good, as no development {unit} is labelled"
        sizes = f"{count(len(values), 'threshold')}, {count(self.registration.schedule.rounds, 'round')}"
        return [
            f"{kinds[self.kind]}: {sizes}, for {count(self.units, unit)}; {why}.",
            *([few] if self.objective != "acceptance" else []),
            f"  Expected, {known}: {self._words(self.expected)}.",
            f"  {kinds[beside]} would be expected to reach: {self._words(self.other)}.",
            *self._cohort(),
        ]

    def _cohort(self) -> list[str]:
        """Say what a cohort would give, or what this one asks of its members."""
        if self.together is None:
            return [f"  {line}" for line in availability_words(self.registration)]
        one = "Were its sites one cohort, which adds up before anyone sees (`aggregation='cohorts'`, 1 may collude),"
        return [f"  {one} it would be expected to reach: {self._words(self.together)}."]

    def _words(self, found: Expected) -> str:
        if found.certified < 0.005:
            return "no certificate"
        often = f"{100 * found.certified:.0f} of 100 such tables are certified"
        said = f"{often}, accepting {100 * found.acceptance:.0f}% on average (none counts as 0)"
        if not self.registration.on_demand:
            return said
        units, unit = round(found.units), self.registration.privacy.unit
        most = f"at most {found.labels_90:,} in 9 of 10 runs"
        return f"{said}, with about {found.labels:,} labels from {count(units, unit)}, {most}"


def plan(
    base: Registration,
    populations: Populations,
    units: Mapping[str, int],
    wish: Wish,
    unlabelled: tuple[Noised, ...] | None = None,
    *,
    answers: float = 1.0,
) -> Planned:
    """Plan a registration of the default preset for so many units per site, of so many answers each. Unless a kind is
    wished for: sealed with privacy, open without; unless an objective is: labels on demand are to be few, else
    acceptance large. `unlabelled` are the releases of every site's unlabelled units, which sealed ones read."""
    if not isinstance(base.judgement, Betting):
        raise FedsrcError("only the default preset is planned", hint="leave `preset=` out, or `certificate='plain'`")
    units, objective = _usable(base, units), wish.objective or ("labels" if base.on_demand else "acceptance")
    twice = base.labelling.twice if isinstance(base.labelling, OnDemand) else 0.0
    aim = replace(_aim(base, units, replace(wish, objective=objective), unlabelled), labels=(1.0 + twice) * answers)
    chosen: Kind = "sealed" if base.privacy.private and isinstance(base.encoding, Histograms) else "open"
    if wish.certificate is not None and wish.certificate != "plain":
        chosen = wish.certificate
    if unlabelled is not None and chosen == "open":
        raise FedsrcError("unlabelled records are for sealed certificates", hint="leave `unlabelled=` out")
    tight, tight_expected = plan_sealed(populations, aim, np.random.default_rng(SEED))
    free, free_expected = plan_open(populations, aim, np.random.default_rng(SEED))
    together = None
    if base.aggregation.kind == "own" and base.privacy.private and aim.sites > FEW:
        one = replace(aim, releases=aim.sites / (aim.sites - 1), within=True)
        make = plan_sealed if chosen == "sealed" else plan_open
        together = make(populations, one, np.random.default_rng(SEED))[1]
    if chosen == "sealed":
        try:
            made = _sealed(base, tight, units, unlabelled)
            return Planned(made, chosen, tight_expected, free_expected, aim.units, objective, together)
        except FedsrcError:  # contrasts of this target are too fine to be counted exactly
            if wish.certificate is not None or unlabelled is not None:
                raise
    together = together if chosen == "open" else None
    return Planned(_open(base, free), "open", free_expected, tight_expected, aim.units, objective, together)


def availability_words(registration: Registration) -> list[str]:
    """Say how many rounds count where a missing member of a cohort voids one."""
    if registration.cohorts is None:
        return []
    most = max(len(each.members) for each in registration.cohorts.cohorts)
    return [
        f"A round of a cohort counts if all of its members answer, {most} in the largest: where each answers 95 of 100"
        f" times, {100 * 0.95**most:.0f} of 100 of its rounds count."
    ]


def evidence(base: Registration, records: Records, development: Development) -> Populations | None:
    """Return the populations that development evidence leaves possible: from the noised release, where there is one,
    else from exact units; None where thresholds come from no evidence at all. Without labels scores are evidence, and
    beside a judge's, who may be wrong, too."""
    rng, release, settings = np.random.default_rng(SEED), released_development(base), base.privacy
    if release is not None:
        found, units = from_release(release, base.thresholds.values, rng), release.units
    elif base.thresholds.origin not in ("public", "development"):
        return None
    else:
        keep = development_rows(records, development, settings.unit)
        parts = [
            unit_masses(base, units_of(records, name, settings.unit, max_answers=settings.max_answers, keep=keep))
            for name in records.site_names
        ]
        supported, unsupported = np.moveaxis(above(np.concatenate(parts)) / settings.mass_grid, -2, 0)
        units = len(supported)
        if development.labels == "none":
            return from_scores(unsupported.sum(axis=0), units, rng)
        found = from_units(unsupported, supported, rng)
    if development.labels != "judge":
        return found
    return either(found, from_scores(units * found.accepted.mean(axis=0), units, rng))


def _usable(base: Registration, units: Mapping[str, int]) -> dict[str, int]:
    """Return the units that a run would ask for: up to a site's capacity, and none of a site without weight."""
    sites = [site for site in base.sites if site.weight != 0]
    return {
        site.name: min(units.get(site.name, 0), units.get(site.name, 0) if site.capacity is None else site.capacity)
        for site in sites
    }


def _aim(
    base: Registration, units: Mapping[str, int], wish: Wish, unlabelled: tuple[Noised, ...] | None
) -> Aim:  # fmt: skip
    total, settings, method = sum(units.values()), base.privacy, base.judgement
    if total < 1:
        raise FedsrcError("no unit is left to calibrate")
    assert isinstance(method, Betting)
    weights = base.weights or [units.get(site.name, 0) / total for site in base.sites]
    rho = rho_of(settings.epsilon, settings.delta, settings.conversion)
    slots = [units.get(site.name, 0) for site in base.sites]
    return Aim(
        target_risk=in_decimals(base.claim.target_risk),
        units=total,
        noise=0.0 if math.isinf(rho) else math.sqrt(1.0 / (2.0 * rho)),
        sites=sum(number > 0 for number in slots),
        releases=noises(base, slots),
        within=base.cohorts is not None,
        looks=wish.number_of_looks,
        objective=wish.objective or "acceptance",
        risk_budget=method.risk_budget,
        acceptance_budget=method.acceptance_budget,
        min_acceptance=base.claim.min_acceptance,
        mass_grid=settings.mass_grid,
        adjacency=settings.adjacency,
        drift=math.fsum(w * site.drift for w, site in zip(weights, base.sites, strict=True)),
        moving=not base.fixed_mixture,
        exact=not settings.private and len(base.sites) == 1 and not base.sites[0].drift,
        acceptance=None if unlabelled is None else _acceptance(base, units, wish, unlabelled),
    )


def _acceptance(
    base: Registration, units: Mapping[str, int], wish: Wish, unlabelled: tuple[Noised, ...]
) -> tuple[tuple[float, float], ...]:
    """Return about what unlabelled records show of acceptance at every threshold."""
    assert isinstance(base.judgement, Betting)
    numbers = tuple(units.get(site.name, 0) for site in base.sites)
    budget = base.judgement.acceptance_budget / (2 * wish.number_of_looks)
    found = bounded(unlabelled, base.thresholds.values, numbers, budget)
    return tuple(zip(found.lower.tolist(), found.upper.tolist(), strict=True))


def _sealed(
    base: Registration, made: SealedPlan, units: Mapping[str, int], unlabelled: tuple[Noised, ...] | None
) -> Registration:
    values = base.thresholds.values
    looks = tuple((number, share) for number, share in enumerate(made.shares, start=1))
    tests, kept = ((base.claim.target_risk, 1.0, () if made.aim.free else made.bets),), [values[j] for j in made.kept]
    line = "exact" if base.cohorts is None else "within"
    sealed = seal(base, Seal(tuple(kept), made.weights, tests, looks, line, unlabelled))
    batch = _batch(base, units, made.units[0] / made.aim.units)
    return _with(sealed, schedule={"batch": batch, "growth": made.growth})


def _open(base: Registration, made: OpenPlan) -> Registration:
    values = base.thresholds.values
    planned = _with(
        base,
        thresholds={"values": tuple(values[j] for j in made.kept), "weights": made.weights},
        certificate={"bets": {**_bets(base), "priors": made.priors}},
        schedule={"batch": made.batch, "growth": made.growth, "rounds": made.rounds},
    )
    finer = _finer(base)
    return planned if finer is None else _with(planned, encoding={"kind": finer})


def _finer(base: Registration) -> str | None:
    """Return what a release should count besides totals: of answers that are supported or not, nothing; of one graded
    answer its levels, where no noise falls on each; of others second moments, where their sums fit.

    Theory: (xiv).
    """
    settings = base.privacy
    if settings.mass_grid == 1 or not isinstance(base.encoding, Histograms):
        return None
    few = settings.max_answers == 1 and settings.loss_grid <= MOST_LEVELS
    kind = "levels" if few and not settings.private else "moments"
    try:
        _with(base, encoding={"kind": kind})
    except FedsrcError:
        return None
    return kind


def _bets(base: Registration) -> dict[str, Any]:
    assert isinstance(base.judgement, Betting)
    return base.judgement.bets.model_dump()


def _batch(base: Registration, units: Mapping[str, int], share: float) -> int:
    """Return the batch at which a first round takes this share of the units: as many of each site, or by weight."""
    if base.weights is None:
        return max(1, math.ceil(share * max(units.values())))
    rooms = [units[site.name] / site.weight for site in base.sites if site.weight and units[site.name]]
    return max(1, math.ceil(share * min(rooms) / len(base.sites)))


def _with(base: Registration, **sections: dict[str, Any]) -> Registration:
    fields = base.model_dump()
    for section, values in sections.items():
        fields[section] |= values
    return Registration.of(fields, "this plan cannot be registered")
