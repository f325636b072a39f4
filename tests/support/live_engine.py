"""A stand-in for Flower that keeps its own time, and sites behind it with real guards and ledgers: all can die.

A SuperLink holds letters and replies, SuperNodes take letters to their sites some time later. Replies come late, twice,
damaged in their second copy, in another order, or not at all.
"""

from __future__ import annotations

import copy
import json
import os
import random
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from fedsrc.common.canonical import digest_bytes
from fedsrc.federation.flower.app.fedsrc_relay.wire import GIVEN, HELLO, REFUSED, RELEASE, UNREACHED, Frame
from fedsrc.federation.live.guard import Guard
from fedsrc.federation.live.transport import Letter, Node, Reply
from fedsrc.protocol.messages import SignedRequest, parse_request
from fedsrc.protocol.names import TRANSCRIPT
from fedsrc.site.ledger import Ledger
from tests.support.live_fate import ON_DISK, Fate, Fault, KilledError

MISCHIEF = ("delayed", "doubled", "misread", "reordered", "error")
QUESTIONS = {"hello": HELLO, "release": RELEASE}
OUT = "out"  # every release that left a site


@dataclass
class Site:
    """A site's process: a guard on the site's ledger, or nothing while it is dead."""

    folder: Path
    name: str
    fate: Fate
    serve: Callable[[Ledger], Guard]
    guard: Guard | None = None
    ledger: Ledger | None = None
    dying: Fault | None = None  # during the answer that is being made
    commits: int = 0

    def start(self) -> None:
        with self._at_work():
            self.ledger = Ledger(self.folder / f"{self.name}.ledger", must_exist=True)
            self.guard = self.serve(self.ledger)
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
            row = sql.execute("SELECT release FROM release WHERE request = ?", (order.request.digest,)).fetchone()
        with (self.folder / OUT).open("a") as file:
            print(f"{self.name}:{order.request.digest}", digest_bytes(release), file=file)
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

    def monotonic(self) -> float:
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
