"""What a registration fixes of privacy: who is protected, what a release holds, and the development release."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from fedsrc.common.canonical import LARGEST, canonical_bytes
from fedsrc.common.values import Frozen, Grown, Numbers, Probability
from fedsrc.maths.kinds import Adjacency, BasisName, Conversion, Encoding
from fedsrc.protocol.messages import Coordinates


class Privacy(Frozen):
    """Who is protected, and by how much. epsilon = inf means no noise."""

    unit: Literal["record", "source"] = "record"
    epsilon: float = Field(gt=0, allow_inf_nan=True)
    delta: Probability = 1e-6
    adjacency: Adjacency = "replacement"
    conversion: Conversion = "tight"
    loss_grid: int = Field(1, ge=1, le=1_000_000)
    max_answers: int = Field(1, ge=1, le=20)
    answer_weight: Literal["source", "answer"] = "source"
    independent: bool = False  # records that share a source are declared independent

    @model_validator(mode="after")
    def _check(self) -> Self:
        if math.isnan(self.epsilon):
            raise ValueError("epsilon is not a number")
        if self.unit == "record" and self.max_answers != 1:
            raise ValueError("max_answers belongs to unit = 'source'; a record is one answer")
        return self

    @property
    def private(self) -> bool:
        return not math.isinf(self.epsilon)

    @property
    def sources_alike(self) -> bool:
        """Whether every source weighs the same: shares are then those of a random answer of a random source."""
        return self.unit == "source" and (self.answer_weight == "source" or self.max_answers == 1)

    @property
    def mass_grid(self) -> int:
        """g: every mass a unit can add is a multiple of 1/g."""
        shares = math.lcm(*range(1, self.max_answers + 1)) if self.answer_weight == "source" else self.max_answers
        return shares * self.loss_grid


class Histograms(Frozen):
    """What a release holds: two histograms over the thresholds' bins (their kinds), in plain bins or suffix sums."""

    kind: Encoding = "complementary"
    basis: BasisName = "suffix"
    basis_bits: int = Field(8, ge=1, le=20)


class Contrasts(Frozen):
    """What a sealed release holds: contrasts of every target at every threshold, weighed by an integer matrix, and
    their second moments and the accepted masses, each times an integer.

    No `accepted` is needed where second moments show it, for units of one answer that is supported or not, or where
    unlabelled records do; no `second` where contrasts are tested by themselves.

    Theory: (xiii) Shaped noise.
    """

    kind: Literal["contrasts"] = "contrasts"
    matrix: Annotated[tuple[Coordinates, ...], Field(strict=False, min_length=1, max_length=12)]
    second: Annotated[Coordinates, Field(max_length=12)]
    accepted: Coordinates = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        rows = len(self.matrix)
        if {len(row) for row in self.matrix} != {rows} or len(self.second) not in (0, rows):
            raise ValueError("a sealed encoding has a square matrix, with a second moment for every row or for none")
        if min((*self.second, *self.accepted, 1)) < 1:
            raise ValueError("second moments and accepted masses are weighed by positive integers")
        return self


class Moments(Frozen):
    """What a release holds: totals of supported and unsupported mass and of their second moments, in suffix sums.

    Theory: (xiv).
    """

    kind: Literal["moments"] = "moments"
    basis: Literal["suffix"] = "suffix"
    basis_bits: int = Field(8, ge=1, le=20)


class Levels(Frozen):
    """What a release holds: one histogram in suffix sums for each level of a graded loss, 0, 1/loss_grid, ..., 1.

    Theory: (xiv) Levels.
    """

    kind: Literal["levels"] = "levels"
    basis: Literal["suffix"] = "suffix"
    basis_bits: int = Field(8, ge=1, le=20)


Encoded = Annotated[Histograms | Contrasts | Moments | Levels, Field(discriminator="kind")]
Labels = Literal["people", "none", "judge"]
IN_SUFFIXES = Histograms()  # a development release is encoded so, whatever calibration releases are


class Noised(Grown):
    """The one release of a table's development units: supported and unsupported mass over a public grid of scores, in
    the suffix basis, with noise. It holds the privacy it was made under: a later registration may use it again.
    Unlabelled units are released so too, as unsupported ones. Of a panel, every block has its own numbers, one block
    after the other: `blocks` names its groups or scores.
    """

    LATER: ClassVar[tuple[str, ...]] = ("labels", "blocks")
    privacy: Privacy
    units: int = Field(ge=1, le=LARGEST)
    grid: Annotated[Numbers, Field(min_length=1, max_length=10_000)]
    scale: float = Field(gt=0, le=LARGEST)
    first: Coordinates
    second: Coordinates
    labels: Labels = "people"
    blocks: Annotated[tuple[str, ...], Field(strict=False)] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if any(b <= a for a, b in pairwise((0.0, *self.grid, 1.0))):
            raise ValueError("a grid of scores must be strictly increasing inside (0, 1)")
        if not len(self.first) == len(self.second) == len(self.grid) * max(1, len(self.blocks)):
            raise ValueError("a development release has two integers for every point of its grid")
        if max(map(abs, (*self.first, *self.second))) >= 1 << 61:
            raise ValueError("the numbers of a development release are absurdly large")
        if not self.privacy.private:
            raise ValueError("a development release is noised, so its epsilon is finite")
        return self

    def block(self, block: int | None) -> Noised:
        """Return the release of one block by itself, or of all blocks added up."""
        size, count = len(self.grid), max(1, len(self.blocks))
        if block is not None:
            part = slice(block * size, (block + 1) * size)
            return self.model_copy(update={"first": self.first[part], "second": self.second[part], "blocks": ()})
        first, second = (
            tuple(sum(each[i::size]) for i in range(size)) for each in (self.first, self.second)
        )  # fmt: skip
        scale = self.scale * math.sqrt(count)
        return self.model_copy(update={"first": first, "second": second, "blocks": (), "scale": scale})

    def thresholds(self, count: int, block: int | None = None) -> tuple[float, ...]:
        """Return so many quantiles, of one block or of all together; ties are merged."""
        from fedsrc.maths.quantiles import released_quantiles  # with numpy, which a gate does without

        settings, one = self.privacy, self.block(block) if self.blocks else self
        return released_quantiles(
            one.grid, (one.first, one.second), count, k=IN_SUFFIXES.basis_bits, g=settings.mass_grid, s=one.scale,
            n=self.units, known=not self.blocks and (settings.unit == "record" or settings.answer_weight == "source"),
        )  # fmt: skip

    def to_bytes(self) -> bytes:
        return canonical_bytes(self.model_dump())


class Development(Grown):
    """The units that chose the thresholds: those of a table whose key, by a recorded seed, is below a share.

    All of them: a table of their own. Some: the calibration table holds them, and they are left out of it. The table's
    digest is not here: a public digest of private records would let guesses about them be tested.

    labels   whose labels they had: people's, none (scores alone chose), or a judge model's
    """

    LATER: ClassVar[tuple[str, ...]] = ("labels",)
    share: float = Field(gt=0, le=1)
    seed: int = Field(0, ge=0, lt=1 << 63)
    release: Noised | None = None
    labels: Labels = "people"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.release is not None and self.release.labels != self.labels:
            raise ValueError("a development part and its release have the same labels")
        return self

    @property
    def inside(self) -> bool:
        """Whether the calibration table holds these units."""
        return self.share < 1
