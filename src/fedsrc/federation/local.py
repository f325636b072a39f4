"""All sites in one process: the server's loop asks each site's own guard, on the same ledger and transcript; and
a registration made from such a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from fedsrc.common.durable import write_whole
from fedsrc.common.signing import Key
from fedsrc.errors import FedsrcError
from fedsrc.planning.register import Choices, draft, origin_of, register
from fedsrc.protocol.certificate import Certificate
from fedsrc.protocol.mechanism import released_development
from fedsrc.protocol.messages import Answer, Request
from fedsrc.protocol.names import CERTIFICATE, REGISTRATION, TRANSCRIPT
from fedsrc.protocol.registration import Development, Monitor, Registration
from fedsrc.protocol.transcript import Announced, Transcript
from fedsrc.records.units import Records
from fedsrc.server.folder import check_folder, check_server_key
from fedsrc.server.issue import issue
from fedsrc.server.loop import begin, record, run
from fedsrc.server.state import Replay
from fedsrc.site.development import develop
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow, check_limit
from fedsrc.site.site import Site, open_sites


class LocalCarrier:
    """Answers requests from the sites of this process."""

    def __init__(self, sites: Sequence[Site]) -> None:
        self._sites = {site.name: site for site in sites}

    def __call__(self, requests: Sequence[Request], /) -> list[Answer]:
        return [self._sites[request.site].answer(request) for request in requests]


def register_table(
    choices: Choices,
    records: Records,
    development: Development,
    ledger_path: Path,
    *,
    sites: Sequence[str] | None = None,
    in_order: bool = False,
    fresh: bool = False,
) -> Registration:
    """Register from a table: its development units are released once, with noise, and thresholds follow from that.

    The ledger keeps the release before it is used, and gives the same one to every registration on this table. Units
    that are declared public, or of which no privacy is claimed, give exact quantiles; the ledger remembers that too.
    """
    made = draft(choices, records, development, sites=sites)
    if origin_of(choices, made, records, development) == "grid":
        return register(choices, records, development, sites=sites)
    with closing(Ledger(ledger_path)) as ledger:
        public = choices.public_development
        release = develop(made, records, development, ledger, public=public, in_order=in_order, fresh=fresh)
    return register(choices, records, development, sites=sites, release=release)


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
) -> Certificate:
    """Run to a certificate or an abstention. Called again on the same folder it continues; when done, it repeats
    the same certificate."""
    if isinstance(registration.certificate, Monitor):
        raise FedsrcError("this is the registration of a monitor", hint="fedsrc monitor, with --registration")
    check_folder(folder, registration)
    check_server_key(registration, key)
    released_development(registration)
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
            for site in sites:
                _check_table(replay, site, folder)
            begin(replay, transcript)
            _announce(replay, transcript, sites)
            run(replay, transcript, LocalCarrier(sites), watch=watch)
            certificate = issue(registration, replay, transcript.chain).signed(key)
    certificate.save(folder / CERTIFICATE)
    return certificate


def _check_table(replay: Replay, site: Site, folder: Path) -> None:
    """Refuse a registration that was run on another table: the ledger would answer with that table's releases."""
    digest = replay.registration.digest
    given = site.ledger.spent(site.intake) - site.ledger.spent(site.intake, besides=digest)
    if replay.tally.slots[replay.index[site.name]] and not given:
        raise FedsrcError(
            "holds a run of this registration on other records",
            where=str(folder),
            hint="choose another folder with `output=`; if the records are the same, name their ledger with `ledger=`",
        )
    if site.ledger.given(site.name, digest) > given:
        raise FedsrcError(
            "the very same registration was run on another table",
            where=str(site.ledger.path),
            hint="register these records under words of their own with `claim=`, or give them a ledger with `ledger=`",
        )


def _announce(replay: Replay, transcript: Transcript, sites: Sequence[Site]) -> None:
    """Each site's public unspent count, once, before it is asked for anything."""
    entries = [
        Announced.by(site.hello(site.room()), site.capacity)
        for site in sites
        if site.name not in replay.announced and replay.ended is None and not replay.in_round
    ]
    record(replay, transcript, *entries)
