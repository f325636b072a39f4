"""A site: its records behind its ledger. It protects itself and trusts no server.

`admission` checks what is asked; a release is then made of units that are still unspent, with the noise that the site
derives itself from the registration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from fedsrc.common.clock import utc_now
from fedsrc.common.signing import Key
from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Ints
from fedsrc.protocol.disclosure import replacement_rho
from fedsrc.protocol.handshake import Hello
from fedsrc.protocol.messages import Link, Order, Request
from fedsrc.protocol.registration import Registration
from fedsrc.records.columns import further_scores
from fedsrc.records.development import calibrating, cut_words, names_of
from fedsrc.records.masses import counted
from fedsrc.records.order import IN_ORDER, Positions
from fedsrc.records.units import LOCAL_SITE, Names, Records, Units
from fedsrc.site.admission import admit, check_mask_key
from fedsrc.site.ledger import Ledger, Take
from fedsrc.site.masks import mask_release
from fedsrc.site.recognition import DEVELOPMENT, Intake
from fedsrc.site.release import make_release
from fedsrc.site.rounds import Demand, settle


@dataclass(frozen=True)
class Site:
    """One site's units behind its ledger, under one registration. `count` counts so
    many units from a place in the intake's order."""

    registration: Registration
    name: str
    ledger: Ledger
    intake: Intake
    count: Callable[[int, int], Ints]
    key: Key | None = None
    demand: Demand | None = None  # where labels come once a round is open
    mask: Key | None = None  # of a cohort's member

    def room(self) -> int:
        """Return how many slots the site has for this registration, those already filled included. This is public.

        So a run that is replayed from the start is told the same number, asks the same and gets the same bytes.
        """
        room = self.intake.units - self.ledger.spent(self.intake, besides=self.registration.digest)
        return room if self.capacity is None else min(room, self.capacity)

    @property
    def capacity(self) -> int | None:
        """The most units that the registration lets it give."""
        return self.registration.site(self.name).capacity

    def hello(self, units: int) -> Hello:
        """Return the site's word on how many units it has, signed where it has a key."""
        word = Hello(registration=self.registration.digest, site=self.name, units=units)
        return word if self.key is None else word.signed(self.key)

    def answer(self, request: Request) -> bytes:
        """Check a request that was made in this process, and release for it."""
        admit(request, self.name, self.ledger, self.key, serves=self.registration)
        return self.release(request)

    def release(self, request: Request) -> bytes:
        """Return the release for an admitted request, as the exact bytes that the ledger keeps."""
        return release_together({self.name: self}, request)


def release_together(sites: Mapping[str, Site], request: Request) -> bytes:
    """Return the release for an admitted request over the sites that it asks: one histogram, one noise, one signature,
    and one transaction.

    Theory: (v), One holder.
    """
    registration = next(iter(sites.values())).registration
    parts = registration.parts(request)
    asked = [sites[name] for name in (sites if request.of_cohort else parts)]  # a member without units answers too
    one, slots = asked[0], [parts.get(site.name, 0) for site in asked]
    check_mask_key(registration, one.name, one.mask)
    order: Order = "in order" if one.intake.seed == IN_ORDER else "shuffled"

    def make(firsts: Sequence[int], link: Link) -> bytes:
        units, labels = labelled or (None, None)
        if units is None:
            taking = [(site, n) for site, n in zip(asked, slots, strict=True) if n]
            counts = [site.count(first, n) for (site, n), first in zip(taking, firsts, strict=True)]
        else:
            counts = [counted(registration, each) for each in units]
        total = np.asarray(np.sum(counts or [counted(registration, _none(registration))], axis=0), dtype=np.int64)
        release = make_release(registration, request, total, link, order=order, time=utc_now(), labels=labels)
        if one.mask is not None:
            release = mask_release(registration, request, release, one.name, sum(slots), one.mask)
        return (release if one.key is None else release.signed(one.key)).to_bytes()

    takes = [Take(site.intake, n, site.capacity) for site, n in zip(asked, slots, strict=True)]
    rho, fails, labelled = replacement_rho(registration), registration.fails, None
    demands = [site.demand for site, n in zip(asked, slots, strict=True) if n and site.demand is not None]
    if registration.on_demand and one.ledger.stored(request) is None:
        labelled = settle(registration, one.ledger.open(takes, request, rho, fails=fails), demands)
    return one.ledger.answer(takes, request, rho, make, fails=fails)


def _none(registration: Registration) -> Units:
    """Return no units: what a cohort's member gives that is asked for none."""
    start, others = np.zeros(1, dtype=np.int64), np.zeros((0, len(further_scores(registration))))
    return Units(start, np.zeros(0), np.zeros(0), None, group=np.zeros(0, dtype=np.int64), others=others)


def open_sites(
    registration: Registration,
    records: Records,
    ledger: Ledger,
    *,
    in_order: bool = False,
    fresh: bool = False,
    keys: Mapping[str, Key] | None = None,
    labels: Path | None = None,
    mask: Key | None = None,
) -> list[Site]:
    """Take the table in at every registered site that has rows in it.

    `fresh` asserts that no unit was in a table that the ledger knows, where ids cannot show it. `labels` is the file
    that people's labels go to, where they come on demand; `mask` the mask key of the one site, in a cohort.
    """
    if registration.on_demand and (labels is None or records.labelled is None):
        raise FedsrcError("labels come on demand: that takes a table in a file, read without them")
    if in_order and registration.privacy.unit == "source":
        raise FedsrcError(
            "sources have no order in a table: their answers stand in several rows",
            hint="leave `in_order=` out; to keep to time, give each stretch of it as a table of its own",
        )
    sites, found = [], calibrating(registration, records)
    with ledger.at_once():
        for name, units in found.items():
            intake = ledger.take_in(
                name, records.digest, cut_words(registration), len(units), names_of(records, name),
                whole=len(records.site_names) == 1, in_order=in_order, fresh=fresh,
            )  # fmt: skip
            order, demand = intake.order(), None
            if registration.on_demand and labels is not None:
                demand = Demand(records, units, order, labels)
            count = partial(_count, registration, units, order)
            sites.append(Site(registration, name, ledger, intake, count, (keys or {}).get(name), demand, mask))
    return sites


def note_development(records: Records, ledger: Ledger, *, fresh: bool = True) -> None:
    """Record that a table chose thresholds, so that it cannot calibrate later: its units are spent."""
    ledger.take_in(LOCAL_SITE, records.digest, DEVELOPMENT, len(records), names_of(records), fresh=fresh)


def note_used(content: str, rows: int, names: Names, ledger: Ledger) -> None:
    """Record that something was chosen or fitted on the rows of a file, so that they cannot calibrate it."""
    ledger.take_in(LOCAL_SITE, content, DEVELOPMENT, rows, names, fresh=True)


def _count(registration: Registration, units: Units, order: Positions, first: int, slots: int) -> Ints:
    return counted(registration, units.take(order[first : first + slots]))
