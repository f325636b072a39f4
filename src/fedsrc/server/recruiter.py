"""The recruiter decides which sites are asked next, and for how many slots, from public numbers alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedsrc.maths.arrays import Floats, Ints
from fedsrc.protocol.messages import Request
from fedsrc.protocol.names import HOLDER
from fedsrc.protocol.registration import Registration
from fedsrc.server.tally import Tally

Bools = NDArray[np.bool_]


def next_slots(registration: Registration, tally: Tally, left: Sequence[int], *, round: int = 1) -> list[int]:
    """Return the slots to ask of each site in a round; all zero when nothing is left to ask.

    `first` and `final`: every site; with declared weights, each is asked for what brings it to its weight.
    `recruit`: the one site with the largest deficit to its weight (first in registered order on a tie).
    With declared weights no site is asked for units that can only lose: once sites that hold as much weight as the
    target risk are used up, those of the others.
    A monitor asks all sites in every round, in proportion, and waits while one that has a weight has nothing.
    """
    if registration.monitor is not None:
        return _in_proportion(registration, left)
    drawn = np.asarray([tally.slots]) + np.asarray([tally.missing])
    slots: list[int] = asked(registration, drawn, np.asarray([left]), round=round)[0].tolist()
    return slots


def asked(registration: Registration, drawn: Ints, left: Ints, *, round: int = 1) -> Ints:
    """Do the same for many runs of a certificate at once: slots that count as drawn, and units left, (runs, sites)."""
    size = registration.schedule.size(round)
    if registration.schedule.policy == "recruit":
        return _one_site(registration, drawn, left, size)
    if registration.weights is None:
        return _whole(size, left)
    return in_step(registration, drawn, left, size)


def in_step(registration: Registration, drawn: Ints, left: Ints, batch: int) -> Ints:
    """With declared weights w: slots that bring every site to w_k times one level, per row of (rows, sites).

    A full step raises the level by a batch for every site. The level stops where a site runs out, and a rest of less
    than half a step joins the step before it: a tiny release carries full noise. A rest of less than half of a site's
    part of a step is left alone, unless it is all that the site ever had.

    See docs/theory.md, (iv) Slots.
    """
    w, step = np.asarray(registration.weights), batch * len(registration.sites)
    large = (w > 0) & (left > 0) & (left >= w * step / 2)
    open_ = large | ((w > 0) & (drawn == 0) & (left > 0))
    level = _level(w, np.where(large, drawn, 0), large)
    caps = _caps(w, drawn, np.where(open_, left, 0), drawn + left > 0)
    top = np.minimum(_last_level(registration, w, caps), np.where(large, caps, np.inf).min(axis=1, keepdims=True))
    after = np.where(top < level + 1.5 * step, top, level + step)
    due = _shares(w, after) - drawn
    return np.asarray(np.where(open_, np.maximum(0, np.minimum(due, left)), 0))


def worth_asking(registration: Registration, drawn: Ints, left: Ints) -> Ints:
    """Of the units left at each site, those below the level at which more can only lose, per row of (rows, sites)."""
    if registration.weights is None:
        return left
    w = np.asarray(registration.weights)
    last = _last_level(registration, w, _caps(w, drawn, left, drawn + left > 0))
    most = np.where(np.isinf(last), left, _shares(w, np.where(np.isinf(last), 0.0, last)) - drawn)
    return np.asarray(np.where(w > 0, np.maximum(0, np.minimum(most, left)), 0))


def _shares(w: Floats, total: Floats) -> Ints:
    return np.asarray(np.rint(w * total).astype(np.int64))


def _level(w: Floats, drawn: Ints, of: Bools) -> Floats:
    """Return the total of which these sites' units are their shares."""
    weight = np.cumsum(np.where(of, w, 0.0), axis=1)[:, -1:]  # in order, one by one: the same in every row
    weight = np.where((of | (w == 0)).all(axis=1, keepdims=True), 1.0, weight)
    return np.asarray(drawn.sum(axis=1, keepdims=True) / np.where(weight > 0, weight, 1.0))


def _caps(w: Floats, drawn: Ints, left: Ints, there: Bools) -> Floats:
    """Return the largest total of which each site has its share; no limit for one that may yet come."""
    return np.where(there & (w > 0), (drawn + left) / np.where(w > 0, w, 1.0), np.inf)


def _last_level(registration: Registration, w: Floats, caps: Floats) -> Floats:
    """Return the level above which more units can only lose, because sites of as much weight as the target risk have
    less than their share.

    Theory: (iv), Slots, units that can only lose.
    """
    order = np.argsort(caps, axis=1, kind="stable")
    lost = np.cumsum(w[order], axis=1)
    enough = lost < registration.claim.target_risk - 1e-12
    return np.asarray(np.where(enough, np.inf, np.take_along_axis(caps, order, axis=1)).min(axis=1, keepdims=True))


def _in_proportion(registration: Registration, left: Sequence[int]) -> list[int]:
    """Return a monitor's slots: every round mixes the sites by their weights, or else by what they have."""
    weights = registration.weights or tuple(each / max(1, sum(left)) for each in left)
    parts = list(zip(left, weights, strict=True))
    most = min((int(room / weight + 1e-9) for room, weight in parts if weight > 0), default=0)
    size = whole(registration.schedule.batch * sum(weight > 0 for weight in weights), most)
    return [min(room, max(1, round(weight * size))) if size and weight > 0 else 0 for room, weight in parts]


def whole(batch: int, left: int) -> int:
    """Return a batch, or all that is left if less than half a batch would remain: a tiny release has full noise."""
    return int(_whole(batch, np.asarray(left)))


def _whole(batch: int, left: Ints) -> Ints:
    return np.where(left < 1.5 * batch, left, batch)


def _one_site(registration: Registration, drawn: Ints, left: Ints, batch: int) -> Ints:
    """Ask the site with the largest deficit; on a tie the largest weight, then the first in registered order.

    Paper: Appendix "Finite-population theorem audit", largest positive target-weight deficit.
    """
    sites = len(registration.sites)
    weights, left = np.asarray(registration.weights or (1.0 / sites,) * sites), worth_asking(registration, drawn, left)
    deficits = np.where(left > 0, weights * drawn.sum(axis=1, keepdims=True) - drawn, -np.inf)
    order = np.argsort(-weights, kind="stable")
    best = order[np.argmax(deficits[:, order], axis=1)][:, None]
    slots = np.zeros_like(left)
    np.put_along_axis(slots, best, _whole(batch, np.take_along_axis(left, best, axis=1)), axis=1)
    return slots


def noises(registration: Registration, slots: Sequence[int]) -> float:
    """Return the noise variance that a round of so many slots adds, in that of one release.

    Theory: (v), One holder; (xvii) Validity.
    """
    return math.fsum(registration.noise_of(name) for name, _, _ in _asked(registration, slots))


def make_requests(registration: Registration, slots: Sequence[int], *, number: int, round: int) -> list[Request]:
    """Return the requests for the asked sites, in registered order, numbered from `number` + 1: one to one holder, and
    one to every cohort."""
    return [
        Request(
            registration=registration.digest, number=number + i, round=round, site=name, slots=n,
            scale=registration.share_of(name), parts=parts,
        )
        for i, (name, n, parts) in enumerate(_asked(registration, slots), start=1)
    ]  # fmt: skip


def _asked(registration: Registration, slots: Sequence[int]) -> list[tuple[str, int, tuple[int, ...] | None]]:
    """Return whom a round of so many slots asks, for how many, and for how many of each where several are asked."""
    if registration.cohorts is not None:
        of = dict(zip(registration.by_name, slots, strict=True))
        parts = {each.name: tuple(of[name] for name in each.members) for each in registration.cohorts.cohorts}
        return [(name, sum(each), each) for name, each in parts.items() if any(each)]
    if registration.held:
        return [(HOLDER, sum(slots), tuple(slots))] if any(slots) else []
    return [(site.name, n, None) for site, n in zip(registration.sites, slots, strict=True) if n > 0]
