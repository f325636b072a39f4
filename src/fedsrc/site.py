"""A site: records and ledger behind one question, `answer`. It protects itself and trusts no server.

Before it answers, a site checks that the request is of a registration it has allowed, addressed to it, with the noise
scale that it derives itself from that registration, and for units that are still unspent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedsrc.common.clock import utc_now
from fedsrc.common.signing import Key, public_hex
from fedsrc.errors import FedsrcError
from fedsrc.ledger import DEVELOPMENT, IN_ORDER, Intake, Ledger, Names
from fedsrc.maths.arrays import Ints
from fedsrc.protocol.mechanism import registered_mechanism
from fedsrc.protocol.messages import Order, Request
from fedsrc.protocol.registration import Development, Registration
from fedsrc.records import Positions, Records, Unit, Units, check_unit, shuffled, unit_codes, unit_count, units_of
from fedsrc.release import histogram, make_release


@dataclass(frozen=True)
class Site:
    """One site's units behind its ledger, under one registration. `count` makes the histogram of
    so many units from a place in the intake's order."""

    registration: Registration
    name: str
    ledger: Ledger
    intake: Intake
    count: Callable[[int, int], Ints]
    key: Key | None = None

    def room(self) -> int:
        """Public: how many slots the site has for this registration, those it has filled already included.

        A run that is played again from the start is thus told the same number, asks the same and gets the same bytes.
        """
        room = self.intake.units - self.ledger.spent(self.intake, besides=self.registration.digest)
        capacity = self.registration.site(self.name).capacity
        return room if capacity is None else min(room, capacity)

    def answer(self, request: Request) -> bytes:
        """The release for a request, as the exact bytes that the ledger keeps."""
        check_request(self.registration, self.name, request)
        check_key(self.registration, self.name, self.key)
        rule = registered_mechanism(self.registration)
        order: Order = "in order" if self.intake.seed == IN_ORDER else "shuffled"

        def make(first: int, slots: int) -> bytes:
            counts = self.count(first, slots)
            release = make_release(self.registration, request, counts, order=order, time=utc_now())
            return release.signed(self.key).to_bytes()

        capacity = self.registration.site(self.name).capacity
        return self.ledger.answer(self.intake, request, rule.rho, make, capacity=capacity)


def check_request(registration: Registration, name: str, request: Request) -> None:
    """Refuse a request that is not of this registration, for this site, at the registered noise scale."""
    if request.registration != registration.digest:
        raise FedsrcError(f"site {name!r} refuses a request of another registration")
    if request.site != name:
        raise FedsrcError(f"site {name!r} refuses a request addressed to {request.site!r}")
    scale = registered_mechanism(registration).scale
    if request.scale != scale:
        raise FedsrcError(f"site {name!r} refuses noise scale {request.scale:g}; the registration fixes {scale:g}")


def check_key(registration: Registration, name: str, key: Key | None) -> None:
    """Refuse to release without the registered key: the units would be spent for nothing."""
    registered = registration.site(name).key
    if registered is None:
        return
    if key is None or public_hex(key) != registered:
        raise FedsrcError(
            f"site {name!r} needs the private key of its registered public key {registered}",
            hint="pass the site's key file; nothing was released",
        )


def open_sites(
    registration: Registration,
    records: Records,
    ledger: Ledger,
    *,
    in_order: bool = False,
    fresh: bool = False,
    keys: Mapping[str, Key] | None = None,
) -> list[Site]:
    """Take the table in at every registered site that has rows in it.

    `fresh` asserts that no unit was in a table that the ledger knows, where ids cannot show it.
    """
    sites = []
    for name, units in calibrating(registration, records).items():
        intake = ledger.take_in(
            name, records.digest, cut_words(registration), len(units), names_of(records, name),
            whole=len(records.site_names) == 1, in_order=in_order, fresh=fresh,
        )  # fmt: skip
        count = partial(_count, registration, units, intake.order())
        sites.append(Site(registration, name, ledger, intake, count, (keys or {}).get(name)))
    return sites


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


def note_development(records: Records, ledger: Ledger) -> None:
    """Write down that a table chose thresholds, so that it cannot calibrate later: its units are not protected."""
    for name in records.site_names:
        rows, whole = len(units_of(records, name, "record")), len(records.site_names) == 1
        ledger.take_in(name, records.digest, DEVELOPMENT, rows, names_of(records, name), whole=whole, fresh=True)


def names_of(records: Records, site: str) -> Names:
    """Every id and source of a site's rows, those of the development part included."""
    rows = np.flatnonzero(records.site == records.site_names.index(site)).tolist()
    sources = None
    if records.source is not None:
        sources = [records.source_names[code] for code in sorted(set(records.source[rows].tolist()))]
    return Names(None if records.ids is None else [records.ids[i] for i in rows], sources)


def _count(registration: Registration, units: Units, order: Positions, first: int, slots: int) -> Ints:
    return histogram(registration, units.take(order[first : first + slots]))


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
