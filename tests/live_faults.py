"""Live runs without Flower in which every process is killed at random moments, drawn from a seed.

One child process is the machine: the run loop, a post that copies letters and knows its own time, and three sites with
real guards and ledgers. The server app, the SuperLink, a SuperNode and a site die inside it, by an exception that the
code under test does not catch and after which the dead one's files no longer change. The machine dies by os._exit,
with or without what had not reached the disk. What strikes is written to a journal first.
"""

from __future__ import annotations

import copy
import json
import multiprocessing
import os
import random
import sqlite3
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

from fedsrc import files
from fedsrc.canonical import digest_bytes
from fedsrc.certificate import CERTIFICATE, TRANSCRIPT
from fedsrc.errors import FedsrcError
from fedsrc.federation.files import answer_file, collect, parse_request, read_request, start
from fedsrc.federation.flower_app.fedsrc_relay.wire import GIVEN, HELLO, REFUSED, RELEASE, UNREACHED, Frame
from fedsrc.federation.guard import Guard
from fedsrc.federation.live import finished, play
from fedsrc.federation.post import Letter, Node, Patience, Reply
from fedsrc.ledger import Ledger
from fedsrc.policy import allow
from fedsrc.registration import Registration
from fedsrc.release import SignedRequest
from tests.crash_scenarios import CRASHED, DURABLE, NAMES, files_registration, key
from tests.helpers import table
from tests.live_account import Account, account

Kind = Literal["server app", "SuperLink", "SuperNode", "site", "machine"]
PROCESSES: tuple[Kind, ...] = ("server app", "SuperLink", "SuperNode", "site")
MISCHIEF = ("delayed", "doubled", "reordered", "misread", "error")
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
SERVER = key(9)
PATIENCE = Patience(start=12.0, round=20.0, missing=8.0, retry=2.0, poll=1.0)
QUESTIONS = {"hello": HELLO, "release": RELEASE}
ROUNDS = 5
ATTEMPTS = 60  # Flower runs until a run must have ended
FRUITLESS = 3  # Flower runs in a row that add nothing: `fedsrc server` gives up, and is started again
END = b'"kind":"ended"'
JOURNAL, OUT, ON_DISK = "journal", "out", "on-disk"
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.crash_scenarios", "tests.live_scenarios", "tests.live_faults"])


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
    def draw(cls, kind: Kind, rng: random.Random, *, late: bool = False) -> Fault:
        away = rng.uniform(0.5, 6.0) if rng.random() < 0.8 else rng.uniform(15.0, 50.0)
        writing = kind in WRITES and (late or rng.random() < 0.5)
        gap = rng.randint(1, LAST if late else WRITES[kind] if writing else GAPS[kind])
        return cls(kind, rng.choice(HOW[kind]), gap, rng.choice(NAMES), rng.randint(1, 6), away, writing, late)


def schedule(seed: int) -> list[Fault]:
    """Every kind of process once, some twice or more, the machine often; and sometimes one just before the end."""
    rng = random.Random(f"schedule {seed}")
    kinds: list[Kind] = [*PROCESSES, *rng.choices(PROCESSES, k=rng.randint(0, 3))]
    kinds += ["machine"] * rng.choice((0, 1, 1, 2))
    ends: tuple[tuple[Kind, ...], ...] = ((), (), ("server app",), ("machine",), ("server app", "machine"))
    last = [Fault.draw(kind, rng, late=True) for kind in rng.choice(ends)]
    return [*(Fault.draw(kind, rng) for kind in kinds), *last]


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

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.journal = folder, Journal(folder)
        done = Counter(line["kind"] for line in struck(folder) if line["planned"])
        self._left: dict[Kind, list[Fault]] = {kind: [] for kind in HOW}
        for fault in schedule(seed):
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


@dataclass
class Site:
    """A site's process: a guard on the site's ledger, or nothing while it is dead."""

    folder: Path
    name: str
    registration: Registration
    fate: Fate
    guard: Guard | None = None
    ledger: Ledger | None = None
    dying: Fault | None = None  # during the answer that is being made
    commits: int = 0

    def start(self) -> None:
        with self._at_work():
            number = NAMES.index(self.name)
            find = partial(table, 200, seed=number + 50, ids=True)
            self.ledger = Ledger(self.folder / f"{self.name}.ledger", must_exist=True)
            self.guard = Guard(self.registration, self.name, self.ledger, find, key(number))
            self.guard.open()

    def stop(self) -> None:
        if self.ledger is not None:
            self.ledger.close()
        self.guard = self.ledger = self.dying = None
        self.fate.dead = "" if self.fate.dead == self.name else self.fate.dead

    def ask(self, question: Frame) -> Frame | None:
        """Its answer; None if it died over it."""
        if self.guard is None:
            return Frame(UNREACHED, b"no site process listens")
        fault = self.fate.strikes("site", "a question", self.name)
        self.dying, self.commits = (fault if fault and fault.how == "during" else None), 0
        try:
            with self._at_work():
                if fault and fault.how == "before":
                    self.fate.die()
                answer = self.guard.answer(question)
                if fault:
                    self.fate.die()
        except KilledError:
            self.stop()
            return None
        if question.kind == RELEASE and answer.kind == GIVEN:
            self._check(parse_request(question.data, "a letter"), answer.data.rstrip(b" "))
        return answer

    def commit(self) -> str:
        """Whether it dies at this commit, before or after it. A release takes three: two looks, and the spending."""
        self.commits += 1
        if self.dying is None or self.commits != (self.dying.part + 1) // 2:
            return ""
        return "before" if self.dying.part % 2 else "after"

    def _check(self, order: SignedRequest, release: bytes) -> None:
        """What leaves a site is in its ledger's file, and written down for the check that it is always the same."""
        with closing(sqlite3.connect(self.folder / f"{self.name}.ledger")) as sql:
            row = sql.execute("SELECT release FROM spend WHERE request = ?", (order.request.digest,)).fetchone()
        with (self.folder / OUT).open("a") as file:
            print(order.request.digest, digest_bytes(release), file=file)
        assert row is not None, "a release left its site before it was in the ledger"

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        before, self.fate.who = self.fate.who, self.name
        try:
            yield
        finally:
            self.fate.who = before


@dataclass
class Parcel:
    """A letter on its way, or its reply on the way back."""

    at: float
    number: str
    letter: Letter
    link: int  # which SuperLink carries it
    reply: Reply | None = None


@dataclass
class Engine:
    """A SuperLink and its SuperNodes, as a `Post` and a `Clock`."""

    fate: Fate
    sites: dict[str, Site]
    rng: random.Random
    time: float = 0.0
    link: int = 1
    up: bool = True
    broken: bool = False  # calls to a dead SuperLink fail, instead of giving nothing
    nodes_of: dict[int, str] = field(default_factory=dict)  # also dead ones that are still listed
    ghosts: set[int] = field(default_factory=set)
    parcels: list[Parcel] = field(default_factory=list)
    events: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    count: int = 0

    # As the server app sees it.

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.fate.at("a poll")
        self.pass_by(seconds)

    def nodes(self) -> list[Node]:
        with self._call("asking for nodes"):
            return [Node(each) for each in self.nodes_of] if self.up else []

    def push(self, letters: Sequence[Letter], seconds: float) -> list[str | None]:
        with self._call("sending"):
            return [self._send(copy.deepcopy(each)) for each in letters]

    def pull(self, numbers: Sequence[str]) -> list[Reply]:
        """Whatever is there, in any order, also what nobody waits for."""
        with self._call("fetching"):
            if not self.up:
                return []
            there = [each for each in self.parcels if each.reply is not None and each.at <= self.time]
            self.parcels = [each for each in self.parcels if each not in there]
            mixed = self.rng.sample(there, len(there))
            if mixed != there:
                self.fate.journal("reordered")
            return [copy.deepcopy(each.reply) for each in mixed if each.reply is not None]

    @contextmanager
    def _call(self, words: str) -> Iterator[None]:
        """A call to the SuperLink, which may die before it or after it."""
        self.fate.at(words)
        fault = self.fate.strikes("SuperLink", words)
        late = fault is not None and fault.part % 2 == 0
        if fault and not late:
            self._break(fault)
        if not self.up and self.broken:
            raise ConnectionError("the SuperLink is gone")
        yield
        if fault and late:
            self._break(fault)
        self.fate.at(f"after {words}")

    def _break(self, fault: Fault) -> None:
        """The SuperLink dies with all that it holds. Letters that nodes hold are still answered, to nobody."""
        self.up, self.broken = False, fault.how == "broken"
        self.parcels = [each for each in self.parcels if each.reply is None and self.rng.random() < 0.5]
        self.at(self.rng.uniform(0.0, 2.5), self._notice)

    def _notice(self) -> None:
        """`fedsrc server` sees that its SuperLink is gone, and ends the app."""
        if not self.up:
            self.fate.die()

    # As the world sees it.

    def at(self, seconds: float, action: Callable[[], None]) -> None:
        self.events.append((self.time + seconds, action))

    def pass_by(self, seconds: float) -> None:
        """Time passes: letters reach their sites, and the dead come back."""
        self.time += seconds
        due = sorted((each for each in self.events if each[0] <= self.time), key=lambda each: each[0])
        self.events = [each for each in self.events if each[0] > self.time]
        for parcel in [each for each in self.parcels if each.reply is None and each.at <= self.time]:
            if parcel in self.parcels:
                self.parcels.remove(parcel)
                self._deliver(parcel)
        for at, action in due:
            try:
                action()
            except KilledError:
                self.events += [each for each in due if each[0] >= at and each[1] is not action]
                raise

    def join(self, site: str, number: int | None = None) -> None:
        if number is None:
            number = 100 * self.link + self.rng.randrange(10**6)
        self.nodes_of[number] = site

    def restart(self) -> None:
        """What `fedsrc server` does before the next Flower run: a new SuperLink if the old one is dead."""
        self.fate.dead = ""
        if self.up:
            return
        self.up, self.link = True, self.link + 1
        places = [site for number, site in self.nodes_of.items() if number not in self.ghosts]
        self.nodes_of, self.ghosts = {}, set()
        for site in places:
            self.at(self.rng.uniform(0.0, 4.0), partial(self.join, site))

    def _send(self, letter: Letter) -> str | None:
        if not self.up or letter.node not in self.nodes_of:
            return None
        if letter.kind == "release":
            self._check_asked(letter)
        self.count += 1
        number = f"{os.getpid()}-{self.count}"
        self.parcels.append(Parcel(self.time + self.rng.uniform(0.0, 1.5), number, letter, self.link))
        return number

    def _check_asked(self, letter: Letter) -> None:
        """A request is on disk before it is asked."""
        kept = int((self.fate.folder / ON_DISK).read_text())
        lines = (self.fate.folder / "run" / TRANSCRIPT).read_bytes()[:kept].splitlines()
        asked = [json.loads(line)["request"] for line in lines if b'"kind":"asked"' in line]
        wanted = json.loads(letter.data)["request"]
        assert wanted in asked, "a request was sent before it was on disk"

    def _deliver(self, parcel: Parcel) -> None:
        node = parcel.letter.node
        site = self.nodes_of.get(node)
        if parcel.link == self.link and (site is None or node in self.ghosts):
            self._fail(parcel)
            return
        if site is None:
            return  # a node of a SuperLink that is gone
        fault = self.fate.strikes("SuperNode", "a letter", site)
        if fault and fault.how == "letter lost":
            self._leave(node, fault)
            self._fail(parcel)
            return
        answer = self.sites[site].ask(Frame(QUESTIONS[parcel.letter.kind], parcel.letter.data))
        self._revive(site)
        if answer is None:
            answer = Frame(UNREACHED, b"0 of 9 bytes came, then the end")
        if fault:
            self._leave(node, fault)
            self._fail(parcel)
        elif parcel.link == self.link:
            self._post(parcel, answer)

    def _revive(self, site: str) -> None:
        """Whoever looks after a site starts it again if it is dead."""
        if self.sites[site].guard is None and not any(action == self.sites[site].start for _, action in self.events):
            short = self.rng.random() < 0.75
            self.at(self.rng.uniform(0.5, 5.0) if short else self.rng.uniform(15.0, 40.0), self.sites[site].start)

    def _leave(self, node: int, fault: Fault) -> None:
        """A SuperNode dies. Its number may stay listed for a while; it comes back, mostly with another."""
        site, same = self.nodes_of[node], fault.part == 1
        if fault.how.endswith("listed on"):
            self.ghosts.add(node)
            self.at(min(fault.away, 6.0), partial(self._delist, node))
        else:
            del self.nodes_of[node]
        if same and node not in self.ghosts:
            self.at(max(2.5, fault.away), partial(self.join, site, node))
        else:
            self.at(fault.away, partial(self.join, site))

    def _delist(self, node: int) -> None:
        self.nodes_of.pop(node, None)

    def _fail(self, parcel: Parcel) -> None:
        """A letter that nobody will answer: an error after a while, or silence."""
        if self.rng.random() < 0.5:
            self.fate.journal("error")
            problem = Reply(parcel.number, problem="Flower: Node Unavailable (code 5)")
            self._back(parcel, problem, self.rng.uniform(1.0, 9.0))

    def _post(self, parcel: Parcel, answer: Frame) -> None:
        """A reply starts on its way back, and not always well."""
        data, delay = answer.data.rstrip(b" "), 0.0
        reply = Reply(parcel.number, data)
        if answer.kind != GIVEN:
            reply = Reply(parcel.number, problem=data.decode(), refused=answer.kind == REFUSED)
        luck = self.rng.random()
        if luck < 0.25:
            self.fate.journal("delayed")
            delay = self.rng.uniform(1.0, 6.0) if luck > 0.02 else 25.0
        self._back(parcel, reply, delay)
        if 0.2 < luck < 0.4:
            self.fate.journal("doubled")
            self._back(parcel, reply, delay + self.rng.uniform(1.0, 4.0))
        elif 0.4 < luck < 0.5:
            self.fate.journal("misread")  # a second copy that is damaged: the first is what counts
            self._back(parcel, Reply(parcel.number, data[: len(data) // 2]), delay + self.rng.uniform(1.0, 4.0))

    def _back(self, parcel: Parcel, reply: Reply, delay: float) -> None:
        self.parcels.append(Parcel(self.time + delay, parcel.number, parcel.letter, parcel.link, reply))


class Machine:
    """Everything, from start-up to the end of the run or of the machine."""

    def __init__(self, folder: Path, seed: int, life: int) -> None:
        self.folder, self.registration = folder, faults_registration(bool(seed % 2))
        self.fate = Fate(folder, seed)
        self.sites = {name: Site(folder, name, self.registration, self.fate) for name in NAMES}
        self.engine = Engine(self.fate, self.sites, random.Random(f"life {seed} {life}"))
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
                if not error.what.startswith("no site came"):
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
        reg, run = self.registration, self.folder / "run"
        if finished(reg, run, SERVER) is None:
            play(reg, run, SERVER, self.engine, patience=PATIENCE, clock=self.engine)
        return True

    def _size(self) -> int:
        path = self.folder / "run" / TRANSCRIPT
        return path.stat().st_size if path.exists() else 0


def child(folder: str, seed: int, life: int) -> None:
    """One life of the machine, in a process of its own."""
    try:
        Machine(Path(folder), seed, life).live()
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
    lives = _lives(folder, seed)
    given: dict[str, list[str]] = {}
    for line in (folder / OUT).read_text().splitlines():
        request, release = line.split()
        given.setdefault(request, []).append(release)
    counts = Counter(str(line["kind"]) for line in struck(folder))
    repeated = sum(len(each) > 1 for each in given.values())
    differing = sum(len(set(each)) > 1 for each in given.values())
    found = account(folder / "run", {name: folder / f"{name}.ledger" for name in NAMES})
    return Outcome(seed, counts, lives, found, repeated, differing)


def _lives(folder: Path, seed: int) -> int:
    for life in range(1, 10):
        process = CONTEXT.Process(target=child, args=(str(folder), seed, life))
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
    while done.body is None:
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
