"""A release: the slots asked for, counted, encoded and noised. The only thing that ever leaves a site."""

from __future__ import annotations

from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Ints
from fedsrc.maths.basis import Basis
from fedsrc.maths.contrasts import ContrastCode
from fedsrc.protocol.mechanism import Mechanism
from fedsrc.protocol.messages import Link, Order, Release, Request
from fedsrc.protocol.registration import Registration
from fedsrc.site.noise import add_discrete_gaussian


def make_release(
    registration: Registration, request: Request, counts: Ints, link: Link, *, order: Order, time: str,
    labels: str | None = None,
) -> Release:  # fmt: skip
    """Encode what exactly the request's slots count and add noise. `labels` is the keyed digest of what was labelled
    on demand."""
    rule = registration.mechanism
    if not isinstance(rule.code, Basis) and request.slots * rule.code.largest() >= 1 << 61:
        raise FedsrcError(f"{request.slots:,} slots are too many to count exactly in one release")
    noisy, length = noised(rule, counts).ravel().tolist(), rule.lengths[0]
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
        first=tuple(noisy[:length]),
        second=tuple(noisy[length:]),
        labels=labels,
    )


def noised(rule: Mechanism, counts: Ints) -> Ints:
    """Return the integers that leave a site: bins in the mechanism's basis, or contrasts, plus its noise."""
    exact = counts if isinstance(rule.code, ContrastCode) else rule.code.encode(counts)
    return add_discrete_gaussian(exact, rule.scale, sensitivity=rule.sensitivity, rho=rule.rho)
