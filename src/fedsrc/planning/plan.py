"""A plan: which certificate to register, and all that it fixes, from development evidence and how many units calibrate.

Nothing here looks at a unit that calibrates. What is planned is registered: a bad plan certifies less, and as validly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from fedsrc.common.words import count
from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats
from fedsrc.maths.privacy import rho_of
from fedsrc.planning.aim import Aim, Expected, Objective
from fedsrc.planning.open_plan import OpenPlan, plan_open
from fedsrc.planning.panel_plan import PanelPlan, plan_open_panel, plan_sealed_panel
from fedsrc.planning.register import Choices
from fedsrc.planning.sealed_plan import SealedPlan, plan_sealed
from fedsrc.planning.sealing import Seal, put_cuts, seal
from fedsrc.protocol.disclosure import released_development
from fedsrc.protocol.judgements import Betting, in_decimals
from fedsrc.protocol.protection import Development, Histograms, Noised
from fedsrc.protocol.registration import MOST_LEVELS, OnDemand, Registration
from fedsrc.records.development import development_rows, units_for
from fedsrc.records.masses import above, unit_masses
from fedsrc.records.units import Records
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
    blocks: tuple[tuple[str, Expected], ...] = ()  # what to expect of every group or score

    def lines(self) -> list[str]:
        """Say what was chosen, why, and what the other kind would cost."""
        unit, values = self.registration.privacy.unit, self.registration.thresholds.values
        every = "any look" if self.blocks else "any look, every target"
        kinds = {"sealed": "Sealed (registered looks, this target alone)", "open": f"Open ({every})"}
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
            *self._expected(known),
            f"  {kinds[beside]} would be expected to reach: {self._words(self.other)}.",
            *self._cohort(),
        ]

    def _expected(self, known: str) -> list[str]:
        """Say what to expect: of the one claim, or of every group or score."""
        if not self.blocks:
            return [f"  Expected, {known}: {self._words(self.expected)}."]
        each = [f"  Expected of {name!r}, {known}: {self._chance(found)}." for name, found in self.blocks]
        together = f"  All of them together take {self._labels(self.expected)}."
        return [*each, *([together] if self.registration.on_demand else [])]

    def _cohort(self) -> list[str]:
        """Say what a cohort would give, or what this one asks of its members."""
        if self.together is None:
            return [f"  {line}" for line in availability_words(self.registration)]
        one = "Were its sites one cohort, which adds up before anyone sees (`aggregation='cohorts'`, 1 may collude),"
        return [f"  {one} it would be expected to reach: {self._words(self.together)}."]

    def _words(self, found: Expected) -> str:
        said = self._chance(found)
        if found.certified < 0.005 or not self.registration.on_demand:
            return said
        return f"{said}, with {self._labels(found)}"

    def _chance(self, found: Expected) -> str:
        """Say how often it certifies, and how much is accepted then: of groups, as a share of all traffic."""
        if found.certified < 0.005:
            return "no certificate"
        often = f"{100 * found.certified:.0f} of 100 such tables are certified"
        of = "" if self.registration.groups is None else " of all traffic"
        return f"{often}, accepting {100 * found.acceptance:.0f}%{of} on average (none counts as 0)"

    def _labels(self, found: Expected) -> str:
        units, unit = round(found.units), self.registration.privacy.unit
        return f"about {found.labels:,} labels from {count(units, unit)}, at most {found.labels_90:,} in 9 of 10 runs"


def plan(
    base: Registration,
    known: Sequence[Populations],
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
    if base.panel is not None:
        return _plan_panel(base, known, units, wish, unlabelled, answers=answers)
    populations = known[0]
    units, objective = _usable(base, units), wish.objective or ("labels" if base.on_demand else "acceptance")
    aim = _aim(base, units, replace(wish, objective=objective), unlabelled, answers=answers)
    chosen = _kind(base, wish)
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
            if wish.certificate is not None or wish.looks is not None or unlabelled is not None:
                raise
    together = together if chosen == "open" else None
    return Planned(_open(base, free), "open", free_expected, tight_expected, aim.units, objective, together)


def check_planned(choices: Choices, wish: Wish, *, unlabelled: bool = False) -> None:
    """Refuse what the planned certificate would not read, and what no panel is planned for, before any record is read
    for a plan."""
    finer = choices.encoding != "histograms"
    exact = math.isinf(choices.epsilon) or finer  # nothing is sealed then, unless it is asked for
    looser = wish.certificate == "open" or (wish.certificate is None and exact)
    if wish.certificate == "sealed" and finer:
        raise FedsrcError("a sealed certificate releases contrasts: `encoding=` is for open ones", hint="leave it out")
    if wish.looks is not None and looser:
        raise FedsrcError("`looks=` are those of a sealed certificate: an open one can be looked at whenever you like",
                          hint="leave it out, or say `certificate='sealed'`")  # fmt: skip
    if unlabelled and looser:
        raise FedsrcError("unlabelled records are for planned sealed certificates", hint="leave `unlabelled=` out")
    if choices.panel and (unlabelled or wish.objective not in (None, "acceptance")):
        raise _not_planned()


def _not_planned() -> FedsrcError:
    return FedsrcError("a panel is planned for acceptance alone, and without unlabelled records",
                       hint="leave `unlabelled=` and `objective=` out")  # fmt: skip


def _draws() -> np.random.Generator:
    return np.random.default_rng(SEED)


def _kind(base: Registration, wish: Wish) -> Kind:
    """Return the kind that is wished for; else sealed with privacy, open without."""
    if wish.certificate is not None and wish.certificate != "plain":
        return wish.certificate
    return "sealed" if base.privacy.private and isinstance(base.encoding, Histograms) else "open"


def _plan_panel(
    base: Registration, known: Sequence[Populations], units: Mapping[str, int], wish: Wish,
    unlabelled: tuple[Noised, ...] | None, *, answers: float,
) -> Planned:  # fmt: skip
    """Plan a panel: for most acceptance in every block, whatever its labels cost."""
    if unlabelled is not None or wish.objective not in (None, "acceptance"):
        raise _not_planned()
    units = _usable(base, units)
    aim = _aim(base, units, replace(wish, objective="acceptance"), None, answers=answers)
    kind = _kind(base, wish)
    tight, free = plan_sealed_panel(base, known, aim, _draws), plan_open_panel(base, known, aim, _draws)
    mine, other = (tight, free) if kind == "sealed" else (free, tight)
    made = _sealed_panel(base, tight, units) if kind == "sealed" else _open_panel(base, free)
    blocks = tuple(zip(base.block_names, mine.expected, strict=True))
    return Planned(made, kind, mine.whole, other.whole, aim.units, "acceptance", blocks=blocks)


def _sealed_panel(base: Registration, made: PanelPlan[SealedPlan], units: Mapping[str, int]) -> Registration:
    first, bets = made.plans[0], tuple(theta for each in made.plans for theta in each.bets)
    looks = tuple((number, share) for number, share in enumerate(first.shares, start=1))
    line = "exact" if base.cohorts is None else "within"
    base = _with(base, claims={"shares": made.shares})
    (values, weights), *others = made.cuts(base)
    sealed = seal(
        base, Seal(values, weights, ((base.claim.target_risk, 1.0, bets),), looks, line, others=tuple(others))
    )
    return _with(sealed, schedule={"batch": _batch(base, units, first.units[0] / first.aim.units)})


def _open_panel(base: Registration, made: PanelPlan[OpenPlan]) -> Registration:
    fields, first = put_cuts(base.model_dump(), made.cuts(base)), made.plans[0]
    fields["claims"]["shares"] = made.shares
    fields["certificate"]["bets"] |= {"priors": [each for plan in made.plans for each in plan.priors]}
    fields["schedule"] |= {"batch": first.batch, "growth": first.growth, "rounds": first.rounds}
    fields["encoding"] |= {} if (finer := _finer(base)) is None else {"kind": finer}
    return Registration.of(fields, "this plan cannot be registered")


def availability_words(registration: Registration) -> list[str]:
    """Say how many rounds count where a missing member of a cohort voids one."""
    if registration.cohorts is None:
        return []
    most = max(len(each.members) for each in registration.cohorts.cohorts)
    return [
        f"A round of a cohort counts if all of its members answer, {most} in the largest: where each answers 95 of 100"
        f" times, {100 * 0.95**most:.0f} of 100 of its rounds count."
    ]


def evidence(base: Registration, records: Records, development: Development) -> list[Populations] | None:
    """Return the populations that development evidence leaves possible, of every block: from the noised release, where
    there is one, else from exact units; None where thresholds come from no evidence at all. Without labels scores are
    evidence, and beside a judge's, who may be wrong, too."""
    release, settings = released_development(base), base.privacy
    if release is not None:
        blocks = [release] if base.panel is None else [release.block(i) for i in range(len(base.cuts))]
        return [_believed(development, each, cut.values, None) for each, cut in zip(blocks, base.cuts, strict=True)]
    if base.thresholds.origin not in ("public", "development"):
        return None
    keep = development_rows(records, development, settings.unit)
    parts = [unit_masses(base, units_for(base, records, name, keep)) for name in records.site_names]
    masses = above(np.concatenate(parts)) / settings.mass_grid
    masses = masses[:, None] if base.panel is None else masses
    return [_believed(development, None, (), masses[:, i]) for i in range(len(base.cuts))]


def _believed(
    development: Development, release: Noised | None, values: tuple[float, ...], masses: Floats | None
) -> Populations:
    """Return the populations that a noised release, or the masses (units, 2, thresholds) of exact units, leave."""
    rng = np.random.default_rng(SEED)
    if release is not None:
        found, units = from_release(release, values, rng), release.units
    else:
        assert masses is not None
        (supported, unsupported), units = np.moveaxis(masses, -2, 0), len(masses)
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
    base: Registration, units: Mapping[str, int], wish: Wish, unlabelled: tuple[Noised, ...] | None, *, answers: float
) -> Aim:  # fmt: skip
    twice = base.labelling.twice if isinstance(base.labelling, OnDemand) else 0.0
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
        labels=(1.0 + twice) * answers,
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
    few = settings.max_answers == 1 and settings.loss_grid <= MOST_LEVELS and base.panel is None
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
