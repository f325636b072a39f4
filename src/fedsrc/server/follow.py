"""Follow a run folder as it grows: each update reads only what is new, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedsrc.common.durable import read_lines
from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats
from fedsrc.protocol.judgements import Betting
from fedsrc.protocol.names import CERTIFICATE, REGISTRATION, TRANSCRIPT
from fedsrc.protocol.notices import SUFFIX
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.transcript import MAX_BYTES, Chain, Closed, Entry
from fedsrc.server import panel
from fedsrc.server.bounds import Bounds
from fedsrc.server.folder import LOG, check_transcript, fold, read_registration
from fedsrc.server.state import Replay
from fedsrc.server.status import SiteStates, refusals

Stamp = tuple[int, int, int]
Stamps = tuple[Stamp | None, ...]
FILES = (TRANSCRIPT, REGISTRATION, CERTIFICATE, CERTIFICATE + SUFFIX, LOG)


@dataclass(frozen=True)
class Round:
    """The evidence after a round per row: the log-wealth of bets at the target, or the contrast's bound.

    `able`: whether some threshold would be certified now, of every group that has a claim of its own.
    """

    round: int
    records: int
    value: Floats
    risk_upper: float
    able: tuple[bool, ...]


class Follower:
    """A run's registration, and its transcript replayed as far as it is written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.registration: Registration = read_registration(folder)
        if self.registration.monitor is not None:
            hint = "`fedsrc monitor -o FOLDER` shows where it stands"
            raise FedsrcError("is the folder of a monitor, which certifies nothing", where=str(folder), hint=hint)
        self.turned_away: list[str] = []
        self._begin()

    def _begin(self) -> None:
        self.replay = Replay(self.registration)
        self.sites = SiteStates(self.registration)
        self.chain = Chain()
        self.rounds: list[Round] = []
        self.bounds: Bounds | None = None
        self._stamps: Stamps = ()

    def update(self) -> bool:
        """Read what is new, and return whether anything was. A last line that is still being written waits."""
        now = stamps(self.folder)
        if now == self._stamps:
            return False
        if self._replaced(now[0]):
            self._begin()
        check_transcript(self.folder)
        lines = self._entries()
        for entry, chain in lines:
            fold(self.replay, entry, chain, lines, self.folder)
            self.sites.step(entry)
            self.chain = chain
            if isinstance(entry, Closed):
                self._look()
        self.turned_away = list(refusals(self.folder / LOG))
        self._stamps = now
        return True

    def _entries(self) -> Iterator[tuple[Entry, Chain]]:
        """Yield the new entries, checked, each with the chain after it."""
        chain = self.chain
        for line in self._new_lines():
            entry, chain = chain.read(line, str(self.folder / TRANSCRIPT))
            yield entry, chain

    def _replaced(self, now: Stamp | None) -> bool:
        """Return whether the transcript is another file than the one read so far, which only grows."""
        before = self._stamps[0] if self._stamps else None
        if before is None or now is None or now == before:
            return now is None and self.chain.lines > 0
        return now[0] != before[0] or now[1] <= before[1]

    def _new_lines(self) -> Iterator[bytes]:
        path = self.folder / TRANSCRIPT
        if not path.exists():
            return
        for line in read_lines(path, MAX_BYTES, start=self.chain.size):
            if not line.endswith(b"\n"):
                return
            yield line[:-1]

    def _look(self) -> None:
        replay = self.replay
        if not replay.trace or replay.trace[-1].round != replay.rounds:
            return
        self.bounds = replay.bounds()
        assert self.bounds is not None  # there is a look where there is a trace
        value = self.bounds.contrast_upper if self.bounds.log_wealth is None else self.bounds.log_wealth
        last, able = replay.trace[-1], tuple(each is not None for each in replay.choices)
        self.rounds.append(Round(last.round, last.records, value, last.risk_upper, able))

    @property
    def reached(self) -> int | None:
        """The round since which the evidence, of every group, has been beyond its line, or None."""
        since: int | None = None
        for each in self.rounds:
            since = (since or each.round) if all(each.able) else None
        return since

    @property
    def beyond(self) -> bool:
        """Whether rounds go on although the line is reached, because all of them are registered."""
        return self.reached is not None and self.replay.why_over() is None and self.replay.ended is None

    @property
    def weights(self) -> Floats:
        """Per row, its share of the risk budget; in a panel, with what the rejections of other rows have passed on."""
        registration, look, made = self.registration, self.replay.look, self.registration.panel
        weights, blocks = np.asarray(registration.row_weights), len(registration.cuts)
        if made is None or not registration.fixed_mixture or look is None or look.rejected is None:
            return weights if made is None or not made.simultaneous else weights[: weights.size // blocks]
        rejected, every = look.rejected, np.arange(look.rejected.size)
        found = panel.left(registration.claims, weights, blocks, rejected)[: rejected.size].copy()
        for i in np.flatnonzero(rejected):  # as if it were the last to be rejected
            found[i] = panel.left(registration.claims, weights, blocks, rejected & (every != i))[i]
        return found

    def lines(self, weights: Floats) -> Floats:
        """Per row, what the evidence must reach: log 1/(alpha_d w_j) for bets, zero from above for contrasts."""
        method = self.registration.certificate
        return -np.log(method.risk_budget * weights) if isinstance(method, Betting) else np.zeros_like(weights)


def stamps(folder: Path) -> Stamps:
    """Return what changes whenever a file of a run folder does."""
    return tuple(_stamp(folder / name) for name in FILES)


def _stamp(path: Path) -> Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
