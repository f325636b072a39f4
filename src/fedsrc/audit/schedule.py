"""The recruiter for many trials at once, and dropout: who is asked in each trial, and whose release arrives.

With dropout, trials differ in what has arrived and so in who is asked next. The rules are those of
`fedsrc.server.recruiter`, row by row, in the same floating-point expressions: ties break alike.
"""

from __future__ import annotations

import numpy as np

from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Bools, Ints
from fedsrc.protocol.registration import Registration
from fedsrc.server.recruiter import in_step, worth_asking
from fedsrc.simulate.population import deployment_weights


def asked(registration: Registration, drawn: Ints, left: Ints, *, round: int = 1) -> Ints:
    """Return the slots to ask of each site in a round, per trial: `recruiter.next_slots` of every row.

    `drawn` holds slots that count as drawn so far and `left` units not yet used, both (trials, sites).
    """
    batch, sites = registration.schedule.size(round), len(registration.sites)
    if drawn.shape != left.shape or drawn.shape[1:] != (sites,):
        raise FedsrcError(f"slots of shape {drawn.shape} and {left.shape} are not (trials, {sites})")
    if registration.schedule.policy == "recruit":
        return _one_site(registration, drawn, left, batch)
    if registration.weights is None:
        return _whole(batch, left)
    return in_step(registration, drawn, left, batch)


def arrivals(rng: np.random.Generator, rate: float, asked: Ints) -> Bools:
    """Say which requests (trials, sites) are answered: each is dropped with probability `rate`, by its own coin.

    Every site has a coin in every round, asked or not, so no coin depends on a record, a release or the schedule. A
    site that is not asked does not answer.

    Paper: Appendix "Federated partitions", dropout.
    """
    if not 0 <= rate <= 1:
        raise FedsrcError(f"dropout rate {rate} is not a probability")
    dropped = rng.random(asked.shape) < rate
    return ~dropped & (asked > 0)


def _whole(batch: int, left: Ints) -> Ints:
    """Return a batch, or all that is left when less than half a batch would remain: `recruiter.whole`."""
    return np.where(left < 1.5 * batch, left, batch)


def _one_site(registration: Registration, drawn: Ints, left: Ints, batch: int) -> Ints:
    """Ask the site with the largest deficit; on a tie the largest weight, then the first in registered order."""
    weights, left = deployment_weights(registration), worth_asking(registration, drawn, left)
    deficits = np.where(left > 0, weights * drawn.sum(axis=1, keepdims=True) - drawn, -np.inf)
    order = np.argsort(-weights, kind="stable")
    best = order[np.argmax(deficits[:, order], axis=1)][:, None]
    slots = np.zeros_like(left)
    np.put_along_axis(slots, best, _whole(batch, np.take_along_axis(left, best, axis=1)), axis=1)
    return slots
