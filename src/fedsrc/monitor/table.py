"""Monitoring with all sites in one process: fresh labelled tables, one after the other, into one transcript."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from fedsrc.common.durable import write_whole
from fedsrc.common.signing import Key
from fedsrc.errors import FedsrcError
from fedsrc.protocol.certificate import MonitorAccount
from fedsrc.protocol.messages import Answer, Request
from fedsrc.protocol.names import CERTIFICATE, REGISTRATION, TRANSCRIPT
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.transcript import Announced, Transcript, read_transcript
from fedsrc.records.units import Records
from fedsrc.server.folder import check_folder, check_server_key
from fedsrc.server.issue import account
from fedsrc.server.loop import begin, play_round, record, run
from fedsrc.server.state import Replay
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow, check_limit
from fedsrc.site.site import Site, open_sites


class FreshCarrier:
    """Answers from this table's sites, or with the bytes that the ledger keeps of an interrupted round."""

    def __init__(self, sites: Sequence[Site], ledger: Ledger) -> None:
        self._sites, self._ledger = {site.name: site for site in sites}, ledger

    def __call__(self, requests: Sequence[Request], /) -> list[Answer]:
        stored = [self._ledger.stored(request) for request in requests]
        for request, known in zip(requests, stored, strict=True):
            if known is None and request.site not in self._sites:
                raise FedsrcError(
                    f"an interrupted round still asks site {request.site!r} for {request.slots:,} units",
                    hint="run the command again with the table that was being read",
                )
        return [
            self._sites[request.site].answer(request) if known is None else known
            for request, known in zip(requests, stored, strict=True)
        ]


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
    check_folder(folder, registration)
    check_server_key(registration, key)
    with closing(Ledger(ledger_path, must_exist=True)) as ledger:
        sites = [] if _over(registration, folder) else _open(registration, records, ledger, in_order, fresh, site_keys)
        write_whole(folder / REGISTRATION, registration.to_toml().encode())
        with closing(Transcript(folder / TRANSCRIPT)) as transcript:
            replay = Replay(registration, transcript.entries)
            begin(replay, transcript)
            if replay.ended is None:
                carrier = FreshCarrier(sites, ledger)
                if replay.in_round:
                    play_round(replay, transcript, carrier)
                    watch(replay)
                _announce(replay, transcript, sites)
                run(replay, transcript, carrier, watch=watch)
            signed = account(registration, replay, transcript.chain).signed(key)
    signed.save(folder / CERTIFICATE)
    return signed


def _over(registration: Registration, folder: Path) -> bool:
    """Whether the monitor has ended: then no table is even taken in."""
    place = folder / TRANSCRIPT
    return place.exists() and Replay(registration, read_transcript(place)[0]).ended is not None


def _open(
    registration: Registration,
    records: Records,
    ledger: Ledger,
    in_order: bool,
    fresh: bool,
    keys: Mapping[str, Key] | None,
) -> list[Site]:
    """The table's sites, with the registration allowed at each. A table that was spent elsewhere is refused."""
    for name in records.site_names:
        check_limit(ledger, name, registration)
    sites = open_sites(registration, records, ledger, in_order=in_order, fresh=fresh, keys=keys)
    if not any(ledger.spent(site.intake, besides=registration.digest) < site.intake.units for site in sites):
        raise FedsrcError(
            "every unit of this table has been released before",
            where=str(ledger.path),
            hint="a monitor needs fresh labelled units of the deployed traffic",
        )
    for site in sites:
        allow(ledger, site.name, registration)
    return sites


def _announce(replay: Replay, transcript: Transcript, sites: Sequence[Site]) -> None:
    """What each site has unspent of this table, where that is not what it said last."""
    if replay.why_over() is not None:
        return
    table = {site.name: site for site in sites}
    entries = []
    for i, site in enumerate(replay.registration.sites):
        units = _unspent(table[site.name]) if site.name in table else 0
        if site.capacity is not None:
            units = min(units, site.capacity - replay.used[i])
        if units != replay.left[i]:
            here = table.get(site.name)
            entries.append(
                Announced(site=site.name, units=0) if here is None else Announced.by(here.hello(units), site.capacity)
            )
    record(replay, transcript, *entries)


def _unspent(site: Site) -> int:
    return site.intake.units - site.ledger.spent(site.intake)
