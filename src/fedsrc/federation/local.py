"""All sites in one process: the server's loop asks each site's own guard, on the same ledger and transcript."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from fedsrc.common.durable import write_whole
from fedsrc.common.signing import Key
from fedsrc.errors import FedsrcError
from fedsrc.protocol.certificate import Body, signed
from fedsrc.protocol.messages import Answer, Request
from fedsrc.protocol.names import REGISTRATION, TRANSCRIPT
from fedsrc.protocol.registration import Monitor, Registration
from fedsrc.protocol.transcript import Announced, Transcript
from fedsrc.records.units import Records
from fedsrc.server.folder import check_folder, check_server_key, write_certificate
from fedsrc.server.issue import issue
from fedsrc.server.loop import begin, record, run
from fedsrc.server.state import Replay
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow, check_limit
from fedsrc.site.site import Site, open_sites


class LocalCarrier:
    """Answers requests from the sites of this process."""

    def __init__(self, sites: Sequence[Site]) -> None:
        self._sites = {site.name: site for site in sites}

    def __call__(self, requests: Sequence[Request], /) -> list[Answer]:
        return [self._sites[request.site].answer(request) for request in requests]


def certify_table(
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
) -> Body:
    """Run to a certificate or an abstention. Called again on the same folder it continues; when done, it repeats
    the same certificate."""
    if isinstance(registration.certificate, Monitor):
        raise FedsrcError("this is the registration of a monitor", hint="fedsrc monitor, with --registration")
    check_folder(folder, registration)
    check_server_key(registration, key)
    with closing(Ledger(ledger_path)) as ledger:
        for name in records.site_names:
            check_limit(ledger, name, registration)
        sites = open_sites(registration, records, ledger, in_order=in_order, fresh=fresh, keys=site_keys)
        if not (folder / TRANSCRIPT).exists() and not any(site.room() for site in sites):
            raise FedsrcError(
                "every unit of this table has been released before",
                where=str(ledger_path),
                hint="a unit is released once in its life; bring new labelled records",
            )
        for site in sites:
            allow(ledger, site.name, registration)
        write_whole(folder / REGISTRATION, registration.to_toml().encode())
        with closing(Transcript(folder / TRANSCRIPT)) as transcript:
            replay = Replay(registration, transcript.entries)
            begin(replay, transcript)
            _announce(replay, transcript, sites)
            run(replay, transcript, LocalCarrier(sites), watch=watch)
            body = signed(issue(registration, replay, transcript.chain), key)
    write_certificate(folder, body)
    return body


def _announce(replay: Replay, transcript: Transcript, sites: Sequence[Site]) -> None:
    """Each site's public unspent count, once, before it is asked for anything."""
    entries = [
        Announced.by(site.hello(site.room()), site.capacity)
        for site in sites
        if site.name not in replay.announced and replay.ended is None and not replay.in_round
    ]
    record(replay, transcript, *entries)
