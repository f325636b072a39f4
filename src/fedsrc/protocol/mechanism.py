"""The registered release mechanism: basis, lattice, noise scale and the privacy it costs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from fedsrc.maths import privacy
from fedsrc.maths.basis import Basis, sensitivity_squared
from fedsrc.protocol.registration import Privacy, Registration

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
def mechanism(settings: Privacy, thresholds: int) -> Mechanism:
    """The smallest admissible noise scale for the registered privacy, rounded up, and what it costs in zCDP.

    Theory: (ii), s >= 2^k g chat tau.
    """
    basis = Basis(settings.basis, thresholds, settings.basis_bits)
    squared = sensitivity_squared(basis, settings.encoding, settings.adjacency) * settings.mass_grid**2
    cap = privacy.rho_of(settings.epsilon, settings.delta, settings.conversion)
    scale = math.ceil(privacy.scale_of_rho(squared, cap) * SCALE_STEP) / SCALE_STEP
    rho = privacy.rho_of_scale(squared, scale)
    return Mechanism(basis, settings.mass_grid, scale, math.sqrt(squared), rho)


def registered_mechanism(registration: Registration) -> Mechanism:
    """The mechanism that a registration fixes. A site derives it itself and never takes the server's word."""
    return mechanism(registration.privacy, len(registration.thresholds.values))


def noise_words(registration: Registration) -> str:
    """The registered noise as people read it: its scale in units, and in the integers that a release file holds."""
    settings, rule = registration.privacy, registered_mechanism(registration)
    if not settings.private:
        return "no noise at all"
    answers = settings.unit == "source" and settings.answer_weight == "answer"
    noun, shares = ("answer", settings.max_answers) if answers else (settings.unit, 1)
    steps = rule.grid * rule.basis.unit // shares
    inside = f" ({rule.scale:g} in the release's integers, which count 1/{steps:,} of a{'n' * answers} {noun})"
    return f"noise of scale {rule.scale / steps:.4g} {noun}s{inside if steps > 1 else ''}"
