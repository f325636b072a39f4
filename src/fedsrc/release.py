"""Requests and releases: what the server asks of a site, and the only thing that ever leaves it.

A release is two integer vectors of fixed length, whatever the data: supported and unsupported mass (complementary)
or count and loss (paired), in plain bins or in the suffix basis, plus discrete Gaussian noise.
"""

from __future__ import annotations

from fedsrc.maths.arrays import Ints
from fedsrc.noise import add_discrete_gaussian
from fedsrc.protocol.mechanism import registered_mechanism
from fedsrc.protocol.messages import Order, Release, Request
from fedsrc.protocol.registration import Registration


def make_release(registration: Registration, request: Request, counts: Ints, *, order: Order, time: str) -> Release:
    """Encode the histogram of exactly the request's slots and add noise."""
    rule = registered_mechanism(registration)
    exact = rule.basis.encode(counts)
    noisy = add_discrete_gaussian(exact, rule.scale, sensitivity=rule.sensitivity, rho=rule.rho)
    return Release(
        request=request.digest,
        site=request.site,
        slots=request.slots,
        scale=rule.scale,
        order=order,
        time=time,
        first=tuple(noisy[0].tolist()),
        second=tuple(noisy[1].tolist()),
    )
