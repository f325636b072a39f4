"""Laws at the boundary of the null: the deployment mixture's risk is the target at every threshold.

Every certificate on them is false, or at its limit: a procedure that holds its failure probability anywhere in the
null is tried hardest here. Bins 0..m are equally likely.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats, Ints
from fedsrc.protocol.registration import Registration
from fedsrc.simulate.population import Support, deployment_weights


@dataclass(frozen=True)
class Laws:
    """Per site: the law that is drawn from, and the law of deployment, no further away than the declared drift."""

    calibrated: list[Support]
    deployed: list[Support]


class Mix(NamedTuple):
    """Groups that units are of: the first `bad` of them at the boundary, the others at the risk `good`. `tied` of a
    site's units are of one group."""

    groups: int = 1
    bad: int = 1
    good: float = 0.0
    tied: float = 0.0

    def shares(self, sites: int) -> Floats:
        """Return the share of every group at every site (sites, groups)."""
        own = np.arange(sites)[:, None] % self.groups == np.arange(self.groups)
        return np.asarray((1.0 - self.tied) / self.groups + self.tied * own)


def laws(registration: Registration, *, spread: float, graded: bool, drift: float, mix: Mix | None = None) -> Laws:
    """Make sites whose risks lie `spread` from the target, so that the deployment mixture's is the target exactly, in
    every group at the boundary."""
    mix = mix or Mix()
    shares = mix.shares(len(registration.sites))
    risks = np.full(shares.shape, mix.good)
    for g in range(mix.bad):
        risks[:, g] = site_risks(registration, spread, shares[:, g])
    if drift and (graded or registration.privacy.unit == "source"):
        raise FedsrcError("drift at the boundary is for records with losses 0 and 1")

    def made(drift: float) -> list[Support]:
        every = [[law(registration, risk, graded=graded, drift=drift) for risk in row] for row in risks]
        return [_mixed(registration, each, share) for each, share in zip(every, shares, strict=True)]

    return Laws(made(drift), made(0.0))


def _mixed(registration: Registration, groups: list[Support], shares: Floats) -> Support:
    """Make a site of its groups, a unit in one of them: apart where they have claims, else together."""
    masses = np.zeros((len(groups), groups[0].law.size, len(groups), *groups[0].masses.shape[1:]), dtype=np.int64)
    for i, each in enumerate(groups):
        masses[i, :, i] = each.masses
    every = np.concatenate(masses)
    law = np.concatenate([share * each.law for share, each in zip(shares, groups, strict=True)])
    return Support(every if registration.panel is not None else every.sum(axis=1), law)


def law(registration: Registration, risk: float, *, graded: bool, drift: float = 0.0) -> Support:
    """Make a site with that risk at every threshold: lower by the drift."""
    if registration.privacy.unit == "record":
        return _graded(registration, risk) if graded else _binary(registration, risk, drift)
    if graded:
        raise FedsrcError("a boundary of sources has losses 0 and 1", hint="leave out graded, or answers")
    return _sources(registration, risk)


def site_risks(registration: Registration, spread: float, shares: Floats) -> Floats:
    """Return risks of a group with these shares of the sites, whose mean under the declared weights (or equal ones) is
    the target; the first is above it.

    With equal weights they alternate, and an odd site lies at the target; otherwise the others share the difference.
    """
    target = registration.claim.target_risk
    weights = deployment_weights(registration)
    if np.ptp(shares):
        weights = weights * shares / (weights @ shares)
    risks = _risks(target, spread, weights)
    if not ((risks >= 0) & (risks <= 1)).all():
        raise FedsrcError(f"risks {spread:g} from the target {target:g} leave [0, 1]")
    return risks


def _risks(target: float, spread: float, weights: Floats) -> Floats:
    count = weights.size
    if np.allclose(weights, weights[0]):
        signs = np.where(np.arange(count) % 2 == 0, 1.0, -1.0)
        signs[-1] = 0.0 if count % 2 else signs[-1]
        return target + spread * signs
    if spread and weights[0] >= 1:
        raise FedsrcError("with all weight on one site its risk is the target", hint="leave out spread")
    risks = np.full(count, target - (spread * weights[0] / (1.0 - weights[0]) if spread else 0.0))
    risks[0] = target + spread
    return risks


def _binary(registration: Registration, risk: float, drift: float) -> Support:
    """Losses 0 and 1. Before the drift, that much of the top bin's unsupported mass is still supported: at every
    threshold the contrast is then lower by all of the drift, the most that total variation allows."""
    bins = len(registration.thresholds.values) + 1
    law = np.stack([np.full(bins, (1.0 - risk) / bins), np.full(bins, risk / bins)])
    if drift > law[1, -1]:
        raise FedsrcError(f"a drift of {drift:g} is more than the top bin's unsupported mass {law[1, -1]:.4f}")
    law[0, -1] += drift
    law[1, -1] -= drift
    grid = registration.privacy.mass_grid
    atoms = [_atom(registration, [(b, loss * grid, grid)]) for loss in (0, 1) for b in range(bins)]
    return Support(np.stack(atoms), law.ravel())


def _graded(registration: Registration, risk: float) -> Support:
    """Make a law of losses 0, 1/2 and 1 with probabilities 1 - 3r/2, r and r/2."""
    if not 1.5 * risk <= 1:
        raise FedsrcError(f"graded losses with mean {risk:g} need a mean of at most 2/3")
    bins, grid = len(registration.thresholds.values) + 1, registration.privacy.mass_grid
    if grid % 2:
        raise FedsrcError("a loss of 1/2 is no multiple of one over an odd loss_grid")
    losses = {0: 1.0 - 1.5 * risk, grid // 2: risk, grid: 0.5 * risk}
    atoms = [_atom(registration, [(b, bad, grid)]) for bad in losses for b in range(bins)]
    return Support(np.stack(atoms), np.repeat(list(losses.values()), bins) / bins)


def _sources(registration: Registration, risk: float) -> Support:
    """Sources whose answers fall into two halves of equal answers: in half of the sources the halves agree, in the
    others they are independent."""
    bins, half = len(registration.thresholds.values) + 1, registration.privacy.mass_grid // 2
    single = [(b, bad) for bad in (0, half) for b in range(bins)]
    law = np.concatenate([np.full(bins, (1.0 - risk) / bins), np.full(bins, risk / bins)])
    pairs = [(i, j) for i in range(2 * bins) for j in range(2 * bins)]
    atoms = [_atom(registration, [(*single[i], half), (*single[j], half)]) for i, j in pairs]
    together = 0.5 * np.diag(law) + 0.5 * np.outer(law, law)
    return Support(np.stack(atoms), together.ravel())


def _atom(registration: Registration, answers: list[tuple[int, int, int]]) -> Ints:
    """Return masses (2, m+1) of answers given as bin, unsupported mass and whole mass, in grid units."""
    masses = np.zeros((2, len(registration.thresholds.values) + 1), dtype=np.int64)
    for place, bad, whole in answers:
        masses[0, place] += whole if registration.histograms.kind == "paired" else whole - bad
        masses[1, place] += bad
    return masses
