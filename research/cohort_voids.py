"""Cohorts at the boundary: a server that has seen a round's sum says whether the round is void.

Thresholds have a risk of exactly the target, so whatever is rejected is a false claim. Only the risk budget of 0.045
counts. An opened sum is a release of the cohort's slots with |C| / (|C| - t) of one release's noise variance; lattice,
lines, looks, margins and charges are those of the product at that scale.

`research.benchmarks.cohort_voids` makes a page of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np

from fedsrc.maths.arrays import Bools, Floats, Ints
from fedsrc.maths.betting import slopes
from fedsrc.maths.privacy import epsilon_tight, rho_tight
from fedsrc.protocol.judgements import Sealed
from fedsrc.protocol.registration import Registration
from fedsrc.server import sealed
from fedsrc.server.bounds import Look, Sample, look
from fedsrc.server.tally import Charge, empty, lose, masses
from fedsrc.simulate.population import Support
from fedsrc.simulate.trials import discrete_gaussian
from research.benchmarks.sealed_validity import BLOCK, answers, registered, sources
from research.lazy_labels import ALIKE, FOUR, images, opened, plus

DELTA, BET = 1e-6, 0.3  # BET: of the largest, by which a server of an open run judges a sum


class Rule(NamedTuple):
    """Which rounds are made void, and what becomes of them: charged, as under adversarial dropout, with the margins of
    their noise or (a control) without; or left out, as if they had not been asked."""

    voids: Literal["none", "bad", "worse than charged"]
    then: Literal["charged", "charged without margins", "left out"] = "charged"


RULES = {
    "none void": Rule("none"),
    "those that look bad, charged": Rule("bad"),
    "those worse than their charge, charged": Rule("worse than charged"),
    "charged without the margin of noise": Rule("worse than charged", "charged without margins"),
    "those that look bad, left out": Rule("bad", "left out"),
}
SOUND = 3  # so many of them are covered


@dataclass(frozen=True, eq=False)
class Setting:
    """A registration whose releases have the noise of a cohort's sum, and the law of its units."""

    name: str
    registration: Registration
    law: Support
    rounds: int
    slots: int


def false_certificates(setting: Setting, rule: Rule, trials: int, rng: np.random.Generator) -> Bools:
    """Return whether each trial claims the target at some look."""
    reg, n = setting.registration, setting.slots
    kinds = images(reg, setting.law.masses)
    run = (_Sealed if isinstance(reg.judgement, Sealed) else _Open)(setting, rule, trials)
    for number in range(1, setting.rounds + 1):
        counts = rng.multinomial(n, setting.law.law, trials)
        opened_sum = np.tensordot(counts, kinds, axes=1)
        opened_sum += discrete_gaussian(rng, reg.mechanism.scale, opened_sum.shape)
        value, charge = run.judge(opened_sum.astype(np.float64), number)
        least = {"none": -np.inf, "bad": 0.0, "worse than charged": charge}[rule.voids]
        run.fold(opened_sum, value < least, number)
    return run.certified


class _Run:
    """Sums of all trials, and how many noises each holds: of its opened sums, and of the voids that are charged."""

    def __init__(self, setting: Setting, rule: Rule, trials: int) -> None:
        self.setting, self.reg = setting, setting.registration
        self.charged, self.margins = rule.then != "left out", rule.then == "charged"
        self.sums = np.zeros((trials, *self.reg.mechanism.shape), dtype=np.int64)
        self.noises = np.zeros(trials, dtype=np.int64)
        self.certified: Bools = np.zeros(trials, dtype=np.bool_)

    def judge(self, opened_sum: Floats, number: int) -> tuple[Floats, float]:
        """What a sum is worth to a server that wants the certificate, and what its charge is."""
        raise NotImplementedError

    def fold(self, opened_sum: Ints, void: Bools, number: int) -> None:
        self.sums += np.where(void.reshape(-1, *(1,) * (opened_sum.ndim - 1)), 0, opened_sum)
        self.noises += self.charged | ~void
        if self.charged:
            self.charge(void, number)
        self.look(number)

    def charge(self, void: Bools, number: int) -> None: ...

    def look(self, number: int) -> None: ...


class _Sealed(_Run):
    def __init__(self, setting: Setting, rule: Rule, trials: int) -> None:
        super().__init__(setting, rule, trials)
        self.tests = sealed.rows(self.reg)
        self.charges = np.zeros((trials, self.tests.theta.size))

    def judge(self, opened_sum: Floats, number: int) -> tuple[Floats, float]:
        return opened_sum @ self.tests.slope[-1], float(self._worst(number)[-1])

    def _worst(self, number: int) -> Floats:
        n = self.setting.slots
        return n * self.tests.least - self.margins * sealed.margins(self.reg, number, n).L

    def charge(self, void: Bools, number: int) -> None:
        self.charges[void] += self._worst(number)

    def look(self, number: int) -> None:
        share = sealed.due(self.reg, number, over=False)
        if share is None:
            return
        for noises in np.unique(self.noises[self.noises > 0]):  # lines follow from how many noises there are
            mine = self.noises == noises
            tally = replace(
                empty(self.reg), slots=(int(noises) * self.setting.slots,), noises=int(noises), sums=self.sums[mine]
            )  # fmt: skip
            seen = sealed.see(self.reg, tally, 0, share)
            seen = replace(seen, L=seen.L + self.charges[mine])
            self.certified[mine] |= sealed.reject(self.reg, [seen]).any(axis=-1)


class _Open(_Run):
    last: Look | None = None

    def __init__(self, setting: Setting, rule: Rule, trials: int) -> None:
        super().__init__(setting, rule, trials)
        self.charges = empty(self.reg).charge
        r = self.reg.claim.target_risk
        self.x, self.y = (float(each) for each in slopes(r, BET / (1.0 - r)))

    def judge(self, opened_sum: Floats, number: int) -> tuple[Floats, float]:
        seen, worst = masses(self.reg, opened_sum, 1), self._worst(number)
        value = [self.x * each.unsupported[..., -1] + self.y * each.supported[..., -1] for each in (seen, worst)]
        return np.asarray(value[0]), float(value[1])

    def _worst(self, number: int) -> Charge:
        none, n = empty(self.reg), self.setting.slots
        if self.margins:
            return lose(self.reg, none, [(0, n)], number).charge
        return replace(none.charge, unsupported=none.charge.unsupported + n)

    def charge(self, void: Bools, number: int) -> None:
        self.charges = plus(self.charges, self._worst(number), void[:, None])

    def look(self, number: int) -> None:
        noises = np.maximum(self.noises, 1)[:, None]
        seen = masses(self.reg, self.sums, noises).plus(self.charges)
        N = number * self.setting.slots  # one site without drift: no bound on the risk reads it
        self.last = look(self.reg, Sample(seen, N, 0.0), self.last)
        self.certified |= (self.last.risk_upper <= self.reg.claim.target_risk).any(axis=-1)


def summed(epsilon: float, members: int, colluding: int) -> float:
    """The epsilon of a single release that has the noise of a cohort's opened sum."""
    return epsilon_tight(rho_tight(epsilon, DELTA) * (members - colluding) / members, DELTA)


def played(
    epsilon: float, cohort: tuple[int, int], rounds: int, slots: int, kinds: Sequence[str]
) -> Iterator[Setting]:  # fmt: skip
    """Settings at the boundary: a cohort of so many members, of whom some collude, and its slots in each round."""
    noise, more = summed(epsilon, *cohort), {"encoding": "moments", **FOUR}
    charges: dict[str, Any] = {"dropout": "adversarial", "capacities": {"a": rounds * slots}}
    for kind in kinds:
        if kind == "sealed":
            reg = registered(epsilon=noise, looks=((rounds, 1.0),), line="within", rounds=rounds, **charges)
        else:
            reg = opened(epsilon=noise, rounds=rounds, **(more if "sources" in kind else {}), **charges)
        law = sources(reg, ALIKE) if "sources" in kind else answers(reg, 0.2)
        name = f"{kind}, epsilon {epsilon:g}, {cohort[0]} members, {cohort[1]} colluding, {rounds} rounds of {slots}"
        yield Setting(name, reg, law, rounds, slots)


@cache
def settings() -> list[Setting]:
    """All that the page shows."""
    every, two = ("sealed", "open", "open, sources"), ("sealed", "open")
    return [
        *played(4.0, (5, 1), 20, 20, every), *played(1.0, (5, 1), 20, 20, every),
        *played(1.0, (20, 5), 20, 20, two), *played(1.0, (5, 1), 100, 4, two),
    ]  # fmt: skip


def share(index: int, rule: str, trials: int) -> int:
    """Count false certificates of a setting under a rule, in blocks."""
    setting, false = settings()[index], 0
    rng = np.random.default_rng([index, list(RULES).index(rule), 21])
    for size in [BLOCK] * (trials // BLOCK) + [trials % BLOCK] * (trials % BLOCK > 0):
        false += int(false_certificates(setting, RULES[rule], size, rng).sum())
    return false
