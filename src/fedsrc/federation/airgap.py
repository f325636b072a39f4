"""The air-gapped mode: requests and releases are files that people carry. No network at all.

The server writes request files; a site answers one with a release file; the server collects what has arrived. A
round is folded once all its releases are there (or it is closed without the missing), in registered order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from fedsrc.common.durable import read_bytes, write_whole
from fedsrc.common.signing import Key, public_hex
from fedsrc.errors import FedsrcError
from fedsrc.protocol import messages
from fedsrc.protocol.certificate import Certificate, MonitorAccount
from fedsrc.protocol.handshake import Hello
from fedsrc.protocol.messages import MAX_BYTES, Answer, Release, Request, SignedRequest
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.transcript import Ended
from fedsrc.records.stream import Table
from fedsrc.records.units import Records
from fedsrc.server.loop import ask, close
from fedsrc.server.session import Session, check_apart
from fedsrc.server.state import Replay
from fedsrc.site.admission import admit
from fedsrc.site.ledger import Ledger
from fedsrc.site.sent import once
from fedsrc.site.streamed import open_site

INBOX, REQUESTS = "inbox", "requests"
SHOWN = 20  # members of a cohort whose releases are missing
Taken = dict[tuple[str, str], Release]


@dataclass
class Collected:
    """What a call did: the certificate if the run has ended, the requests that wait, and news in words."""

    replay: Replay
    certificate: Certificate | MonitorAccount | None = None
    taken_in: list[Path] = field(default_factory=list)
    too_late: dict[Path, str] = field(default_factory=dict)  # files of closed rounds: nothing was done with them
    news: list[str] = field(default_factory=list)
    asked: dict[Path, str] = field(default_factory=dict)  # requests that wait, and whom each is for, in words

    @property
    def waiting(self) -> list[Path]:
        return list(self.asked)


def start(registration: Registration, folder: Path, key: Key) -> Collected:
    """Open a run and write the first round's requests. Called again, it writes the same ones."""
    check_apart(registration)
    for site in registration.sites:
        if site.key is None or site.capacity is None:
            raise FedsrcError(
                f"site {site.name!r} has no registered key or capacity",
                hint="each site runs `fedsrc keys` and counts its units; register with `site_keys=` and `capacities=`",
            )
    if registration.server_key is None:
        raise FedsrcError("the registration names no server key", hint="register with `server_key=`")
    return _step(Session(folder, registration, key), [])


def collect(folder: Path, files: Iterable[Path], key: Key, *, without_missing: bool = False) -> Collected:
    """Take release files in, fold what is complete, and write the next requests or the certificate.

    A file that is not the open request's own release is an error and changes nothing.
    """
    return _step(Session(folder, None, key), files, without_missing=without_missing)


def answer_file(
    path: Path, find: Callable[[], Records | Table], ledger: Ledger, key: Key, *, mask: Key | None = None,
    sent: Path | None = None, fresh: bool = False,
) -> bytes:  # fmt: skip
    """At a site: the release for a request file, under a registration the site has allowed. `mask` is its mask key, for
    requests to a cohort, and `sent` the file of what was sent under it.

    Records are found and read only once the request has passed every check; a table on disk is read in batches.
    """
    order = messages.read_request(path)
    request, site = order.request, order.request.site
    if request.of_cohort:
        site = _member(request, ledger, key)
    registration = admit(order, site, ledger, key, where=str(path))
    mask = mask if request.of_cohort else None

    def make() -> bytes:
        stored = ledger.stored(request)
        if stored is not None:
            return stored  # the same bytes for ever, whatever became of the table
        return open_site(registration, site, find(), ledger, key, mask=mask, fresh=fresh).release(request)

    return once(sent, request, make)


def _member(request: Request, ledger: Ledger, key: Key) -> str:
    """Return which member of the asked cohort has this key, of those that have allowed its registration."""
    for name in ledger.sites():
        allowed = ledger.permitted(name, request.registration)
        if allowed is not None and allowed.key_of(name) == public_hex(key):
            return name
    raise FedsrcError(
        f"no site with this key has allowed registration {request.registration}",
        where=str(ledger.path),
        hint="a site has one ledger for all of its tables: name it with `ledger=`, and check the key's file; if none"
        " has allowed it yet, read the registration, then `fedsrc allow registration.toml` if the site agrees",
    )


def _step(session: Session, files: Iterable[Path], *, without_missing: bool = False) -> Collected:
    with session:
        replay, ours = session.replay, session.registration.digest
        session.announce(
            Hello(registration=ours, site=site.name, units=site.capacity or 0) for site in session.silent
        )  # what is registered is what they have
        outcome = Collected(replay)
        given = _take_in(session, files, outcome)
        _fold(session, given, without_missing)
        outcome.news = session.news()
        outcome.asked = _write_requests(session)
        if replay.ended is not None or replay.watch is not None:
            signed = session.finish()
            outcome.certificate = None if replay.ended is None else signed
    return outcome


def _take_in(session: Session, files: Iterable[Path], outcome: Collected) -> Taken:
    """Check every file before anything changes, then keep those that answer an open request, by request and site."""
    good = dict[Path, tuple[Release, bytes]]()
    for path in files:
        data = read_bytes(path, MAX_BYTES)
        try:
            release = messages.parse_release(data)
        except FedsrcError as error:
            raise FedsrcError(f"refused: {error.what}", where=str(path)) from error
        earlier = session.replay.history.get(release.request)
        if earlier is not None:
            outcome.too_late[path] = earlier
            continue
        problem = session.replay.foreign(release) or messages.from_the_future(release)
        if problem is None:
            problem = _changed_mind(session, release, data, good.values())
        if problem is not None:
            raise FedsrcError(f"refused: {problem}", where=str(path), hint="nothing was changed")
        good[path] = release, data
    for path, (release, data) in good.items():
        write_whole(_inbox(session, session.replay.asked[release.request], release.site), data)
        outcome.taken_in.append(path)
    return {(release.request, release.site): release for release, _ in good.values()}


def _changed_mind(
    session: Session, release: Release, data: bytes, good: Iterable[tuple[Release, bytes]]
) -> str | None:  # fmt: skip
    """Return why a release is refused after another of the same member: it may know what the others sent by now."""
    request = session.replay.asked[release.request]
    if not request.of_cohort:
        return None
    place = _inbox(session, request, release.site)
    known = [text for each, text in good if (each.request, each.site) == (release.request, release.site)]
    known += [read_bytes(place, MAX_BYTES)] if place.exists() else []
    again = all(each == data for each in known)
    return None if again else f"site {release.site!r} has given another release for it, which stands"


def _fold(session: Session, given: Taken, without_missing: bool) -> None:
    """Close the open round if it can be, then ask the next one or end."""
    replay, transcript = session.replay, session.transcript
    if replay.ended is not None:
        return
    if replay.in_round and not replay.due:
        found = {
            digest: {
                name: given.get((digest, name)) or _kept(session, request, name) for name in _sites(session, request)
            }
            for digest, request in replay.asked.items()
        }
        if without_missing or not any(isinstance(each, str) for several in found.values() for each in several.values()):
            alone = {digest for digest, request in replay.asked.items() if not request.of_cohort}
            close(replay, transcript, {
                digest: next(iter(each.values())) if digest in alone else each for digest, each in found.items()
            })  # fmt: skip
    reason = replay.why_over()
    if reason is not None:
        session.record(Ended(reason=reason))
    elif replay.due or not replay.in_round:
        ask(replay, transcript)


def _sites(session: Session, request: Request) -> tuple[str, ...]:
    return session.registration.answering(request)


def _kept(session: Session, request: Request, site: str) -> Answer:
    """A release that an earlier call took in."""
    path = _inbox(session, request, site)
    return read_bytes(path, MAX_BYTES) if path.exists() else "no release arrived before the round was closed"


def _write_requests(session: Session) -> dict[Path, str]:
    """Write the files of open requests; return those that wait for a release, and whom each is for."""
    waiting = {}
    for request in session.replay.asked.values():
        path = session.folder / REQUESTS / f"{_name(request)}-{_in_a_file_name(request.site)}.request.json"
        write_whole(path, SignedRequest.by(request, session.key).to_bytes())
        missing = [name for name in _sites(session, request) if not _inbox(session, request, name).exists()]
        if missing:
            whom = f"site{'s' * (len(missing) > 1)} {', '.join(missing[:SHOWN])}"
            whom += f" and {len(missing) - SHOWN:,} more" if len(missing) > SHOWN else ""
            units = f"{request.slots:,} {session.registration.privacy.unit}s"
            waiting[path] = (
                f"for {whom} of {request.asked}, {units} in all" if request.of_cohort else f"for {whom}, {units}"
            )
    return waiting


def _inbox(session: Session, request: Request, site: str) -> Path:
    """Where a release is kept: of a cohort, by the member's place in it."""
    member = f"-{_sites(session, request).index(site) + 1}" if request.of_cohort else ""
    return session.folder / INBOX / f"{_name(request)}{member}.release.json"


def _in_a_file_name(site: str) -> str:
    """Return a site's name with what is no letter or digit replaced, for people who carry files."""
    return re.sub(r"[^\w-]", "_", site)[:40]


def _name(request: Request) -> str:
    return f"round-{request.round:04d}-{request.number:06d}"
