"""Renewal: the registration of a certified run made anew, for the same claim on fresh units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsrc.common.canonical import file_digest
from fedsrc.errors import FedsrcError
from fedsrc.planning.register import one_of_each
from fedsrc.protocol.mask_key import MaskKey
from fedsrc.protocol.names import CERTIFICATE
from fedsrc.protocol.registration import Registration
from fedsrc.server.verify import recompute


def renew(
    folder: Path,
    *,
    validity_days: int | None = None,
    server_key: str | None = None,
    site_keys: Mapping[str, str] | None = None,
    capacities: Mapping[str, int] | None = None,
    mask_keys: Sequence[MaskKey] | None = None,
) -> Registration:
    """Return the registration of a run whose certificate verifies, naming that certificate as the one it renews.

    Claim, thresholds, method, privacy, sites, weights and schedule are the same, and so is the rule that sets
    development units apart; no record is read. Validity, keys and capacities may be others; mask keys must be.
    """
    found, replay = recompute(folder)
    if found.status != "CERTIFIED":
        raise FedsrcError(f"there is no certificate to renew: status {found.status}", where=str(folder))
    if replay.registration.unlabelled is not None:
        raise FedsrcError(
            "its unlabelled records show what was accepted then, not now",
            where=str(folder),
            hint="plan anew, with unlabelled records of today's traffic",
        )
    fields = replay.registration.model_dump()
    fields["renews"] = file_digest(folder / CERTIFICATE)
    fields["claim"]["validity_days"] = validity_days or fields["claim"]["validity_days"]
    fields["server_key"] = server_key or fields["server_key"]
    keys = dict(site_keys or {})
    if mask_keys or replay.registration.cohorts is not None:
        fresh = _fresh(replay.registration, mask_keys or (), folder)
        fields["aggregation"]["keys"] = [each.model_dump() for each in fresh]
        keys |= {each.site: each.key for each in fresh}
    if replay.registration.held:
        fields["aggregation"]["key"] = keys.pop("holder", fields["aggregation"]["key"])
    _give(fields["sites"], "key", keys)
    _give(fields["sites"], "capacity", capacities or {})
    return Registration.of(fields, "this renewal cannot be registered")


def _fresh(registration: Registration, mask_keys: Sequence[MaskKey], folder: Path) -> list[MaskKey]:
    """Return the mask keys of a renewal: one of every site, none of which has masked before."""
    if registration.cohorts is None:
        raise FedsrcError("its sites are in no cohort", where=str(folder), hint="leave `mask_keys=` out")
    fresh, used = one_of_each(mask_keys, [*registration.by_name]), registration.mask_keys
    for each in fresh:
        if each.mask == used[each.site].mask:
            raise FedsrcError(
                f"site {each.site!r} has masked with this key before, and a mask key is for one registration",
                where=str(folder),
                hint="the site moves its old mask key away and makes a new one: `fedsrc keys FILE --mask SITE`",
            )
    return fresh


def _give(sites: list[dict[str, Any]], name: str, values: Mapping[str, Any]) -> None:
    """Put a value into each site that is named; the others keep theirs."""
    known = {site["name"]: site for site in sites}
    for each, value in values.items():
        if each not in known:
            raise FedsrcError(f"{each!r} is not a site", hint=f"sites: {', '.join(known)}")
        known[each][name] = value
