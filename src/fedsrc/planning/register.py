"""Making a registration: thresholds from development records, a preset, and the user's choices.

With privacy, thresholds follow from one noised release of the development units, and nothing else of them is
registered. Exact quantiles are for records that are declared public, and for runs without privacy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Bools, Floats
from fedsrc.maths.kinds import Adjacency
from fedsrc.maths.label_error import of_answers, on_labels
from fedsrc.maths.quantiles import doubt, score_grid
from fedsrc.planning.sealing import put_cuts
from fedsrc.planning.thresholds import grid_thresholds, in_few_digits, quantile_thresholds, round_grid
from fedsrc.protocol.judgements import Betting, budgets
from fedsrc.protocol.mask_key import MaskKey
from fedsrc.protocol.mechanism import development_mechanism, most_noise
from fedsrc.protocol.protection import Development, Noised
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.scale import Scale
from fedsrc.records.development import calibrating, development_count, development_rows
from fedsrc.records.order import public_seed
from fedsrc.records.units import Records, Unit, most_answers, unit_count, units_by_site

Preset = Literal["default", "paper"]
Aggregation = Literal["own", "holder", "cohorts"]
Counted = Literal["histograms", "moments", "levels"]
Labelled = Literal["there", "on demand"]
Origin = Literal["noised", "public", "development", "grid"]
GRADED_GRID = 100
FEWEST = 10  # development units that may choose thresholds
MOST_ANSWERS = 10  # of a source, where nobody says; where records may be published, as many as one has, up to it


@dataclass(frozen=True)
class Choices:
    """What a user decides; everything else comes from the preset."""

    target_risk: float
    epsilon: float
    preset: Preset = "default"
    encoding: Counted = "histograms"  # sources and graded losses have second moments, graded losses levels
    method: str | None = None
    unit: Unit = "record"
    independent: bool = False
    thresholds: int = 20
    grid: bool = False
    public_development: bool = False  # development records may be published: thresholds are their exact quantiles
    exact_thresholds: bool = False  # to the last digit, as the benchmarks want them, and not in few
    min_acceptance: float = 0.05
    failure_probability: float = 0.05
    delta: float = 1e-6
    adjacency: Adjacency | None = None  # replacement; in the paper's preset zero-out
    batch: int = 200
    rounds: int = 30
    aggregation: Aggregation | None = None  # own; of a table with several sites, that one process holds, holder
    cohorts: Mapping[str, Sequence[str]] | None = None  # members by the cohort's name; of none: all sites are in one
    colluding: int = 1
    mask_keys: Sequence[MaskKey] = ()
    policy: str = "first"
    dropout: str | None = None  # independent; of cohorts adversarial, unless their independence is declared
    max_answers: int | None = None
    answer_weight: str = "source"
    loss_grid: int | None = None
    weights: Mapping[str, float] | None = None
    drift: Mapping[str, float] | None = None
    validity_days: int = 365
    server_key: str | None = None
    site_keys: Mapping[str, str] | None = None
    capacities: Mapping[str, int] | None = None
    claim: Mapping[str, str] | None = None
    labels: Labelled = "there"
    label_hours: float | None = None
    label_twice: float = 0.0
    disagreement: Literal["worse", "third"] = "worse"
    missed: float = 0.0
    column: str = "score"  # what the score is called in tables, and how it is written there and in production
    scale: Scale = field(default_factory=Scale)
    judge_column: str | None = None  # of verdicts that the plan is made on, and nothing else
    groups: tuple[str, ...] | None = (
        None  # listed values of `group_column`, each with a claim of its own, or one in all
    )
    group_column: str = "group"
    group_claim: Literal["each", "all"] = "each"
    group_floor: Literal["traffic", "group"] = "traffic"
    group_span: Literal["shares", "whole"] = "shares"
    group_most: int | None = None  # groups in which a source counts whole: all that are listed
    also_scores: tuple[tuple[str, Scale], ...] = ()  # further score columns: the best of all is picked
    checkpoints: Mapping[str, Sequence[int]] | None = None  # of score columns that are least prefix scores

    @property
    def charged(self) -> bool:
        """Whether dropout is taken for adversarial."""
        return (self.dropout or ("adversarial" if self.aggregation == "cohorts" else "independent")) == "adversarial"

    @property
    def blocks(self) -> int:
        """How many blocks a release has: groups, or scores."""
        return len(self.groups or ()) or 1 + len(self.also_scores)

    @property
    def panel(self) -> bool:
        """Whether several claims are made, or one of a score with checkpoints."""
        return self.groups is not None or bool(self.also_scores) or bool(self.checkpoints)

    @property
    def tested_risk(self) -> float:
        """The target on labels: less than that of the answers, as labels may miss a declared share."""
        return on_labels(self.target_risk, self.missed)


def held_together(choices: Choices, records: Records) -> Choices:
    """Return the choices for a table that one process holds: its sites make one release a round, with one noise.

    Sites that sign with keys of their own, and the paper's preset, keep their own noise, as does whoever says so.
    """
    if choices.aggregation == "cohorts":
        raise not_held()
    apart = choices.preset == "paper" or not {*(choices.site_keys or {})} <= {"holder"}
    if choices.aggregation is not None or apart or len(records.site_names) == 1:
        return choices
    return replace(choices, aggregation="holder")


def not_held() -> FedsrcError:
    """Return why no process answers for the sites of a cohort."""
    return FedsrcError(
        "the sites of a cohort hold their own records, each with its own ledger and keys",
        hint="run it by files (`fedsrc request`) or live (`fedsrc server`); one holder of all needs no masks",
    )


def for_table(choices: Choices, records: Records, given: Mapping[str, Any]) -> Choices:
    """Complete the choices for a table that calibrates, where nothing is given: it is used until more of it would gain
    little (until it is certified, where people are still to label it), in as many rounds as it can fill."""
    fixed = choices.weights is not None or len(records.site_names) == 1
    if given.get("policy") is None and fixed and choices.preset == "default" and choices.labels == "there":
        choices = replace(choices, policy="enough")
    if given.get("rounds") is None:
        rounds = _rounds_for(choices, units_by_site(records, choices.unit))
        choices = replace(choices, rounds=max(choices.rounds, rounds))
    return choices


def _rounds_for(choices: Choices, units: Sequence[int]) -> int:
    """Return the most rounds that sites with so many units can answer."""
    batches = [math.ceil(each / choices.batch) for each in units]
    if choices.policy == "recruit" or choices.weights is None:
        return sum(batches) if choices.policy == "recruit" else max(batches)
    whole = choices.batch * len(units) * (1 - choices.tested_risk)  # sites of more weight than the target end a run
    return math.ceil(sum(units) / whole) + len(units)


def development_part(records: Records, unit: Unit, share: float) -> Development:
    """Set about a share of the units apart, each by its name and a fixed public seed alone."""
    development = Development(share=share, seed=public_seed("development part"))
    apart, units = development_count(records, development, unit), unit_count(records, unit)
    if apart == 0 or (development.inside and apart == units):
        raise FedsrcError(
            f"{units} units are too few to set about {share:g} of them apart for the thresholds: {apart} would be",
            hint="bring more records, or register from a development table of its own",
        )
    return development


def draft(
    choices: Choices, records: Records, development: Development, *, sites: Sequence[str] | None = None
) -> Registration:
    """Return a registration whose thresholds are a public grid, under which a development release is made."""
    known, names = _settled(choices, records, development), tuple(sites or records.site_names)
    if known.charged and known.capacities is None and development.inside:
        rough = _build(replace(known, dropout="independent"), _grid(known), names, development)
        known = replace(known, capacities={name: len(each) for name, each in calibrating(rough, records).items()})
    return _build(known, _grid(known), names, development)


def register(
    choices: Choices,
    records: Records,
    development: Development,
    *,
    sites: Sequence[str] | None = None,
    release: Noised | None = None,
) -> Registration:
    """A registration whose thresholds come from the development part of `records` (or from a public grid).

    `release` is the noised release of that part, which a ledger keeps (`register_table` makes it).
    """
    if release is not None:
        choices = replace(
            choices,
            max_answers=choices.max_answers or (release.privacy.max_answers if choices.unit == "source" else None),
            loss_grid=choices.loss_grid or release.privacy.loss_grid,
        )
    made = draft(choices, records, development, sites=sites)
    origin = "noised" if release is not None else origin_of(choices, made, records, development)
    fields, part = made.model_dump(), development.model_dump()
    if origin == "grid":
        return Registration.of({**fields, "development": part if development.inside else None})
    if release is not None:
        part |= {"release": release, "labels": release.labels}
        fields["thresholds"]["asked"] = choices.thresholds
    return Registration.of(
        {
            **_with_cuts(choices, fields, _candidates(choices, records, development, release), origin),
            "development": part,
        }
    )


def _candidates(
    choices: Choices, records: Records, development: Development, release: Noised | None
) -> list[tuple[float, ...]]:
    """Return the candidate thresholds of every block, as many of each."""
    blocks = [None] if not choices.panel or choices.group_claim == "all" else [*range(choices.blocks)]
    if release is not None:
        found = [release.thresholds(choices.thresholds, block) for block in blocks]
    else:
        found = [_quantiles(choices, records, development, block) for block in blocks]
    return even(found)


def even(blocks: Sequence[tuple[float, ...]]) -> list[tuple[float, ...]]:
    """Return as many thresholds of every block, evenly spread over its own: a panel's blocks are alike."""
    count = min(map(len, blocks))
    places = [np.unique(np.rint(np.linspace(0, len(each) - 1, count)).astype(int)) for each in blocks]
    return [tuple(each[i] for i in place.tolist()) for each, place in zip(blocks, places, strict=True)]


def _with_cuts(
    choices: Choices, fields: dict[str, Any], blocks: Sequence[tuple[float, ...]], origin: str
) -> dict[str, Any]:
    """Return the fields with thresholds of equal weights: the registration's, and those of every other block."""
    if choices.groups is not None and choices.group_floor == "group":
        blocks = [(0.0, *each) if each[0] > 0 else each for each in blocks]
        blocks = even(blocks)
    fields["thresholds"] |= {"origin": origin}
    return put_cuts(fields, [(each, (1.0 / len(each),) * len(each)) for each in blocks])


def origin_of(choices: Choices, made: Registration, records: Records, development: Development) -> Origin:
    """Decide where thresholds come from: a public grid too where noise would drown so few development units.

    Too few units for any threshold, or units without a score, are refused.
    """
    if choices.grid:
        return "grid"
    _scored(records, development, choices.unit)
    if choices.public_development:
        return "public"
    if not made.privacy.private:
        return "development"
    units = development_count(records, development, choices.unit)
    noise = most_noise(development_mechanism(made.privacy, len(score_grid()), made.claims.layout))
    return "grid" if doubt(units / len(choices.groups or (0,)), noise) == 1 else "noised"


def _settled(choices: Choices, records: Records, development: Development) -> Choices:
    """Complete the choices with a cap on answers and a grid for losses: declared, or read off published records.

    Beside a public grid none are: no ledger hears of it, and a later registration may call the same records protected.
    """
    rows = development_rows(records, development, choices.unit)
    binary = bool(np.isin(records.loss[rows], (0.0, 1.0)).all())
    protected = choices.grid or not (math.isinf(choices.epsilon) or choices.public_development)
    if protected:
        _check_declared(choices, binary=binary, unused=choices.grid and not development.inside)
    answers = choices.max_answers
    if choices.unit == "source" and answers is None:
        answers = MOST_ANSWERS if protected else min(most_answers(records, rows), MOST_ANSWERS)
    return replace(choices, max_answers=answers, loss_grid=choices.loss_grid or (1 if binary else GRADED_GRID))


def _check_declared(choices: Choices, *, binary: bool, unused: bool) -> None:
    """What is registered of protected records is declared: of those that develop, nothing but the noised release; of
    a table beside a public grid nothing at all, for its records may calibrate later."""
    why = "with `grid=` nothing is taken from the table" if choices.grid else "nothing exact is taken from the table"
    shared = choices.unit == "source" and choices.max_answers is None
    if shared and (unused or choices.answer_weight == "answer"):
        raise FedsrcError(why, hint="say how many answers a source may have: `max_answers=`")
    if choices.loss_grid is None and not binary:
        raise FedsrcError(why, hint="losses are graded: say how finely, `loss_grid=100`")


def register_grid(choices: Choices, sites: Sequence[str] | None) -> Registration:
    """Return a registration on a public grid: no record is read."""
    if not choices.grid or not sites:
        raise FedsrcError("without development records, `grid=` and `sites=` are needed")
    if choices.unit == "source" and choices.max_answers is None:
        raise FedsrcError("without development records, sources need `max_answers=`")
    return _build(choices, _grid(choices), tuple(sites), None)


def _quantiles(
    choices: Choices, records: Records, development: Development, block: int | None = None
) -> tuple[float, ...]:
    """Return exact quantiles of the scores, of all or of one block; refuse them for records that privacy protects."""
    if not math.isinf(choices.epsilon) and not choices.public_development:
        raise FedsrcError(
            "thresholds from records that privacy protects need a noised release, which a ledger keeps",
            hint="register_table makes it; Choices(public_development=True) declares these records public",
        )
    scored = _scored(records, development, choices.unit)
    if block is not None:
        mine = _block_scores(choices, records, development_rows(records, development, choices.unit), block)
        scored = mine if mine.size else scored
    values = quantile_thresholds(scored, choices.thresholds)
    return values if choices.exact_thresholds else in_few_digits(values, scored)


def _block_scores(choices: Choices, records: Records, rows: Bools, block: int) -> Floats:
    """Return the development scores of a group, or of one of several scores."""
    scores = records.score
    if choices.groups is None and block > 0:
        assert records.others is not None  # read with the table
        scores = records.others[:, block - 1]
    if choices.groups is not None:
        if records.group is None:
            raise no_groups(choices.group_column)
        rows = rows & np.isin(np.asarray(records.group_names), [choices.groups[block]])[records.group]
    found = scores[rows]
    return np.asarray(found[found >= 0])


def no_groups(column: str) -> FedsrcError:
    """Return the error for a table without the column of groups."""
    return FedsrcError(f"the table has no column {column!r} that says the group of an answer",
                       hint="`group_column=` names it")  # fmt: skip


def _scored(records: Records, development: Development, unit: Unit) -> Floats:
    """Return the development scores; refuse too few."""
    scores = records.score[development_rows(records, development, unit)]
    scored, units = scores[scores >= 0], development_count(records, development, unit)
    if units < FEWEST or not scored.size:
        raise FedsrcError(
            f"{units} development {unit}s with {scored.size} scores are too few for thresholds",
            hint=f"{FEWEST} of them are the fewest: bring more records, or take evenly spaced thresholds with `grid=`",
        )
    return scored


def _grid(choices: Choices) -> tuple[float, ...]:
    return (grid_thresholds if choices.exact_thresholds else round_grid)(choices.thresholds)


def _build(
    choices: Choices, values: tuple[float, ...], names: tuple[str, ...], development: Development | None
) -> Registration:
    keys, aggregation = dict(choices.site_keys or {}), dict[str, Any](kind=choices.aggregation or "own")
    keys |= {each.site: each.key for each in choices.mask_keys}  # each says which its site's is
    if choices.aggregation == "holder":
        aggregation["key"] = keys.pop("holder", None)
    if choices.aggregation == "cohorts":
        aggregation |= _cohorts(choices, names)
    elif choices.cohorts or choices.mask_keys or choices.colluding != Choices.colluding:
        raise FedsrcError(
            "`cohorts=`, `colluding=` and `mask_keys=` are for sites that add up before anyone can read them",
            hint="say `aggregation='cohorts'`, or leave them out",
        )
    per_site = (choices.weights, choices.drift, keys, choices.capacities)
    unknown = {name for each in per_site for name in each or {}} - set(names)
    if unknown:
        raise FedsrcError(f"{min(unknown)!r} is not a site", hint=f"sites: {', '.join(names)}")
    _check_weights(choices.weights, names)
    if of_answers(choices.tested_risk, choices.missed) != choices.target_risk:
        raise FedsrcError(
            f"a target of {choices.target_risk!r} has too many decimals for labels that miss {choices.missed!r} of it",
            hint="round `target=` down, to two or three decimals",
        )
    if own := {"column", "scale"} & {*(choices.claim or {})}:
        raise FedsrcError(f"`claim=` says in words what is certified, not the {min(own)} of the score",
                          hint="`score_column=` and `score_scale=` say that")  # fmt: skip
    fields: dict[str, Any] = {
        "server_key": choices.server_key,
        "claim": {
            "score": choices.column,
            "column": choices.column,
            "scale": choices.scale.model_dump(),
            "target_risk": choices.tested_risk,
            "min_acceptance": choices.min_acceptance,
            "failure_probability": choices.failure_probability,
            "validity_days": choices.validity_days,
            **(choices.claim or {}),
        },
        "thresholds": {},
        "claims": _claims(choices),
        "certificate": _certificate(choices),
        "privacy": _privacy(choices),
        "encoding": _encoding(choices),
        "aggregation": aggregation,
        "labelling": _labelling(choices),
        "sites": [_site(name, replace(choices, site_keys=keys)) for name in names],
        "schedule": {
            "batch": choices.batch,
            "rounds": choices.rounds,
            "policy": choices.policy,
            "dropout": "adversarial" if choices.charged else "independent",
        },
        "development": None if development is None else development.model_dump(),
    }
    return Registration.of(_with_cuts(choices, fields, [values] * (1 + len(choices.also_scores)), "grid"))


def _claims(choices: Choices) -> dict[str, Any]:
    """Return the claims that are made: one, one for every group or in all, or one by the best of the scores."""
    points = {name: tuple(each) for name, each in (choices.checkpoints or {}).items()}
    _check_together(choices, points)
    shares = (1.0 / choices.blocks,) * choices.blocks
    if choices.groups is not None:
        whole = choices.group_span == "whole"
        return {
            "kind": "groups", "column": choices.group_column, "names": choices.groups, "shares": shares,
            "claim": choices.group_claim, "floor": choices.group_floor, "span": choices.group_span,
            "most": (choices.group_most or min(len(choices.groups), 20)) if whole else choices.group_most or 1,
        }  # fmt: skip
    if not choices.panel:
        return {"kind": "one"}
    others = [
        {"column": name, "scale": scale.model_dump(), "checkpoints": points.get(name, ())}
        for name, scale in choices.also_scores
    ]
    return {"kind": "scores", "shares": shares, "others": others, "checkpoints": points.get(choices.column, ())}


def _check_together(choices: Choices, points: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse scores and checkpoints beside groups, and checkpoints of no registered score, or of no token."""
    columns = [choices.column, *(name for name, _ in choices.also_scores)]
    if choices.groups is not None and choices.also_scores:
        raise FedsrcError("groups and several scores are not registered together",
                          hint="pick the score on development records first: `fedsrc choose`")  # fmt: skip
    if choices.groups is not None and points:
        raise FedsrcError("groups and checkpoints are not registered together",
                          hint="leave `groups=` or `checkpoints=` out")  # fmt: skip
    if points.keys() - {*columns}:
        raise FedsrcError(f"`checkpoints=` names {min(points.keys() - {*columns})!r}, which is no registered score",
                          hint=f"scores: {', '.join(columns)}")  # fmt: skip
    for name, each in points.items():
        if not each or any(b <= a for a, b in pairwise((0, *each))):
            raise FedsrcError(f"the checkpoints of {name!r} are not increasing numbers of tokens, from 1",
                              hint="`checkpoints=` 30,60,120, for example")  # fmt: skip


def _check_weights(weights: Mapping[str, float] | None, names: Sequence[str]) -> None:
    """Refuse weights that forget a site, or are no shares."""
    if weights is None:
        return
    forgotten, total = [name for name in names if name not in weights], math.fsum(weights.values())
    if forgotten:
        raise FedsrcError(f"`weights=` says nothing of site {forgotten[0]!r}", hint="give every site its share")
    if not math.isclose(total, 1.0, abs_tol=1e-9) and total > 0 and min(weights.values()) >= 0:
        scaled = ",".join(f"{name}={share / total:.12g}" for name, share in weights.items())
        raise FedsrcError(f"`weights=` are shares of the traffic, and these sum to {total:g}, not to 1",
                          hint=f"in these proportions: {scaled}")  # fmt: skip


def _cohorts(choices: Choices, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the cohorts with the mask key of every site; without any named, all sites are in one."""
    if choices.charged and choices.capacities is None:
        raise FedsrcError(
            "a round that a member misses is charged, so cohorts need to know how many units each site will give",
            hint="`capacities=`; or declare, of the server and of every member, `dropout='independent'`",
        )
    members = choices.cohorts or {"all": names}
    return {
        "colluding": choices.colluding,
        "cohorts": [{"name": name, "members": tuple(each)} for name, each in members.items()],
        "keys": [each.model_dump() for each in one_of_each(choices.mask_keys, names)],
    }


def one_of_each(mask_keys: Sequence[MaskKey], sites: Sequence[str]) -> list[MaskKey]:
    """Return the mask keys in the order of the sites; refuse them unless every site has one, and only one."""
    keys = {each.site: each for each in mask_keys}
    wrong = {*sites} ^ {*keys} or {name for name in keys if sum(each.site == name for each in mask_keys) > 1}
    if wrong:
        raise FedsrcError(
            f"cohorts need one mask key of every site: look at {min(wrong)!r}",
            hint="every site makes its own, with `fedsrc keys FILE --mask SITE`, and sends the public file:"
            " `mask_keys=`",
        )
    return [keys[name] for name in sites]


def _privacy(choices: Choices) -> dict[str, Any]:
    return {
        "unit": choices.unit,
        "independent": choices.independent,
        "epsilon": choices.epsilon,
        "delta": choices.delta,
        "adjacency": choices.adjacency or ("zero-out" if choices.preset == "paper" else "replacement"),
        "loss_grid": choices.loss_grid or 1,
        "max_answers": choices.max_answers or 1,
        "answer_weight": choices.answer_weight,
        "conversion": "paper" if choices.preset == "paper" else "tight",
    }


def _certificate(choices: Choices) -> dict[str, Any]:
    split = budgets(choices.preset, choices.failure_probability)
    if choices.preset == "paper":
        return {"method": choices.method or "contrast", **split}
    rungs = sorted({on_labels(risk, choices.missed) for risk in (*Betting().ladder, choices.target_risk)})
    if choices.panel:
        rungs = [choices.tested_risk]
    return {"method": choices.method or "betting", "ladder": rungs, **split}


def _labelling(choices: Choices) -> dict[str, Any]:
    if choices.labels == "on demand":
        return {
            "kind": "on demand",
            "hours": choices.label_hours,
            "twice": choices.label_twice,
            "disagreement": choices.disagreement,
            "missed": choices.missed,
        }
    if choices.label_hours is not None or choices.label_twice or choices.disagreement != "worse":
        raise FedsrcError(
            "`label_hours=`, `label_twice=` and `disagreement=` are for labels that are made on demand",
            hint="say `labels='on demand'`, or leave them out",
        )
    return {"kind": "there", "missed": choices.missed}


def _encoding(choices: Choices) -> dict[str, str]:
    if choices.encoding != "histograms":
        return {"kind": choices.encoding}
    if choices.preset == "paper":
        return {"kind": "paired", "basis": "bins"}
    return {"kind": "complementary", "basis": "suffix"}


def _site(name: str, choices: Choices) -> dict[str, Any]:
    weight = None if choices.weights is None else choices.weights.get(name, 0.0)
    return {
        "name": name,
        "weight": weight,
        "drift": (choices.drift or {}).get(name, 0.0),
        "key": (choices.site_keys or {}).get(name),
        "capacity": (choices.capacities or {}).get(name),
    }
