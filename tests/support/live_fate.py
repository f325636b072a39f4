"""What is killed when, in a live run without Flower: schedules from seeds, a journal, and the moments of faults."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fedsrc.protocol.names import CERTIFICATE, TRANSCRIPT
from research.attacks.struck import CRASHED, NAMES

Kind = Literal["server app", "SuperLink", "SuperNode", "site", "machine"]
PROCESSES: tuple[Kind, ...] = ("server app", "SuperLink", "SuperNode", "site")
HOW: dict[Kind, tuple[str, ...]] = {
    "server app": ("before", "torn", "after"),
    "SuperLink": ("silent", "broken"),
    "SuperNode": ("letter lost", "answer lost", "answer lost, listed on"),
    "site": ("before", "during", "during", "after"),
    "machine": ("killed", "power cut"),
}
GAPS: dict[Kind, int] = {"server app": 150, "SuperLink": 80, "SuperNode": 4, "site": 4, "machine": 150}
WRITES: dict[Kind, int] = {"server app": 20, "machine": 60}  # durable operations, where half of these strike
LAST = 6  # the durable operations from the transcript's last line to the certificate
END = b'"kind":"ended"'
JOURNAL, ON_DISK = "journal", "on-disk"


@dataclass(frozen=True)
class Fault:
    """Strikes at the gap-th moment that is its own, counted from the one before it of its kind."""

    kind: Kind
    how: str
    gap: int
    site: str  # SuperNodes and sites
    part: int  # from 1 to 6: at which part of what is going on
    away: float  # seconds
    writing: bool = False  # its moments are durable operations alone
    late: bool = False  # its moments begin with the transcript's last line

    @classmethod
    def draw(cls, kind: Kind, rng: random.Random, sites: Sequence[str], *, late: bool = False) -> Fault:
        away = rng.uniform(0.5, 6.0) if rng.random() < 0.8 else rng.uniform(15.0, 50.0)
        writing = kind in WRITES and (late or rng.random() < 0.5)
        gap = rng.randint(1, LAST if late else WRITES[kind] if writing else GAPS[kind])
        return cls(kind, rng.choice(HOW[kind]), gap, rng.choice(sites), rng.randint(1, 6), away, writing, late)


def schedule(seed: int, sites: Sequence[str] = NAMES) -> list[Fault]:
    """Every kind of process once, some twice or more, the machine often; and sometimes one just before the end."""
    rng = random.Random(f"schedule {seed}")
    kinds: list[Kind] = [*PROCESSES, *rng.choices(PROCESSES, k=rng.randint(0, 3))]
    kinds += ["machine"] * rng.choice((0, 1, 1, 2))
    ends: tuple[tuple[Kind, ...], ...] = ((), (), ("server app",), ("machine",), ("server app", "machine"))
    last = [Fault.draw(kind, rng, sites, late=True) for kind in rng.choice(ends)]
    return [*(Fault.draw(kind, rng, sites) for kind in kinds), *last]


class KilledError(BaseException):
    """A process dies here."""


class Journal:
    """What struck, in words and on disk before it does: one JSON line each."""

    def __init__(self, folder: Path) -> None:
        self._file = (folder / JOURNAL).open("ab", buffering=0)

    def __call__(self, kind: str, words: str = "", *, planned: bool = False) -> None:
        self._file.write(json.dumps({"kind": kind, "words": words, "planned": planned}).encode() + b"\n")


def struck(folder: Path) -> list[dict[str, Any]]:
    """The journal so far."""
    path = folder / JOURNAL
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


class Fate:
    """Decides when planned faults strike, each kind by its own count, and knows who is at work."""

    def __init__(self, folder: Path, seed: int, sites: Sequence[str] = NAMES) -> None:
        self.folder, self.journal = folder, Journal(folder)
        done = Counter(line["kind"] for line in struck(folder) if line["planned"])
        self._left: dict[Kind, list[Fault]] = {kind: [] for kind in HOW}
        for fault in schedule(seed, sites):
            self._left[fault.kind].append(fault)
        self._left = {kind: faults[done[kind] :] for kind, faults in self._left.items()}
        self._moments = Counter[Kind]()
        path = folder / "run" / TRANSCRIPT
        self._ending = path.exists() and END in path.read_bytes()
        self.who = "server app"  # whose code runs now: the server app, or a site by name
        self.dead = ""  # who has died and is on the way out

    def strikes(self, kind: Kind, words: str, site: str = "", *, writing: bool = False) -> Fault | None:
        """Whether the next fault of a kind strikes at this moment."""
        fault = self._left[kind][0] if self._left[kind] else None
        if fault is None or site not in ("", fault.site) or (fault.late and not self._ending):
            return None
        if fault.writing and not writing:
            return None
        self._moments[kind] += 1
        if self._moments[kind] < fault.gap:
            return None
        del self._moments[kind], self._left[kind][0]
        self.journal(kind, f"{fault.how}: {words}" + (f" of {site}" if site else ""), planned=True)
        return fault

    def at(self, words: str) -> None:
        """A moment at which the server app or the machine can die."""
        if self.strikes("machine", words):
            self.stop_machine(cut=False)
        if self.who == "server app" and self.strikes("server app", words):
            self.die()

    def die(self) -> None:
        self.dead = self.who
        raise KilledError(self.who)

    def stop_machine(self, *, cut: bool) -> None:
        """All at once; a power cut takes with it what was not on disk."""
        path, kept = self.folder / "run" / TRANSCRIPT, self.folder / ON_DISK
        if cut and path.exists():
            os.truncate(path, min(path.stat().st_size, int(kept.read_text()) if kept.exists() else 0))
        os._exit(CRASHED)

    def durable(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        """A durable operation at which whoever is at work can die: before it, half through it, or after it."""

        def operation(*args: Any) -> Any:
            if self.dead == self.who:
                raise KilledError(self.who)
            if name == "move" and args[1].name == CERTIFICATE:
                self._check_on_disk()
            self._ending |= name == "write" and END in args[1]
            machine = self.strikes("machine", f"{name} by {self.who}", writing=True)
            mine = None
            if not machine and self.who == "server app":
                mine = self.strikes("server app", name, writing=True)
            how = HOW["server app"][machine.part % 3] if machine else mine.how if mine else ""
            if how == "torn" and name == "write":
                real(args[0], args[1][: len(args[1]) // 2])
            result = real(*args) if how in ("", "after") else None
            if name == "sync" and how in ("", "after"):
                self._note(args[0])
            if machine:
                self.stop_machine(cut=machine.how == "power cut")
            if mine:
                self.die()
            return result

        return operation

    def _check_on_disk(self) -> None:
        """A certificate is not there before its whole transcript is on disk."""
        size = (self.folder / "run" / TRANSCRIPT).stat().st_size
        assert int((self.folder / ON_DISK).read_text()) == size, "a certificate before its transcript was on disk"

    def _note(self, handle: int) -> None:
        """How much of the transcript a power cut would leave."""
        if Path(f"/proc/self/fd/{handle}").readlink().name == TRANSCRIPT:
            (self.folder / ON_DISK).write_text(str(os.fstat(handle).st_size))
