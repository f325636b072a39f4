"""A release: the slots asked for, counted, encoded and noised. The only thing that ever leaves a site."""

from __future__ import annotations

from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Ints
from fedsrc.maths.contrasts import ContrastCode
from fedsrc.maths.privacy import rho_of_scale
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
    rule, scale = registration.mechanism, registration.share_of(request.site)
    if request.slots * rule.largest >= 1 << 61:
        raise FedsrcError(f"{request.slots:,} slots are too many to count exactly in one release")
    noisy, length = noised(rule, counts, scale).ravel().tolist(), rule.lengths[0]
    return Release(
        request=request.digest,
        site=request.site,
        slots=request.slots,
        scale=scale,
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


def noised(rule: Mechanism, counts: Ints, scale: float | None = None) -> Ints:
    """Return the integers that leave a site: bins in the mechanism's basis, or contrasts, plus its noise; a cohort's
    member adds a share of it, and what that costs by itself is more."""
    exact = counts if isinstance(rule.code, ContrastCode) else rule.code.encode(counts)
    scale = rule.scale if scale is None else scale
    rho = rule.rho if scale == rule.scale else rho_of_scale(rule.sensitivity**2, scale)
    return add_discrete_gaussian(exact, scale, sensitivity=rule.sensitivity, rho=rho)
