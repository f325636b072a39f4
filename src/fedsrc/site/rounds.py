"""Rounds that wait for labels: what people are to label, when a round may be answered, and with which losses.

A round's units are fixed, and spent, when it opens. Of them, answers at or above the lowest threshold need a label;
the others count as unsupported, which nothing reads. So does every needed answer without a label at the time of the
release: a round can be closed early, at a loss.

Theory: (xvi) Lazy labels.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

from fedsrc.common.canonical import canonical_bytes
from fedsrc.common.clock import TIME, instant, utc_now
from fedsrc.errors import FedsrcError
from fedsrc.protocol.messages import Request
from fedsrc.protocol.registration import OnDemand, Registration
from fedsrc.records.development import calibrating
from fedsrc.records.masses import accepted_somewhere
from fedsrc.records.order import Positions
from fedsrc.records.units import Records, Units
from fedsrc.site.label_file import Label, by_answer, read_labels
from fedsrc.site.label_rule import looks, standing
from fedsrc.site.ledger import Ledger, Opened


class NotYetError(FedsrcError):
    """A round that waits: for `missing` labels, or for its time. For the site's own eyes."""

    def __init__(self, what: str, missing: int, hint: str) -> None:
        self.missing = missing
        super().__init__(what, hint=hint)


@dataclass(frozen=True)
class Round:
    """An open round as those see it who label: the answers that need a label, in an order that says nothing."""

    request: Request
    registration: Registration
    opened: str
    closed: bool
    needed: tuple[str, ...]


@dataclass(frozen=True)
class Demand:
    """A site's units whose labels come on demand, in their recorded order, and the file that people's labels go to."""

    records: Records
    units: Units
    order: Positions
    labels: Path

    def drawn(self, first: int, slots: int) -> Units:
        """Return so many units from a place in the order."""
        return self.units.take(self.order[first : first + slots])


def settle(registration: Registration, opened: Opened, demands: Sequence[Demand]) -> tuple[list[Units], str]:
    """Return the units of a round with the losses that count now, and a keyed digest of these; refuse while the round
    is to wait.

    Theory: (xvi) Lazy labels.
    """
    given, mine = by_answer(read_labels(demands[0].labels)) if demands else {}, opened.request.digest
    settled, losses = list[Units](), dict[str, float | None]()
    for demand, (_, first, slots) in zip(demands, opened.taken, strict=True):
        units = demand.drawn(first, slots)
        names = {row: demand.records.answer(row) for row in _needed(registration, units)}
        found = {row: _loss(registration, demand.records, row, given[mine, name]) for row, name in names.items()}
        losses |= {names[row]: loss for row, loss in found.items()}
        known = np.ones(len(demand.records))
        known[list(found)] = [1.0 if loss is None else loss for loss in found.values()]
        assert units.rows is not None  # of a table in memory
        settled.append(replace(units, loss=known[units.rows]))
    _check_due(registration, opened, sum(loss is None for loss in losses.values()))
    return settled, hmac.new(bytes.fromhex(opened.secret), canonical_bytes(losses), "sha256").hexdigest()


def open_rounds(ledger: Ledger, records: Records) -> list[Round]:
    """Return the rounds of a table that wait for labels."""
    found = []
    for opened in ledger.waiting():
        here = [(intake, first, slots) for intake, first, slots in opened.taken if intake.content == records.digest]
        needed, registration = list[str](), None
        for intake, first, slots in here:
            registration = ledger.permitted(intake.site, opened.request.registration)
            if registration is None:
                break  # the site has withdrawn its permission
            own = records if intake.site in records.site_names else records.at(intake.site)
            units = calibrating(registration, own)[intake.site].take(intake.order()[first : first + slots])
            labelled = np.zeros(len(own), dtype=np.bool_) if own.labelled is None else own.labelled
            needed += [own.answer(row) for row in _needed(registration, units) if not labelled[row]]
        if registration is not None:
            needed.sort(key=lambda name: hmac.digest(bytes.fromhex(opened.secret), name.encode(), "sha256"))
            found.append(Round(opened.request, registration, opened.time, opened.closed, tuple(needed)))
    return found


def waiting_words(ledger: Ledger, site: str) -> list[str]:
    """Describe the open rounds of a site: since when, of how many units, and when each is answered."""
    lines = []
    for opened in ledger.waiting():
        slots = sum(number for intake, _, number in opened.taken if intake.site == site)
        registration = ledger.permitted(site, opened.request.registration)
        if not slots or registration is None:
            continue
        due = due_at(registration, opened.time)
        if due is not None:
            when = f"at {due:%Y-%m-%d %H:%M} UTC, with the labels that are there by then"
        else:
            when = "when it is asked again" if opened.closed else "once all that it needs is labelled, or it is closed"
        state = "is closed, and was opened" if opened.closed else "is open since"
        lines.append(
            f"  round {opened.request.round} {state} {opened.time}: {slots:,} {registration.privacy.unit}s are spent;"
            f" it is answered {when}"
        )
    return lines


def due_at(registration: Registration, opened: str) -> datetime | None:
    """Return when a round that was opened then is answered, if a time is registered."""
    labelling = registration.labelling
    if not isinstance(labelling, OnDemand) or labelling.hours is None:
        return None
    return instant(opened) + timedelta(hours=labelling.hours)


def _check_due(registration: Registration, opened: Opened, missing: int) -> None:
    """Refuse to answer before the registered time; without one, while labels are missing and the round is open."""
    due = due_at(registration, opened.time)
    if due is not None and utc_now() < due.strftime(TIME):
        at = due.strftime("%Y-%m-%d %H:%M UTC")
        raise NotYetError(
            f"round {opened.request.round} is answered at {at}, and not before",
            missing,
            "until then people label; what is not labelled by then counts as unsupported",
        )
    if due is None and missing and not opened.closed:
        raise NotYetError(
            f"round {opened.request.round} waits for {missing:,} label{'s' * (missing != 1)}",
            missing,
            "`fedsrc label` shows what to label; to go on without, close the round: what is missing counts as"
            " unsupported",
        )


def _needed(registration: Registration, units: Units) -> list[int]:
    """Return the rows of the answers at or above the lowest threshold: of their group, or of any score. What another
    row holds has no say."""
    assert units.rows is not None  # of a table in memory
    found: list[int] = units.rows[accepted_somewhere(registration, units)].tolist()
    return found


def _loss(registration: Registration, records: Records, row: int, given: Sequence[Label]) -> float | None:
    """Return the loss of an answer as people say, or else as its table says; None while it has none. If its table says
    so after people were asked, nobody is asked again, and the worst of all words counts."""
    labelling = registration.labelling
    assert isinstance(labelling, OnDemand)
    own = float(records.loss[row]) if records.labelled is None or records.labelled[row] else None
    if not given:
        return own
    if own is not None:
        return max(own, standing(OnDemand(), 1, given).loss or 0.0)
    return standing(labelling, looks(labelling, registration.digest, records.answer(row)), given).loss
