"""The registered release mechanism: basis, lattice, noise scale and the privacy it costs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from fedsrc.common.canonical import LARGEST
from fedsrc.errors import FedsrcError
from fedsrc.maths import privacy
from fedsrc.maths.basis import Basis, sensitivity_squared
from fedsrc.maths.contrasts import ContrastCode
from fedsrc.maths.kinds import Adjacency, Encoding
from fedsrc.maths.levels import LevelCode
from fedsrc.maths.moments import MomentCode
from fedsrc.maths.panels import Layout
from fedsrc.protocol.protection import IN_SUFFIXES, Contrasts, Histograms, Levels, Moments, Privacy

Code = Basis | ContrastCode | MomentCode | LevelCode
SCALE_STEP = 1 << 20  # noise scales are rounded up to multiples of 2^-20, exact in every format


@dataclass(frozen=True)
class Mechanism:
    """The registered release mechanism: how units are encoded, noise scale and the privacy it costs. A panel's release
    holds one encoded vector for each of its blocks."""

    code: Code
    grid: int  # what masses are counted in multiples of one over
    scale: float
    sensitivity: float
    rho: float
    layout: Layout | None = None

    @property
    def basis(self) -> Basis:
        """The basis of histograms, of levels, or of totals and second moments."""
        if isinstance(self.code, ContrastCode):
            raise FedsrcError("this registration releases contrasts, not histograms")
        return self.code if isinstance(self.code, Basis) else self.code.basis

    @property
    def contrasts(self) -> ContrastCode:
        """The encoding of a sealed release."""
        if not isinstance(self.code, ContrastCode):
            raise FedsrcError("this registration releases histograms, not contrasts")
        return self.code

    @property
    def lengths(self) -> tuple[int, int]:
        """How many integers the two parts of a release hold."""
        first, second = self.code.lengths
        return first * self.blocks, second * self.blocks

    @property
    def blocks(self) -> int:
        return 1 if self.layout is None else self.layout.blocks

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what is summed of releases: rows of the basis' coordinates, or contrasts in one row; of a panel,
        for every block."""
        code = self.code
        one = (sum(code.lengths),) if isinstance(code, ContrastCode) else (code.rows, self.basis.p)
        return one if self.layout is None else (self.blocks, *one)

    @property
    def largest(self) -> int:
        """A bound on every integer of one unit."""
        return self.grid * self.code.unit if isinstance(self.code, Basis) else self.code.largest()

    @property
    def unit_variance(self) -> float:
        """Variance of one coordinate in mass units: (scale / grid)^2, before the basis' variance factor."""
        return (self.scale / self.grid) ** 2


@lru_cache(maxsize=64)
def mechanism(
    settings: Privacy, encoding: Histograms | Moments | Levels, thresholds: int, layout: Layout | None = None
) -> Mechanism:
    """Return the mechanism with the smallest admissible noise scale, rounded up, and its cost in zCDP.

    Theory: (ii), s >= 2^k g chat tau; (xiv) Release; (xviii) Sensitivity.
    """
    basis = Basis(encoding.basis, thresholds, encoding.basis_bits)
    g = settings.mass_grid
    if isinstance(encoding, Moments):
        return _calibrated(settings, MomentCode(basis, g), 2 * g**2, layout)
    if isinstance(encoding, Levels):
        return _calibrated(settings, LevelCode(basis, g), 1, layout)
    return _calibrated(settings, basis, g, layout, encoding.kind)


@lru_cache(maxsize=64)
def sealed_mechanism(
    settings: Privacy, encoding: Contrasts, risks: tuple[Fraction, ...], layout: Layout | None = None
) -> Mechanism:
    """Return the mechanism of a sealed release. Theory: (xiii) Shaped noise; (xviii) Sensitivity."""
    code = ContrastCode(risks, settings.mass_grid, encoding.matrix, encoding.second, encoding.accepted)
    return _calibrated(settings, code, settings.mass_grid, layout)


def sensitivity_of(
    code: Code, grid: int, adjacency: Adjacency, layout: Layout | None = None, kind: Encoding = "complementary"
) -> int:
    """Return the largest squared change of a release, in lattice units, when one unit changes."""

    def block(each: Adjacency) -> int:
        if isinstance(code, Basis):
            return sensitivity_squared(code, kind, each) * grid**2
        return code.sensitivity_squared(each)

    if layout is None:
        return block(adjacency)
    return layout.sensitivity_squared(block("zero-out"), block("replacement"), adjacency)


def _calibrated(
    settings: Privacy, code: Code, grid: int, layout: Layout | None, kind: Encoding = "complementary"
) -> Mechanism:
    squared = sensitivity_of(code, grid, settings.adjacency, layout, kind)
    cap = privacy.rho_of(settings.epsilon, settings.delta, settings.conversion)
    scale = math.ceil(privacy.scale_of_rho(squared, cap) * SCALE_STEP) / SCALE_STEP
    if scale > LARGEST:
        raise FedsrcError(
            f"noise of scale {scale:.3g} cannot be written down exactly",
            hint="raise epsilon or delta, or lower loss_grid or max_answers",
        )
    rho = privacy.rho_of_scale(squared, scale)
    while scale and privacy.epsilon_of(rho, settings.delta, settings.conversion) > settings.epsilon:
        # A large scale is rounded up by less than its last digit: a site's limit is exact.
        more = scale + 1 / SCALE_STEP
        scale = more if more > scale else scale * (1 + 2**-40)
        rho = privacy.rho_of_scale(squared, scale)
    return Mechanism(code, grid, scale, math.sqrt(squared), rho, layout)


def development_mechanism(settings: Privacy, points: int, layout: Layout | None = None) -> Mechanism:
    """Return the mechanism of a development release over so many points, under the same privacy."""
    return mechanism(settings, IN_SUFFIXES, points, layout)


def most_noise(rule: Mechanism) -> float:
    """Return the largest noise variance in accepted mass (supported and unsupported together)."""
    return 2.0 * rule.unit_variance * float(rule.basis.variance_factor().max())
