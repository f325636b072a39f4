"""The scale on which a score is written in tables and in production, and its place in [0, 1]."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Self, TypeVar

from pydantic import model_validator

from fedsrc.common.values import Frozen

if TYPE_CHECKING:
    from fedsrc.maths.arrays import Floats

Value = TypeVar("Value", float, "Floats")


class Scale(Frozen):
    """The value that is worst supported, and the one that is best: 0 and 100, or 1 and 0 where low is good."""

    worst: float = 0.0
    best: float = 1.0

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.worst == self.best or not math.isfinite(self.best - self.worst):
            raise ValueError("a scale has two different ends, a finite way apart")
        return self

    @classmethod
    def of(cls, text: str) -> Scale:
        """Read WORST:BEST, such as 0:100, or 1:0 where low is good."""
        worst, _, best = text.partition(":")
        try:
            return cls(worst=float(worst), best=float(best))
        except ValueError:
            raise ValueError(f"{text!r} is not WORST:BEST, such as 0:100, or 1:0 where low is good") from None

    def unit(self, value: Value) -> Value:
        """Return a value of the scale as a score: 0 for the worst, 1 for the best. A table and a gate compute the same
        double."""
        return (value - self.worst) / (self.best - self.worst)

    def value(self, score: float) -> float:
        """Return where a score lies on the scale."""
        return self.worst + score * (self.best - self.worst)

    def __str__(self) -> str:
        return ":".join(repr(end).removesuffix(".0") for end in (self.worst, self.best))  # exactly, to be read again
