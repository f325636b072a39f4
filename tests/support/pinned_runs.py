"""Fixed runs in every mode, with noise, clock, seeds and keys made fixed: a digest for every file they write.

    python -m tests.support.pinned_runs FOLDER > after.txt

Whoever moves code, and means to change nothing, compares the digests before and after. A test compares them with
tests/golden/pinned-runs.txt; a change that is meant to change bytes writes that file anew, and says why.
"""

from __future__ import annotations

import hashlib
import json
import random
import secrets
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedsrc.common.signing import public_hex
from fedsrc.federation.airgap import answer_file, collect, start
from fedsrc.federation.flower.app.fedsrc_relay.wire import GIVEN, HELLO, RELEASE, Frame
from fedsrc.federation.live.guard import Guard
from fedsrc.federation.live.play import play
from fedsrc.federation.live.transport import Letter, Node, Reply
from fedsrc.federation.local import certify_table, register_table
from fedsrc.maths.arrays import Ints
from fedsrc.monitor.fresh import monitor_table
from fedsrc.monitor.monitor import MonitorChoices, register_monitor
from fedsrc.planning.register import Choices, development_part, register_grid
from fedsrc.protocol.certificate import MonitorAccount, read_signed
from fedsrc.protocol.messages import read_request
from fedsrc.protocol.registration import Registration
from fedsrc.records.stream import Table
from fedsrc.records.table import read_records
from fedsrc.report.card import card_text
from fedsrc.report.markdown import card_markdown
from fedsrc.report.view import view_run
from fedsrc.server.verify import verify
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow

TIME = "2026-01-02T03:04:05Z"
SITES = ("north", "south")
KINDS = (".toml", ".jsonl", ".json", ".txt", ".md")
LOCAL: dict[str, dict[str, Any]] = {
    "betting": {"target_risk": 0.25, "epsilon": 4.0},
    "no-noise": {"target_risk": 0.25, "epsilon": float("inf")},
    "weights": {"target_risk": 0.25, "epsilon": 2.0, "weights": {"north": 0.7, "south": 0.3}, "drift": {"north": 0.01}},
    "paper": {"target_risk": 0.3, "epsilon": 8.0, "preset": "paper"},
    "variance": {"target_risk": 0.3, "epsilon": 8.0, "preset": "paper", "method": "variance-adaptive"},
    "ratio": {"target_risk": 0.3, "epsilon": 8.0, "preset": "paper", "method": "ratio"},
    "final": {"target_risk": 0.25, "epsilon": 4.0, "policy": "final", "rounds": 4},
    "recruit": {"target_risk": 0.25, "epsilon": 4.0, "policy": "recruit", "rounds": 12},
    "abstain": {"target_risk": 0.02, "epsilon": 1.0, "rounds": 3},
    "adversarial": {"target_risk": 0.25, "epsilon": 4.0, "dropout": "adversarial"},
    "zero-out": {"target_risk": 0.25, "epsilon": 4.0, "adjacency": "zero-out"},
    "holder": {"target_risk": 0.25, "epsilon": 4.0, "aggregation": "holder"},
    "holder-charged": {"target_risk": 0.25, "epsilon": 4.0, "aggregation": "holder", "dropout": "adversarial"},
}


def key(name: str) -> Ed25519PrivateKey:
    """A key that its name decides."""
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(f"key {name}".encode()).digest())


def write_table(
    path: Path, count: int, seed: str, *, sites: Sequence[str] = SITES, answers: int = 1, graded: bool = False,
    bad: float = 0.35, prefix: str = "a",
) -> None:  # fmt: skip
    """A table whose score orders its loss well; without sites, one site's own."""
    draw, lines = random.Random(seed), ["id,site,source,score,loss" if sites else "id,score,loss"]
    for i in range(count):
        for k in range(answers):
            loss = draw.choice([0, 0.5, 1]) if graded else int(draw.random() < bad)
            score = min(1, max(0, draw.gauss(0.45 if loss else 0.75, 0.15)))
            where = f"{prefix}{i}-{k},{sites[i % len(sites)]},{prefix}s{i}" if sites else f"{prefix}{i}"
            lines.append(f"{where},{score:.3f},{loss}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")


def in_one_process(folder: Path, unit: str, **choices: Any) -> None:
    """Certify the folder's table, a fifth of it set apart."""
    records = read_records(folder / "table.csv")
    picked = Choices(unit=unit, independent=unit == "record", **choices)  # type: ignore[arg-type]
    registered = register_table(picked, records, development_part(records, picked.unit, 0.2), folder / "ledger")
    certify_table(registered, records, folder / "run", folder / "ledger", key("server"))
    verify(folder / "run")


def local(root: Path) -> None:
    """Every preset, method, policy and rule for dropout; sources; graded losses."""
    for name, choices in LOCAL.items():
        write_table(root / name / "table.csv", 3000, name)
        in_one_process(root / name, "record", **choices)
    write_table(root / "sources" / "table.csv", 1500, "s", answers=3)
    in_one_process(root / "sources", "source", target_risk=0.3, epsilon=8.0)
    write_table(root / "graded" / "table.csv", 3000, "g", graded=True)
    in_one_process(root / "graded", "record", target_risk=0.45, epsilon=8.0, loss_grid=100)


def grid_registration(sites: Sequence[str], capacity: int, **choices: Any) -> Registration:
    """A registration that looked at no record."""
    known = {"capacities": dict.fromkeys(sites, capacity), "site_keys": {site: public_hex(key(site)) for site in sites}}
    picked = Choices(epsilon=4.0, grid=True, server_key=public_hex(key("server")), **known, **choices)  # type: ignore[arg-type]
    return register_grid(picked, sites)


def by_files(folder: Path, sites: Sequence[str], find: Callable[[Path], Any], registered: Registration) -> None:
    """A run by files in which the second site misses the second round."""
    for site in sites:
        with closing(Ledger(folder / site / "ledger")) as ledger:
            allow(ledger, site, registered, max_epsilon=5.0)
    state, turn = start(registered, folder / "run", key("server")), 0
    while state.certificate is None:
        given = []
        for request in state.waiting:
            site = read_request(request).request.site
            if turn == 1 and site == sites[1]:
                continue
            place = folder / site / "release.json"
            with closing(Ledger(folder / site / "ledger")) as ledger:
                table = folder / site / "table.csv"
                place.write_bytes(answer_file(request, lambda table=table: find(table), ledger, key(site)))  # type: ignore[misc]
            given.append(place)
        state, turn = collect(folder / "run", given, key("server"), without_missing=True), turn + 1
    verify(folder / "run")


def files(root: Path) -> None:
    """In memory; and in batches, with letters beyond ASCII, an absence that is charged, and a small remainder."""
    for site in SITES:
        write_table(root / "whole" / site / "table.csv", 600, site, sites=(), prefix=site)
    weights = dict.fromkeys(SITES, 0.5)
    registered = grid_registration(SITES, 600, target_risk=0.2, rounds=4, batch=100, weights=weights)
    by_files(root / "whole", SITES, read_records, registered)
    others = ("nörd", "süd", "日本")
    for site in others:
        write_table(root / "batches" / site / "table.csv", 690, site, sites=(), prefix=site)
    claim = {"loss": "nicht gestützt"}
    charged = {"dropout": "adversarial", "claim": claim}
    registered = grid_registration(others, 690, target_risk=0.02, rounds=9, batch=200, **charged)
    by_files(root / "batches", others, Table, registered)


class Post:
    """Carries letters to guards of this process, and gives up after so many."""

    def __init__(self, guards: Sequence[Guard], end: int) -> None:
        self.guards, self.end = dict(enumerate(guards, start=1)), end
        self.heard: list[tuple[str, ...]] = []
        self._replies: dict[str, Frame] = {}

    def nodes(self) -> list[Node]:
        return [Node(number) for number in self.guards]

    def push(self, letters: Sequence[Letter], seconds: float) -> list[str]:
        sent = []
        for letter in letters:
            if len(self.heard) == self.end:
                raise KeyboardInterrupt
            answer = self.guards[letter.node].letter(Frame(HELLO if letter.kind == "hello" else RELEASE, letter.data))
            told = (letter.data, answer.kind + answer.data)
            self.heard.append((letter.kind, *(hashlib.sha256(each).hexdigest() for each in told)))
            sent.append(str(len(self.heard)))
            self._replies[sent[-1]] = answer
        return sent

    def pull(self, numbers: Sequence[str]) -> list[Reply]:
        return [_reply(each, self._replies.pop(each)) for each in numbers if each in self._replies]


def _reply(number: str, answer: Frame) -> Reply:
    said = answer.data.rstrip(b" ")
    return Reply(number, said) if answer.kind == GIVEN else Reply(number, problem=said.decode(), refused=True)


def live(root: Path) -> None:
    """A live run that is cut off, and resumed by new processes on the same folders."""
    weights = dict.fromkeys(SITES, 0.5)
    registered = grid_registration(SITES, 600, target_risk=0.1, rounds=5, batch=100, weights=weights)
    for site in SITES:
        write_table(root / site / "table.csv", 600, f"live{site}", sites=(), prefix=site)
        with closing(Ledger(root / site / "ledger")) as ledger:
            allow(ledger, site, registered)
    for life, end in enumerate((6, -1)):
        books = [Ledger(root / site / "ledger") for site in SITES]
        guards = [
            Guard(registered, site, book, lambda site=site: Table(root / site / "table.csv"), key(site))  # type: ignore[misc]
            for site, book in zip(SITES, books, strict=True)
        ]
        for guard in guards:
            guard.open()
        post = Post(guards, end)
        try:
            play(registered, root / "run", key("server"), post)
        except KeyboardInterrupt:
            assert end > 0
        for book in books:
            book.close()
        (root / f"letters-{life}.json").write_text(json.dumps(post.heard), encoding="utf-8")
    verify(root / "run")


def monitored(root: Path, certified: Path) -> None:
    """A monitor that is fed a week like the certificate's, and a worse one."""
    registered = register_monitor(certified / "run", MonitorChoices())
    for week, bad in enumerate((0.35, 0.8)):
        write_table(root / f"week{week}.csv", 800, f"w{week}", bad=bad, prefix=f"w{week}")
        table = read_records(root / f"week{week}.csv")
        monitor_table(registered, table, root / "run", certified / "ledger", key("server"))


def cards(root: Path) -> None:
    """What people read of every run."""
    for run in sorted(root.rglob("run")):
        found = read_signed(run / "certificate.json")
        if isinstance(found, MonitorAccount):
            continue
        (run / "card.txt").write_text(card_text(found), encoding="utf-8")
        view = view_run(run)
        view["folder"], view["verify"], view["progress"]["changed"] = "run", "", None
        (run / "card.md").write_text(card_markdown(view), encoding="utf-8")


def digests(root: Path) -> Iterator[str]:
    """A line for every file, and for every ledger."""
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.suffix in KINDS:
            yield f"{hashlib.sha256(path.read_bytes()).hexdigest()[:24]} {path.relative_to(root).as_posix()}"
    for path in sorted(root.rglob("ledger")):
        with closing(sqlite3.connect(path)) as sql:
            tables = sql.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
            rows = [(name, made, sql.execute(f"SELECT * FROM {name}").fetchall()) for name, made in tables]
        yield f"{hashlib.sha256(repr(rows).encode()).hexdigest()[:24]} {path.relative_to(root).as_posix()}"


def play_all(root: Path) -> list[str]:
    """Play every run into an empty folder, with all randomness and time fixed."""
    rng, bits = np.random.default_rng(1), random.Random(2)

    def noise(values: Ints, scale: float, **_: object) -> Ints:
        return values if scale == 0 else values + np.rint(scale * rng.standard_normal(values.shape)).astype(np.int64)

    with (
        patch("fedsrc.site.release.add_discrete_gaussian", noise),
        patch("fedsrc.site.site.utc_now", lambda: TIME),
        patch("fedsrc.protocol.monitor_status.utc_now", lambda: TIME),
        patch.object(secrets, "randbits", bits.getrandbits),
        patch.object(secrets, "token_hex", lambda size: f"{bits.getrandbits(8 * size):0{2 * size}x}"),
    ):
        local(root / "local")
        files(root / "files")
        live(root / "live")
        monitored(root / "monitor", root / "local" / "betting")
    cards(root)
    return list(digests(root))


if __name__ == "__main__":
    print("\n".join(play_all(Path(sys.argv[1]))))
