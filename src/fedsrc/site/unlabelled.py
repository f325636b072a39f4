"""Unlabelled records: the scores of every site are released once, with noise, and say how many answers are accepted.

Each unit is in that one release and in no other, so the registered privacy covers them as it covers the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated

from pydantic import Field, ValidationError

from fedsrc.common.canonical import canonical_bytes
from fedsrc.common.values import Frozen, Name
from fedsrc.errors import FedsrcError
from fedsrc.protocol.disclosure import replacement_rho
from fedsrc.protocol.protection import Noised
from fedsrc.protocol.registration import Registration
from fedsrc.records.development import names_of
from fedsrc.records.masses import histogram
from fedsrc.records.units import Records, check_unit, units_of
from fedsrc.site.develop import over_grid, released
from fedsrc.site.ledger import Ledger
from fedsrc.site.site import note_development

MOST_SITES = 1_000  # a registration is a file of bounded size


class _Kept(Frozen):
    """What the ledger keeps of a table of unlabelled records."""

    sites: Annotated[tuple[Name, ...], Field(strict=False)]
    releases: Annotated[tuple[Noised, ...], Field(strict=False)]


def release_unlabelled(
    base: Registration, records: Records, ledger: Ledger, *, own: Ledger | None = None, fresh: bool = False
) -> tuple[Noised, ...]:
    """Return the one release of every site's unlabelled units, as it was made before or made now. `ledger` is that of
    the table that calibrates; `own` that of the unlabelled records, whatever tables they serve.

    Of one site each, a table and a registration need not call it the same.
    """
    if not base.privacy.private:
        raise FedsrcError("unlabelled records are for certificates with privacy", hint="leave `unlabelled=` out")
    if len(base.sites) > MOST_SITES:
        raise FedsrcError(f"a registration holds unlabelled records of at most {MOST_SITES:,} sites")
    names, one = [site.name for site in base.sites], len(base.sites) == len(records.site_names) == 1
    lacking = [] if one else [name for name in names if name not in records.site_names]
    if lacking:
        raise FedsrcError(
            f"there are no unlabelled records of site {lacking[0]!r}",
            hint="bring some of every site, or leave `unlabelled=` out",
        )
    grid, settings = over_grid(base), base.privacy
    check_unit(records, settings.unit if settings.unit == "source" or settings.independent else None, "the table")
    make = partial(_make, grid, records)
    for each in [ledger] if own is None else [own, ledger]:
        make = partial(_kept, each, records, replacement_rho(grid), make, fresh=fresh)
    stored = make()
    try:
        kept = _Kept.model_validate_json(stored)
    except ValidationError as error:
        raise FedsrcError(
            "these unlabelled records were used before as labelled development records", where=str(ledger.path)
        ) from error
    found = dict(zip(kept.sites, kept.releases, strict=True))
    return kept.releases if one else tuple(found[name] for name in names)


def _kept(ledger: Ledger, records: Records, rho: float, make: Callable[[], bytes], *, fresh: bool) -> bytes:
    """Return what a ledger keeps as the release of these records, or keep what is made now."""
    with ledger.at_once():
        note_development(records, ledger, fresh=fresh)
        return ledger.develop(records.digest, names_of(records).cut_by, rho, make)


def _make(grid: Registration, records: Records) -> bytes:
    """Count the units of every site over the public grid, each accepted and of unknown support, and add noise."""
    settings, names = grid.privacy, records.site_names
    sites = [units_of(records, name, settings.unit, max_answers=settings.max_answers) for name in names]
    made = tuple(released(grid, histogram(grid, units), len(units)) for units in sites)
    return canonical_bytes(_Kept(sites=names, releases=made).model_dump())
