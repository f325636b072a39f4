"""Panels: several claims from the same records in one registration, for groups of answers or for several scores.

Theory: (xviii).
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from fedsrc.common.values import Frozen, Grown, Numbers, Text
from fedsrc.protocol.scale import Scale

if TYPE_CHECKING:
    from fedsrc.maths.panels import Layout

MOST = 100  # groups
MOST_SCORES = 20
Label = Annotated[Text, Field(min_length=1, max_length=200)]
Checkpoints = Annotated[tuple[Annotated[int, Field(ge=1, le=10**9)], ...], Field(strict=False, max_length=100)]


class One(Frozen):
    """One claim: of one score, on all the traffic."""

    kind: Literal["one"] = "one"
    simultaneous: ClassVar[bool] = False
    layout: ClassVar[None] = None


class Cuts(Frozen):
    """Thresholds of one block, and their shares of its part of the failure budget."""

    values: Numbers
    weights: Numbers


class Groups(Grown):
    """One claim for each listed group of answers, or one threshold that holds in all of them.

    column      where tables say the group of an answer; an answer of no listed group counts in none
    shares      of the failure budget, where every group has its own claim
    claim       "each": every group has its own status and threshold. "all": one threshold, for all groups
    floor       what the acceptance floor is a share of: all "traffic", or that of the "group"
    span        how a source counts whose answers are of several groups: its mass is in "shares", or "whole" in each
    most        groups that a source may be in, where it counts whole; a table with one in more is refused
    keep        of the weight of a rejected threshold, what stays in its group
    own         thresholds of every group, if not the registration's

    Theory: (xviii).
    """

    LATER: ClassVar[tuple[str, ...]] = ("own",)
    kind: Literal["groups"] = "groups"
    column: Label = "group"
    names: Annotated[tuple[Label, ...], Field(strict=False, min_length=1, max_length=MOST)]
    shares: Numbers
    claim: Literal["each", "all"] = "each"
    floor: Literal["traffic", "group"] = "traffic"
    span: Literal["shares", "whole"] = "shares"
    most: int = Field(1, ge=1, le=20)
    keep: float = Field(0.5, ge=0, le=1)
    own: Annotated[tuple[Cuts, ...], Field(strict=False)] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(set(self.names)) != len(self.names):
            raise ValueError("a group is listed once")
        check_shares(self.shares, len(self.names), "group")
        if self.own is not None and len(self.own) != len(self.names):
            raise ValueError("every group has thresholds of its own, or none has")
        if self.own is not None and self.claim == "all":
            raise ValueError("one threshold for all groups is one of the registration's: no group has its own")
        if (self.span == "shares" and self.most != 1) or self.most > len(self.names):
            raise ValueError("`most` says in how many groups a source counts whole, and these are at most all")
        return self

    @property
    def layout(self) -> Layout:
        """How its releases are laid out."""
        from fedsrc.maths.panels import Layout  # with numpy, which a gate does without

        return Layout(len(self.names), spans=self.most)

    @property
    def simultaneous(self) -> bool:
        """Whether one threshold is claimed for all blocks together."""
        return self.claim == "all"


class OtherScore(Grown):
    """A score beside the claim's: what it is called, how it is written, and its thresholds. `checkpoints`: it is the
    least of a prefix score at these numbers of tokens, as far as an answer has so many, and at its end."""

    LATER: ClassVar[tuple[str, ...]] = ("scale", "checkpoints")
    column: Label
    scale: Scale = Scale()
    values: Numbers
    weights: Numbers
    checkpoints: Checkpoints = ()


class Scores(Grown):
    """One claim by the best of several scores: the score and its threshold are picked together, and the pick is
    covered. The first score is the claim's own. Without others it is the only one, and has checkpoints.

    shares        of the failure budget: of the claim's score, then of the others
    keep          of the weight of a rejected threshold, what stays with its score
    checkpoints   of the claim's score

    Theory: (xviii) Scores.
    """

    LATER: ClassVar[tuple[str, ...]] = ("checkpoints",)
    kind: Literal["scores"] = "scores"
    simultaneous: ClassVar[bool] = False
    shares: Numbers
    others: Annotated[tuple[OtherScore, ...], Field(strict=False, max_length=MOST_SCORES - 1)]
    keep: float = Field(0.5, ge=0, le=1)
    checkpoints: Checkpoints = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_shares(self.shares, 1 + len(self.others), "score")
        if len({each.column for each in self.others}) != len(self.others):
            raise ValueError("a score is registered once")
        if not self.others and not self.checkpoints:
            raise ValueError("one score without checkpoints is one claim, and no panel")
        for points in (self.checkpoints, *(each.checkpoints for each in self.others)):
            if any(b <= a for a, b in pairwise((0, *points))):
                raise ValueError("checkpoints are increasing numbers of tokens")
        return self

    @property
    def layout(self) -> Layout:
        """How its releases are laid out."""
        from fedsrc.maths.panels import Layout  # with numpy, which a gate does without

        return Layout(1 + len(self.others), joint=True)


def check_shares(shares: Numbers, count: int, of: str) -> None:
    """Refuse shares of the failure budget that are not one for each, positive, and one together."""
    if len(shares) != count or min(shares) <= 0 or not math.isclose(math.fsum(shares), 1.0, abs_tol=1e-9):
        raise ValueError(f"every {of} has a positive share of the failure budget, and they sum to one")


def check_cuts(values: Numbers, weights: Numbers) -> None:
    """Refuse thresholds of a block that are not increasing in [0, 1], each with its weight."""
    if not values:
        raise ValueError("at least one threshold is needed")
    if any(b <= a for a, b in pairwise(values)):
        raise ValueError("thresholds must be strictly increasing")
    if values[0] < 0 or values[-1] > 1:
        raise ValueError("thresholds must lie in [0, 1]")
    if len(weights) != len(values):
        raise ValueError("one weight per threshold is needed")
    if min(weights) <= 0 or not math.isclose(math.fsum(weights), 1.0, abs_tol=1e-9):
        raise ValueError("threshold weights must be positive and sum to one")
