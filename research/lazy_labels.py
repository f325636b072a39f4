"""Labels on demand at the boundary: labels that are missing, late, changed or withheld, rounds that
are given up, label errors at their declared limit, and rules that leave a condition out.

Thresholds have a risk of exactly the target by the true losses, so whatever is rejected is a false claim. Only the risk
budget of 0.045 counts. Lattice, noise scales, lines, looks and charges are those of the product.

`research.benchmarks.lazy_labels` makes a page of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Literal

import numpy as np
from scipy.stats import binom

from fedsrc.maths.arrays import Bools, Floats, Ints
from fedsrc.maths.basis import Basis
from fedsrc.maths.contrasts import ContrastCode
from fedsrc.maths.sealed import bet
from fedsrc.planning.register import Choices, register_grid
from fedsrc.protocol.judgements import Sealed
from fedsrc.protocol.registration import Registration
from fedsrc.records.masses import above, contrasts
from fedsrc.server import sealed
from fedsrc.server.bounds import Look, Sample, look
from fedsrc.server.tally import Charge, Tally, empty, lose, masses, transfer
from fedsrc.simulate.population import Support
from fedsrc.simulate.trials import discrete_gaussian
from research.benchmarks.sealed_validity import BLOCK, answers, registered, sources, without_bets
from research.counted import Count

ANSWERS, ROUNDS, SLOTS, LOOKS = 4, 4, 100, ((2, 0.5), (4, 0.5))
ERROR = 0.1  # of a label, both ways
AGAIN = 1 - (1 - ERROR) ** 2  # of unsupported answers, missed where those labelled so are looked at again
LEFT_OUT = (0.1, 0.5)  # of supported answers, and of unsupported ones, not labelled in a control


@dataclass(frozen=True, eq=False)
class Labels:
    """What becomes of labels: each matrix says how a kind of unit is counted, with which chance. Which one holds in a
    trial's round is drawn, or (`steered`) it is the first while the labels so far look good, else the second."""

    matrices: tuple[Floats, ...]
    steered: bool = False

    def count(self, drawn: Ints, progress: Floats, rng: np.random.Generator) -> Ints:
        """Return how many units of each kind are counted, of those drawn: (trials, kinds)."""
        which = (progress < 0).astype(int) if self.steered else rng.integers(0, len(self.matrices), len(drawn))
        found = np.zeros_like(drawn)
        for number, matrix in enumerate(self.matrices):
            mine = which == number
            for kind, chances in enumerate(matrix):
                found[mine] += rng.multinomial(drawn[mine, kind], chances)
        return found


@dataclass(frozen=True, eq=False)
class Setting:
    """A registration, the law of its units with their true losses, and what happens to their labels and rounds.

    given_up   rounds whose labels look bad are never answered: and charged, or left out as if they had not been asked
    absent     rounds without a release, for reasons that have nothing to do with labels
    dropped    the chance that a unit of each kind, not labelled, loses its slot
    shrinking  a round is closed where its labels so far look best, and the other slots are dropped
    """

    name: str
    registration: Registration
    law: Support
    labels: Labels
    rounds: int = ROUNDS
    slots: int = SLOTS
    given_up: Literal["never", "charged", "uncharged"] = "never"
    absent: tuple[int, ...] = ()
    dropped: Floats | None = None
    shrinking: bool = False

    @property
    def contrast(self) -> Floats:
        """What a unit of each kind adds to the contrast at the highest threshold."""
        r = self.registration.claim.target_risk
        return np.asarray(above(self.law.masses)[..., -1] @ [r, r - 1.0] / self.registration.privacy.mass_grid)


def false_certificates(setting: Setting, trials: int, rng: np.random.Generator) -> Bools:
    """Return whether each trial claims the target at some look."""
    progress, tally, value = np.zeros(trials), empty(setting.registration), setting.contrast
    fold: _Fold = (_Sealed if isinstance(setting.registration.judgement, Sealed) else _Open)(setting, trials)
    for number in range(1, setting.rounds + 1):
        if number not in setting.absent:
            counted = _labelled(setting, trials, progress, rng)
            keep = np.ones(trials, dtype=np.bool_) if setting.given_up == "never" else counted @ value >= 0
            progress = progress + np.where(keep, counted @ value, 0.0)
            tally = replace(tally, slots=(tally.slots[0] + setting.slots,), noises=tally.noises + 1)
            fold.add(counted, keep, round(tally.noises), rng)
        fold.look(tally)
    return fold.certified


def _labelled(setting: Setting, trials: int, progress: Floats, rng: np.random.Generator) -> Ints:
    """Draw a round and return what is counted of it."""
    kinds, value = setting.law.law.size, setting.contrast
    if setting.shrinking:
        order = rng.choice(kinds, (trials, setting.slots), p=setting.law.law)
        inside = np.arange(setting.slots) <= value[order].cumsum(axis=1).argmax(axis=1)[:, None]
        return np.stack([((order == kind) & inside).sum(axis=1) for kind in range(kinds)], axis=1)
    counted = setting.labels.count(rng.multinomial(setting.slots, setting.law.law, trials), progress, rng)
    return counted if setting.dropped is None else counted - rng.binomial(counted, setting.dropped)


class _Fold:
    """Sums of all trials, and which have certified."""

    def __init__(self, setting: Setting, trials: int) -> None:
        self.setting, self.reg, self.rule = setting, setting.registration, setting.registration.mechanism
        self.sums = np.zeros((trials, *self.rule.shape), dtype=np.int64)
        self.certified: Bools = np.zeros(trials, dtype=np.bool_)
        self.images = images(self.reg, setting.law.masses)

    def add(self, counted: Ints, keep: Bools, number: int, rng: np.random.Generator) -> None:
        """Fold the release of request `number`, or where it was given up its charge."""
        noise = discrete_gaussian(rng, self.rule.scale, self.sums.shape)
        added = np.tensordot(counted, self.images, axes=1) + noise
        self.sums += np.where(keep.reshape(-1, *(1,) * (added.ndim - 1)), added, 0)
        if self.setting.given_up == "charged":
            self.charge(~keep, number)

    def charge(self, lost: Bools, number: int) -> None: ...

    def look(self, tally: Tally) -> None: ...


class _Sealed(_Fold):
    def __init__(self, setting: Setting, trials: int) -> None:
        super().__init__(setting, trials)
        self.tests, self.looks = sealed.rows(self.reg), list[sealed.Seen]()
        self.charged = np.zeros((trials, self.tests.theta.size))
        self.rounds, self.noises = 0, 0.0

    def charge(self, lost: Bools, number: int) -> None:
        n = self.setting.slots
        self.charged[lost] += n * self.tests.least - sealed.margins(self.reg, number, n).L

    def look(self, tally: Tally) -> None:
        self.rounds += 1
        if (share := sealed.due(self.reg, self.rounds, over=False)) is not None:
            seen = sealed.see(self.reg, replace(tally, sums=self.sums), self.noises, share)
            self.looks.append(replace(seen, L=seen.L + self.charged))
            self.certified = np.asarray(sealed.reject(self.reg, self.looks).any(axis=-1))
        self.noises = tally.noises


class _Open(_Fold):
    last: Look | None = None

    def __init__(self, setting: Setting, trials: int) -> None:
        super().__init__(setting, trials)
        self.charged = empty(self.reg).charge

    def charge(self, lost: Bools, number: int) -> None:
        one = lose(self.reg, empty(self.reg), [(0, self.setting.slots)], number).charge
        self.charged = plus(self.charged, one, lost[:, None])

    def look(self, tally: Tally) -> None:
        seen = masses(self.reg, self.sums, tally.noises).plus(self.charged)
        self.last = look(self.reg, Sample(seen, tally.total, transfer(self.reg, tally)), self.last)
        self.certified |= (self.last.risk_upper <= self.reg.claim.target_risk).any(axis=-1)


def plus(charge: Charge, one: Charge, lost: Bools) -> Charge:
    """Add a charge in the trials that lost a release."""
    second = charge.second
    if second is not None and one.second is not None:
        second = type(second)(*(a + b * lost for a, b in zip(second, one.second, strict=True)))
    return Charge(
        charge.unsupported + one.unsupported * lost, charge.supported + one.supported * lost,
        charge.accepted + one.accepted * lost, second,
    )  # fmt: skip


def images(reg: Registration, units: Ints) -> Ints:
    """What each kind of unit adds to a release."""
    code = reg.mechanism.code
    if isinstance(code, ContrastCode):
        return contrasts(code, units)
    return code.encode(units if isinstance(code, Basis) else code.bins(units))


def single(up: float, down: float = 0.0) -> Floats:
    """Single answers in four bins, supported first: supported ones count as unsupported with chance `up`, for want of a
    label or by mistake; unsupported ones as supported with chance `down`."""
    same = np.eye(4)
    return np.block([[(1 - up) * same, up * same], [down * same, (1 - down) * same]])


def several(up: float, down: float = 0.0) -> Floats:
    """The same for sources, by how many of their four answers are unsupported."""
    return np.array([
        np.convolve(binom.pmf(np.arange(k + 1), k, 1 - down), binom.pmf(np.arange(ANSWERS - k + 1), ANSWERS - k, up))
        for k in range(ANSWERS + 1)
    ])  # fmt: skip


def graded(up: float, down: float = 0.0) -> Floats:
    """The same for one answer with a loss in quarters: without a label it has loss 1, missed it has none."""
    found = (1 - up - down) * np.eye(ANSWERS + 1)
    found[:, -1] += up
    found[:, 0] += down
    return found


def willing(reg: Registration, law: Support, reach: Floats) -> Floats:
    """Labels withheld by somebody who wants the certificate: of what a kind of unit can be counted as, that which the
    bet likes most."""
    r = reg.claim.target_risk
    theta = reg.judgement.targets[0].bets[-1] if isinstance(reg.judgement, Sealed) else 0.9 / (1 - r)
    d = above(law.masses)[..., -1] @ [r, r - 1.0] / reg.privacy.mass_grid
    value = theta * d - bet(r, theta).b * d * d
    return np.asarray(np.eye(len(reach))[np.where(reach > 0, value, -np.inf).argmax(axis=1)])


Make = Callable[..., Floats]
LABELS = ("all there", "missing", "late", "changed", "stopped when they look bad", "withheld at will")


def policies(reg: Registration, law: Support, make: Make) -> dict[str, Labels]:
    """What may become of labels. The last two read what is counted so far, or the units themselves."""
    every, third, most, none = (make(up) for up in (0.0, 0.3, 0.7, 1.0))
    at_will = every if isinstance(reg.judgement, Sealed) and reg.judgement.free else willing(reg, law, third)
    found = ((every,), (third,), (every, third, most), (make(0.1),), (every, none), (at_will,))
    return {name: Labels(each, "look bad" in name) for name, each in zip(LABELS, found, strict=True)}


def opened(target: float = 0.2, epsilon: float = 4.0, encoding: str = "histograms", **more: Any) -> Registration:
    """An open registration of three thresholds that bets on its target alone."""
    settings: dict[str, Any] = {"batch": SLOTS, "rounds": ROUNDS, "encoding": encoding, **more}
    base = register_grid(Choices(target, epsilon, grid=True, thresholds=3, **settings), ("a",))
    fields = base.model_dump(by_alias=True)
    fields["certificate"]["ladder"] = (target,)
    return Registration.model_validate(fields)


FOUR: dict[str, Any] = {"unit": "source", "max_answers": ANSWERS}
ALIKE = binom.pmf(np.arange(ANSWERS + 1), ANSWERS, 0.2)
EVERY, EVERY_OF_FOUR = Labels((single(0.0),)), Labels((several(0.0),))
ERRORS = (  # what, the share declared, and the chances that labels go wrong
    ("labels missed at their limit", 0.1, 0.0, 0.1),
    ("labels missed at their limit, others missing", 0.1, 0.1, 0.1),
    ("second looks at unsupported answers alone", AGAIN, ERROR**2, AGAIN),
    ("two looks, the worse counts", ERROR**2, AGAIN, ERROR**2),
    ("two looks, a third where they differ", 0.028, 0.028, 0.028),
)


@cache
def kinds() -> dict[str, list[tuple[Registration, Support, Make]]]:
    """Certificates by what they test, with a law at the boundary; those of one kind share its trials."""
    tight, split = registered(looks=LOOKS), registered(bet=0.5, looks=LOOKS, **FOUR)
    plain, totals, seconds = opened(epsilon=math.inf), opened(), opened(encoding="moments", **FOUR)
    by_level, half = opened(encoding="levels", loss_grid=ANSWERS), "half-lines, epsilon 4"
    free = {name: without_bets(name, e, looks=LOOKS, slots=SLOTS) for name, e in ((half, 4.0), ("exact", math.inf))}
    return {
        "sealed, single answers, epsilon 1": [(tight, answers(tight, 0.2), single)],
        "sealed, sources, epsilon 1": [(split, sources(split, ALIKE), several)],
        half: [(each.registration, each.sites[0], single) for each in free[half]],
        "exact counts": [(each.registration, each.sites[0], single) for each in free["exact"]],
        "open, totals, no noise": [(plain, answers(plain, 0.2), single)],
        "open, totals, epsilon 4": [(totals, answers(totals, 0.2), single)],
        "open, second moments, epsilon 4": [(seconds, sources(seconds, ALIKE), several)],
        "open, levels, epsilon 4": [(by_level, sources(by_level, np.array([0.5, 0.3, 0.1, 0.1, 0.0])), graded)],
    }


@cache
def lazily() -> list[list[Setting]]:
    """Every kind with everything that may become of its labels."""
    return [
        [Setting(f"{kind}: {name}", reg, law, policies(reg, law, make)[name]) for reg, law, make in each]
        for kind, each in kinds().items()
        for name in LABELS
    ]


@cache
def rounds() -> list[list[Setting]]:
    """Rounds without an answer, and label errors at their declared limit."""
    charged: dict[str, Any] = {"dropout": "adversarial", "capacities": {"a": 400}}
    late, up = Labels((single(0.0), single(0.3), single(0.7))), "rounds given up for their labels, charged"
    give = partial(Setting, rounds=20, slots=20, given_up="charged")
    tight, totals = registered(looks=((20, 1.0),), **charged), opened(rounds=20, **charged)
    seconds = opened(encoding="moments", rounds=20, **FOUR, **charged)
    found = [
        give(f"{up}: sealed", tight, answers(tight, 0.2), EVERY),
        give(f"{up}: open, totals", totals, answers(totals, 0.2), EVERY),
        give(f"{up}: open, second moments", seconds, sources(seconds, ALIKE), EVERY_OF_FOUR),
    ]
    for kind in ("sealed, single answers, epsilon 1", "open, totals, epsilon 4"):
        reg, law, _ = kinds()[kind][0]
        found.append(Setting(f"labels late, a round absent for other reasons: {kind}", reg, law, late, absent=(3,)))
    for what, missed, more, fewer in ERRORS:
        target, labels = round(0.2 * (1 - missed), 4), Labels((single(more, fewer),))
        for name, reg in (("sealed", registered(target, looks=LOOKS)), ("open", opened(target))):
            found.append(Setting(f"{what}, {missed:.3g} declared: {name}", reg, answers(reg, 0.2), labels))
    return [[each] for each in found]


@cache
def controls() -> list[list[Setting]]:
    """Rules that leave a condition out."""
    law, unlabelled = answers(kinds()["open, totals, no noise"][0][0], 0.2), np.repeat(LEFT_OUT, 4)
    again, missed, found = Labels((single(ERROR**2, AGAIN),)), Labels((single(0.0, 0.3),)), []
    both = {
        "open": partial(opened, epsilon=math.inf, rounds=20),
        "sealed": partial(registered, epsilon=math.inf, looks=((20, 1.0),)),
    }
    for name, make in both.items():
        few = partial(Setting, registration=make(), law=law, rounds=20, slots=20, labels=EVERY)
        found += [
            few(f"rounds given up for their labels, uncharged: {name}", given_up="uncharged"),
            few(f"unlabelled answers leave their slots: {name}", dropped=unlabelled),
            few(f"closed at the best moment, slots that shrink: {name}", shrinking=True),
            few(f"second looks at unsupported answers alone, none declared: {name}", labels=again, slots=80),
            few(f"0.3 missed, 0.05 declared: {name}", registration=make(0.19), labels=missed),
        ]
    return [[each] for each in found]


PARTS: dict[str, Callable[[], list[list[Setting]]]] = {"lazily": lazily, "rounds": rounds, "controls": controls}


def share(part: str, index: int, trials: int) -> Count:
    """Count false certificates of one group, in blocks."""
    group = PARTS[part]()[index]
    rng, false, each = np.random.default_rng([index, len(part), 20]), 0, trials // len(group)
    for setting in group:
        for size in [BLOCK] * (each // BLOCK) + [each % BLOCK] * (each % BLOCK > 0):
            false += int(false_certificates(setting, size, rng).sum())
    return Count(part, group[0].name, false, each * len(group))
