"""A site: records and ledger behind one question, `answer`. It protects itself and trusts no server.

Before it answers, a site checks that the request is of a registration it has allowed, addressed to it, with the noise
scale that it derives itself from that registration, and for units that are still unspent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsrc.errors import FedsrcError
from fedsrc.ledger import Intake, Ledger
from fedsrc.records import Positions, Records, Units, shuffled, unit_codes, units_of
from fedsrc.registration import Development, Registration
from fedsrc.release import Request, make_release, registered_mechanism


@dataclass(frozen=True)
class LocalSite:
    """One site's units, taken in by its ledger under one registration."""

    registration: Registration
    name: str
    units: Units
    ledger: Ledger
    intake: Intake

    def unspent(self) -> int:
        """Public: how many slots the site can still fill."""
        capacity = self.registration.site(self.name).capacity
        left = self.intake.units - self.ledger.spent(self.intake)
        return left if capacity is None else min(left, capacity)

    def answer(self, request: Request) -> bytes:
        """The release for a request, as the exact bytes that the ledger keeps."""
        self._check(request)
        rule = registered_mechanism(self.registration)

        def make(positions: Positions) -> bytes:
            return make_release(self.registration, request, self.units.take(positions)).to_bytes()

        return self.ledger.answer(self.intake, request, rule.rho, make)

    def _check(self, request: Request) -> None:
        if request.registration != self.registration.digest:
            raise FedsrcError(f"site {self.name!r} refuses a request of another registration")
        if request.site != self.name:
            raise FedsrcError(f"site {self.name!r} refuses a request addressed to {request.site!r}")
        scale = registered_mechanism(self.registration).scale
        if request.scale != scale:
            raise FedsrcError(
                f"site {self.name!r} refuses noise scale {request.scale:g}; the registration fixes {scale:g}"
            )


def open_sites(
    registration: Registration, records: Records, ledger: Ledger, *, in_order: bool = False
) -> list[LocalSite]:
    """Take the table in at every registered site that has rows in it."""
    unknown = sorted(set(records.site_names) - {site.name for site in registration.sites})
    if unknown:
        raise FedsrcError(f"site {unknown[0]!r} of the table is not in the registration")
    settings = registration.privacy
    keep = calibration_rows(registration, records)
    cut = _cut(registration, records)
    sites = []
    for site in registration.sites:
        if site.name not in records.site_names:
            continue
        units = units_of(records, site.name, settings.unit, max_answers=settings.max_answers, keep=keep)
        intake = ledger.take_in(site.name, records.digest, cut, units, in_order=in_order)
        sites.append(LocalSite(registration, site.name, units, ledger, intake))
    return sites


def development_rows(records: Records, development: Development, unit: str) -> NDArray[np.bool_]:
    """The rows of the development part: a share of the units, chosen by a recorded seed."""
    codes = unit_codes(records, "source" if unit == "source" else "record")
    count = int(codes.max()) + 1
    chosen = np.zeros(count, dtype=np.bool_)
    chosen[shuffled(count, development.seed)[: development.units]] = True
    return chosen[codes]


def calibration_rows(registration: Registration, records: Records) -> NDArray[np.bool_] | None:
    """Rows that calibrate: all, or those outside the development part when the table is the development table."""
    development = registration.development
    if development is None or development.table != records.digest:
        return None
    if development.share == 1:
        raise FedsrcError(
            "this table chose the registration's thresholds",
            hint="calibrate on other records; `fedsrc certify` without a registration splits one table for you",
        )
    return ~development_rows(records, development, registration.privacy.unit)


def _cut(registration: Registration, records: Records) -> str:
    settings, development = registration.privacy, registration.development
    words = f"{settings.unit}s" if settings.unit == "record" else f"sources of at most {settings.max_answers} answers"
    if development is not None and development.table == records.digest:
        words += f", without {development.units} development units by seed {development.seed}"
    return words
