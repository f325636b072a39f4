"""How a registration judges its releases: by a method that certifies, or by the alarm of a monitor."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations, pairwise
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from fedsrc.common.values import Frozen, Grown, Hex, Numbers, Probability

APART = 0.005  # contrasts of closer targets can hardly be told apart
DECIMALS = 4  # of the targets of a sealed certificate: its contrasts are counted in exact fractions


class Bets(Grown):
    """Bets at target r: geomspace(low, high / (1 - r), count), with a prior for each threshold, the same at every
    target; without priors, uniform."""

    LATER: ClassVar[tuple[str, ...]] = ("priors",)
    count: int = Field(12, ge=1, le=200)
    low: float = Field(0.01, gt=0, lt=1)
    high: float = Field(0.95, gt=0, lt=1)
    priors: Annotated[tuple[Numbers, ...], Field(strict=False, min_length=1)] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        for row in self.priors or ():
            if len(row) != self.count or min(row) <= 0 or not math.isclose(math.fsum(row), 1.0, abs_tol=1e-9):
                raise ValueError("a prior has a positive share for every bet, and they sum to one")
        return self


class CentreBets(Frozen):
    """Acceptance centres min_acceptance * 2^i up to top, each with bets geomspace(low, high / c, count)."""

    top: float = Field(0.8, gt=0, lt=1)
    count: int = Field(8, ge=1, le=200)
    low: float = Field(0.05, gt=0, lt=1)
    high: float = Field(0.5, gt=0, lt=1)


class Betting(Frozen):
    """The betting certificate; the failure probability is split into risk, acceptance and refusal budgets."""

    method: Literal["betting"] = "betting"
    risk_budget: Probability = 0.045
    acceptance_budget: Probability = 0.0049
    refusal_budget: float = Field(0.0001, ge=0, lt=1)
    ladder: Annotated[Numbers, Field(min_length=1, max_length=10_000)] = tuple(i / 100 for i in range(1, 51))
    bets: Bets = Bets()
    centres: CentreBets = CentreBets()

    @property
    def spent(self) -> float:
        return math.fsum([self.risk_budget, self.acceptance_budget, self.refusal_budget])


class SealedLook(Frozen):
    """A look after a registered round, and its share of the risk budget."""

    round: int = Field(ge=1)
    share: float = Field(1.0, gt=0, le=1)


class SealedTarget(Frozen):
    """A target risk, its share of the risk budget, and one bet for each threshold, or none where the best is free."""

    risk: Probability
    share: float = Field(1.0, gt=0, le=1)
    bets: Annotated[Numbers, Field(max_length=1200)] = ()  # of a panel, block after block


class Sealed(Frozen):
    """The sealed certificate: few targets and few looks, all registered, and one bet per threshold; or none, where
    unlabelled records bound acceptance, or counts are exact: contrasts are then tested by themselves.

    Theory: (xiii). `line`: "exact" where every look's sites and slots are fixed beforehand and sites are trusted to add
    the noise that is stated; "within" where they may add less; "hybrid" where recruitment or arrivals may follow what
    has come in, and only the last round before a look is fixed by then.
    """

    method: Literal["sealed"] = "sealed"
    risk_budget: Probability = 0.045
    acceptance_budget: Probability = 0.0049
    refusal_budget: float = Field(0.0001, ge=0, lt=1)
    targets: Annotated[tuple[SealedTarget, ...], Field(strict=False, min_length=1, max_length=2)]
    looks: Annotated[tuple[SealedLook, ...], Field(strict=False, min_length=1, max_length=100)]
    line: Literal["exact", "within", "hybrid"] = "exact"
    centres: CentreBets = CentreBets()

    @model_validator(mode="after")
    def _check(self) -> Self:
        rounds = [look.round for look in self.looks]
        if any(b <= a for a, b in pairwise(rounds)):
            raise ValueError("the rounds of the looks must be strictly increasing")
        for shares, of in ((self.looks, "looks"), (self.targets, "targets")):
            if not math.isclose(math.fsum(each.share for each in shares), 1.0, abs_tol=1e-9):
                raise ValueError(f"the shares of the {of} must sum to one")
        if any(not 0 < bet < 1 / (1 - target.risk) for target in self.targets for bet in target.bets):
            raise ValueError("a bet at target r lies between 0 and 1 / (1 - r)")
        if any(abs(a.risk - b.risk) < APART for a, b in combinations(self.targets, 2)):
            raise ValueError(f"targets must differ by {APART} or more")
        if any(float(in_decimals(each.risk)) != each.risk for each in self.targets):
            raise ValueError(f"the targets of a sealed certificate have at most {DECIMALS} decimals")
        return self

    @property
    def free(self) -> bool:
        """Whether the best bet is free."""
        return not self.targets[0].bets

    @property
    def spent(self) -> float:
        return math.fsum([self.risk_budget, self.acceptance_budget, self.refusal_budget])


def in_decimals(risk: float) -> Fraction:
    """Return a target risk as the fraction that it is written as."""
    return Fraction(round(risk * 10**DECIMALS), 10**DECIMALS)


class Stitched(Frozen):
    """One of the paper's certificates; the failure probability is split into sampling and noise budgets."""

    method: Literal["contrast", "variance-adaptive", "ratio"] = "contrast"
    sampling_budget: Probability = 0.025
    noise_budget: Probability = 0.025
    refusal_budget: float = Field(0.0, ge=0, lt=1)

    @property
    def spent(self) -> float:
        return math.fsum([self.sampling_budget, self.noise_budget, self.refusal_budget])


class AlarmBets(Frozen):
    """Bets that risk is above r: geomspace(low, high / r, count), uniform prior."""

    count: int = Field(12, ge=1, le=200)
    low: float = Field(0.01, gt=0, lt=1)
    high: float = Field(0.95, gt=0, lt=1)


class Monitor(Frozen):
    """Not a certificate: an alarm on one that is deployed, named by the SHA-256 of its file.

    Alarm when the risk is above `risk`. Guaranteed is either the probability of any false alarm (of which the refusal
    budget is a part) or the mean number of units until one. The claim of the registration is the one watched over.
    """

    method: Literal["monitor"] = "monitor"
    certificate: Hex
    risk: Probability
    guarantee: Literal["probability", "run length"] = "probability"
    false_alarm: Probability = 0.05
    run_length: int | None = Field(None, ge=2, le=10**15)
    sample: Literal["traffic", "accepted"] = "traffic"  # what the fresh units are drawn from
    refusal_budget: float = Field(0.0, ge=0, lt=1)
    bets: AlarmBets = AlarmBets()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.guarantee == "run length") != (self.run_length is not None):
            raise ValueError("run_length belongs to guarantee = 'run length', and is needed there")
        if self.refusal_budget >= self.false_alarm or (self.run_length is not None and self.refusal_budget > 0):
            raise ValueError("the refusal budget is part of the false-alarm probability; a run length has none")
        return self

    @property
    def spent(self) -> float:
        """Nothing of the claim's failure probability: a false alarm does not make the certificate wrong."""
        return 0.0


def budgets(preset: str, failure_probability: float) -> dict[str, Any]:
    """A preset's split of the failure probability, in the proportions of the default 0.05."""
    share = failure_probability / 0.05
    if preset == "paper":
        return {"sampling_budget": 0.025 * share, "noise_budget": 0.025 * share}
    return {"risk_budget": 0.045 * share, "acceptance_budget": 0.0049 * share, "refusal_budget": 0.0001 * share}
