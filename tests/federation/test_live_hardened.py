"""The live mode against parties that mean harm, piece by piece: replies that break Flower or never end, a table changed
under a site's feet, a door for nodes that strangers lean against, a port that is somebody else's.

Mutants killed: a reply pulled in one batch with others, or without a time limit; a reply's own word for the letter it
answers believed; `fresh` said of a later table; a ledger that others can read; a door that passes an operator's call.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from fedsrc.errors import FedsrcError
from fedsrc.federation.flower import node_proxy as node_door
from fedsrc.federation.flower.app.fedsrc_relay.wire import GIVEN, REFUSED, RELEASE, Frame
from fedsrc.federation.flower.grid import FlowerPost
from fedsrc.federation.flower.processes import check_free, free_port
from fedsrc.federation.live.guard import Guard
from fedsrc.federation.live.transport import Patience, Reply
from fedsrc.protocol.messages import Refusal, Request, SignedRequest
from fedsrc.records.units import Records
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow
from research.attacks.struck import key
from tests.support.crash_scenarios import files_registration
from tests.support.helpers import table
from tests.support.live_scenarios import SERVER

REG = files_registration()


def message(data: bytes, to: str) -> Any:
    record = {"fedsrc": {"kind": GIVEN, "data": data}}
    metadata = SimpleNamespace(reply_to_message_id=to, src_node_id=1)
    return SimpleNamespace(metadata=metadata, content=record, error=None, has_content=lambda: True)


class Grid:
    """Flower's grid, as far as pulling goes: for each letter, what happens when its reply is pulled."""

    def __init__(self, replies: dict[str, Callable[[], Any]]) -> None:
        self.replies = replies

    def pull_messages(self, numbers: list[str]) -> list[Any]:
        return [self.replies.pop(number)() for number in numbers if number in self.replies]


def test_one_nodes_reply_breaks_no_others() -> None:
    """One raises inside Flower, one never comes whole, one claims to answer another's letter: the rest are read."""
    over = threading.Event()

    def broken() -> Any:
        raise AttributeError("'ConfigRecord' object has no attribute 'metadata'")

    def endless() -> Any:
        over.wait(60)

    grid = Grid(
        {
            "1": broken,
            "2": endless,
            "3": lambda: message(b"good  ", "3"),
            "4": lambda: message(b"mine", "3"),
        }
    )
    found = FlowerPost(grid, seconds=0.2).pull(["1", "2", "3", "4", "5"])
    over.set()
    assert found == [
        Reply("1", problem="a reply that cannot be read: AttributeError"),
        Reply("2", problem="a reply that did not come whole in time"),
        Reply("3", b"good"),
        Reply("4", b"mine"),
    ]


def request(number: int) -> Frame:
    scale = REG.mechanism.scale
    asked = Request(registration=REG.digest, number=number, round=number, site="a", slots=60, scale=scale)
    return Frame(RELEASE, SignedRequest.by(asked, SERVER).to_bytes())


def test_fresh_is_said_of_one_table(tmp_path: Path) -> None:
    """A table without ids, changed while the site runs, is not taken in again on the same word."""
    tables: list[Records] = [table(100, sites=("a",))]
    with closing(Ledger(tmp_path / "ledger")) as ledger:
        allow(ledger, "a", REG, max_epsilon=10.0)
        guard = Guard(REG, "a", ledger, lambda: tables[-1], key(0), fresh=True)
        assert guard.answer(request(1)).kind == GIVEN
        tables.append(table(101, sites=("a",)))
        for number in (2, 3, 4):
            guard.answer(Frame(RELEASE, b"{}"))
            assert guard.answer(request(number)) == Frame(REFUSED, Refusal.CANNOT.encode())
        assert ledger.given("a", REG.digest) == 60


def test_garbage_does_not_make_a_site_read_its_table_again(tmp_path: Path) -> None:
    reads = []

    def find() -> Records:
        reads.append(1)
        return table(200, sites=("a",), ids=True)

    with closing(Ledger(tmp_path / "ledger")) as ledger:
        allow(ledger, "a", REG, max_epsilon=10.0)
        guard = Guard(REG, "a", ledger, find, key(0))
        guard.open()
        for _ in range(5):
            assert guard.answer(Frame(RELEASE, b"{}")).kind == REFUSED
        assert guard.answer(request(1)).kind == GIVEN
    assert reads == [1]


def test_a_ledger_is_its_owners_alone(tmp_path: Path) -> None:
    with closing(Ledger(tmp_path / "ledger")) as ledger:
        allow(ledger, "a", REG, max_epsilon=10.0)
        modes = {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {0o600}


def test_a_port_of_somebody_elses_is_not_ours() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(FedsrcError, match="in use"):
            check_free("127.0.0.1", other.getsockname()[1], seconds=0.1)
    check_free("127.0.0.1", free_port())


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_patience_is_a_number(seconds: float) -> None:
    with pytest.raises(FedsrcError, match="above zero"):
        replace(Patience(), round=seconds)


# The door for nodes of other machines


def through(method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> tuple[Any, list[Any]]:
    """What the door answers, and what of it reached the SuperLink."""
    reached: list[Any] = []

    def superlink(asked: httpx.Request) -> httpx.Response:
        reached.append((asked.method, asked.url.raw_path, asked.read(), asked.headers.get("flwr-signature")))
        return httpx.Response(200, stream=httpx.ByteStream(b"fine"), headers={"x-kept": "1"})

    async def ask() -> httpx.Response:
        inner = httpx.AsyncClient(transport=httpx.MockTransport(superlink), base_url="http://superlink")
        app = httpx.ASGITransport(node_door.make_app(inner))
        async with inner, httpx.AsyncClient(transport=app, base_url="http://door") as outer:
            return await outer.request(method, path, content=body, headers=headers)

    return asyncio.run(ask()), reached


def test_the_door_passes_the_calls_of_nodes() -> None:
    answer, reached = through("POST", "/v1/fleet/pull-messages", b"bytes", {"flwr-signature": "s"})
    assert (answer.status_code, answer.content, answer.headers["x-kept"]) == (200, b"fine", "1")
    assert reached == [("POST", b"/v1/fleet/pull-messages", b"bytes", "s")]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/control/start-run"), ("POST", "/v1/runtime/pull"), ("POST", "/"),
        ("GET", "/v1/fleet/pull-messages"),
        ("POST", "/v1/fleet/"), ("POST", "/v1/fleet/../control/start-run"), ("POST", "/v1/fleet/%2e%2e%2fcontrol"),
        ("POST", "/v1/fleet/..%2fcontrol%2fstart-run"), ("POST", "//v1/control/start-run"),
        ("POST", "/v1/fleet/pull-messages/x"), ("POST", "/v1/fleet/PULL"),
    ],
)  # fmt: skip
def test_the_door_passes_nothing_else(method: str, path: str) -> None:
    answer, reached = through(method, path, b"bytes")
    assert answer.status_code in (404, 405)
    assert reached == []


def test_the_door_reads_no_more_than_it_must() -> None:
    answer, reached = through("POST", "/v1/fleet/push-object", b"x" * (node_door.MAX_BYTES + 1))
    assert (answer.status_code, reached) == (413, [])


def test_a_silent_caller_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies that never end hold the door for a while only, and the superlink hears nothing of them."""
    monkeypatch.setattr(node_door, "BODY_SECONDS", 0.1)
    sent: list[Any] = []

    async def ask() -> None:
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
            "path": "/v1/fleet/push-object", "raw_path": b"/v1/fleet/push-object", "query_string": b"", "headers": [],
        }  # fmt: skip

        async def receive() -> Any:
            await asyncio.sleep(60)

        async def send(part: Any) -> None:
            sent.append(part)

        await node_door.make_app(None)(scope, receive, send)

    asyncio.run(ask())
    assert sent[0]["status"] == 408
