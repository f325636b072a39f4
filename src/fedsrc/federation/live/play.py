"""A live run, engine-free: meet the sites, play rounds, let latecomers in, issue the certificate.

Killed at any point and started again, it continues the transcript where it stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from fedsrc.common.durable import write_whole
from fedsrc.common.signing import Key
from fedsrc.errors import BusyError, FedsrcError
from fedsrc.federation.live.carrier import LiveCarrier
from fedsrc.federation.live.transport import Clock, Patience, Post, RealClock, Tell
from fedsrc.protocol.certificate import Certificate
from fedsrc.protocol.names import CERTIFICATE, REGISTRATION, TRANSCRIPT
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.transcript import Absent, Announced, Closed, Transcript
from fedsrc.server.folder import check_folder, check_server_key
from fedsrc.server.issue import issue
from fedsrc.server.loop import absence_words, begin, record, run, whose
from fedsrc.server.state import Replay

HELD_TRIES = 60


def play(
    registration: Registration,
    folder: Path,
    key: Key,
    post: Post,
    *,
    patience: Patience | None = None,
    node_keys: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    tell: Tell = lambda _: None,
) -> Certificate:
    """A live run to its certificate, or on from where its transcript stands."""
    check_live(registration, folder, key)
    clock, patience = clock or RealClock(), patience or Patience()
    write_whole(folder / REGISTRATION, registration.to_toml().encode())
    with closing(open_transcript(folder, clock)) as transcript:
        replay = Replay(registration, transcript.entries)
        begin(replay, transcript)
        carrier = LiveCarrier(
            registration, key, post, patience=patience, node_keys=node_keys, clock=clock, tell=tell
        )  # fmt: skip
        if replay.ended is None:
            _meet(replay, transcript, carrier, patience, tell)
            run(replay, transcript, carrier, watch=_Watch(transcript, carrier, tell))
        certificate = issue(registration, replay, transcript.chain).signed(key)
    certificate.save(folder / CERTIFICATE)
    return certificate


def finished(registration: Registration, folder: Path, key: Key) -> Certificate | None:
    """The certificate of a transcript that has ended, written anew should it be missing; None while it is open."""
    if not (folder / TRANSCRIPT).exists():
        return None
    with closing(open_transcript(folder)) as transcript:
        replay = Replay(registration, transcript.entries)
        if replay.ended is None:
            return None
        certificate = issue(registration, replay, transcript.chain).signed(key)
    certificate.save(folder / CERTIFICATE)
    return certificate


def check_live(registration: Registration, folder: Path, key: Key) -> None:
    """Refuse a registration that a live run cannot trust its messages by, or a folder of another run."""
    if registration.monitor is not None:
        raise FedsrcError("a monitor does not run live", hint="use tables (fedsrc monitor) or files (fedsrc request)")
    check_server_key(registration, key)
    if registration.server_key is None:
        raise FedsrcError("the registration names no server key", hint="register with --server-key")
    for site in registration.sites:
        if site.key is None:
            raise FedsrcError(f"site {site.name!r} has no registered key", hint="register with --site-keys")
    check_folder(folder, registration)


def open_transcript(folder: Path, clock: Clock | None = None) -> Transcript:
    """The run's transcript. What is left of a killed run may hold it a little longer, so this waits."""
    clock = clock or RealClock()
    for _ in range(HELD_TRIES):
        try:
            return Transcript(folder / TRANSCRIPT)
        except BusyError:
            clock.sleep(1.0)
    return Transcript(folder / TRANSCRIPT)


def _meet(replay: Replay, transcript: Transcript, carrier: LiveCarrier, patience: Patience, tell: Tell) -> None:
    """Wait for the sites, then write down what each has. Between rounds only; a broken round is first finished."""
    names = [site.name for site in replay.registration.sites]
    here = carrier.gather(names, patience.start)
    for name in [each for each in names if each not in here]:
        tell(f"site {name!r} is not there yet; it can join between rounds")
    _announce(replay, transcript, carrier)
    if not here and (replay.charging or not replay.announced):  # charged sites count as announced from the start
        raise FedsrcError(
            f"no site came within {patience.start:g} seconds",
            hint="start the sites, then the same command again; their logs say whether they were asked",
        )


def _announce(replay: Replay, transcript: Transcript, carrier: LiveCarrier) -> None:
    """The unspent counts of sites that are there and have not announced any, in registered order."""
    if replay.in_round or replay.ended is not None:
        return
    found = {
        site: carrier.hello_of(site.name) for site in replay.registration.sites if site.name not in replay.announced
    }
    new = [Announced.by(hello, site.capacity) for site, hello in found.items() if hello is not None]
    if new:
        record(replay, transcript, *new)


class _Watch:
    """After every round: say what happened, and let newcomers in."""

    def __init__(self, transcript: Transcript, carrier: LiveCarrier, tell: Tell) -> None:
        self._transcript, self._carrier, self._tell = transcript, carrier, tell
        self._known, self._names = len(transcript.entries), whose(transcript.entries)

    def __call__(self, replay: Replay) -> None:
        news = self._transcript.entries[self._known :]
        self._names |= whose(news)
        for entry in news:
            if isinstance(entry, Absent):
                self._tell(absence_words(entry, self._names))
            elif isinstance(entry, Closed):
                now = replay.trace[-1] if replay.trace else None
                bound = "no bound yet" if now is None or now.risk_upper >= 1 else f"risk at most {now.risk_upper:.3g}"
                self._tell(f"round {entry.round} closed: {replay.tally.arrived:,} units so far, {bound}")
        if replay.ended is None:
            self._carrier.step()
            _announce(replay, self._transcript, self._carrier)
        self._known = len(self._transcript.entries)
