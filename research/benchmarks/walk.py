"""How far data walks through the package: modules, changes of module, and what is done more than once.

    python -m research.benchmarks.walk

Plays the same two sites through `fedsrc certify`, through files (request, release, collect) and live without an
engine, each with one round and with two, and counts the calls of the package's own functions. A change of module is a
call from a function of one module to a function of another (what is called for every value or row is left out);
the second round's are the difference between both runs.
"""

from __future__ import annotations

import dis
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from click.testing import CliRunner

import fedsrc
from fedsrc.cli.main import cli
from fedsrc.common.signing import Key, load_or_make, public_hex
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
COUNTED = {
    "releases parsed": ("messages:parse_release",),
    "signatures of releases checked": ("documents:Release.signed_by",),
    "signatures checked in all": ("signing:signed_by",),
    "questions checked at a site": ("admission:admit",),
    "registration files read": ("registration:Registration.read",),
    "registrations parsed": ("registration:_parsed",),
    "transcripts replayed": ("state:Replay.__init__",),
    "tables opened": ("scan:scan",),
    "passes over a table": ("stream:Table._read", "table:collect_records"),
    "development parts found": ("development:in_development",),
}


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
def followed(walk: Walk) -> Iterator[None]:
    sys.setprofile(walk)
    try:
        yield
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


def command(walk: Walk, *words: object) -> None:
    """Run a command in this process; an OPEN run or an abstention leaves with 1."""
    with followed(walk):
        done = CliRunner().invoke(cli, [str(word) for word in words])
    if done.exit_code not in (0, 1):
        raise SystemExit(done.output)


def keys_of(folder: Path) -> dict[str, Key]:
    return {name: load_or_make(folder / f"{name}.key") for name in (*SITES, "server")}


def registered(folder: Path, rounds: int) -> Registration:
    """Two sites with keys and capacities; every round is played."""
    keys = keys_of(folder)
    known: dict[str, Any] = {
        "server_key": public_hex(keys["server"]),
        "capacities": dict.fromkeys(SITES, 600),
        "site_keys": {site: public_hex(keys[site]) for site in SITES},
    }
    choices = Choices(
        target_risk=0.2, epsilon=4.0, grid=True, rounds=rounds, batch=200, policy="final",
        weights=dict.fromkeys(SITES, 0.5), **known,
    )  # fmt: skip
    registration = register_grid(choices, SITES)
    (folder / "registration.toml").write_text(registration.to_toml(), encoding="utf-8")
    for site in SITES:
        write_table(folder / site / "records.csv", [site], 600)
        with closing(Ledger(folder / site / "records.csv.ledger")) as ledger:
            allow(ledger, site, registration)
    return registration


def local(folder: Path, rounds: int) -> Walk:
    """`fedsrc certify` on a table of two sites."""
    walk = Walk()
    write_table(folder / "table.csv", SITES, 1500)
    table, run, key = folder / "table.csv", folder / "run", folder / "server.key"
    how = ("--target", 0.25, "--epsilon", 4, "--unit", "record", "--batch", 200, "--rounds", rounds, "--use-all")
    command(walk, "certify", table, *how, "-o", run, "--key", key)
    return walk


def files(folder: Path, rounds: int) -> Walk:
    """`fedsrc request`, then for every round `fedsrc release` at both sites and `fedsrc collect`."""
    walk = Walk()
    registered(folder, rounds)
    run, key = folder / "run", folder / "server.key"
    command(walk, "request", folder / "registration.toml", "-o", run, "--key", key)
    for number in range(1, rounds + 1):
        releases: list[Path] = []
        for request in sorted((run / "requests").glob(f"round-{number:04d}-*.json")):
            site = SITES[len(releases)]
            releases.append(folder / site / f"{number}.release.json")
            table, own = folder / site / "records.csv", folder / f"{site}.key"
            command(walk, "release", request, table, "--key", own, "-o", releases[-1])
        command(walk, "collect", run, *releases, "--key", key)
    return walk


class Here:
    """A post that carries letters to guards of this process."""

    def __init__(self, guards: Sequence[Guard]) -> None:
        self._guards = dict(enumerate(guards, start=1))
        self._replies: list[Frame] = []

    def nodes(self) -> list[Node]:
        return [Node(number) for number in self._guards]

    def push(self, letters: Sequence[Letter], seconds: float) -> list[str]:  # noqa: ARG002 (a Post's)
        for each in letters:
            question = Frame(HELLO if each.kind == "hello" else RELEASE, each.data)
            self._replies.append(self._guards[each.node].letter(question))
        return [str(len(self._replies) - len(letters) + i) for i in range(len(letters))]

    def pull(self, numbers: Sequence[str]) -> list[Reply]:
        return [_reply(number, self._replies[int(number)]) for number in numbers]


def _reply(number: str, answer: Frame) -> Reply:
    data = answer.data.rstrip(b" ")
    return Reply(number, data) if answer.kind == GIVEN else Reply(number, problem=data.decode(), refused=True)


def live(folder: Path, rounds: int) -> Walk:
    """Guards with their tables, and a live run that asks them."""
    walk = Walk()
    registration, keys = registered(folder, rounds), keys_of(folder)
    ledgers = [Ledger(folder / site / "records.csv.ledger") for site in SITES]
    with followed(walk):
        guards = [
            Guard(registration, site, ledger, lambda site=site: Table(folder / site / "records.csv"), keys[site])  # type: ignore[misc]
            for site, ledger in zip(SITES, ledgers, strict=True)
        ]
        for guard in guards:
            guard.open()
        play(registration, folder / "run", keys["server"], Here(guards))
    for ledger in ledgers:
        ledger.close()
    return walk


def measure(mode: Callable[[Path, int], Walk], rounds: int) -> Walk:
    """Play a mode once to have everything imported and compiled, then once to be counted."""
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            walk = mode(Path(folder), rounds)
    return walk


def main() -> None:
    modes = (local, files, live)
    one, two = [measure(mode, 1) for mode in modes], [measure(mode, 2) for mode in modes]
    rows: dict[str, list[int]] = {
        "modules": [len(walk.modules) for walk in one],
        "changes of module, one round": [walk.changes.total() for walk in one],
        "changes of module, the second round": [
            b.changes.total() - a.changes.total() for a, b in zip(one, two, strict=True)
        ],
        **{what: [walk.of(names) for walk in one] for what, names in COUNTED.items()},
    }
    print(f"{'one round, two sites, two releases':<40}{'local':>8}{'files':>8}{'live':>8}")
    for what, counts in rows.items():
        print(f"{what:<40}" + "".join(f"{count:>8,}" for count in counts))


if __name__ == "__main__":
    main()
