"""Panels of twenty groups where group claims are false: what may fail, how close it comes, and rules that do fail.

A run fails when it ever claims a group that is at its target, or a little above it: any group, any threshold, any look.
Only the risk budget of 0.045 counts; false bounds on acceptance are counted by themselves. Registrations, units,
releases, noise and decisions are those of the product.

Writes docs/results/panel-validity.md. Run: python -m research.benchmarks.panel_validity [TRIALS]
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from fedsrc.maths.arrays import Bools, Floats, Ints
from fedsrc.maths.betting import Covariance
from fedsrc.maths.binomial import clopper_pearson
from fedsrc.planning.register import Choices, register_grid
from fedsrc.planning.sealing import Seal, seal
from fedsrc.protocol.judgements import Sealed
from fedsrc.protocol.registration import Registration
from fedsrc.records.masses import unit_masses
from fedsrc.records.units import Units
from fedsrc.server import panel, sealed
from fedsrc.server.bounds import Look, Sample, look
from fedsrc.server.recruiter import asked
from fedsrc.server.tally import empty, masses, transfer
from fedsrc.simulate.pool import ENDLESS
from fedsrc.simulate.population import Support, suffix_masses
from fedsrc.simulate.trials import discrete_gaussian
from research.lazy_labels import images
from research.pages import markdown, publish

TRIALS, BLOCK, ALPHA, ACCEPTANCE = 5_000, 2_500, 0.045, 0.0049
TARGET, GOOD, FLOOR = 0.2, 0.02, 0.01
NAMES = tuple(f"g{i:02d}" for i in range(20))
BAD = 0  # the group that is bad, where one is
LINE = -math.log(ALPHA)
NEAR = 1.0  # nats before its line, where a steered run with a hybrid line asks for one more round
ACCEPTED = {1: (0.1, 0.9), 2: (0.1, 0.4, 0.5), 3: (0.1, 0.3, 0.3, 0.3)}  # of a group's answers, by thresholds
START, HELD = 4_000, 20  # units of every group before its turn, and rounds in which it is held at its target
Asks = Callable[[int, Ints, Floats], Ints]  # slots of each site, from the round, slots drawn, and evidence of rows
Rule = Callable[[Registration, Sample, Look | None], Look]
SealedRule = Callable[[Registration, Sequence[sealed.Seen]], Look]


@dataclass(frozen=True, eq=False)
class Setting:
    """A registration of groups, the laws of its sites, and what each is asked for in every round, by trial.

    asks      who is asked, where it is not the product's recruiter
    rule      what decides: the product, or a control
    steered   whoever sees the releases ends a sealed run one round after a row came near its line
    times     so many times the trials: some settings are quick, and some are slow
    """

    name: str
    registration: Registration
    sites: Sequence[Support]
    asks: Asks | None = None
    rule: Rule = look
    sealed_rule: SealedRule = sealed.decide
    steered: bool = False
    times: float = 1.0


class Outcome(NamedTuple):
    """Per trial: whether a false claim was ever made, whether a false bound on acceptance was, and the most groups
    that had a true claim at one look."""

    claim: Bools
    acceptance: Bools
    groups: Ints


# ---------------------------------------------------------------- registrations


def registered(
    epsilon: float = math.inf, *, thresholds: int = 3, sites: Sequence[str] = ("a",), growth: float = 1.0,
    bets: dict[str, float] | None = None, **more: Any,
) -> Registration:  # fmt: skip
    """An open registration of groups on a grid, with few bets on acceptance, which is not what is tried here."""
    choices = Choices(
        TARGET, epsilon, grid=True, thresholds=thresholds, groups=NAMES, min_acceptance=FLOOR, **more
    )  # fmt: skip
    fields = register_grid(choices, tuple(sites)).model_dump()
    fields["certificate"]["centres"] |= {"top": FLOOR, "count": 2}
    fields["certificate"]["bets"] |= bets or {}
    fields["schedule"]["growth"] = growth
    return Registration.of(fields)


def growing(epsilon: float = math.inf, **more: Any) -> Registration:
    """The same with rounds that grow: few units in the first, and far more than a claim needs in the end."""
    batch, growth = {math.inf: (100, 1.2), 4.0: (500, 1.1), 1.0: (2_000, 1.1)}[epsilon]
    return registered(epsilon, **{"batch": batch, "growth": growth, "rounds": 60, **more})


def sealed_by(
    bet: float, epsilon: float, *, looks: tuple[tuple[int, float], ...] = ((1, 1.0),), line: str = "exact", **more: Any
) -> Registration:
    """A sealed registration of the same with one bet, a share of the largest, in every row."""
    base = registered(epsilon, **{"thresholds": 2, "rounds": looks[-1][0], **more})
    bets = (bet / (1 - TARGET),) * len(base.row_weights)
    cut = base.thresholds
    return seal(base, Seal(cut.values, cut.weights, ((TARGET, 1.0, bets),), looks, line))


# ---------------------------------------------------------------- laws of units


def answers(reg: Registration, risk: Floats, share: Floats | None = None) -> Support:
    """Single answers: `share` of all units are of each group, as many of each as of all others; the rest, all of them
    accepted and unsupported, are of a group that is not listed. `risk` is that at every threshold (groups, m)."""
    groups, m = risk.shape
    accepted = np.asarray(ACCEPTED[m])
    if reg.thresholds.values[0] == 0:  # nothing is below it
        accepted = np.array([0.0, accepted[0] + accepted[1], *accepted[2:]])
    above = accepted[::-1].cumsum()[::-1][1:]
    bad = np.hstack([np.full((groups, 1), accepted[0] / 2), -np.diff(risk * above, append=0.0, axis=1)])
    law = np.stack([accepted - bad, bad], axis=1) * (np.full(groups, 0.9 / groups) if share is None else share)[
        :, None, None
    ]  # fmt: skip
    assert (law >= -1e-12).all()
    law = np.maximum(law, 0.0)
    group, loss, bin = (each.ravel() for each in np.indices(law.shape))
    chances = np.append(law.ravel(), max(0.0, 1.0 - law.sum()))
    group, loss, bin = (np.append(each, last) for each, last in ((group, groups), (loss, 1), (bin, m)))
    there = chances > 0
    units = Units(
        start=np.arange(there.sum() + 1), score=_inside(reg)[bin[there]], loss=loss[there].astype(np.float64), ids=None,
        group=group[there], group_names=(*NAMES[:groups], "not listed"),
    )  # fmt: skip
    return Support(unit_masses(reg, units), chances[there] / chances.sum())


def sources(reg: Registration, risk: Floats) -> Support:
    """Sources of four answers alike in score: two of a group, one of the next, and one of a group that is not listed.
    Answers of one group are unsupported together more often than not; `risk` is that of a group (groups,)."""
    groups, m = risk.size, len(reg.thresholds.values)
    first, both, other, bin = (each.ravel() for each in np.indices((groups, 3, 2, m)))
    second = (first + 1) % groups
    two = np.stack([1.0 - 1.25 * risk, 0.5 * risk, 0.75 * risk])  # none, one or both of the two
    one = np.stack([1.0 - risk, risk])
    law = two[both, first] * one[other, second] / (groups * m)
    loss = np.stack([both > 0, both > 1, other > 0, np.ones_like(other, dtype=np.bool_)], axis=1).astype(np.float64)
    group = np.stack([first, first, second, np.full_like(first, groups)], axis=1)
    units = Units(
        start=4 * np.arange(law.size + 1), score=np.repeat(_inside(reg)[1 + bin], 4), loss=loss.ravel(),
        ids=tuple(f"source {i}" for i in range(law.size)), group=group.ravel(),
        group_names=(*NAMES[:groups], "not listed"),
    )  # fmt: skip
    return Support(unit_masses(reg, units), law)


def _inside(reg: Registration) -> Floats:
    """A score in every bin."""
    edges = np.array([0.0, *reg.thresholds.values, 1.0])
    return np.asarray((edges[:-1] + edges[1:]) / 2.0)


def one_bad(m: int = 3, bad: float | Sequence[float] = TARGET, groups: int = len(NAMES)) -> Floats:
    """Risks of which one group's are bad, at every threshold or as given, and all others good."""
    risk = np.full((groups, m), GOOD)
    risk[BAD] = bad
    return risk


# ---------------------------------------------------------------- who is asked


def as_registered(reg: Registration) -> Asks:
    """What the product's own recruiter asks for, of sites that have more."""
    return lambda round, drawn, _: asked(reg, drawn, np.full_like(drawn, ENDLESS), round=round)


def by_turns(plan: Sequence[Sequence[int]]) -> Asks:
    """Slots by round."""
    return lambda round, drawn, _: np.broadcast_to(np.asarray(plan[round - 1]), drawn.shape)


def reading(batch: int, rows: Sequence[int]) -> Asks:
    """Of two sites the second is asked first where a watched row has gained evidence, else the first, in small rounds
    near its line; then the other for as many."""

    def asks(_: int, drawn: Ints, evidence: Floats) -> Ints:
        best = evidence[:, list(rows)].max(axis=1)
        size = np.where(best > LINE - NEAR, batch // 4, batch)
        ahead = drawn[:, 0] - drawn[:, 1]
        first = np.where(ahead == 0, best <= 0, ahead < 0)
        size = np.where(ahead == 0, size, np.abs(ahead))
        return np.stack([np.where(first, size, 0), np.where(first, 0, size)], axis=1)

    return asks


def sizing(first: int, batch: int, rows: Sequence[int]) -> Asks:
    """Both of two sites are asked, for many units at first, then for more where no watched row has gained evidence."""

    def asks(round: int, drawn: Ints, evidence: Floats) -> Ints:
        small = evidence[:, list(rows)].max(axis=1) > 0
        size = np.where(small, batch, 2 * batch) if round > 1 else np.full(len(drawn), first)
        return np.stack([size, size], axis=1)

    return asks


def moving() -> list[list[int]]:
    """Slots by round of a good and a bad site of every group, and of one whose units are of no group: all groups are
    good; then each in its turn has as many units of both, round after round, and many of the good one."""
    groups = len(NAMES)
    rounds = [[START, 0] * groups + [0]]
    for g in range(groups):
        for held in [0, *(round(START / 4 * 1.25**k) for k in range(HELD))]:
            slots = [0] * (2 * groups + 1)
            slots[2 * g : 2 * g + 2] = [held or 0, held or START]
            rounds.append(slots)
        rounds.append([0] * (2 * groups + 1))
        rounds[-1][2 * g] = 150 * START
    return rounds


def until_near(plan: Sequence[Sequence[int]]) -> Asks:
    """The same, by one who reads the releases: once the group whose turn it is has enough evidence, only the site whose
    units are of no group is asked."""

    def asks(round: int, drawn: Ints, evidence: Floats) -> Ints:
        now = np.broadcast_to(np.asarray(plan[round - 1]), drawn.shape)
        idle = np.zeros_like(now)
        idle[:, -1] = 1
        before = plan[max(0, round - 2)]
        turn = max(range(0, len(before) - 1, 2), key=lambda i: before[i + 1]) // 2
        enough = (evidence[:, turn] >= LINE + 0.01) & (drawn[:, 2 * turn] == drawn[:, 2 * turn + 1])
        return np.where((enough | (drawn[:, -1] > 0))[:, None], idle, now)

    return asks


# ---------------------------------------------------------------- runs


class Run:
    """Many runs of a setting at once: exact sums with noise, slots and noises, and what is true of their mixtures."""

    def __init__(self, setting: Setting, trials: int, rng: np.random.Generator) -> None:
        self.setting, self.reg, self.rng, self.trials = setting, setting.registration, rng, trials
        self.images = [images(self.reg, site.masses).astype(np.float64) for site in setting.sites]
        self.sums = np.zeros((trials, *self.reg.mechanism.shape), dtype=np.int64)
        self.drawn = np.zeros((trials, len(setting.sites)), dtype=np.int64)
        self.noises = np.zeros(trials)
        means = np.stack([np.tensordot(site.law, site.masses, 1) for site in setting.sites])
        self.accepted, self.unsupported = suffix_masses(self.reg, means)  # (sites, groups, thresholds)

    def round(self, number: int, evidence: Floats) -> None:
        """Ask, draw, release."""
        slots = (self.setting.asks or as_registered(self.reg))(number, self.drawn, evidence)
        for k, site in enumerate(self.setting.sites):
            if not slots[:, k].any():
                continue
            counts = self.rng.multinomial(slots[:, k], site.law)
            self.sums += np.rint(np.tensordot(counts.astype(np.float64), self.images[k], 1)).astype(np.int64)
            self._noise(slots[:, k] > 0)
        self.drawn = self.drawn + slots

    def _noise(self, there: Bools) -> None:
        noise = discrete_gaussian(self.rng, self.reg.mechanism.scale, self.sums.shape)
        self.sums += noise * there.reshape(-1, *(1,) * (noise.ndim - 1))
        self.noises = self.noises + there

    @property
    def total(self) -> Ints:
        return np.asarray(self.drawn.sum(axis=1))

    @property
    def eta(self) -> Floats:
        """Of every trial, by the product's own rule; few differ."""
        kinds, which = np.unique(self.drawn, axis=0, return_inverse=True)
        one = empty(self.reg)
        each = [transfer(self.reg, replace(one, slots=tuple(slots.tolist()))) for slots in kinds]
        return np.asarray(each)[which.ravel()]

    def truth(self) -> tuple[Bools, Floats]:
        """Rows (trials, groups, thresholds) whose null is true of the mixture spoken of, and their acceptance."""
        declared = self.reg.weights
        w = self.drawn / self.total[:, None] if declared is None else np.broadcast_to(declared, self.drawn.shape)
        a, u = (np.tensordot(w, each, 1) for each in (self.accepted, self.unsupported))
        return u - TARGET * a >= -1e-12, a

    def judge(self, rejected: Bools, bound: Floats) -> Outcome:
        """What of a look is false. A threshold for all groups is, where one group's null is true."""
        null, a = self.truth()
        groups = self.reg.groups
        assert groups is not None
        together = rejected.shape[-1] != null[0].size
        claims = rejected.reshape(self.trials, 1 if together else len(groups.names), -1)
        false = claims & (null.any(axis=1, keepdims=True) if together else null)
        share = a / a[..., :1] if groups.floor == "group" else a
        if together:
            share = share.min(axis=1) if groups.floor == "group" else share.sum(axis=1) / groups.most
        wrong = bound > share.reshape(self.trials, -1) + 1e-9
        true = (claims & ~false).any(axis=2).sum(axis=1) * (len(groups.names) if together else 1)
        return Outcome(np.asarray(false.any(axis=(1, 2))), np.asarray(wrong.any(axis=1)), true)


def played(setting: Setting, trials: int, rng: np.random.Generator) -> Outcome:
    """Play so many runs."""
    run = Run(setting, trials, rng)
    return _sealed(run) if isinstance(run.reg.judgement, Sealed) else _open(run)


def _open(run: Run) -> Outcome:
    reg, now, found = run.reg, None, None
    evidence = np.zeros((run.trials, len(reg.row_weights)))
    for number in range(1, run.reg.schedule.rounds + 1):
        run.round(number, evidence)
        N: Any = run.total[:, None]  # a look takes them by trial
        eta: Any = run.eta[:, None]
        seen = Sample(masses(reg, run.sums, run.noises[:, None]), N, eta)
        now = run.setting.rule(reg, seen, now)
        assert now.rejected is not None
        assert now.wealth is not None
        evidence, found = now.wealth, _with(found, run.judge(now.rejected, now.acceptance_lower))
    assert found is not None
    return found


def _sealed(run: Run) -> Outcome:
    reg, setting, found, looks = run.reg, run.setting, None, list[sealed.Seen]()
    last, over = (np.zeros(run.trials, dtype=np.bool_) for _ in range(2))
    evidence, slope = np.zeros((run.trials, len(reg.row_weights))), sealed.rows(reg).slope.T
    for number in range(1, reg.schedule.rounds + 1):
        before = float(run.noises[0])
        run.round(number, evidence)
        evidence = run.sums.reshape(run.trials, -1) @ slope
        share = 1.0 if setting.steered else sealed.due(reg, number, over=False)
        if share is None:
            continue
        here = _seen(run, before, share)
        looks = [here] if setting.steered else [*looks, here]
        now = setting.sealed_rule(reg, looks)
        assert now.rejected is not None
        rejected = now.rejected
        if setting.steered:
            hybrid = sealed.method_of(reg).line == "hybrid"
            rejected = rejected & (last[:, None] | (not hybrid))
            over = over | last
            weights = panel.left(reg.claims, sealed.rows(reg).weight, len(reg.cuts), now.rejected)
            near = sealed.lines(reg, here, weights) - NEAR <= here.L
            last = near[:, _watched(reg)].any(axis=1) & ~over
        found = _with(found, run.judge(rejected, now.acceptance_lower))
    assert found is not None
    return found


def _watched(reg: Registration) -> list[int]:
    return [*range(BAD * len(reg.thresholds.values), (BAD + 1) * len(reg.thresholds.values))]


def _seen(run: Run, before: float, share: float) -> sealed.Seen:
    """What a look sees of all trials, which have as many slots and noises, of whatever sites."""
    reg, kinds = run.reg, np.unique(run.drawn, axis=0)
    L, bound = np.zeros((run.trials, len(reg.row_weights))), None
    for slots in kinds:
        mine = (run.drawn == slots).all(axis=1)
        tally = replace(empty(reg), slots=tuple(slots.tolist()), noises=float(run.noises[0]), sums=run.sums[mine])
        here = sealed.see(reg, tally, before, share)
        bound = np.zeros((run.trials, here.acceptance.shape[-1])) if bound is None else bound
        L[mine], bound[mine] = here.L, here.acceptance
    assert bound is not None
    return replace(here, L=L, acceptance=bound)


def _with(before: Outcome | None, now: Outcome) -> Outcome:
    if before is None:
        return now
    return Outcome(before.claim | now.claim, before.acceptance | now.acceptance, np.maximum(before.groups, now.groups))


# ---------------------------------------------------------------- settings


def _every(risk: float, m: int = 3) -> Floats:
    return np.full((len(NAMES), m), risk)


def _live_at(reg: Registration, risk: Floats, sites: int) -> list[Support]:
    """Groups that live at one site each, as many at every site."""
    at = np.arange(len(NAMES)) * sites // len(NAMES)
    return [answers(reg, risk, np.where(at == k, 0.9 * sites / len(NAMES), 0.0)) for k in range(sites)]


def _in_turn(reg: Registration) -> list[Support]:
    """A good and a bad site of every group, which as many units of both bring to its target, and one without groups."""
    m, own = len(reg.thresholds.values), np.eye(len(NAMES))
    each = [answers(reg, _every(risk, m), own[g]) for g in range(len(NAMES)) for risk in (0.14, 0.26)]
    return [*each, answers(reg, _every(GOOD, m), 0.0 * own[0])]


def _pairs() -> tuple[str, ...]:
    return (*(f"{name}{kind}" for name in NAMES for kind in ("good", "bad")), "none")


def one_of_twenty() -> list[Setting]:
    """One group is bad, the others are good, and pass their weights on to it."""
    found = []
    for epsilon in (math.inf, 4.0, 1.0):
        reg = growing(epsilon)
        found.append(Setting(f"one bad group, {_private(epsilon)}", reg, [answers(reg, one_bad())]))
    reg = growing()
    found.append(Setting("one group a little above its target, 0.205", reg, [answers(reg, one_bad(bad=0.205))]))
    alone = {"lowest": (0.2, 0.05, 0.05), "middle": (0.14, 0.2, 0.05), "highest": (0.08, 0.11, 0.2)}
    for (name, risk), epsilon in zip(alone.items(), (math.inf, 4.0, 1.0), strict=True):
        reg = growing(epsilon)
        law = answers(reg, one_bad(bad=risk))
        found.append(Setting(f"one bad group, at its {name} threshold alone, {_private(epsilon)}", reg, [law]))
    return found


def many_of_twenty() -> list[Setting]:
    """Every group has a threshold at its target."""
    found = []
    for epsilon in (math.inf, 4.0):
        reg = growing(epsilon)
        found.append(Setting(f"all twenty at their target, {_private(epsilon)}", reg, [answers(reg, _every(TARGET))]))
    reg = growing()
    risk = np.tile([TARGET, TARGET, GOOD], (len(NAMES), 1))
    found.append(Setting("every group good at its highest threshold alone", reg, [answers(reg, risk)]))
    return found


def by_site() -> list[Setting]:
    """Groups live at sites, recruitment reads the releases, and mixtures move."""
    weights, found = {"a": 0.4, "b": 0.3, "c": 0.2, "d": 0.1}, []
    for epsilon in (math.inf, 4.0):
        reg = growing(epsilon, sites=tuple(weights), weights=weights)
        name = f"five groups at each of four weighted sites, one bad, {_private(epsilon)}"
        found.append(Setting(name, reg, _live_at(reg, one_bad(), 4)))
    for epsilon, batch in ((math.inf, 400), (4.0, 4_000)):
        half = registered(epsilon, sites=("a", "b"), weights={"a": 0.5, "b": 0.5}, policy="recruit", rounds=60)
        name = f"ten groups at each of two sites, one bad, recruitment reads the releases, {_private(epsilon)}"
        found.append(Setting(name, half, _live_at(half, one_bad(), 2), reading(batch, range(3))))
    two = registered(sites=("a", "b"), policy="recruit", rounds=60)
    unlike = [answers(two, _every(risk)) for risk in (0.1, 0.3)]
    found.append(Setting("unlike sites as calibrated, all at their target, recruitment reads the releases", two, unlike,
                         reading(400, range(60))))  # fmt: skip
    reg = registered(thresholds=1, sites=_pairs(), rounds=len(moving()), bets={"low": 0.005, "high": 0.04})
    found.append(Setting("a mixture that moves, every group in turn at its target", reg, _in_turn(reg),
                         by_turns(moving()), times=0.2))  # fmt: skip
    return found


def spanning() -> list[Setting]:
    """Sources whose answers are of several groups, with second moments."""
    found = []
    more: dict[str, Any] = {"unit": "source", "max_answers": 4, "encoding": "moments", "thresholds": 2}
    for span, most in (("shares", None), ("whole", 2)):
        for epsilon in (math.inf, 4.0):
            reg = growing(epsilon, **more, group_span=span, group_most=most)
            law = sources(reg, one_bad(1)[:, 0])
            found.append(Setting(f"sources that span groups, {span}, one bad, {_private(epsilon)}", reg, [law]))
    return found


def together() -> list[Setting]:
    """One threshold for all groups, and acceptance within groups."""
    found = []
    for epsilon in (math.inf, 4.0):
        reg = growing(epsilon, group_claim="all")
        found.append(Setting(f"for all groups, one bad, {_private(epsilon)}", reg, [answers(reg, one_bad())]))
    reg = growing(group_claim="all")
    risk = one_bad(bad=(0.2, 0.05, 0.05))
    risk[1], risk[2] = (0.14, 0.2, 0.05), (0.08, 0.11, 0.2)
    found.append(Setting("for all groups, another one bad at each threshold", reg, [answers(reg, risk)]))
    more: dict[str, Any] = {"unit": "source", "max_answers": 4, "encoding": "moments", "thresholds": 2}
    reg = growing(4.0, **more, group_claim="all", group_span="whole", group_most=2, group_floor="group")
    found.append(Setting("for all groups, sources whole in two, one bad, epsilon 4", reg,
                         [sources(reg, one_bad(1)[:, 0])]))  # fmt: skip
    reg = growing(4.0, group_floor="group", thresholds=2)
    found.append(Setting("each group by itself, acceptance as its own share, one bad, epsilon 4", reg,
                         [answers(reg, one_bad())]))  # fmt: skip
    return found


def sealed_ones() -> list[Setting]:
    """The same in sealed certificates."""
    found = []
    for epsilon, batch, bet in ((4.0, 8_000, 0.2), (1.0, 16_000, 0.15)):
        reg = sealed_by(bet, epsilon, batch=batch)
        found.append(Setting(f"sealed, one bad group, epsilon {epsilon:g}", reg, [answers(reg, one_bad(2))]))
    reg = sealed_by(0.15, 1.0, batch=16_000)
    found.append(Setting("sealed, one bad group, at its lower threshold alone, epsilon 1", reg,
                         [answers(reg, one_bad(2, (0.2, 0.05)))]))  # fmt: skip
    found.append(Setting("sealed, all twenty at their target, epsilon 1", reg, [answers(reg, _every(TARGET, 2))]))
    reg = sealed_by(0.15, 1.0, batch=4_000, looks=((1, 0.2), (2, 0.2), (4, 0.3), (8, 0.3)))
    found.append(Setting("sealed, one bad group, four looks, epsilon 1", reg, [answers(reg, one_bad(2))]))
    weights = {"a": 0.5, "b": 0.5}
    reg = sealed_by(0.15, 1.0, batch=8_000, sites=("a", "b"), weights=weights, looks=((1, 0.5), (2, 0.5)))
    found.append(Setting("sealed, ten groups at each of two sites, one bad, two looks, epsilon 1", reg,
                         _live_at(reg, one_bad(2), 2)))  # fmt: skip
    for span, most in (("shares", None), ("whole", 2)):
        reg = sealed_by(0.3, 4.0, batch=8_000, unit="source", max_answers=4, group_span=span, group_most=most)
        found.append(Setting(f"sealed, sources that span groups, {span}, one bad, epsilon 4", reg,
                             [sources(reg, one_bad(1)[:, 0])]))  # fmt: skip
    reg = sealed_by(0.15, 1.0, batch=16_000, group_claim="all")
    found.append(Setting("sealed, for all groups, one bad, epsilon 1", reg, [answers(reg, one_bad(2))]))
    found += [hybrid(), chosen()]
    return [replace(each, times=5.0 * each.times) for each in found]


def hybrid(name: str = "hybrid line", line: str = "hybrid") -> Setting:
    """Recruitment and the end of the run follow the releases."""
    reg = sealed_by(0.1, 1.0, sites=("a", "b"), weights={"a": 0.5, "b": 0.5}, line=line, looks=((20, 1.0),),
                    policy="recruit" if line == "hybrid" else "first")  # fmt: skip
    return Setting(f"sealed, one bad group, recruitment and end of run steered, {name}, epsilon 1", reg,
                   _live_at(reg, one_bad(2), 2), sizing(8_000, 2_000, range(2)), steered=True, times=0.2)  # fmt: skip


def chosen() -> Setting:
    """Who reads the releases chooses the mixture of a look, and with it the group that is at its target."""
    rounds = len(moving())
    reg = sealed_by(0.025, math.inf, thresholds=1, sites=_pairs(), policy="recruit", line="hybrid",
                    looks=((rounds, 1.0),))  # fmt: skip
    return Setting("sealed, the mixture of the look chosen by the releases, hybrid line", reg, _in_turn(reg),
                   until_near(moving()), times=0.2)  # fmt: skip


def _private(epsilon: float) -> str:
    return "no privacy" if math.isinf(epsilon) else f"epsilon {epsilon:g}"


# ---------------------------------------------------------------- rules that are wrong


def _wealth(now: Look) -> Floats:
    assert now.wealth is not None
    return now.wealth


def _lines(reg: Registration) -> Floats:
    """What rows must reach where the whole budget is every group's own."""
    return -np.log(ALPHA * np.concatenate([each.weights for each in reg.cuts]))


def unsplit(reg: Registration, seen: Sample, before: Look | None) -> Look:
    """Every group at the full level, whatever became of the others."""
    now = look(reg, seen, before)
    return replace(now, rejected=_wealth(now) >= _lines(reg))


def in_order(reg: Registration, seen: Sample, before: Look | None) -> Look:
    """Groups in a fixed order at the full level: the next one is opened once a threshold of the last is rejected."""
    now = look(reg, seen, before)
    reached = (_wealth(now) >= _lines(reg)).reshape(-1, len(reg.cuts), len(reg.thresholds.values))
    opened = np.logical_and.accumulate(reached.any(axis=2), axis=1)
    opened = np.hstack([np.ones_like(opened[:, :1]), opened[:, :-1]])
    return replace(now, rejected=(reached & opened[..., None]).reshape(len(reached), -1))


def without_noise(reg: Registration, seen: Sample, before: Look | None) -> Look:
    """The noise term dropped."""
    none = Covariance(*(0.0 * each for each in seen.masses.noise))
    return look(reg, replace(seen, masses=replace(seen.masses, noise=none)), before)


def passed_on(reg: Registration, seen: Sample, before: Look | None) -> Look:
    """Weights passed on at every look, though the mixture moves."""
    now = look(reg, seen, before)

    def reaches(weights: Floats) -> Bools:
        with np.errstate(divide="ignore"):
            return np.asarray(_wealth(now) >= -np.log(ALPHA * weights))

    weights = np.asarray(reg.row_weights)
    return replace(now, rejected=panel.reject(reg.claims, weights, len(reg.cuts), reaches, passes=True))


def all_unsplit(reg: Registration, seen: Sample, before: Look | None) -> Look:
    """One threshold for all groups without a split over them, though the mixture moves."""
    now = look(reg, seen, before)
    reached = (_wealth(now) >= _lines(reg)).reshape(-1, len(reg.cuts), len(reg.thresholds.values))
    bound = np.zeros((len(reached), reached.shape[2]))
    return replace(now, rejected=np.asarray(reached.all(axis=1)), acceptance_lower=bound)


def passed_on_at_a_look(reg: Registration, looks: Sequence[sealed.Seen]) -> Look:
    """Weights passed on within a sealed look, though the releases chose its mixture."""
    tests, last = sealed.rows(reg), looks[-1]

    def reaches(weights: Floats) -> Bools:
        return np.asarray(sealed.lines(reg, last, weights) <= last.L)

    rejected = panel.reject(reg.claims, tests.weight, len(reg.cuts), reaches, passes=True)
    return Look(np.where(rejected, TARGET, 1.0), last.acceptance, rejected, rejected=rejected)


def controls() -> list[Setting]:
    """Rules that leave a condition out, on laws where that shows."""
    known = {each.name: each for part in (many_of_twenty, by_site) for each in part()}
    twenty, noised = (known[f"all twenty at their target, {each}"] for each in ("no privacy", "epsilon 4"))
    trap = known["every group good at its highest threshold alone"]
    moves = known["a mixture that moves, every group in turn at its target"]
    return [
        replace(trap, name="fixed order, the next group opened at the full level once a threshold is rejected",
                rule=in_order),
        replace(twenty, name="every group at the full level, all twenty at their target", rule=unsplit),
        replace(moves, name="weights passed on over a mixture that moves", rule=passed_on),
        replace(moves, name="for all groups without a split, over a mixture that moves", rule=all_unsplit),
        replace(noised, name="noise term dropped, all twenty at their target, epsilon 4", rule=without_noise),
        hybrid("exact line", "exact"),
        replace(chosen(), name="sealed, weights passed on at a look whose mixture the releases chose",
                sealed_rule=passed_on_at_a_look, times=1.0),
    ]  # fmt: skip


PARTS: dict[str, Callable[[], list[Setting]]] = {
    "One bad group among twenty": one_of_twenty,
    "More groups at their target": many_of_twenty,
    "Groups and sites": by_site,
    "Sources that span groups": spanning,
    "One threshold for all groups, acceptance within groups": together,
    "Sealed": sealed_ones,
    "Rules that leave a condition out": controls,
}


def counted(setting: Setting, trials: int, seed: int) -> tuple[int, Outcome]:
    """Play in blocks; return how many runs there were, and what came out."""
    rng, runs = np.random.default_rng([seed, 23]), max(1, round(trials * setting.times))
    sizes = [BLOCK] * (runs // BLOCK) + [runs % BLOCK] * (runs % BLOCK > 0)
    parts = [played(setting, size, rng) for size in sizes]
    return runs, Outcome(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def row(setting: Setting, trials: int, seed: int) -> list[str]:
    """A line of the page."""
    runs, found = counted(setting, trials, seed)
    false, wrong = int(found.claim.sum()), int(found.acceptance.sum())
    low, high = clopper_pearson(false, runs)
    print(f"{setting.name}: {false / runs:.5f}", file=sys.stderr, flush=True)
    return [
        setting.name, f"{false:,} of {runs:,}", f"{false / runs:.4f}", f"[{low:.4f}, {high:.4f}]",
        f"{found.groups.mean():.1f}", f"{wrong:,}",
    ]  # fmt: skip


def main() -> None:
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else TRIALS
    head = ["setting", "runs with a false claim", "share", "95% interval", "groups claimed", "false acceptance"]
    parts = [f"## {title}\n\n" + markdown(head, [row(each, trials, i) for i, each in enumerate(made())])
             for title, made in PARTS.items()]  # fmt: skip
    publish(
        "panel-validity.md",
        [
            "# Panels where group claims are false",
            f"Twenty groups, target {TARGET}. Groups are good (risk {GOOD}) or exactly at their target: a claim of one"
            " of these is false. A run fails if it ever makes a false claim: of any group, at any threshold, at any"
            f" look. At most {ALPHA} of the runs may. Made by `python -m research.benchmarks.panel_validity`.",
            "Weights of groups and thresholds that are claimed are passed on, so that one bad group is in the end"
            " tested with nearly all of them. 'Groups claimed' is the most that had a true claim at one look, on"
            f" average. Bounds on acceptance are counted by themselves: {ACCEPTANCE} of the runs may ever hold a false"
            " one.",
            *parts,
            "There are 60 rounds, which grow by 1.1 or 1.2 (not where recruitment reads the releases), with a look"
            " after each; sealed settings have more runs, and the mixture that moves has fewer. In it every group has a"
            " good site and a bad one, and in its turn as many units of both: only then it is at its target. Where the"
            " mixture of a look is chosen, whoever reads the releases stops asking once the group whose turn it is has"
            " enough evidence. Intervals are exact.",
        ],
    )
