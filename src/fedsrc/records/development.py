"""The development part of a table, the units that calibrate, and how a table is cut, in words."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedsrc.errors import FedsrcError
from fedsrc.protocol.registration import Development, Registration
from fedsrc.records.order import shuffled
from fedsrc.records.units import Names, Records, Unit, Units, check_unit, unit_codes, unit_count, units_of


def calibrating(registration: Registration, records: Records) -> dict[str, Units]:
    """The units that would calibrate, at every registered site that has rows in the table. Nothing is taken in."""
    unknown = sorted(set(records.site_names) - {site.name for site in registration.sites})
    if unknown:
        raise FedsrcError(f"site {unknown[0]!r} of the table is not in the registration")
    settings = registration.privacy
    check_unit(records, settings.unit if settings.unit == "source" or settings.independent else None, "the table")
    keep = calibration_rows(registration, records)
    names = [site.name for site in registration.sites if site.name in records.site_names]
    return {name: units_of(records, name, settings.unit, max_answers=settings.max_answers, keep=keep) for name in names}


def names_of(records: Records, site: str) -> Names:
    """Every id and source of a site's rows, those of the development part included."""
    rows = np.flatnonzero(records.site == records.site_names.index(site)).tolist()
    sources = None
    if records.source is not None:
        sources = [records.source_names[code] for code in sorted(set(records.source[rows].tolist()))]
    return Names(None if records.ids is None else [records.ids[i] for i in rows], sources)


def development_rows(records: Records, development: Development, unit: Unit) -> NDArray[np.bool_]:
    """The rows of the development part: so many of the units, chosen by a recorded seed."""
    count = unit_count(records, unit)
    check_count(development, count)
    chosen = np.zeros(count, dtype=np.bool_)
    chosen[shuffled(count, development.seed)[: development.units]] = True
    return chosen[unit_codes(records, unit)]


def check_count(development: Development, count: int) -> None:
    """Refuse a table that does not have as many units as the one whose development part was registered."""
    if count != development.of:
        raise FedsrcError(
            f"the registration set {development.units:,} of {development.of:,} units apart; this table has {count:,}",
            hint="certify the table that was registered, or register from a development table of its own",
        )


def calibration_rows(registration: Registration, records: Records) -> NDArray[np.bool_] | None:
    """Rows that calibrate: all, or those outside the development part where the table also holds that."""
    development = registration.development
    if development is None or not development.inside:
        return None
    return ~development_rows(records, development, registration.privacy.unit)


def cut_words(registration: Registration) -> str:
    """How a table is cut into units, in words that the ledger keeps."""
    settings, development = registration.privacy, registration.development
    words = "records" if settings.unit == "record" else f"sources of at most {settings.max_answers} answers"
    if development is not None and development.inside:
        words += f", without {development.units} of {development.of} for development by seed {development.seed}"
    return words
