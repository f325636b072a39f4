"""The air-gapped mode: requests and releases are files that people carry. No network at all.

The server writes request files; a site answers one with a release file; the server collects what has arrived. A
round is folded once all its releases are there (or it is closed without the missing), in registered order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from fedsrc.common.durable import read_bytes, write_whole
from fedsrc.common.signing import Key
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
from fedsrc.site.streamed import open_site

INBOX, REQUESTS = "inbox", "requests"


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
    path: Path, find: Callable[[], Records | Table], ledger: Ledger, key: Key, *, fresh: bool = False
) -> bytes:
    """At a site: the release for a request file, under a registration the site has allowed.

    Records are found and read only once the request has passed every check; a table on disk is read in batches.
    """
    order = messages.read_request(path)
    request = order.request
    registration = admit(order, request.site, ledger, key, where=str(path))
    stored = ledger.stored(request)
    if stored is not None:
        return stored  # the same bytes for ever, whatever became of the table
    return open_site(registration, request.site, find(), ledger, key, fresh=fresh).release(request)


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


def _take_in(session: Session, files: Iterable[Path], outcome: Collected) -> dict[str, Release]:
    """Check every file before anything changes, then keep those that answer an open request, by request."""
    good = {}
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
        if problem is not None:
            raise FedsrcError(f"refused: {problem}", where=str(path), hint="nothing was changed")
        good[path] = release, data
    for path, (release, data) in good.items():
        write_whole(_inbox(session, session.replay.asked[release.request]), data)
        outcome.taken_in.append(path)
    return {release.request: release for release, _ in good.values()}


def _fold(session: Session, given: dict[str, Release], without_missing: bool) -> None:
    """Close the open round if it can be, then ask the next one or end."""
    replay, transcript = session.replay, session.transcript
    if replay.ended is not None:
        return
    if replay.in_round and not replay.due:
        answers = {digest: given.get(digest) or _kept(session, request) for digest, request in replay.asked.items()}
        if without_missing or not any(isinstance(each, str) for each in answers.values()):
            close(replay, transcript, answers)
    reason = replay.why_over()
    if reason is not None:
        session.record(Ended(reason=reason))
    elif replay.due or not replay.in_round:
        ask(replay, transcript)


def _kept(session: Session, request: Request) -> Answer:
    """A release that an earlier call took in."""
    path = _inbox(session, request)
    return read_bytes(path, MAX_BYTES) if path.exists() else "no release arrived before the round was closed"


def _write_requests(session: Session) -> dict[Path, str]:
    """Write the files of open requests; return those that wait for a release, and whom each is for."""
    waiting = {}
    for request in session.replay.asked.values():
        path = session.folder / REQUESTS / _name(request, "request")
        write_whole(path, SignedRequest.by(request, session.key).to_bytes())
        if not _inbox(session, request).exists():
            waiting[path] = f"for site {request.site}, {request.slots:,} {session.registration.privacy.unit}s"
    return waiting


def _inbox(session: Session, request: Request) -> Path:
    return session.folder / INBOX / _name(request, "release")


def _name(request: Request, kind: str) -> str:
    return f"round-{request.round:04d}-{request.number:06d}.{kind}.json"
