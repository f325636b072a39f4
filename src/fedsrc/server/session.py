"""A run as its server plays it, from an open folder to a signed certificate. Every mode goes through here.

with Session(folder, registration, key) as session:
    session.announce(hellos)
    session.run(carrier)
    certificate = session.finish()
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self

from fedsrc.common.durable import write_whole
from fedsrc.common.signing import Key
from fedsrc.errors import FedsrcError
from fedsrc.protocol.certificate import Certificate, MonitorAccount
from fedsrc.protocol.handshake import Hello
from fedsrc.protocol.monitor_status import MonitorStatus
from fedsrc.protocol.names import CERTIFICATE, REGISTRATION, TRANSCRIPT
from fedsrc.protocol.registration import Registration, Site
from fedsrc.protocol.transcript import Absent, Announced, Asked, Closed, Entry, Transcript
from fedsrc.server.folder import check_server_key, is_new, read_registration
from fedsrc.server.issue import conclude
from fedsrc.server.loop import Carrier, begin, record, run
from fedsrc.server.state import Replay
from fedsrc.server.status import shown_words


class Session:
    """One process's hold on a run. It is made by checks that change nothing, and opens the folder when it is entered.

    Without a registration it continues the run that the folder holds. `hold` opens the transcript.
    """

    replay: Replay
    transcript: Transcript

    def __init__(
        self,
        folder: Path,
        registration: Registration | None,
        key: Key,
        *,
        hold: Callable[[Path], Transcript] = Transcript,
    ) -> None:
        self.folder, self.key, self._hold = folder, key, hold
        self.registration = registration or read_registration(folder)
        check_server_key(self.registration, key)
        self._new = registration is not None and is_new(folder, registration)

    @property
    def begun(self) -> bool:
        """Whether an earlier session has played this run."""
        return (self.folder / TRANSCRIPT).exists()

    def __enter__(self) -> Self:
        if self._new:
            write_whole(self.folder / REGISTRATION, self.registration.to_toml().encode())
        self.transcript = self._hold(self.folder / TRANSCRIPT)
        try:
            self.replay = Replay(self.registration, self.transcript.entries)
            begin(self.replay, self.transcript)
        except BaseException:
            self.transcript.close()
            raise
        self._told = len(self.transcript.entries)
        self._asked = dict(self.replay.asked)
        return self

    def __exit__(self, *_: object) -> None:
        self.transcript.close()

    def record(self, *entries: Entry) -> None:
        """Write entries to disk, then fold them."""
        record(self.replay, self.transcript, *entries)

    @property
    def silent(self) -> list[Site]:
        """Registered sites that have not announced any units."""
        return [site for site in self.registration.sites if site.name not in self.replay.announced]

    def announce(self, hellos: Iterable[Hello]) -> None:
        """Write down how many units sites have; within a round nothing can be announced, and nothing after the first
        request of a sealed run, whose looks are fixed by then."""
        late = self.replay.sealed is not None and self.replay.number > 0
        if self.replay.ended is None and not self.replay.in_round and not late:
            entries = [Announced.by(hello, self.registration.site(hello.site).capacity) for hello in hellos]
            if entries:
                self.record(*entries)

    def run(self, carry: Carrier, *, watch: Callable[[Replay], None] = lambda _: None) -> None:
        """Play rounds until the schedule ends, or a monitor has nobody to ask."""
        run(self.replay, self.transcript, carry, watch=watch)

    def news(self) -> list[str]:
        """Say what happened since the last call."""
        lines = []
        for entry in self.transcript.entries[self._told :]:
            if isinstance(entry, Asked):
                self._asked[entry.request.digest] = entry.request
            elif isinstance(entry, Absent):
                request, refused = self._asked[entry.request], "its release was refused: " if entry.refused else ""
                void = f"round {request.round} is void, and what it asked for is spent: " if request.of_cohort else ""
                lines.append(f"{request.asked}: {void or refused}{entry.reason}")
            elif isinstance(entry, Closed):
                shown = "" if self.replay.watch is not None else f", {shown_words(self.replay)}"
                lines.append(f"round {entry.round} closed: {self.replay.tally.arrived:,} units so far{shown}")
        self._told = len(self.transcript.entries)
        return lines

    def finish(self) -> Certificate | MonitorAccount:
        """Sign what the transcript comes to, and save it beside the transcript; a monitor's status for gates first, so
        that no alarm is told without it."""
        signed = conclude(self.registration, self.replay, self.transcript.chain).signed(self.key)
        if isinstance(signed, MonitorAccount):
            MonitorStatus.of(signed, self.key).save(self.folder)
        signed.save(self.folder / CERTIFICATE)
        return signed


def check_apart(registration: Registration) -> None:
    """Refuse a registration of one holder where sites are asked by files or live."""
    if registration.held:
        raise FedsrcError(
            "one holder has the records of all sites: there is no site to send a request to",
            hint="`fedsrc certify` runs it on the holder's table; for sites apart, register with `aggregation='own'`",
        )
