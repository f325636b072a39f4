"""Nothing is done twice: what each mode parses, checks and reads, counted on real runs of two sites and two rounds.

Mutants killed: a release that is parsed or whose signature is checked where it arrives and again where it is folded, a
request that is checked at the door and again behind it, a registration read back from the folder it was just written
to, a run replayed again to show how it ended, a table read anew for its columns, its names, its rows or every round, a
development part that is drawn again by everyone who asks for it.
"""

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

import pytest
from click.testing import CliRunner

import fedsrc
from fedsrc.cli.main import cli
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
SITES = ("north", "south")
ROUNDS = 2
RELEASES = ROUNDS * len(SITES)
PARSED = "protocol.messages:parse_release"
SIGNATURES = "signature of a Release"
ADMITTED = "site.admission:admit"
READ = "protocol.registration:Registration.read"
UNDERSTOOD = "protocol.registration:_parsed"
REPLAYED = "server.state:Replay.__init__"
OPENED = "records.scan:scan"
IN_MEMORY = "records.table:collect_records"
PASSED_OVER = "records.stream:Table._read"
DRAWN = "records.development:in_development"


@cache
def start(code: CodeType) -> int:
    """Where a function begins: a generator that goes on from a later place was called before."""
    return next(each.offset for each in dis.get_instructions(code) if each.opname == "RESUME")


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Calls of the package's own functions, by module and name."""
    calls = Counter[str]()

    def count(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOT) and frame.f_lasti <= start(code):
            module = code.co_filename.removeprefix(ROOT).removesuffix(".py").replace("/", ".")
            calls[f"{module}:{code.co_qualname}"] += 1
            if code.co_qualname == "SignedMessage.signed_by":
                calls[f"signature of a {type(frame.f_locals['self']).__name__}"] += 1

    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def command(*words: object, status: int = 0) -> Counter[str]:
    """Run a command in this process, and count."""
    with counted() as calls:
        done = CliRunner().invoke(cli, [str(word) for word in words])
    assert done.exit_code == status, done.output
    return calls


def write_table(path: Path, sites: Sequence[str], rows: int) -> None:
    draw, lines = random.Random(path.parent.name), ["id,site,score,loss"]
    for i in range(rows):
        loss = int(draw.random() < 0.35)
        score = min(1.0, max(0.0, draw.gauss(0.4 if loss else 0.75, 0.15)))
        lines.append(f"{sites[0]}{i},{sites[i % len(sites)]},{score:.3f},{loss}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")


class World:
    """Two sites with keys, tables and ledgers, and a registration that nobody has read yet: too strict to certify."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.run = folder, folder / "run"
        self.keys = {name: load_or_make(self.key(name)) for name in (*SITES, "server")}
        choices = Choices(
            target_risk=0.01, epsilon=4.0, grid=True, rounds=ROUNDS, batch=150, weights=dict.fromkeys(SITES, 0.5),
            server_key=public_hex(self.keys["server"]), capacities=dict.fromkeys(SITES, 400),
            site_keys={site: public_hex(self.keys[site]) for site in SITES},
        )  # fmt: skip
        self.registration = register_grid(choices, SITES)
        self.place = folder / "registration.toml"
        self.place.write_text(self.registration.to_toml(), encoding="utf-8")
        for site in SITES:
            write_table(self.table(site), [site], 400)
            with closing(Ledger(self.ledger(site))) as ledger:
                allow(ledger, site, self.registration)

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def table(self, site: str) -> Path:
        return self.folder / site / "records.csv"

    def ledger(self, site: str) -> Path:
        return self.folder / site / "records.csv.ledger"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_one_process(world: World) -> None:
    write_table(world.folder / "table.csv", SITES, 800)
    signed = ",".join(f"{site}={world.key(site)}" for site in SITES)
    calls = command(
        "certify", world.folder / "table.csv", "--registration", world.place, "--sign-with", signed,
        "-o", world.run, "--key", world.key("server"), status=1,
    )  # fmt: skip
    assert (calls[PARSED], calls[SIGNATURES], calls[ADMITTED]) == (RELEASES, RELEASES, RELEASES)
    assert (calls[READ], calls[UNDERSTOOD], calls[REPLAYED]) == (1, 1, 1)
    assert (calls[OPENED], calls[IN_MEMORY], calls[PASSED_OVER]) == (1, 1, 0)


def test_one_process_that_sets_a_development_part_aside(tmp_path: Path) -> None:
    write_table(tmp_path / "table.csv", SITES, 800)
    how = ("--target", 0.01, "--epsilon", 4, "--batch", 150, "--rounds", ROUNDS, "--key", tmp_path / "key")
    calls = command("certify", tmp_path / "table.csv", *how, "-o", tmp_path / "run", status=1)
    assert (calls[PARSED], calls[ADMITTED], calls[REPLAYED]) == (RELEASES, RELEASES, 1)
    assert (calls[READ], calls[DRAWN]) == (0, 1)
    assert (calls[OPENED], calls[IN_MEMORY], calls[PASSED_OVER]) == (1, 1, 0)


def test_files(world: World) -> None:
    server = ("--key", world.key("server"))
    calls = command("request", world.place, "-o", world.run, *server)
    assert (calls[READ], calls[UNDERSTOOD], calls[REPLAYED]) == (1, 1, 1)
    for number in range(1, ROUNDS + 1):
        releases = []
        for site, request in zip(SITES, sorted((world.run / "requests").glob(f"round-{number:04d}-*")), strict=True):
            releases.append(world.folder / site / "release.json")
            calls = command("release", request, world.table(site), "--key", world.key(site), "-o", releases[-1])
            assert (calls[ADMITTED], calls[READ]) == (1, 0)
            assert (calls[OPENED], calls[IN_MEMORY], calls[PASSED_OVER]) == (1, 0, 1)
        calls = command(
            "collect", world.run, *releases, *server, status=int(number == ROUNDS)
        )  # open, then it abstains
        assert calls[PARSED] == len(SITES)
        assert calls[SIGNATURES] == number * len(SITES)  # another process checks the transcript that it resumes
        assert (calls[READ], calls[REPLAYED]) == (1, 1)


class Here:
    """Carries letters to guards of this process."""

    def __init__(self, guards: Sequence[Guard]) -> None:
        self._guards = dict(enumerate(guards, start=1))
        self._replies: list[Frame] = []

    def nodes(self) -> list[Node]:
        return [Node(number) for number in self._guards]

    def push(self, letters: Sequence[Letter], seconds: float) -> list[str]:
        for each in letters:
            question = Frame(HELLO if each.kind == "hello" else RELEASE, each.data)
            self._replies.append(self._guards[each.node].letter(question))
        return [str(len(self._replies) - len(letters) + i) for i in range(len(letters))]

    def pull(self, numbers: Sequence[str]) -> list[Reply]:
        replies = [(number, self._replies[int(number)]) for number in numbers]
        assert all(reply.kind == GIVEN for _, reply in replies)
        return [Reply(number, reply.data.rstrip(b" ")) for number, reply in replies]


def test_live(world: World) -> None:
    ledgers = [Ledger(world.ledger(site)) for site in SITES]
    with counted() as calls:
        registration = Registration.read(world.place)
        guards = [
            Guard(registration, site, ledger, lambda site=site: Table(world.table(site)), world.keys[site])  # type: ignore[misc]
            for site, ledger in zip(SITES, ledgers, strict=True)
        ]
        for guard in guards:
            guard.open()
        play(registration, world.run, world.keys["server"], Here(guards))
    for ledger in ledgers:
        ledger.close()
    assert (calls[PARSED], calls[SIGNATURES]) == (RELEASES, RELEASES)
    assert calls[ADMITTED] == len(SITES) + RELEASES  # a site is met once
    assert (calls[READ], calls[UNDERSTOOD], calls[REPLAYED]) == (1, 1, 1)
    assert (calls[OPENED], calls[IN_MEMORY], calls[PASSED_OVER]) == (len(SITES), 0, len(SITES))
