"""The development units of a table: released once, with noise, by the mechanism that calibration releases have.

A unit is of the development part or calibrates, by its own name. So each is in one release at most, and the registered
privacy covers the whole table.

See docs/theory.md, (v) The whole table.
"""

from __future__ import annotations

import numpy as np
from pydantic import ValidationError

from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Ints
from fedsrc.maths.quantiles import score_grid
from fedsrc.protocol.disclosure import replacement_rho
from fedsrc.protocol.panels import Groups, Scores
from fedsrc.protocol.protection import IN_SUFFIXES, Development, Noised
from fedsrc.protocol.registration import Registration, There, Thresholds
from fedsrc.records.development import development_count, development_rows, names_of, units_for
from fedsrc.records.masses import histogram
from fedsrc.records.units import Records, check_unit
from fedsrc.site.ledger import Ledger
from fedsrc.site.release import noised
from fedsrc.site.site import note_development, open_sites


def develop(
    draft: Registration, records: Records, development: Development, ledger: Ledger, *,
    public: bool = False, in_order: bool = False, fresh: bool = False,
) -> Noised | None:  # fmt: skip
    """Return the one release of a table's development units, as it was made before or made now under a draft.

    None: they are published as they are, declared public or without privacy. What was first stands: a table that was
    released with noise is never published, and one that was published is not called protected.
    """
    exact = public or not draft.privacy.private
    with ledger.at_once():
        if development.inside:
            taken = draft.model_copy(update={"labelling": There()})  # nobody labels what develops
            open_sites(taken, records, ledger, in_order=in_order, fresh=fresh)
        else:
            note_development(records, ledger, fresh=fresh)
        stored = ledger.develop(
            records.digest, names_of(records).cut_by, _cost(draft, public),
            lambda: b"" if exact else _make_development(draft, records, development).to_bytes(),
        )  # fmt: skip
    if not stored and exact:
        return None
    return _again(stored, draft, ledger, public=public)


def _make_development(draft: Registration, records: Records, development: Development) -> Noised:
    """Count the development units over the public grid, and add noise."""
    grid = over_grid(draft)
    units = development_count(records, development, draft.privacy.unit)
    made = released(grid, development_masses(grid, records, development), units)
    return made.model_copy(update={"labels": development.labels})


def released(grid: Registration, masses: Ints, units: int) -> Noised:
    """Add noise to the two histograms of so many units over the public grid."""
    rule, points = grid.mechanism, grid.thresholds.values
    first, second = map(tuple, np.moveaxis(noised(rule, masses), -2, 0).reshape(2, -1).tolist())
    return Noised(
        privacy=grid.privacy, units=units, grid=points, scale=rule.scale, first=first, second=second,
        blocks=grid.block_names,
    )  # fmt: skip


def over_grid(draft: Registration) -> Registration:
    """Return the draft with the public score grid for thresholds and the encoding of development releases."""
    points, claims = score_grid(), draft.claims
    even = (1 / len(points),) * len(points)
    thresholds = Thresholds(values=points, weights=even, origin="grid")
    if isinstance(claims, Groups):
        claims = claims.model_copy(update={"own": None})
    if isinstance(claims, Scores):
        others = tuple(each.model_copy(update={"values": points, "weights": even}) for each in claims.others)
        claims = claims.model_copy(update={"others": others})
    return draft.model_copy(update={"thresholds": thresholds, "encoding": IN_SUFFIXES, "claims": claims})


def development_masses(grid: Registration, records: Records, development: Development) -> Ints:
    """Count the two histograms of the development units, before the noise."""
    settings = grid.privacy
    check_unit(records, settings.unit if settings.unit == "source" or settings.independent else None, "the table")
    keep = development_rows(records, development, settings.unit)
    sites = [units_for(grid, records, name, keep) for name in records.site_names]
    return np.asarray(np.sum([histogram(grid, units) for units in sites], axis=0), dtype=np.int64)


def _cost(draft: Registration, public: bool) -> float:
    """Return the release's cost in zCDP: none for what is public anyway."""
    if public:
        return 0.0
    return replacement_rho(over_grid(draft))


def _again(stored: bytes, draft: Registration, ledger: Ledger, *, public: bool) -> Noised:
    """Return a stored release, or refuse it if it does not fit what is registered now."""
    if not stored:
        raise FedsrcError(
            "the development records of this table were published before, as they are: noise no longer protects them",
            where=str(ledger.path),
            hint="say so with `public_development=True`, take evenly spaced thresholds with `grid=`,"
            " or bring other records",
        )
    if public:
        raise FedsrcError(
            "the development records of this table were released with noise before: they cannot be public",
            where=str(ledger.path),
            hint="leave `public_development=` out: the same noised release is used again",
        )
    try:
        release = Noised.model_validate_json(stored)
    except ValidationError as error:
        raise FedsrcError("it holds a development release that cannot be read", where=str(ledger.path)) from error
    if release.privacy.unit != draft.privacy.unit:
        raise FedsrcError(
            f"the development records of this table were released before, as {release.privacy.unit}s",
            where=str(ledger.path),
            hint=f"register with `unit={release.privacy.unit!r}`, take `grid=`, or bring other records",
        )
    if release.blocks != draft.block_names:
        raise FedsrcError(
            f"the development records of this table were released before, {_for(release.blocks)}",
            where=str(ledger.path),
            hint="register for the same groups or scores, take `grid=`, or bring other records",
        )
    return release


def _for(blocks: tuple[str, ...]) -> str:
    return f"for {', '.join(map(repr, blocks))}" if blocks else "for one score, without groups"
