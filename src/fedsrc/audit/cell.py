"""One setting made concrete: a registration, frozen sites to draw from, and the exact facts of the deployment.

Splits and partitions are drawn once from the study's seed; trials share them. All answers to one source stay in one
part of the split, whatever the unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from fedsrc.audit import boundary, partition
from fedsrc.audit.methods.setting import Facts
from fedsrc.audit.shift import drifted, mislabelled, moved_weights, relabelled
from fedsrc.audit.study import Binormal, Boundary, Population, Printed, Setting
from fedsrc.audit.study_records import records_of
from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats, Ints
from fedsrc.maths.basis import Basis
from fedsrc.maths.contrasts import ContrastCode
from fedsrc.maths.quantiles import doubt
from fedsrc.maths.rank import chance_above
from fedsrc.planning.plan import SEED, Planned, Wish, plan
from fedsrc.planning.register import Choices, even, register_grid
from fedsrc.planning.sealing import put_cuts
from fedsrc.planning.thresholds import grid_thresholds, quantile_thresholds
from fedsrc.protocol.mechanism import most_noise
from fedsrc.protocol.protection import Noised
from fedsrc.protocol.registration import Registration
from fedsrc.records.masses import contrasts, histogram, unit_masses
from fedsrc.records.order import Positions
from fedsrc.records.units import Records, Units, check_unit, most_answers, unit_codes, units_of
from fedsrc.server.panel import several, worst
from fedsrc.simulate.population import Support, deployment_weights, from_cells, suffix_masses, truth, uniform
from fedsrc.simulate.posterior import from_release, from_units
from fedsrc.simulate.trials import discrete_gaussian
from fedsrc.site.develop import over_grid

SPLIT, DEAL, DEVELOP, LABEL = 11, 12, 13, 14  # streams of the study's seed
DEVELOPMENT = 200  # units that a law without records is planned on


@dataclass(frozen=True)
class Parts:
    """Units that choose thresholds, units that calibrate, and units held out; natural sites of the calibration."""

    development: Units
    calibration: Units
    heldout: Units
    site: Positions


@dataclass(frozen=True)
class Cell:
    """What trials of a setting need.

    registration             the thresholds of the study, as histograms; `played` is what is really registered
    development              masses of the development units (n, 2, m+1), of groups (n, groups, 2, m+1), or None
    release                  their noised release, where there is one
    sites                    what is drawn at each site
    acceptance, unsupported  exact shares of the deployment law at each site and threshold, (K, m), group after group
    heldout                  held-out answers accepted and unsupported per threshold, (2, m), or None
    items                    whether an atom of a site is one unit, so that reuse can be counted
    auc                      chance that a supported answer outscores an unsupported one, where losses are 0 and 1
    """

    setting: Setting
    registration: Registration
    sites: tuple[Support, ...]
    acceptance: Floats
    unsupported: Floats
    heldout: Floats | None
    surrogate: bool
    binary: bool
    items: bool
    auc: float | None = None
    development: Ints | None = None
    release: Noised | None = None

    @cached_property
    def played(self) -> Registration:
        """What the method "registered" runs: the same registration, with other sums, or planned."""
        setting, made = self.setting, self.registration
        if setting.encoding in ("moments", "levels"):
            made = Registration.of({**made.model_dump(), "encoding": {"kind": setting.encoding}})
        if setting.certificate != "plain":
            made = self.planned(made, Wish(setting.certificate, setting.looks, setting.objective)).registration
            if setting.encoding == "histograms":
                made = made.model_copy(update={"encoding": self.registration.encoding})
        return made

    @property
    def sizes(self) -> Floats:
        """How many units each site has; NaN where a site is a law."""
        return np.array([len(site.law) if self.items else np.nan for site in self.sites])

    @cached_property
    def places(self) -> list[Positions]:
        """Which of the thresholds are registered, in every group."""
        every = zip(self.registration.cuts, self.played.cuts, strict=True)
        return [np.searchsorted(cut.values, kept.values) for cut, kept in every]

    @cached_property
    def kept(self) -> Positions:
        """Which rows are registered: thresholds, of groups with claims of their own one group after the other."""
        m, blocks = len(self.registration.thresholds.values), self.places[: self.claims]
        return np.concatenate([i * m + each for i, each in enumerate(blocks)])

    @property
    def claims(self) -> int:
        """How many claims are made: one, or one for every group."""
        return len(self.registration.cuts) if several(self.registration.claims) else 1

    @cached_property
    def favoured(self) -> int:
        """The threshold that development units favour: the highest one that a plan without privacy seals."""
        free = self.registration.privacy.model_copy(update={"epsilon": np.inf})
        made = self.planned(self.registration.model_copy(update={"privacy": free}), Wish("sealed"))
        return self.registration.thresholds.values.index(made.registration.thresholds.values[-1])

    def planned(self, base: Registration, wish: Wish) -> Planned:
        """Plan on the development units, as `certify` does, for each unit once or for batch x rounds of every site."""
        if self.development is None or not len(self.development):
            raise FedsrcError("there are no development units to plan on", hint="raise development_share")
        accepted, unsupported = suffix_masses(base, _by_group(base, self.development))
        known = [
            from_units(unsupported[:, i], (accepted - unsupported)[:, i], np.random.default_rng(SEED))
            if self.release is None
            else from_release(self.release.block(i), cut.values, np.random.default_rng(SEED))
            for i, cut in enumerate(base.cuts)
        ]
        most, once = self.setting.batch * self.setting.rounds, self.setting.draw == "once"
        sizes = [site.law.size if once else most for site in self.sites]
        return plan(base, known, dict(zip(base.by_name, sizes, strict=True)), wish)

    def encoded(self, site: Support) -> Ints:
        """Return what each unit of a site adds to a registered release: (n, ...)."""
        every = np.moveaxis(_by_group(self.registration, site.masses), 1, 0)
        parts = [np.add.reduceat(x, [0, *(at + 1)], axis=-1) for x, at in zip(every, self.places, strict=True)]
        masses = parts[0] if self.played.panel is None else np.stack(parts, axis=1)
        code = self.played.mechanism.code
        if isinstance(code, ContrastCode):
            return contrasts(code, masses)
        return code.encode(masses if isinstance(code, Basis) else code.bins(masses))

    @property
    def weights(self) -> Floats:
        """Return declared deployment weights, or equal ones."""
        return deployment_weights(self.registration)

    def oracle_floor(self) -> float:
        """Return the least risk of a threshold with enough acceptance: no certificate on this score goes below.

        Paper: Table (halueval), Floor.
        """
        facts = self.facts(self.weights)
        able = facts.acceptance >= self.setting.min_acceptance
        return float(facts.risk[able].min()) if able.any() else float("nan")

    def facts(self, weights: Floats) -> Facts:
        """Return what is true of mixtures (..., K), as it is claimed: one threshold for all groups has the risk of the
        worst, and accepts in all of them; acceptance within a group is a share of its own traffic."""
        a, z = np.asarray(weights @ self.acceptance), weights @ self.unsupported
        groups, blocks = self.registration.groups, len(self.registration.cuts)
        risk = worst(self.registration.claims, _ratio(z, a), blocks)
        if groups is None or groups.floor == "traffic":
            return Facts(together(self.registration, a), risk)
        each = a.reshape(*a.shape[:-1], blocks, -1)
        within = _ratio(each, np.broadcast_to(each[..., :1], each.shape)).reshape(a.shape)
        return Facts(worst(self.registration.claims, within, blocks, largest=False), risk)


def _ratio(part: Floats, whole: Floats) -> Floats:
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)


def _by_group(registration: Registration, masses: Ints) -> Ints:
    """Return masses (n, groups, 2, m+1) of units; without groups all are in one."""
    return masses.reshape(len(masses), len(registration.cuts), *masses.shape[-2:])


def together(registration: Registration, rows: Floats) -> Floats:
    """Add rows (..., groups m) up over the groups where one threshold is for all of them."""
    if registration.panel is None or not registration.panel.simultaneous:
        return rows
    return np.asarray(rows.reshape(*rows.shape[:-1], len(registration.cuts), -1).sum(axis=-2))


def build(setting: Setting, population: Population, *, seed: int, folder: Path) -> Cell:
    """Build the cell of a setting; its tables lie in `folder`."""
    if isinstance(population, Boundary):
        return _from_boundary(setting, population, np.random.default_rng([seed, SPLIT]))
    if isinstance(population, Printed):
        return _from_printed(setting, population, np.random.default_rng([seed, SPLIT]))
    records = records_of(population, folder)
    if setting.unit == "source":
        check_unit(records, "source", f"population {population.name!r}")
    groups = _groups(records, f"population {population.name!r}") if setting.groups != "none" else ()
    parts = split(records, setting, np.random.default_rng([seed, SPLIT]))
    binary = all(np.isin(each.loss, (0.0, 1.0)).all() for each in (parts.calibration, parts.development, parts.heldout))
    errors = setting.label_missed, setting.label_invented
    if any(errors):  # who labels calibration units labels those that plans are made on
        if not binary:
            raise FedsrcError(
                f"population {population.name!r} has graded losses", hint="label errors need losses of 0 and 1"
            )
        seen = mislabelled(parts.development, *errors, np.random.default_rng([seed, LABEL]))
        parts = replace(parts, development=seen)
    indices = dealt(parts, setting, np.random.default_rng([seed, DEAL]))
    answers = most_answers(records, np.ones(len(records), dtype=np.bool_)) if setting.unit == "source" else 1
    own = groups if setting.groups == "each" else (None,)
    registration = _registration(
        setting, [len(each) for each in indices], values=[thresholds_of(parts, setting, each) for each in own],
        groups=groups, answers=min(answers, 10), binary=binary,
    )  # fmt: skip
    release = None
    if setting.thresholds_from == "noised":
        release = _noised(registration, parts.development, np.random.default_rng([seed, DEVELOP]))
        blocks = range(len(own)) if own == groups else (None,)
        registration = _with_thresholds(registration, [release.thresholds(setting.thresholds, i) for i in blocks])
    sites = uniform(registration, [parts.calibration.take(each) for each in indices])
    heldout = _heldout(registration, parts.heldout) if len(parts.heldout) else None
    surrogate, auc = isinstance(population, Binormal), _auc(parts.calibration) if binary else None
    made = _finish(setting, registration, sites, heldout=heldout, surrogate=surrogate, items=True)
    return replace(made, auc=auc, development=unit_masses(registration, parts.development), release=release)


def _groups(records: Records, where: str) -> tuple[str, ...]:
    """Return the groups that records are of."""
    if records.group is None:
        raise FedsrcError("no group is said", where=where, hint="a table names the column: group = '...'")
    return tuple(records.group_names[i] for i in np.unique(records.group))


def _noised(registration: Registration, units: Units, rng: np.random.Generator) -> Noised:
    """Release development units over the public grid as a site does, with seeded noise."""
    grid = over_grid(registration)
    rule = grid.mechanism
    if doubt(len(units) / len(grid.cuts), most_noise(rule)) == 1:
        raise FedsrcError(f"noise drowns {len(units)} development units", hint="raise development_share or epsilon")
    exact = rule.basis.encode(histogram(grid, units))
    sums = np.moveaxis(exact + discrete_gaussian(rng, rule.scale, exact.shape), -2, 0)
    first, second = map(tuple, sums.reshape(2, -1).tolist())
    return Noised(
        privacy=grid.privacy, units=len(units), grid=grid.thresholds.values, scale=rule.scale, first=first,
        second=second, blocks=grid.block_names,
    )  # fmt: skip


def _auc(units: Units) -> float | None:
    right, wrong = (units.score[units.loss == loss] for loss in (0.0, 1.0))
    return chance_above(right, wrong) if right.size and wrong.size else None


def split(records: Records, setting: Setting, rng: np.random.Generator) -> Parts:
    """Split records into development, held-out and calibration units, by whole sources where the table has them."""
    codes = unit_codes(records, "record" if records.source is None else "source")
    order = rng.permutation(np.unique(codes))
    first = int(order.size * setting.development_share) if setting.develops else 0
    second = first + int(order.size * setting.heldout_share)
    rest = order[second:] if setting.size is None or setting.unit == "record" else order[second : second + setting.size]
    pooled = replace(records, site=np.zeros_like(records.site), site_names=("all",))

    def part(chosen: Positions) -> Units:
        return units_of(pooled, "all", setting.unit, max_answers=10, keep=np.isin(codes, chosen))

    calibration, rows = part(rest), np.flatnonzero(np.isin(codes, rest))
    site = records.site[rows] if setting.unit == "record" else _source_sites(records, calibration)
    if setting.unit == "record" and setting.size is not None:
        chosen = np.sort(rng.permutation(len(calibration))[: setting.size])
        calibration, site = calibration.take(chosen), site[chosen]
    if setting.size is not None and len(calibration) < setting.size:
        left = f"the {len(calibration)} units that are left to calibrate with"
        raise FedsrcError(f"size {setting.size} is more than {left}")
    if len(calibration) == 0:
        raise FedsrcError("no units are left to calibrate with", hint="lower development_share or heldout_share")
    return Parts(part(order[:first]), calibration, part(order[first:second]), site)


def _source_sites(records: Records, units: Units) -> Positions:
    site_of = dict(zip((records.source_names[i] for i in unit_codes(records, "source")), records.site, strict=True))
    return np.asarray([site_of[name] for name in units.ids or ()], dtype=np.int64)


def dealt(parts: Parts, setting: Setting, rng: np.random.Generator) -> list[Positions]:
    """Deal the calibration units to sites: their positions, site by site."""
    n = len(parts.calibration)
    if setting.partition == "natural":
        found = partition.natural(parts.site)
        if len(found) == 1:
            hint = 'a natural partition needs a site column; or use "iid"'
            raise FedsrcError("all records are at one site", hint=hint)
        return found
    if setting.partition == "dirichlet":
        wrong = np.maximum.reduceat(parts.calibration.loss, parts.calibration.start[:-1]) >= 0.5
        return partition.dirichlet(wrong.astype(np.int64), setting.sites, setting.beta, rng)
    if setting.partition == "log-normal":
        return partition.log_normal(n, setting.sites, setting.sigma, rng)
    return partition.iid(n, setting.sites, rng)


def thresholds_of(parts: Parts, setting: Setting, group: str | None = None) -> tuple[float, ...]:
    """Return a setting's thresholds, of all answers or of a group's, without a look at any label of the calibration.

    Paper: Proposition (condthresh) for thresholds from the calibration scores.
    """
    if setting.thresholds_from == "grid":
        return grid_thresholds(setting.thresholds)
    units = parts.calibration if setting.thresholds_from == "support" else parts.development
    if len(units) == 0:
        raise FedsrcError("no units are set apart for the thresholds", hint="raise development_share")
    mine = units.score
    if group is not None and units.group is not None:
        mine = units.score[np.isin(units.group_names, [group])[units.group]]
    return quantile_thresholds(mine if mine.size else units.score, setting.thresholds)


def _registration(
    setting: Setting, sizes: Sequence[int], *, values: Sequence[tuple[float, ...]], groups: tuple[str, ...] = (),
    answers: int = 1, binary: bool = True,
) -> Registration:  # fmt: skip
    sites = len(sizes)
    names, weights = [f"site {k + 1}" for k in range(sites)], None
    if setting.weights == "equal":
        weights = dict(zip(names, moved_weights([1.0 / sites] * sites, setting.moved, 0), strict=True))
    elif setting.weights == "by size":
        weights = dict(zip(names, (size / sum(sizes) for size in sizes), strict=True))
    choices = Choices(
        setting.target_risk, setting.epsilon, preset=setting.release, unit=setting.unit, independent=True, grid=True,
        thresholds=len(values[0]), min_acceptance=setting.min_acceptance, delta=setting.delta, batch=setting.batch,
        failure_probability=setting.failure_probability, rounds=_rounds(setting, sites),
        policy=setting.policy, weights=weights, drift=dict.fromkeys(names, setting.drift), max_answers=answers,
        loss_grid=1 if binary else setting.loss_grid, adjacency=setting.adjacency, aggregation=setting.aggregation,
        groups=groups or None, group_claim="all" if setting.groups == "all" else "each",
        group_floor=setting.group_floor, group_span=setting.group_span,
    )  # fmt: skip
    return _with_thresholds(register_grid(choices, names), values)


def _with_thresholds(made: Registration, values: Sequence[tuple[float, ...]]) -> Registration:
    """Return the registration with these thresholds, equally weighted: for all groups, or as many for each."""
    if made.groups is not None and made.groups.floor == "group":
        values = [(0.0, *(x for x in each if x > 0)) for each in values]
    cuts = [(each, (1.0 / len(each),) * len(each)) for each in even(values)]
    fields = put_cuts(made.model_dump(), cuts)
    fields["thresholds"]["origin"] = "declared"
    return Registration.of(fields)


def _rounds(setting: Setting, sites: int) -> int:
    """Return the number of rounds. Recruitment asks one site a round: matched, it gets as many releases."""
    return setting.rounds * (sites if setting.matched and setting.policy == "recruit" else 1)


def _finish(
    setting: Setting, registration: Registration, sites: Sequence[Support], *,
    heldout: Floats | None, surrogate: bool, items: bool, deployed: Sequence[Support] | None = None,
) -> Cell:  # fmt: skip
    """Let the deployment drift and labels get noisy; facts are of the deployment and of true labels."""
    encoding = registration.histograms.kind
    if deployed is None:
        drift = setting.drift
        deployed = [drifted(site, encoding, 0, drift) for site in sites] if drift else sites
    drawn = sites
    if setting.label_missed or setting.label_invented:
        drawn = [relabelled(site, encoding, setting.label_missed, setting.label_invented) for site in sites]
    facts = [truth(registration, [site], [1.0]) for site in deployed]
    acceptance = np.stack([each.acceptance.ravel() for each in facts])
    unsupported = acceptance * np.stack([each.risk.ravel() for each in facts])
    binary = registration.privacy.loss_grid == 1 and registration.privacy.unit == "record"
    items = items and drawn is sites
    return Cell(setting, registration, tuple(drawn), acceptance, unsupported, heldout, surrogate, binary, items)


def _heldout(registration: Registration, units: Units) -> Floats:
    """Count held-out answers accepted, and their loss, per threshold."""
    accepted = units.score[:, None] >= np.asarray(registration.thresholds.values)
    return np.stack([accepted.sum(axis=0), units.loss @ accepted]).astype(np.float64)


def _from_boundary(setting: Setting, population: Boundary, rng: np.random.Generator) -> Cell:
    _no_records(setting)
    unit = "source" if population.answers > 1 else "record"
    if setting.unit != unit:
        raise FedsrcError(f"population {population.name!r} is made of {unit}s", hint=f'set unit = "{unit}"')
    shown, count = population.promised * setting.target_risk, population.groups
    registration = _registration(
        setting, [1] * setting.sites, values=[grid_thresholds(setting.thresholds)], answers=population.answers,
        groups=tuple(f"group {g + 1}" for g in range(count)) if setting.groups != "none" else (),
        binary=not population.graded,
    )  # fmt: skip
    mix = boundary.Mix(count, count if population.bad is None else population.bad, shown, population.tied)
    laws = boundary.laws(registration, spread=population.spread, graded=population.graded, drift=setting.drift, mix=mix)
    made = _finish(
        setting, registration, laws.calibrated, heldout=None, surrogate=True, items=False, deployed=laws.deployed
    )
    good = boundary.Mix(count, 0, shown)
    seen = boundary.laws(registration, spread=0.0, graded=population.graded, drift=0.0, mix=good).deployed[0]
    if setting.label_missed or setting.label_invented:
        seen = relabelled(seen, registration.histograms.kind, setting.label_missed, setting.label_invented)
    return replace(made, development=_drawn(seen, rng, count * DEVELOPMENT))


def _drawn(site: Support, rng: np.random.Generator, units: int = DEVELOPMENT) -> Ints:
    return site.masses[rng.choice(site.law.size, units, p=site.law)]


def _from_printed(setting: Setting, population: Printed, rng: np.random.Generator) -> Cell:
    _no_records(setting)
    if setting.groups != "none":
        raise FedsrcError("a law of acceptance and risk has no groups", hint="set groups = 'none'")
    registration = _registration(setting, [1] * setting.sites, values=[grid_thresholds(len(population.acceptance))])
    site = printed(registration, np.asarray(population.acceptance), np.asarray(population.risk))
    made = _finish(setting, registration, [site] * setting.sites, heldout=None, surrogate=True, items=False)
    return replace(made, development=_drawn(made.sites[0], rng))


def printed(registration: Registration, acceptance: Floats, risk: Floats) -> Support:
    """Return the law with that acceptance and risk at every threshold; what is rejected counts as unsupported."""
    accepted = -np.diff(acceptance, append=0.0)
    unsupported = -np.diff(acceptance * risk, append=0.0)
    if acceptance[0] > 1 or (unsupported < -1e-12).any() or (accepted - unsupported < -1e-12).any():
        raise FedsrcError("no law has that acceptance and risk", hint="both masses must fall with the threshold")
    rejected = 1.0 - acceptance[0]
    return from_cells(
        registration, np.append(0.0, np.maximum(0.0, accepted - unsupported)),
        np.append(rejected, np.maximum(0.0, unsupported)),
    )  # fmt: skip


def _no_records(setting: Setting) -> None:
    """Refuse what only records have."""
    if setting.partition != "iid" or setting.draw != "with replacement":
        raise FedsrcError("a law without records has no partition and no end", hint='use partition = "iid"')
    told = setting.size is not None or setting.heldout_share or setting.weights == "by size"
    if told or setting.thresholds_from in ("support", "noised"):
        raise FedsrcError("a law without records has no size, no held-out part and no scores")
