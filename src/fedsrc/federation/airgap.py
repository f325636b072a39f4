"""The air-gapped mode: requests and releases are files that people carry. No network at all.

The server writes request files; a site answers one with a release file; the server collects what has arrived. A
round is folded once all its releases are there (or it is closed without the missing), in registered order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from fedsrc.common.durable import read_bytes, write_whole
from fedsrc.common.signing import Key
from fedsrc.errors import FedsrcError
from fedsrc.protocol.certificate import Certificate, MonitorAccount
from fedsrc.protocol.messages import (
    MAX_BYTES,
    Answer,
    Release,
    Request,
    SignedRequest,
    from_the_future,
    parse_release,
    read_request,
)
from fedsrc.protocol.names import CERTIFICATE, REGISTRATION, TRANSCRIPT
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.transcript import Absent, Announced, Closed, Ended, Entry, Transcript
from fedsrc.records.stream import Table
from fedsrc.records.units import Records
from fedsrc.server.folder import check_folder, check_server_key, read_registration
from fedsrc.server.issue import conclude
from fedsrc.server.loop import absence_words, ask, begin, close, record, whose
from fedsrc.server.state import Replay
from fedsrc.site.admission import admit
from fedsrc.site.ledger import Ledger
from fedsrc.site.streamed import open_site

INBOX, REQUESTS = "inbox", "requests"


@dataclass
class Collected:
    """What a call did: the certificate if the run has ended, the requests that wait, and news in words."""

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
    check_server_key(registration, key)
    for site in registration.sites:
        if site.key is None or site.capacity is None:
            raise FedsrcError(
                f"site {site.name!r} has no registered key or capacity",
                hint="each site runs `fedsrc keys` and counts its units; register with --site-keys and --capacities",
            )
    if registration.server_key is None:
        raise FedsrcError("the registration names no server key", hint="register with --server-key")
    check_folder(folder, registration)
    write_whole(folder / REGISTRATION, registration.to_toml().encode())
    return collect(folder, [], key)


def collect(folder: Path, files: Iterable[Path], key: Key, *, without_missing: bool = False) -> Collected:
    """Take release files in, fold what is complete, and write the next requests or the certificate.

    A file that is not the open request's own release is an error and changes nothing.
    """
    registration = read_registration(folder)
    check_server_key(registration, key)
    with closing(Transcript(folder / TRANSCRIPT)) as transcript:
        replay = Replay(registration, transcript.entries)
        _open_run(replay, transcript)
        outcome = Collected()
        for path, release, data in _check_all(replay, files, outcome):
            write_whole(folder / INBOX / _name(replay.asked[release.request], "release"), data)
            outcome.taken_in.append(path)
        known = len(transcript.entries)
        _fold(replay, transcript, folder, without_missing)
        outcome.news = _news(replay, transcript.entries[known:], whose(transcript.entries))
        outcome.asked = _write_requests(replay, folder, key)
        if replay.ended is not None or replay.watch is not None:
            certificate = conclude(registration, replay, transcript.chain).signed(key)
            certificate.save(folder / CERTIFICATE)
            outcome.certificate = None if replay.ended is None else certificate
    return outcome


def answer_file(
    path: Path, find: Callable[[], Records | Table], ledger: Ledger, key: Key, *, fresh: bool = False
) -> bytes:
    """At a site: the release for a request file, under a registration the site has allowed.

    Records are found and read only once the request has passed every check; a table on disk is read in batches.
    """
    order = read_request(path)
    request = order.request
    registration = admit(order, request.site, ledger, key, where=str(path))
    stored = ledger.stored(request)
    if stored is not None:
        return stored  # the same bytes for ever, whatever became of the table
    return open_site(registration, request.site, find(), ledger, key, fresh=fresh).release(request)


def _open_run(replay: Replay, transcript: Transcript) -> None:
    begin(replay, transcript)
    silent = [site for site in replay.registration.sites if site.name not in replay.announced]  # by their capacities
    record(replay, transcript, *(Announced(site=site.name, units=site.capacity or 0) for site in silent))


def _check_all(replay: Replay, files: Iterable[Path], outcome: Collected) -> list[tuple[Path, Release, bytes]]:
    """Check every file before anything changes."""
    good = []
    for path in files:
        data = read_bytes(path, MAX_BYTES)
        try:
            release = parse_release(data)
        except FedsrcError as error:
            raise FedsrcError(f"refused: {error.what}", where=str(path)) from error
        earlier = replay.history.get(release.request)
        if earlier is not None:
            outcome.too_late[path] = earlier
            continue
        problem = replay.foreign(release) or from_the_future(release)
        if problem is not None:
            raise FedsrcError(f"refused: {problem}", where=str(path), hint="nothing was changed")
        good.append((path, release, data))
    return good


def _fold(replay: Replay, transcript: Transcript, folder: Path, without_missing: bool) -> None:
    """Close the open round if it can be, then ask the next one or end."""
    if replay.ended is not None:
        return
    if replay.in_round and not replay.due:
        answers = {digest: _answer(folder, request) for digest, request in replay.asked.items()}
        if without_missing or all(isinstance(each, bytes) for each in answers.values()):
            close(replay, transcript, answers)
    reason = replay.why_over()
    if reason is not None:
        record(replay, transcript, Ended(reason=reason))
    elif replay.due or not replay.in_round:
        ask(replay, transcript)


def _answer(folder: Path, request: Request) -> Answer:
    path = folder / INBOX / _name(request, "release")
    return read_bytes(path, MAX_BYTES) if path.exists() else "no release arrived before the round was closed"


def _news(replay: Replay, entries: Iterable[Entry], names: dict[str, str]) -> list[str]:
    """What was folded, in words."""
    news = []
    for entry in entries:
        if isinstance(entry, Absent):
            news.append(absence_words(entry, names))
        elif isinstance(entry, Closed):
            now = replay.trace[-1] if replay.trace else None
            bound = "no bound yet" if now is None or now.risk_upper >= 1 else f"risk at most {now.risk_upper:.3g}"
            news.append(f"round {entry.round} closed: {replay.tally.arrived:,} units so far, {bound}")
    return news


def _write_requests(replay: Replay, folder: Path, key: Key) -> dict[Path, str]:
    """Files for the requests that wait for a release, and whom they are for."""
    waiting = {}
    for request in replay.asked.values():
        path = folder / REQUESTS / _name(request, "request")
        write_whole(path, SignedRequest.by(request, key).to_bytes())
        if not (folder / INBOX / _name(request, "release")).exists():
            waiting[path] = f"for site {request.site}, {request.slots:,} {replay.registration.privacy.unit}s"
    return waiting


def _name(request: Request, kind: str) -> str:
    return f"round-{request.round:04d}-{request.number:06d}.{kind}.json"
