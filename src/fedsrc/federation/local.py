"""All sites in one process: the server's loop asks sites that read one table; and a registration made from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from fedsrc.common.signing import Key
from fedsrc.errors import DamagedError, FedsrcError
from fedsrc.planning.labels import as_developed
from fedsrc.planning.plan import Planned, Wish, check_planned, evidence, plan
from fedsrc.planning.register import Choices, draft, not_held, origin_of, register
from fedsrc.protocol.certificate import Certificate
from fedsrc.protocol.disclosure import released_development
from fedsrc.protocol.messages import Answer, Request
from fedsrc.protocol.names import TRANSCRIPT
from fedsrc.protocol.protection import Development
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.transcript import Absent, Arrived, Asked
from fedsrc.records.development import calibrating
from fedsrc.records.listed import check_registered
from fedsrc.records.units import Records, unit_count
from fedsrc.server.session import Session
from fedsrc.server.state import Replay
from fedsrc.site.admission import check_key
from fedsrc.site.develop import develop
from fedsrc.site.holder import Holder
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow, check_limit
from fedsrc.site.rounds import NotYetError
from fedsrc.site.site import Site, open_sites
from fedsrc.site.unlabelled import release_unlabelled


class LocalCarrier:
    """Answers requests from the sites of this process, by one holder or each by itself; a request to a site that the
    table lacks, from what the ledger keeps."""

    def __init__(self, sites: Sequence[Site], ledger: Ledger) -> None:
        self._sites, self._ledger = {site.name: site for site in sites}, ledger
        self._registration = sites[0].registration
        self._holder = Holder(self._registration, self._sites)

    def __call__(self, requests: Sequence[Request], /) -> list[Answer]:
        kept = [self._kept(each) for each in requests]  # before anything is released
        answers, waits = list[Answer](), list[NotYetError]()
        for known, each in zip(kept, requests, strict=True):
            try:
                answers.append(known or self._answer(each))
            except NotYetError as error:
                waits.append(error)  # the rounds of other sites open too
        if waits:
            what = waits[0].what if len(waits) == 1 else f"round {requests[0].round} waits at {len(waits)} sites"
            raise NotYetError(what, sum(each.missing for each in waits), waits[0].hint or "")
        return answers

    def _kept(self, request: Request) -> bytes | None:
        """Return what answered a request before, if it asks a site that the table lacks."""
        for name, slots in self._registration.parts(request).items():
            if name not in self._sites:
                found = self._ledger.stored(request)
                if found is None:
                    raise FedsrcError(
                        f"an interrupted round still asks site {name!r} for {slots:,} units",
                        hint="run the command again with the table that was being read",
                    )
                return found
        return None

    def _answer(self, request: Request) -> bytes:
        return self._sites[request.site].answer(request) if request.parts is None else self._holder.answer(request)


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
    records, development = as_developed(choices, records, development)
    made = draft(choices, records, development, sites=sites)
    if origin_of(choices, made, records, development) == "grid":
        return register(choices, records, development, sites=sites)
    with closing(Ledger(ledger_path)) as ledger:
        public = choices.public_development
        release = develop(made, records, development, ledger, public=public, in_order=in_order, fresh=fresh)
    return register(choices, records, development, sites=sites, release=release)


def plan_table(
    choices: Choices,
    records: Records,
    development: Development,
    ledger_path: Path,
    wish: Wish,
    *,
    units: Mapping[str, int] | None = None,
    sites: Sequence[str] | None = None,
    unlabelled: Records | None = None,
    unlabelled_ledger: Path | None = None,
    in_order: bool = False,
    fresh: bool = False,
) -> tuple[Registration, Planned | None]:
    """Register from a table, and plan on its development units: for those that it leaves to calibrate, or for `units`
    of each site. None: nothing is planned, because that was asked, or there is no evidence to plan on.

    Unlabelled records are released once, with noise, and show how many answers are accepted; a ledger of their own
    keeps that release for other tables too.
    """
    for name in units or ():
        if name not in (sites or records.site_names):
            raise FedsrcError(f"units are given for {name!r}, which is no site", hint="name the sites with `sites=`")
    check_planned(choices, wish, unlabelled=unlabelled is not None)
    records, development = as_developed(choices, records, development)
    base = register_table(choices, records, development, ledger_path, sites=sites, in_order=in_order, fresh=fresh)
    known = None if wish.certificate == "plain" else evidence(base, records, base.development or development)
    if unlabelled is not None and (known is None or wish.certificate == "open"):  # before they are released
        raise FedsrcError("unlabelled records are for planned sealed certificates", hint="leave `unlabelled=` out")
    if known is None:
        return base, None
    releases = None
    if unlabelled is not None:
        with ExitStack() as opened:
            apart = [] if unlabelled_ledger in (None, ledger_path) else [unlabelled_ledger]
            ledger, *own = (opened.enter_context(closing(Ledger(path))) for path in (ledger_path, *apart))
            releases = release_unlabelled(base, unlabelled, ledger, own=own[0] if own else None, fresh=fresh)
    rest = units or {name: len(each) for name, each in calibrating(base, records).items()}
    answers = min(len(records) / unit_count(records, base.privacy.unit), base.privacy.max_answers)
    made = plan(base, known, rest, wish, releases, answers=answers)
    return made.registration, made


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
    labels: Path | None = None,
    watch: Callable[[Replay], None] = lambda _: None,
) -> Certificate:
    """Run to a certificate or an abstention. On the folder of an interrupted run it resumes; on that of an ended one,
    it writes the same certificate. `watch` gets the state after every round, and at the end. Where labels come on
    demand, they go to the file `labels`, and `NotYetError` says that a round waits for some."""
    if registration.monitor is not None:
        raise FedsrcError("this is the registration of a monitor", hint="`fedsrc monitor` takes it")
    if registration.cohorts is not None:
        raise not_held()
    session = Session(folder, registration, key)
    released_development(registration)
    with closing(Ledger(ledger_path)) as ledger:
        sites = admit_table(
            registration, records, ledger, in_order=in_order, fresh=fresh, keys=site_keys, labels=labels
        )
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
    labels: Path | None = None,
) -> list[Site]:
    """Take a table in at its sites and allow the registration there; refuse one that other registrations have spent."""
    check_registered(registration, records)
    keys = {**(keys or {})}
    if registration.held and registration.aggregation.kind in keys:  # the holder speaks for every site
        keys = dict.fromkeys(records.site_names, keys[registration.aggregation.kind])
    for name in records.site_names:
        check_limit(ledger, name, registration)
        if name in registration.by_name:
            check_key(registration, name, keys.get(name))  # its word would be unsigned, and stay in the folder
    sites = open_sites(registration, records, ledger, in_order=in_order, fresh=fresh, keys=keys, labels=labels)
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
            if kept != release.to_bytes() and (kept is not None or here & session.registration.parts(request).keys()):
                raise DamagedError(
                    f"does not hold the release that {request.asked} made for request {request.number}",
                    where=str(session.folder / TRANSCRIPT),
                    hint="it was changed since; take another folder, which gets the same releases again",
                )


def _given(registration: Registration, site: Site) -> int:
    """Return how many units of its table a site has released under a registration."""
    return site.ledger.spent(site.intake) - site.ledger.spent(site.intake, besides=registration.digest)
