"""A real run in which server app, SuperLink, a SuperNode and a site are each killed by their ids at random moments."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fedsrc.federation.flower.processes import descendants
from tests.live.world import Started, World, check, gone, running, until
from tests.support.live_account import Account

PROCESSES = {
    "server app": "flwr-serverapp",
    "SuperLink": "flower-superlink",
    "SuperNode": "flower-supernode",
    "site": "fedsrc site",
}
SITES, ROUNDS = ("north", "south", "west"), 6
ROUND = 6.0  # seconds of a quiet round: a kill comes at most so long after the round before it was closed
STARTS = 5  # of `fedsrc server`, at most


@dataclass(frozen=True)
class Kill:
    """One SIGKILL: whom, when, and how long until the next round was closed."""

    kind: str
    target: str  # the site, where there are several
    rounds: int  # closed when it struck
    at: float  # seconds since `fedsrc server` was started
    recovery: float


@dataclass(frozen=True)
class RealOutcome:
    """A run that has ended."""

    seed: int
    kills: list[Kill]
    account: Account
    starts: int  # of `fedsrc server`
    seconds: float


class Run:
    """A run in progress: the server as its operator keeps it, and the sites."""

    def __init__(self, world: World, sites: dict[str, Started], rng: random.Random) -> None:
        self.world, self.sites, self.rng = world, sites, rng
        self.begin = time.monotonic()
        self.servers = [Started(world.server(), world.folder / "server.out")]

    @property
    def server(self) -> Started:
        return self.servers[-1]

    def play(self, plan: list[tuple[str, int]]) -> list[Kill]:
        """To the certificate, with a kill in each of these rounds."""
        kills = []
        for kind, rounds in plan:
            until(partial(self.reached, rounds))
            kills.append(self.kill(kind))
        until(lambda: self.reached(ROUNDS) and self.world.ended())
        until(lambda: self.server.process.poll() is not None)
        return kills

    def reached(self, rounds: int) -> bool:
        """Whether so many rounds are over. A server that has given up is started again: the same command."""
        self.server.look()
        if self.server.process.poll() is not None and not self.world.ended():
            assert len(self.servers) < STARTS, "the run does not end"
            self.servers.append(Started(self.world.server(), self.world.folder / "server.out"))
        return self.world.reached(rounds)

    def kill(self, kind: str) -> Kill:
        """Kill one, let the operator start a site again, and wait for the next round."""
        target = self.rng.choice(self.world.sites) if kind in ("SuperNode", "site") else ""
        until(lambda: self._pid(kind, target) is not None)
        time.sleep(self.rng.uniform(0.0, ROUND))
        until(lambda: self._pid(kind, target) is not None)
        pid, rounds, now = self._pid(kind, target), self.world.closed, time.monotonic()
        assert pid is not None
        family = descendants(pid) if kind == "SuperNode" and self.rng.random() < 0.5 else []
        for each in (pid, *(process.pid for process in family)):
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        if kind == "site":
            self.sites[target].process.wait()
            time.sleep(self.rng.uniform(0.0, 3.0))
            again = Started(self.world.site(target), self.world.folder / f"{target}.out")
            again.family |= self.sites[target].family
            self.sites[target] = again
        until(lambda: self.reached(rounds + 1))
        words = f"{target}, with its executor" if family else target
        return Kill(kind, words, rounds, now - self.begin, time.monotonic() - now)

    def _pid(self, kind: str, target: str) -> int | None:
        """The process to kill, once it is there."""
        self.reached(0)
        if kind == "site":
            self.sites[target].look()
            return self.sites[target].process.pid
        return (self.sites[target] if target else self.server).child(PROCESSES[kind])


def play_with_kills(folder: Path, seed: int) -> RealOutcome:
    """A run from its seed to its certificate; everything that was started is gone at the end."""
    world, rng = World(folder, SITES, ROUNDS), random.Random(f"kills {seed}")
    kinds = rng.sample(list(PROCESSES), len(PROCESSES))
    moments = sorted(rng.sample(range(ROUNDS - 1), len(kinds)))  # rounds closed before each
    with running(world) as sites:
        run = Run(world, sites, rng)
        try:
            kills = run.play(list(zip(kinds, moments, strict=True)))
        finally:
            if run.server.process.poll() is None:
                run.server.end()
        seconds = time.monotonic() - run.begin
        until(partial(gone, {each for server in run.servers for each in server.family}))
    return RealOutcome(seed, kills, check(world), len(run.servers), seconds)
