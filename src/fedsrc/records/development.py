"""The development part of a table, the units that calibrate, and how a table is cut, in words."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedsrc.errors import FedsrcError
from fedsrc.protocol.protection import Development
from fedsrc.protocol.registration import Registration
from fedsrc.records.keys import BITS, name_keys, row_keys
from fedsrc.records.masses import check_columns, group_of
from fedsrc.records.order import Positions
from fedsrc.records.rows import Rows
from fedsrc.records.units import Names, Records, Unit, UnitNames, Units, check_unit, unit_codes, unit_names, units_of


def calibrating(registration: Registration, records: Records) -> dict[str, Units]:
    """Return the units that would calibrate, by registered site with rows in the table. Nothing is taken in."""
    unknown = sorted(set(records.site_names) - {site.name for site in registration.sites})
    if unknown:
        raise FedsrcError(f"site {unknown[0]!r} of the table is not in the registration")
    settings, scale = registration.privacy, registration.claim.scale
    if records.columns.scale not in (None, scale):
        what = f"the scores were read on the scale {records.columns.scale}, and {scale} is registered"
        raise FedsrcError(what, hint="read the table again, with the registered scale")
    check_unit(records, settings.unit if settings.unit == "source" or settings.independent else None, "the table")
    keep = calibration_rows(registration, records)
    names = [site.name for site in registration.sites if site.name in records.site_names]
    return {name: units_for(registration, records, name, keep) for name in names}


def units_for(
    registration: Registration, records: Records, site: str, keep: NDArray[np.bool_] | None = None
) -> Units:  # fmt: skip
    """Return one site's units as they are registered; refuse sources of more groups than count."""
    settings, groups = registration.privacy, registration.groups
    whole = groups is not None and groups.span == "whole"
    found = units_of(
        records, site, settings.unit, max_answers=settings.max_answers, keep=keep, by_group=whole
    )  # fmt: skip
    check_columns(registration, found)
    if groups is not None and whole:
        pairs = np.stack([np.repeat(np.arange(len(found)), np.diff(found.start)), group_of(groups, found)])
        spans = np.bincount(np.unique(pairs[:, pairs[1] >= 0], axis=1)[0], minlength=1)
        if spans.max() > groups.most:
            raise FedsrcError(
                f"a source has answers in more groups than the {groups.most} that are registered for one",
                hint="register with `group_most=` as many as a source may have, or `group_span='shares'`",
            )
    return found


def names_of(records: Records, site: str | None = None) -> Names:
    """Return every id and source of a site's rows (or of all), and what each row holds."""
    at_site = np.arange(len(records))
    if site is not None:
        at_site = np.flatnonzero(records.site == records.site_names.index(site))
    sources = None
    if records.source is not None:
        sources = [records.source_names[code] for code in sorted(set(records.source[at_site].tolist()))]
    ids = None if records.ids is None else [records.ids[i] for i in at_site.tolist()]
    if records.rows is None:
        rows = _rows_of(records, at_site)
        return Names(ids, sources, (rows.digests,), rows.width, records.cut_by)
    return Names(ids, sources, (records.rows.digests[at_site],), records.rows.width, records.cut_by)


def _rows_of(records: Records, at_site: Positions) -> Rows:
    """Make the rows of a table that was never a file from what is known of them."""
    columns: dict[str, object] = {"score": records.score[at_site], "loss": records.loss[at_site]}
    if records.source is not None:
        columns["source"] = [records.source_names[code] for code in records.source[at_site].tolist()]
    if records.ids is not None:
        columns["id"] = [records.ids[i] for i in at_site.tolist()]
    return Rows(pl.DataFrame(columns))


def in_development(development: Development, names: UnitNames) -> NDArray[np.bool_]:
    """Return which units are of the development part: those whose key, from their name alone, is below the share.

    How many these are is random, and public. Taking the first n by key would let one renamed unit move others.
    """
    if not development.inside:
        return np.ones(len(names), dtype=np.bool_)
    purpose = f"development part {development.seed}"
    keys = row_keys(purpose, names) if isinstance(names, range) else name_keys(purpose, names)
    return keys < np.uint64(int(development.share * 2**BITS))


def development_rows(records: Records, development: Development, unit: Unit) -> NDArray[np.bool_]:
    """Return which rows are of the development part."""
    return _part(records, development, unit)[unit_codes(records, unit)]


def development_count(records: Records, development: Development, unit: Unit) -> int:
    """Count the units of the development part."""
    return int(_part(records, development, unit).sum())


def _part(records: Records, development: Development, unit: Unit) -> NDArray[np.bool_]:
    """Return which units of a table are of the development part; it is drawn once."""
    key = (development.seed, development.share, unit)
    if key not in records.parts:
        records.parts[key] = in_development(development, unit_names(records, unit))
    return records.parts[key]


def calibration_rows(registration: Registration, records: Records) -> NDArray[np.bool_] | None:
    """Return the rows that calibrate: those outside a development part in the table; None if all do."""
    development = registration.development
    if development is None or not development.inside:
        return None
    return ~development_rows(records, development, registration.privacy.unit)


def cut_words(registration: Registration) -> str:
    """Describe how a table is cut into units, in words that the ledger keeps."""
    settings, development = registration.privacy, registration.development
    words = "records" if settings.unit == "record" else f"sources of at most {settings.max_answers} answers"
    if development is not None and development.inside:
        words += f", without a share of {development.share} for development by seed {development.seed}"
    return words
