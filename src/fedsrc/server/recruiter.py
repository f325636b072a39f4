"""The recruiter: who is asked next, and for how many. It reads the transcript's public numbers only."""

from __future__ import annotations

from collections.abc import Sequence

from fedsrc.protocol.mechanism import registered_mechanism
from fedsrc.protocol.messages import Request
from fedsrc.protocol.registration import Monitor, Registration
from fedsrc.server.tally import Tally


def next_slots(registration: Registration, tally: Tally, left: Sequence[int]) -> list[int]:
    """Slots to ask of each site in the next round; all zero when nothing is left to ask.

    `first` and `final`: every site; with declared weights, each is asked for what brings it to its weight.
    `recruit`: the one site with the largest deficit to its weight (first in registered order on a tie).
    A monitor asks all sites in every round, in proportion, and waits while one that has a weight has nothing.
    """
    if isinstance(registration.certificate, Monitor):
        return _in_proportion(registration, left)
    batch, sites = registration.schedule.batch, len(registration.sites)
    drawn = [a + b for a, b in zip(tally.slots, tally.missing, strict=True)]
    if registration.schedule.policy == "recruit":
        return _one_site(registration, drawn, left)
    if registration.weights is None:
        return [whole(batch, each) for each in left]
    after = sum(drawn) + batch * sites
    due = [round(weight * after) - n for weight, n in zip(registration.weights, drawn, strict=True)]
    return [max(0, min(n, each)) for n, each in zip(due, left, strict=True)]


def _in_proportion(registration: Registration, left: Sequence[int]) -> list[int]:
    """Every round of a monitor mixes the sites alike: by their weights, or else by what they have."""
    weights = registration.weights or tuple(each / max(1, sum(left)) for each in left)
    parts = list(zip(left, weights, strict=True))
    most = min((int(room / weight + 1e-9) for room, weight in parts if weight > 0), default=0)
    size = whole(registration.schedule.batch * sum(weight > 0 for weight in weights), most)
    return [min(room, max(1, round(weight * size))) if size and weight > 0 else 0 for room, weight in parts]


def whole(batch: int, left: int) -> int:
    """A batch, or all that is left when less than half a batch would remain: a tiny release carries full noise."""
    return left if left < 1.5 * batch else batch


def _one_site(registration: Registration, drawn: Sequence[int], left: Sequence[int]) -> list[int]:
    """Paper: Appendix "Finite-population theorem audit", largest positive target-weight deficit."""
    sites = len(registration.sites)
    weights = registration.weights or (1.0 / sites,) * sites
    total = sum(drawn)
    deficits = [
        weight * total - n if room > 0 else float("-inf") for weight, n, room in zip(weights, drawn, left, strict=True)
    ]
    slots = [0] * sites
    best = max(range(sites), key=lambda i: (deficits[i], weights[i], -i))
    slots[best] = whole(registration.schedule.batch, left[best])
    return slots


def make_requests(registration: Registration, slots: Sequence[int], *, number: int, round: int) -> list[Request]:
    """Requests for the asked sites, numbered on from `number`, in registered order."""
    scale = registered_mechanism(registration).scale
    asked = [(site.name, n) for site, n in zip(registration.sites, slots, strict=True) if n > 0]
    return [
        Request(registration=registration.digest, number=number + i, round=round, site=name, slots=n, scale=scale)
        for i, (name, n) in enumerate(asked, start=1)
    ]
