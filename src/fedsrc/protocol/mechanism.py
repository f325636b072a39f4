"""The registered release mechanism: basis, lattice, noise scale and the privacy it costs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from fedsrc.common.canonical import LARGEST
from fedsrc.errors import FedsrcError
from fedsrc.maths import privacy
from fedsrc.maths.basis import Basis, sensitivity_squared
from fedsrc.protocol.protection import IN_SUFFIXES, Histograms, Privacy

SCALE_STEP = 1 << 20  # noise scales are rounded up to multiples of 2^-20, exact in every format


@dataclass(frozen=True)
class Mechanism:
    """The registered release mechanism: basis, lattice, noise scale and the privacy it costs."""

    basis: Basis
    grid: int
    scale: float
    sensitivity: float
    rho: float

    @property
    def unit_variance(self) -> float:
        """Variance of one coordinate in mass units: (scale / grid)^2, before the basis' variance factor."""
        return (self.scale / self.grid) ** 2


@lru_cache(maxsize=64)
def mechanism(settings: Privacy, encoding: Histograms, thresholds: int) -> Mechanism:
    """Return the mechanism with the smallest admissible noise scale, rounded up, and its cost in zCDP.

    Theory: (ii), s >= 2^k g chat tau.
    """
    basis = Basis(encoding.basis, thresholds, encoding.basis_bits)
    squared = sensitivity_squared(basis, encoding.kind, settings.adjacency) * settings.mass_grid**2
    cap = privacy.rho_of(settings.epsilon, settings.delta, settings.conversion)
    scale = math.ceil(privacy.scale_of_rho(squared, cap) * SCALE_STEP) / SCALE_STEP
    if scale > LARGEST:
        raise FedsrcError(
            f"noise of scale {scale:.3g} cannot be written down exactly",
            hint="raise epsilon or delta, or lower loss_grid or max_answers",
        )
    rho = privacy.rho_of_scale(squared, scale)
    return Mechanism(basis, settings.mass_grid, scale, math.sqrt(squared), rho)


def development_mechanism(settings: Privacy, points: int) -> Mechanism:
    """Return the mechanism of a development release over so many points, under the same privacy."""
    return mechanism(settings, IN_SUFFIXES, points)


def most_noise(rule: Mechanism) -> float:
    """Return the largest noise variance in accepted mass (supported and unsupported together)."""
    return 2.0 * rule.unit_variance * float(rule.basis.variance_factor().max())
