"""Deployment that differs from calibration by a known amount: moved weights, drifted losses, noisy labels.

Distances here are total variation, known by construction and checked by enumeration. They are chosen, not measured:
an audit that uses them asks what a shift of that size costs, not whether a real deployment shifts so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats
from fedsrc.maths.kinds import Encoding
from fedsrc.records.units import Units
from fedsrc.simulate.population import Support

ROUNDING = 1e-12
SUPPORTED, UNSUPPORTED = 0, 1


def moved_weights(base: Sequence[float], fraction: float, onto: int) -> tuple[float, ...]:
    """Move a fraction of all deployment weight onto one site, from the others in proportion.

    Their total variation from `base` is that fraction. It models traffic that comes from the sites in other shares
    than calibration did; the law at each site stays as it is, so it does not model drift within a site.

    Paper: Table (eta), mixture route.
    """
    weights = np.asarray(base, dtype=np.float64)
    if not (weights >= 0).all() or not abs(weights.sum() - 1) <= 1e-9:
        raise FedsrcError("site weights must be zero or more and sum to one")
    if not 0 <= onto < weights.size:
        raise FedsrcError(f"there is no site at index {onto}")
    rest = 1.0 - weights[onto]
    if not 0 <= fraction <= rest + ROUNDING:
        raise FedsrcError(f"{fraction} of the weight cannot be moved: the other sites hold {rest:g}")
    moved = weights * max(0.0, 1.0 - fraction / rest) if fraction > 0 and rest > 0 else weights.copy()
    moved[onto] = min(1.0, weights[onto] + fraction)
    return tuple(moved.tolist())


def drifted(support: Support, encoding: Encoding, threshold: int, change: float) -> Support:
    """Return one site's law after its unsupported share q among accepted units has become q + change.

    Threshold j in 0..m-1 accepts bins j+1..m. Scores and acceptance stay; the same share of every accepted supported
    atom goes to the atom of that bin with the loss flipped (or back, when the change is negative), and rejected units
    stay. So the total variation of the complete law is exactly a_j |change|, with a_j the accepted mass.

    It models answers of the same scores that are wrong more often. It does not model scores that move, nor drift
    below the threshold; at other thresholds the unsupported share changes by another amount.

    The paper says that the accepted loss is resampled from a Bernoulli law. If it were drawn afresh, whatever the
    score, its dependence on the score would be lost too and the law could move further; the flip is the coupling for
    which the paper's equality holds.

    Paper: Table (eta), drift route.
    """
    cells = _cells(support, encoding)
    if not 0 <= threshold < cells.law.shape[1] - 1:
        raise FedsrcError(f"there is no threshold at index {threshold}")
    mass = cells.law[:, threshold + 1 :].sum(axis=1)
    share = _flipped_share(mass[SUPPORTED], mass[UNSUPPORTED], change)
    origin, target = (SUPPORTED, UNSUPPORTED) if change > 0 else (UNSUPPORTED, SUPPORTED)
    law = cells.law.copy()
    law[target, threshold + 1 :] += share * cells.law[origin, threshold + 1 :]
    law[origin, threshold + 1 :] *= 1.0 - share
    return _Cells(law, cells.mass).support(encoding)


def relabelled(support: Support, encoding: Encoding, missed: float, invented: float) -> Support:
    """Return one site's law as an imperfect labeller sees it.

    An unsupported unit is labelled supported with probability `missed`, a supported one unsupported with probability
    `invented`, independently at every event and whatever its score. It models careless labels. It does not model a
    labeller who is misled by what misleads the score, nor a unit that is labelled wrongly every time it is drawn.
    """
    if not (0 <= missed <= 1 and 0 <= invented <= 1):
        raise FedsrcError(f"label errors {missed} and {invented} are not probabilities")
    cells = _cells(support, encoding)
    labels = np.array([[1.0 - invented, missed], [invented, 1.0 - missed]])
    return _Cells(labels @ cells.law, cells.mass).support(encoding)


def mislabelled(units: Units, missed: float, invented: float, rng: np.random.Generator) -> Units:
    """Return units of answers with loss 0 or 1 as that labeller sees them, each answer once."""
    wrong = rng.random(units.loss.size) < np.where(units.loss > 0, missed, invented)
    return replace(units, loss=np.where(wrong, 1.0 - units.loss, units.loss))


@dataclass(frozen=True)
class _Cells:
    """A law of single answers with loss 0 or 1: probabilities (2, m+1) of supported and unsupported per bin."""

    law: Floats
    mass: int

    def support(self, encoding: Encoding) -> Support:
        """Make one atom per bin and loss that has positive probability."""
        loss, bins = np.nonzero(self.law)
        atoms = np.arange(loss.size)
        masses = np.zeros((loss.size, 2, self.law.shape[1]), dtype=np.int64)
        masses[atoms, 0 if encoding == "paired" else loss, bins] = self.mass
        masses[atoms, loss, bins] = self.mass
        return Support(masses, self.law[loss, bins])


def _cells(support: Support, encoding: Encoding) -> _Cells:
    """Return the law per loss and bin; refuse units other than one answer with loss 0 or 1 in that encoding."""
    first, unsupported = support.masses[:, 0], support.masses[:, 1]
    answer = first if encoding == "paired" else first + unsupported
    mass = int(answer.max(initial=0))
    single = ((answer != 0).sum(axis=1) == 1) & (answer.sum(axis=1) == mass)
    binary = (unsupported == 0) | (unsupported == answer)
    if not (mass > 0 and single.all() and binary.all()):
        raise FedsrcError(
            f"the law is not of single answers with loss 0 or 1 in {encoding} masses",
            hint="drift and label errors are defined for records with binary loss",
        )
    law = np.zeros((2, answer.shape[1]))
    np.add.at(law, (unsupported.any(axis=1).astype(np.int64), answer.argmax(axis=1)), support.law)
    return _Cells(law, mass)


def _flipped_share(supported: float, unsupported: float, change: float) -> float:
    """Return the share of accepted supported (or unsupported) probability that must flip for the declared change."""
    accepted = supported + unsupported
    if not accepted > 0:
        raise FedsrcError("nothing is accepted at this threshold, so its unsupported share is not defined")
    share = unsupported / accepted
    if not -ROUNDING <= share + change <= 1 + ROUNDING:
        raise FedsrcError(f"an unsupported share of {share:g} cannot change by {change}: it must stay in [0, 1]")
    origin = supported if change > 0 else unsupported
    return min(1.0, accepted * abs(change) / origin) if origin > 0 else 0.0
