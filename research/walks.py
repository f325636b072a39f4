"""Follow what the package calls while two sites are played: by commands, by files, or live without an engine."""

from __future__ import annotations

import dis
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import fedsrc
from fedsrc.common.signing import load_or_make, public_hex
from fedsrc.federation.flower.app.fedsrc_relay.wire import GIVEN, HELLO, RELEASE, Frame
from fedsrc.federation.live.guard import Guard
from fedsrc.federation.live.play import play
from fedsrc.federation.live.transport import Letter, Node, Reply
from fedsrc.planning.register import Choices, register_grid
from fedsrc.protocol.registration import Registration
from fedsrc.records.stream import Table
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow

ROOT = str(Path(str(fedsrc.__file__)).parent) + "/"
FOR_EVERY_VALUE = ("common.values:", "site.ledger_schema:plain")
SIGNATURE = "SignedMessage.signed_by"  # counted by the kind of message
SITES = ("north", "south")


class Walk:
    """A profiler that follows the package's own functions."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.changes: Counter[tuple[str, str]] = Counter()  # from a module, to a module

    @property
    def modules(self) -> set[str]:
        return {name.partition(":")[0] for name in self.calls}

    def of(self, names: Sequence[str]) -> int:
        """Calls of the functions of these names, each given with the last part of its module's name."""
        return sum(self.calls[name] for name in self.calls if _short(name) in names)

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(ROOT) or frame.f_lasti > _start(frame.f_code):
            return
        module, name = _module(frame), frame.f_code.co_qualname
        if f"{module}:{name}".startswith(FOR_EVERY_VALUE):
            return
        if name == SIGNATURE:
            name = f"{type(frame.f_locals['self']).__name__}.signed_by"
        self.calls[f"{module}:{name}"] += 1
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(ROOT):
            caller = caller.f_back
        if caller is not None and _module(caller) != module:
            self.changes[_module(caller), module] += 1


@cache
def _start(code: CodeType) -> int:
    """Where a function begins: a generator that goes on from a later place was called before."""
    return next(each.offset for each in dis.get_instructions(code) if each.opname == "RESUME")


def _short(name: str) -> str:
    module, _, function = name.partition(":")
    return f"{module.rpartition('.')[2]}:{function}"


def _module(frame: FrameType) -> str:
    return frame.f_code.co_filename.removeprefix(ROOT).removesuffix(".py").replace("/", ".")


@contextmanager
def followed(walk: Walk | None = None) -> Iterator[Walk]:
    """Count what is called inside, in a new walk or on top of one."""
    found = Walk() if walk is None else walk
    sys.setprofile(found)
    try:
        yield found
    finally:
        sys.setprofile(None)


def write_table(path: Path, sites: Sequence[str], rows: int) -> None:
    """A table whose score orders its loss, of one site or of several."""
    draw = random.Random(path.parent.name)
    lines = ["id,site,score,loss"]
    for i in range(rows):
        loss = int(draw.random() < 0.35)
        score = min(1.0, max(0.0, draw.gauss(0.4 if loss else 0.75, 0.15)))
        lines.append(f"{sites[0]}{i},{sites[i % len(sites)]},{score:.3f},{loss}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")


class World:
    """Two sites with keys, tables and ledgers that allow a registration, which lies in a file."""

    def __init__(self, folder: Path, units: int, **choices: Any) -> None:
        self.folder, self.run = folder, folder / "run"
        self.keys = {name: load_or_make(self.key(name)) for name in (*SITES, "server")}
        known = Choices(
            epsilon=4.0, grid=True, weights=dict.fromkeys(SITES, 0.5), capacities=dict.fromkeys(SITES, units),
            server_key=public_hex(self.keys["server"]),
            site_keys={site: public_hex(self.keys[site]) for site in SITES}, **choices,
        )  # fmt: skip
        self.registration = register_grid(known, SITES)
        self.place = folder / "registration.toml"
        self.place.write_text(self.registration.to_toml(), encoding="utf-8")
        for site in SITES:
            write_table(self.table(site), [site], units)
            with closing(Ledger(self.ledger(site))) as ledger:
                allow(ledger, site, self.registration)

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def table(self, site: str) -> Path:
        return self.folder / site / "records.csv"

    def ledger(self, site: str) -> Path:
        return self.folder / site / "records.csv.ledger"

    def play_live(self, registration: Registration) -> Here:
        """Open both sites' guards, play a live run that asks them, and return what carried the letters."""
        ledgers = {site: Ledger(self.ledger(site)) for site in SITES}
        guards = [
            Guard(registration, site, ledgers[site], lambda site=site: Table(self.table(site)), self.keys[site])  # type: ignore[misc]
            for site in SITES
        ]
        for guard in guards:
            guard.open()
        post = Here(guards)
        play(registration, self.run, self.keys["server"], post)
        for ledger in ledgers.values():
            ledger.close()
        return post


class Here:
    """A post that carries letters to guards of this process."""

    def __init__(self, guards: Sequence[Guard]) -> None:
        self._guards = dict(enumerate(guards, start=1))
        self.replies: list[Frame] = []

    def nodes(self) -> list[Node]:
        return [Node(number) for number in self._guards]

    def push(self, letters: Sequence[Letter], seconds: float) -> list[str]:  # noqa: ARG002 (a Post's)
        for each in letters:
            question = Frame(HELLO if each.kind == "hello" else RELEASE, each.data)
            self.replies.append(self._guards[each.node].letter(question))
        return [str(len(self.replies) - len(letters) + i) for i in range(len(letters))]

    def pull(self, numbers: Sequence[str]) -> list[Reply]:
        return [_reply(number, self.replies[int(number)]) for number in numbers]


def _reply(number: str, answer: Frame) -> Reply:
    data = answer.data.rstrip(b" ")
    return Reply(number, data) if answer.kind == GIVEN else Reply(number, problem=data.decode(), refused=True)
