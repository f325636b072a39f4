"""All sites in one process: the server's loop asks sites that read one table; and a registration made from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from fedsrc.common.signing import Key
from fedsrc.errors import DamagedError, FedsrcError
from fedsrc.planning.register import Choices, draft, origin_of, register
from fedsrc.protocol.certificate import Certificate
from fedsrc.protocol.disclosure import released_development
from fedsrc.protocol.messages import Answer, Request
from fedsrc.protocol.names import TRANSCRIPT
from fedsrc.protocol.protection import Development
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.transcript import Absent, Arrived, Asked
from fedsrc.records.units import Records
from fedsrc.server.session import Session
from fedsrc.server.state import Replay
from fedsrc.site.admission import check_key
from fedsrc.site.develop import develop
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow, check_limit
from fedsrc.site.site import Site, open_sites


class LocalCarrier:
    """Answers requests from the sites of this process; a site that the table lacks, from what the ledger keeps."""

    def __init__(self, sites: Sequence[Site], ledger: Ledger) -> None:
        self._sites, self._ledger = {site.name: site for site in sites}, ledger

    def __call__(self, requests: Sequence[Request], /) -> list[Answer]:
        kept = {each.site: self._ledger.stored(each) for each in requests if each.site not in self._sites}
        for request in requests:
            if kept.get(request.site, b"") is None:
                raise FedsrcError(
                    f"an interrupted round still asks site {request.site!r} for {request.slots:,} units",
                    hint="run the command again with the table that was being read",
                )
        return [kept.get(each.site) or self._sites[each.site].answer(each) for each in requests]


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
    """Run to a certificate or an abstention. On the folder of an interrupted run it resumes; on that of an ended one,
    it writes the same certificate. `watch` gets the state after every round, and at the end."""
    if registration.monitor is not None:
        raise FedsrcError("this is the registration of a monitor", hint="`fedsrc monitor` takes it")
    session = Session(folder, registration, key)
    released_development(registration)
    with closing(Ledger(ledger_path)) as ledger:
        sites = admit_table(registration, records, ledger, in_order=in_order, fresh=fresh, keys=site_keys)
        if not session.begun:
            _check_alone(registration, sites)  # before the folder is opened
        with session:
            _check_same(session.replay, sites, folder)
            check_kept(session, sites, ledger)
            _check_alone(registration, sites)
            silent = {site.name for site in session.silent}
            session.announce(site.hello(site.room()) for site in sites if site.name in silent)
            if session.replay.ended is not None:
                watch(session.replay)
            session.run(LocalCarrier(sites, ledger), watch=watch)
            certificate = session.finish()
    assert isinstance(certificate, Certificate)  # only a monitor gives an account
    return certificate


def admit_table(
    registration: Registration,
    records: Records,
    ledger: Ledger,
    *,
    in_order: bool,
    fresh: bool,
    keys: Mapping[str, Key] | None,
) -> list[Site]:
    """Take a table in at its sites and allow the registration there; refuse one that other registrations have spent."""
    for name in records.site_names:
        check_limit(ledger, name, registration)
        if name in registration.by_name:
            check_key(registration, name, (keys or {}).get(name))  # its word would be unsigned, and stay in the folder
    sites = open_sites(registration, records, ledger, in_order=in_order, fresh=fresh, keys=keys)
    if not any(site.room() for site in sites):
        raise FedsrcError(
            "every unit of this table has been released before",
            where=str(ledger.path),
            hint="a unit is released once in its life; bring new labelled records",
        )
    for site in sites:
        allow(ledger, site.name, registration)
    return sites


def _check_alone(registration: Registration, sites: Sequence[Site]) -> None:
    """Refuse a registration that was run on another table: the ledger would answer with that table's releases."""
    for site in sites:
        if site.ledger.given(site.name, registration.digest) > _given(registration, site):
            raise FedsrcError(
                "the very same registration was run on another table",
                where=str(site.ledger.path),
                hint="register these records under words of their own with `claim=`, or give them a ledger with"
                " `ledger=`",
            )


def _check_same(replay: Replay, sites: Sequence[Site], folder: Path) -> None:
    """Refuse the folder of a run on other records."""
    if any(replay.tally.slots[replay.index[site.name]] and not _given(replay.registration, site) for site in sites):
        raise FedsrcError(
            "holds a run of this registration on other records",
            where=str(folder),
            hint="choose another folder with `output=`; if the records are the same, name their ledger with `ledger=`",
        )


def check_kept(session: Session, sites: Sequence[Site], ledger: Ledger) -> None:
    """Refuse a transcript whose releases are not those that the ledger keeps: the key would sign what no site said."""
    asked = {each.request.digest: each.request for each in session.transcript.entries if isinstance(each, Asked)}
    here = {site.name for site in sites}
    with ledger.at_once():
        for entry in session.transcript.entries:
            release = entry.release if isinstance(entry, Arrived | Absent) else None
            if release is None:
                continue
            request = asked[release.request]
            kept = ledger.stored(request)
            if kept != release.to_bytes() and (kept is not None or request.site in here):
                raise DamagedError(
                    f"does not hold the release that site {request.site!r} made for request {request.number}",
                    where=str(session.folder / TRANSCRIPT),
                    hint="it was changed since; take another folder, which gets the same releases again",
                )


def _given(registration: Registration, site: Site) -> int:
    """Return how many units of its table a site has released under a registration."""
    return site.ledger.spent(site.intake) - site.ledger.spent(site.intake, besides=registration.digest)
