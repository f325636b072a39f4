"""Monitoring with all sites in one process: fresh labelled tables, one after the other, into one transcript."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from fedsrc.common.signing import Key
from fedsrc.federation.local import LocalCarrier, admit_table, check_kept
from fedsrc.protocol.certificate import MonitorAccount
from fedsrc.protocol.handshake import Hello
from fedsrc.protocol.registration import Registration
from fedsrc.records.listed import check_registered
from fedsrc.records.units import Records
from fedsrc.server.loop import play_round
from fedsrc.server.session import Session
from fedsrc.server.state import Replay
from fedsrc.site.ledger import Ledger
from fedsrc.site.site import Site


def monitor_table(
    registration: Registration,
    records: Records,
    folder: Path,
    ledger_path: Path,
    key: Key,
    *,
    in_order: bool = False,
    fresh: bool = False,
    site_keys: Mapping[str, Key] | None = None,
    watch: Callable[[Replay], None] = lambda _: None,
) -> MonitorAccount:
    """Fold a table of fresh units into the monitor of a folder, as far as it goes or to the alarm.

    The same table again changes nothing; after an alarm nothing is released any more.
    """
    session = Session(folder, registration, key)
    with closing(Ledger(ledger_path, must_exist=True)) as ledger:
        admit = partial(_admit, registration, records, ledger, in_order=in_order, fresh=fresh, keys=site_keys)
        sites = [] if session.begun else admit()  # a table that is refused begins no monitor
        with session:
            check_kept(session, (), ledger)  # tables before this one may have had another ledger
            if session.replay.ended is None:  # after an alarm no table is even taken in
                sites = sites or admit()
                carrier = LocalCarrier(sites, ledger)
                if session.replay.in_round:
                    play_round(session.replay, session.transcript, carrier)
                    watch(session.replay)
                session.announce(_changed(session.replay, sites))
                session.run(carrier, watch=watch)
            account = session.finish()
    assert isinstance(account, MonitorAccount)  # the registration is a monitor's
    return account


def _admit(registration: Registration, records: Records, ledger: Ledger, **how: Any) -> list[Site]:
    """Take a table in; say which watched groups have no fresh records in it, to its owner alone."""
    if (told := check_registered(registration, records)) is not None:
        warnings.warn(told, stacklevel=3)
    return admit_table(registration, records, ledger, **how)


def open_monitor(registration: Registration, folder: Path, key: Key) -> MonitorAccount:
    """Open a monitor before any fresh unit is there, so that gates find its status."""
    with Session(folder, registration, key) as session:
        account = session.finish()
    assert isinstance(account, MonitorAccount)  # the registration is a monitor's
    return account


def _changed(replay: Replay, sites: Sequence[Site]) -> Iterator[Hello]:
    """The word of each site that has more or fewer units unspent of this table than it said last."""
    if replay.why_over() is not None:
        return
    table = {site.name: site for site in sites}
    for i, site in enumerate(replay.registration.sites):
        here = table.get(site.name)
        units = 0 if here is None else here.intake.units - here.ledger.spent(here.intake)
        if site.capacity is not None:
            units = min(units, site.capacity - replay.used[i])
        if units != replay.left[i]:
            absent = Hello(registration=replay.registration.digest, site=site.name, units=0)
            yield absent if here is None else here.hello(units)
