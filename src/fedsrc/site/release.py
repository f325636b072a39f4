"""A release: the histogram of the slots asked for, encoded and noised. The only thing that ever leaves a site."""

from __future__ import annotations

from fedsrc.maths.arrays import Ints
from fedsrc.protocol.mechanism import Mechanism
from fedsrc.protocol.messages import Link, Order, Release, Request
from fedsrc.protocol.registration import Registration
from fedsrc.site.noise import add_discrete_gaussian


def make_release(
    registration: Registration, request: Request, counts: Ints, link: Link, *, order: Order, time: str
) -> Release:
    """Encode the histogram of exactly the request's slots and add noise."""
    rule = registration.mechanism
    noisy = noised(rule, counts)
    return Release(
        request=request.digest,
        site=request.site,
        slots=request.slots,
        scale=rule.scale,
        order=order,
        time=time,
        place=link.place,
        before=link.before,
        tries=link.tries,
        others=link.others,
        first=tuple(noisy[0].tolist()),
        second=tuple(noisy[1].tolist()),
    )


def noised(rule: Mechanism, counts: Ints) -> Ints:
    """Return the integers that leave a site: a histogram in the mechanism's basis, plus its noise."""
    return add_discrete_gaussian(rule.basis.encode(counts), rule.scale, sensitivity=rule.sensitivity, rho=rule.rho)
