"""A plan: which certificate to register, and all that it fixes, from development evidence and how many units calibrate.

Nothing here looks at a unit that calibrates. What is planned is registered: a bad plan certifies less, and as validly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fedsrc.common.words import count
from fedsrc.errors import FedsrcError
from fedsrc.maths.privacy import rho_of
from fedsrc.planning.aim import Aim, Forecast, Objective
from fedsrc.planning.open_plan import OpenPlan, plan_open
from fedsrc.planning.populations import Populations, from_release, from_units
from fedsrc.planning.sealed_plan import GROWTH, SealedPlan, plan_sealed
from fedsrc.planning.sealing import Seal, seal
from fedsrc.protocol.disclosure import released_development
from fedsrc.protocol.judgements import Betting, in_decimals
from fedsrc.protocol.protection import Development, Histograms
from fedsrc.protocol.registration import MOST_LEVELS, Registration
from fedsrc.records.development import development_rows
from fedsrc.records.masses import above, unit_masses
from fedsrc.records.units import Records, units_of

Kind = Literal["sealed", "open"]
MOST_LOOKS = 20  # more gain nothing, and a plan that tries them takes long
SEED = 19  # plans are drawn by a fixed seed, so that the same evidence gives the same plan


@dataclass(frozen=True)
class Wish:
    """What is wanted of a plan. "plain" is none: equal weights, all bets, and the batches and rounds that are given."""

    certificate: Kind | Literal["plain"] | None = None
    looks: int = 1
    objective: Objective = "acceptance"

    def __post_init__(self) -> None:
        if not 1 <= self.looks <= MOST_LOOKS:
            raise FedsrcError(f"`looks=` {self.looks} is not between 1 and {MOST_LOOKS}")


@dataclass(frozen=True)
class Planned:
    """A planned registration, what to expect of it, and what the other kind would give."""

    registration: Registration
    kind: Kind
    expected: Forecast
    other: Forecast
    units: int

    def lines(self) -> list[str]:
        """Say what was chosen, why, and what the other kind would cost."""
        unit, values = self.registration.privacy.unit, self.registration.thresholds.values
        kinds = {"sealed": "Sealed (registered looks, this target alone)", "open": "Open (any look, every target)"}
        beside: Kind = "open" if self.kind == "sealed" else "sealed"
        why = "privacy adds noise, which registered looks can use exactly"
        if self.kind == "open":
            private = self.registration.privacy.private
            why = "nothing is sealed" if private else "without privacy it can be looked at whenever you like"
        sizes = f"{count(len(values), 'threshold')}, {count(self.registration.schedule.rounds, 'round')}"
        return [
            f"{kinds[self.kind]}: {sizes}, for {count(self.units, unit)}; {why}.",
            f"  Expected, as far as the development {unit}s tell: {_words(self.expected)}.",
            f"  {kinds[beside]} would be expected to reach: {_words(self.other)}.",
        ]


def plan(base: Registration, populations: Populations, units: Mapping[str, int], wish: Wish) -> Planned:
    """Plan a registration of the default preset for so many units per site. Unless a kind is wished for: sealed with
    privacy, open without."""
    if not isinstance(base.judgement, Betting):
        raise FedsrcError("only the default preset is planned", hint="leave `preset=` out, or `certificate='plain'`")
    units = _usable(base, units)
    aim = _aim(base, units, wish)
    chosen: Kind = "sealed" if base.privacy.private and isinstance(base.encoding, Histograms) else "open"
    if wish.certificate is not None and wish.certificate != "plain":
        chosen = wish.certificate
    tight, tight_expected = plan_sealed(populations, aim, np.random.default_rng(SEED))
    free, free_expected = plan_open(populations, aim, np.random.default_rng(SEED))
    if chosen == "sealed":
        try:
            return Planned(_sealed(base, tight, units), chosen, tight_expected, free_expected, aim.units)
        except FedsrcError:  # contrasts of this target are too fine to be counted exactly
            if wish.certificate is not None:
                raise
    return Planned(_open(base, free), "open", free_expected, tight_expected, aim.units)


def evidence(base: Registration, records: Records, development: Development) -> Populations | None:
    """Return the populations that development evidence leaves possible: from the noised release, where there is one,
    else from exact units; None where thresholds come from no evidence at all."""
    rng, release = np.random.default_rng(SEED), released_development(base)
    if release is not None:
        return from_release(release, base.thresholds.values, rng)
    if base.thresholds.origin not in ("public", "development"):
        return None
    settings, keep = base.privacy, development_rows(records, development, base.privacy.unit)
    parts = [
        unit_masses(base, units_of(records, name, settings.unit, max_answers=settings.max_answers, keep=keep))
        for name in records.site_names
    ]
    supported, unsupported = np.moveaxis(above(np.concatenate(parts)) / settings.mass_grid, -2, 0)
    return from_units(unsupported, supported, rng)


def _usable(base: Registration, units: Mapping[str, int]) -> dict[str, int]:
    """Return the units that a run would ask for: up to a site's capacity, and none of a site without weight."""
    sites = [site for site in base.sites if site.weight != 0]
    return {
        site.name: min(units.get(site.name, 0), units.get(site.name, 0) if site.capacity is None else site.capacity)
        for site in sites
    }


def _aim(base: Registration, units: Mapping[str, int], wish: Wish) -> Aim:
    total, settings, method = sum(units.values()), base.privacy, base.judgement
    if total < 1:
        raise FedsrcError("no unit is left to calibrate")
    assert isinstance(method, Betting)
    weights = base.weights or [units.get(site.name, 0) / total for site in base.sites]
    rho = rho_of(settings.epsilon, settings.delta, settings.conversion)
    asked = sum(number > 0 for number in units.values())
    return Aim(
        target_risk=in_decimals(base.claim.target_risk),
        units=total,
        noise=0.0 if math.isinf(rho) else math.sqrt(1.0 / (2.0 * rho)),
        sites=asked,
        releases=1 if base.held else asked,
        looks=wish.looks,
        objective=wish.objective,
        risk_budget=method.risk_budget,
        acceptance_budget=method.acceptance_budget,
        min_acceptance=base.claim.min_acceptance,
        mass_grid=settings.mass_grid,
        adjacency=settings.adjacency,
        drift=math.fsum(w * site.drift for w, site in zip(weights, base.sites, strict=True)),
        moving=not base.fixed_mixture,
    )


def _sealed(base: Registration, made: SealedPlan, units: Mapping[str, int]) -> Registration:
    values = base.thresholds.values
    looks = tuple((number, share) for number, share in enumerate(made.shares, start=1))
    tests = ((base.claim.target_risk, 1.0, made.bets),)
    sealed = seal(base, Seal(tuple(values[j] for j in made.kept), made.weights, tests, looks))
    growth = GROWTH if len(made.units) > 1 and made.units[1] > 1.2 * made.units[0] else 1.0
    return _with(sealed, schedule={"batch": _batch(base, units, made.units[0] / made.aim.units), "growth": growth})


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


def _words(found: Forecast) -> str:
    if found.certified < 0.005:
        return "no certificate"
    often = f"{100 * found.certified:.0f} of 100 such tables are certified"
    return f"{often}, accepting {100 * found.acceptance:.0f}% on average (none counts as 0)"
