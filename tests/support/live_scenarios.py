"""A live run without Flower: guards behind an in-process post that copies every letter, on a clock of its own."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from fedsrc.federation.flower.app.fedsrc_relay.wire import GIVEN, HELLO, REFUSED, RELEASE, Frame
from fedsrc.federation.live.guard import Guard
from fedsrc.federation.live.play import play
from fedsrc.federation.live.transport import Letter, Node, Patience, Reply
from fedsrc.protocol.certificate import Certificate
from fedsrc.protocol.registration import Registration
from fedsrc.records.stream import Table
from fedsrc.records.units import Records
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow
from research.attacks.struck import NAMES, key, struck_run
from tests.support.crash_scenarios import Fault, files_registration, own

SERVER = key(9)
PATIENCE = Patience(start=30.0, round=20.0, missing=8.0, retry=2.0, poll=1.0)
KINDS = {"hello": HELLO, "release": RELEASE}
Find = Callable[[int], Records | Table]
Behaviour = Callable[[Frame], Frame]
Mischief = Callable[[Letter, Reply], Sequence[Reply]]


class OwnClock:
    """Time that passes when somebody sleeps; `at` runs things at a given time."""

    def __init__(self) -> None:
        self.time = 0.0
        self.events: list[tuple[float, Callable[[], object]]] = []

    def monotonic(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        due = [event for event in self.events if event[0] <= self.time]
        self.events = [event for event in self.events if event[0] > self.time]
        for _, action in due:
            action()

    def at(self, time: float, action: Callable[[], object]) -> None:
        self.events.append((time, action))


class OwnPost:
    """Letters to functions. `mischief` decides what becomes of each reply; a `held` reply waits for its time."""

    def __init__(self, clock: OwnClock) -> None:
        self.clock = clock
        self.places: dict[int, tuple[str, Behaviour]] = {}
        self.mischief: Mischief = lambda _, reply: [reply]
        self.mail: list[tuple[float, Reply]] = []
        self.letters: list[Letter] = []
        self.delay: Callable[[Letter], float] = lambda _: 0.0

    def join(self, node: int, behave: Behaviour, key: str = "") -> None:
        self.places[node] = (key, behave)

    def leave(self, node: int) -> None:
        del self.places[node]

    def nodes(self) -> list[Node]:
        return [Node(node, key) for node, (key, _) in self.places.items()]

    def push(self, letters: Sequence[Letter], seconds: float) -> list[str | None]:
        return [self._push(copy.deepcopy(letter)) for letter in letters]

    def _push(self, letter: Letter) -> str | None:
        if letter.node not in self.places:
            return None
        self.letters.append(letter)
        number = f"letter-{len(self.letters)}"
        answer = self.places[letter.node][1](Frame(KINDS[letter.kind], letter.data))
        answer = Frame(answer.kind, answer.data.rstrip(b" "))  # a letter is padded; FlowerPost does this
        reply = Reply(number, answer.data) if answer.kind == GIVEN else _problem(number, answer)
        arrives = self.clock.monotonic() + self.delay(letter)
        self.mail += [(arrives, each) for each in self.mischief(letter, reply)]
        return number

    def pull(self, numbers: Sequence[str]) -> list[Reply]:
        there = [(at, reply) for at, reply in self.mail if at <= self.clock.monotonic()]
        self.mail = [each for each in self.mail if each not in there]
        return [copy.deepcopy(reply) for _, reply in there]  # also those that nobody waits for any more


def _problem(number: str, answer: Frame) -> Reply:
    return Reply(number, problem=answer.data.decode(), refused=answer.kind == REFUSED)


@contextmanager
def guards(
    folder: Path, reg: Registration | None = None, told: list[str] | None = None, find: Find = own, **how: Any
) -> Iterator[dict[str, Guard]]:
    """A guard for each site, on ledgers in a folder; `find` gives the table of a site by its number."""
    reg = reg or files_registration()
    ledgers = {name: Ledger(folder / f"{name}.ledger") for name in NAMES}
    tell = (lambda _: None) if told is None else told.append
    try:
        for name, ledger in ledgers.items():
            allow(ledger, name, reg, max_epsilon=10.0)
        yield {
            name: Guard(reg, name, ledgers[name], partial(find, i), key(i), tell=tell, **how)
            for i, name in enumerate(NAMES)
        }
    finally:
        for ledger in ledgers.values():
            ledger.close()


def live(
    folder: Path,
    run: str = "run",
    post: OwnPost | None = None,
    told: list[str] | None = None,
    reg: Registration | None = None,
    find: Find = own,
) -> Certificate:
    """A live run of three sites, from nothing or from where it was killed."""
    tell, reg = (lambda _: None) if told is None else told.append, reg or files_registration()
    with guards(folder, reg, find=find) as sites:
        post = post or OwnPost(OwnClock())
        for i, name in enumerate(NAMES):
            post.join(i + 1, sites[name].answer)
        return play(reg, folder / run, SERVER, post, patience=PATIENCE, clock=post.clock, tell=tell)


def child(folder: str, fault: Fault, at: int) -> None:
    """The live run in a process of its own, with a fault at its at-th durable operation."""
    struck_run(lambda: live(Path(folder)), Path(folder), fault, at)


def spent(folder: Path, name: str) -> int:
    """How many units a site has released."""
    with closing(Ledger(folder / f"{name}.ledger")) as ledger:
        return ledger.given(name, files_registration().digest)
