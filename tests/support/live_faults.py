"""Live runs without Flower in which every process is killed at random moments, drawn from a seed.

One child process is the machine: the run loop, a post that copies letters and knows its own time, and three sites with
real guards and ledgers. The server app, the SuperLink, a SuperNode and a site die inside it, by an exception that the
code under test does not catch and after which the dead one's files no longer change. The machine dies by os._exit,
with or without what had not reached the disk. What strikes is written to a journal first.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import sqlite3
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

from fedsrc.common import durable as files
from fedsrc.common.signing import Key
from fedsrc.errors import FedsrcError
from fedsrc.federation.airgap import answer_file, collect, start
from fedsrc.federation.live.guard import Guard
from fedsrc.federation.live.play import finished, live_session, play
from fedsrc.federation.live.transport import Patience
from fedsrc.protocol.messages import read_request
from fedsrc.protocol.names import CERTIFICATE, TRANSCRIPT
from fedsrc.protocol.registration import Registration
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow
from research.attacks.struck import CRASHED, DURABLE, NAMES, key
from tests.support.crash_scenarios import files_registration
from tests.support.helpers import table
from tests.support.live_account import Account, account
from tests.support.live_engine import OUT, Engine, Site
from tests.support.live_fate import Fate, KilledError, struck

SERVER = key(9)
PATIENCE = Patience(start=12.0, round=20.0, missing=8.0, retry=2.0, poll=1.0)
ROUNDS = 5
ATTEMPTS = 60  # Flower runs until a run must have ended
FRUITLESS = 3  # Flower runs in a row that add nothing: `fedsrc server` gives up, and is started again
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [f"tests.support.{name}" for name in ("crash_scenarios", "live_scenarios", "live_faults", "cohort_faults")]
)


@lru_cache(maxsize=2)
def faults_registration(weighted: bool) -> Registration:
    """Five rounds; with weights, what a site is asked for depends on what arrived before. No honest release is
    refused: the chance of that is at most 1e-10 a run."""
    fields = files_registration().model_dump()
    fields["schedule"] |= {"rounds": ROUNDS, "batch": 25}
    fields["certificate"] |= {"refusal_budget": 1e-10, "acceptance_budget": 0.0049}
    if weighted:
        fields["sites"] = [
            {**site, "weight": w} for site, w in zip(fields["sites"], (0.4, 0.35, 0.25), strict=True)
        ]  # fmt: skip
    return Registration.model_validate(fields)


class Setting(NamedTuple):
    """What is played: a registration, its server, its sites as they are started, and what carries letters."""

    registration: Registration
    server: Key
    sites: Mapping[str, Callable[[Ledger], Guard]]
    engine: type[Engine] = Engine


def three_sites(seed: int) -> Setting:
    """Three sites that each add their own noise."""
    reg = faults_registration(bool(seed % 2))

    def serve(number: int, ledger: Ledger) -> Guard:
        find = partial(table, 200, seed=number + 50, ids=True)
        return Guard(reg, NAMES[number], ledger, find, key(number))

    return Setting(reg, SERVER, {name: partial(serve, number) for number, name in enumerate(NAMES)})


class Machine:
    """Everything, from start-up to the end of the run or of the machine."""

    def __init__(self, folder: Path, seed: int, life: int, setting: Setting) -> None:
        self.folder, self.setting = folder, setting
        self.fate = Fate(folder, seed, tuple(setting.sites))
        self.sites = {name: Site(folder, name, self.fate, serve) for name, serve in setting.sites.items()}
        self.engine = setting.engine(self.fate, self.sites, random.Random(f"life {seed} {life}"))
        self.engine.link += 1000 * life
        self._wrap()

    def _wrap(self) -> None:
        for name in DURABLE:
            setattr(files, name, self.fate.durable(name, getattr(files, name)))
        commit = files.commit

        def commit_or_die(sql: sqlite3.Connection) -> None:
            site = self.sites.get(self.fate.who)
            dies = "" if site is None else site.commit()
            if dies == "before":
                self.fate.die()
            commit(sql)
            if dies == "after":
                self.fate.die()

        files.commit = commit_or_die

    def live(self) -> None:
        """Start the sites, then run as `fedsrc server` does, again and again until there is a certificate."""
        for site in self.sites.values():
            site.start()
            self.engine.at(self.engine.rng.uniform(0.0, 3.0), partial(self.engine.join, site.name))
        fruitless = 0
        for _ in range(ATTEMPTS):
            before = self._size()
            try:
                if self._run_once():
                    return
            except (KilledError, ConnectionError):
                self.fate.journal("new Flower run")
            except FedsrcError as error:
                if not error.what.startswith(("no site", "no cohort")):
                    raise
                self.fate.journal("nobody came")
            fruitless = 0 if self._size() > before else fruitless + 1
            if fruitless == FRUITLESS:
                self.fate.journal("resumable", "`fedsrc server` gives up; the same command continues")
                fruitless = 0
            self.engine.restart()
            self.engine.pass_by(self.engine.rng.uniform(0.5, 8.0))
        raise AssertionError("the run never ended")

    def _run_once(self) -> bool:
        reg, key, run = self.setting.registration, self.setting.server, self.folder / "run"
        if finished(live_session(reg, run, key)) is None:
            play(reg, run, key, self.engine, patience=PATIENCE, clock=self.engine)
        return True

    def _size(self) -> int:
        path = self.folder / "run" / TRANSCRIPT
        return path.stat().st_size if path.exists() else 0


def child(folder: str, seed: int, life: int, setting: Callable[[int], Setting]) -> None:
    """One life of the machine, in a process of its own."""
    try:
        Machine(Path(folder), seed, life, setting(seed)).live()
    except BaseException:
        Path(folder, "trace").write_text(traceback.format_exc())
        os._exit(1)
    os._exit(0)


@dataclass(frozen=True)
class Outcome:
    """A run that has ended: what struck, and what became of units and releases."""

    seed: int
    struck: Counter[str]
    lives: int
    account: Account
    repeated: int  # releases that a site was asked for more than once
    differing: int  # requests that a site answered with more than one release


def run_with_faults(folder: Path, seed: int) -> Outcome:
    """A run from its seed to its certificate, through every fault of its schedule."""
    reg = faults_registration(bool(seed % 2))
    for name in NAMES:
        with closing(Ledger(folder / f"{name}.ledger")) as ledger:
            allow(ledger, name, reg, max_epsilon=10.0)
    lives = live_through(folder, seed, three_sites)
    counts = Counter(str(line["kind"]) for line in struck(folder))
    found = account(folder / "run", {name: folder / f"{name}.ledger" for name in NAMES})
    return Outcome(seed, counts, lives, found, *asked_again(folder))


def asked_again(folder: Path) -> tuple[int, int]:
    """How many requests a site has answered more than once, and how many of them otherwise the second time."""
    given: dict[str, list[str]] = {}
    left = folder / OUT  # nothing left a site where no cohort was ever whole
    for line in left.read_text().splitlines() if left.exists() else ():
        request, release = line.split()
        given.setdefault(request, []).append(release)
    return sum(len(each) > 1 for each in given.values()), sum(len(set(each)) > 1 for each in given.values())


def live_through(folder: Path, seed: int, setting: Callable[[int], Setting]) -> int:
    """Play a run to its end, through as many lives of the machine as it takes; return how many."""
    for life in range(1, 10):
        process = CONTEXT.Process(target=child, args=(str(folder), seed, life, setting))
        process.start()
        process.join()
        if process.exitcode == 0:
            return life
        if process.exitcode != CRASHED:
            raise AssertionError(f"seed {seed}:\n{(folder / 'trace').read_text()}")
    raise AssertionError(f"seed {seed}: the run never ended")


def same_as_undisturbed(folder: Path, seed: int) -> bool:
    """Whether the files mode, asked the same on the same ledgers, writes the same transcript and certificate."""
    done = start(faults_registration(bool(seed % 2)), folder / "files", SERVER)
    while done.certificate is None:
        done = collect(folder / "files", [_answer(folder, path) for path in done.waiting], SERVER)
    return all(
        (folder / "files" / name).read_bytes() == (folder / "run" / name).read_bytes()
        for name in (TRANSCRIPT, CERTIFICATE)
    )


def _answer(folder: Path, path: Path) -> Path:
    site = read_request(path).request.site
    number = NAMES.index(site)
    with closing(Ledger(folder / f"{site}.ledger")) as ledger:
        data = answer_file(path, partial(table, 200, seed=number + 50, ids=True), ledger, key(number))
    target = folder / path.name.replace("request", "release")
    target.write_bytes(data)
    return target
