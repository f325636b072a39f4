"""A stranger at the node door: idle bodies, idle headers, many connections and large bodies hold up no node.

Mutants killed: a body that is read while it holds a place among the calls passed on, a limit on bytes or connections
that is not per address, bytes that are never given back, a newcomer turned away while idle connections stay, a call
that was whole pushed out, a connection without a deadline for its header or its body, one that goes on sending after
it has been answered.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsrc.federation.flower import callers, node_proxy
from fedsrc.federation.flower.callers import Callers, address_of
from fedsrc.federation.flower.node_proxy import Held, Way, make_app, make_server

GUARD = 60.0  # seconds after which a test that hangs fails; nothing here takes one
CALL = b"POST /v1/fleet/pull-messages HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n"


def superlink() -> httpx.AsyncClient:
    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, stream=httpx.ByteStream(b"fine"))

    return httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://superlink")


class Stranger:
    """A call whose body stops after some bytes, from an address."""

    def __init__(self, host: str, body: bytes = b"") -> None:
        self.host, self.body, self.status = host, body, 0
        self.more, self.read = asyncio.Event(), asyncio.Event()
        self._sent = False

    async def __call__(self, app: Callable[..., Awaitable[None]]) -> int:
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
            "path": "/v1/fleet/push-object", "raw_path": b"/v1/fleet/push-object", "query_string": b"", "headers": [],
            "client": (self.host, 1),
        }  # fmt: skip
        await app(scope, self._receive, self._send)
        return self.status

    async def _receive(self) -> Any:
        if not self._sent:
            self._sent = True
            return {"type": "http.request", "body": self.body, "more_body": True}
        self.read.set()
        await self.more.wait()
        return {"type": "http.request", "body": b"", "more_body": False}

    async def _send(self, part: Any) -> None:
        self.status = part.get("status", self.status)


async def call(app: Any, host: str) -> int:
    transport = httpx.ASGITransport(app, client=(host, 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://door", timeout=None) as node:
        return (await node.post("/v1/fleet/pull-messages", content=b"x")).status_code


@pytest.mark.parametrize("count", [64, 256])
def test_idle_bodies_hold_up_no_call(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Attack A2: so many bodies that never end, of the very address that the node has."""
    monkeypatch.setattr(node_proxy, "BODY_SECONDS", 3600.0)

    async def scene() -> int:
        app, strangers = make_app(superlink()), [Stranger("10.0.0.1") for _ in range(count)]
        async with asyncio.TaskGroup() as group, asyncio.timeout(GUARD):
            for each in strangers:
                group.create_task(each(app))
            status = await call(app, "10.0.0.1")
            for each in strangers:
                each.more.set()
        return status

    assert asyncio.run(scene()) == 200


def test_bodies_in_memory_are_bounded_by_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """One address fills its share: its next body is refused, another's is not, and what is gone makes room."""
    monkeypatch.setattr(node_proxy, "BODY_SECONDS", 3600.0)
    monkeypatch.setattr(node_proxy, "ADDRESS_BYTES", 100)

    async def scene() -> list[int]:
        app, first = make_app(superlink()), Stranger("10.0.0.1", b"x" * 100)
        async with asyncio.timeout(GUARD):
            held = asyncio.create_task(first(app))
            await first.read.wait()
            found = [await call(app, "10.0.0.1"), await call(app, "10.0.0.2")]
            first.more.set()
            return [*found, await held, await call(app, "10.0.0.1")]

    assert asyncio.run(scene()) == [503, 200, 200, 200]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.booleans())))
def test_bytes_held_never_pass_their_limits(steps: list[tuple[int, int, bool]]) -> None:
    """Mutants killed: no limit in all, no limit of one address, bytes refused but counted, bytes not given back."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_proxy, "HELD_BYTES", 20)
        patch.setattr(node_proxy, "ADDRESS_BYTES", 8)
        held, known = Held(), Counter[str]()
        for address, size, give in ((str(number), size, give) for number, size, give in steps):
            if give:
                held.give(address, known.pop(address, 0))
                continue
            room = known.total() + size <= 20 and known[address] + size <= 8
            assert held.take(address, size) == room
            known[address] += size if room else 0


@dataclass(eq=False)
class Someone:
    since: float
    waiting: bool = True
    left: list[float] = field(default_factory=list)

    def waits(self) -> bool:
        return self.waiting

    def leave(self) -> None:
        self.left.append(self.since)


def test_a_newcomer_takes_the_place_of_who_waited_longest() -> None:
    here, left = Callers(each=3, total=100), list[float]()
    busy, other = Someone(0.0, waiting=False, left=left), Someone(0.5, left=left)
    here.come("a", busy)
    here.come("b", other)
    for since in (2.0, 1.0, 3.0, 4.0):
        here.come("a", Someone(since, left=left))
    assert left == [1.0, 2.0]  # never the one being answered, never one of another address


def test_a_newcomer_leaves_where_everybody_is_being_answered() -> None:
    here, left = Callers(each=2, total=100), list[float]()
    for since in (1.0, 2.0):
        here.come("a", Someone(since, waiting=False, left=left))
    here.come("a", Someone(3.0, left=left))
    assert left == [3.0]


def test_a_full_door_makes_room_where_most_stand() -> None:
    here, left = Callers(each=100, total=5), list[float]()
    for since in range(4):
        here.come("many", Someone(float(since), left=left))
    here.come("node", Someone(-1.0, left=left))
    here.come("another node", Someone(9.0, left=left))
    assert left == [0.0]


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.booleans()), max_size=60))
def test_connections_never_pass_their_limits(steps: list[tuple[int, bool, bool]]) -> None:
    """Whoever comes and goes in whatever order. Mutants killed: one that left counted twice, or not at all."""
    here, inside = Callers(each=4, total=7), dict[Someone, str]()
    for since, (number, waiting, goes) in enumerate(steps):
        if goes and inside:
            someone, address = next(iter(inside.items()))
            del inside[someone]
            here.go(address, someone)
            here.go(address, someone)  # a connection that is lost may have been let go before
            continue
        here.come(str(number), someone := Someone(float(since), waiting))
        inside[someone] = str(number)
        inside = {each: at for each, at in inside.items() if not each.left}
        most = Counter(inside.values())
        assert len(inside) <= 7
        assert max(most.values(), default=0) <= 4
        assert len(inside) == here._count


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "10.0.0.1", True), ("10.0.0.1", "10.0.0.2", False), ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("2001:db8::1", "2001:db8::ffff:1", True), ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2", True),
        ("", "testclient", False),
    ],
)  # fmt: skip
def test_who_counts_as_one_address(one: str, other: str, same: bool) -> None:
    assert (address_of(one) == address_of(other)) is same


@contextmanager
def door() -> Iterator[Callable[[bytes], socket.socket]]:
    """The door with a SuperLink behind it, on a socket of this machine; gives a way to send it bytes."""
    with closing(socket.create_server(("127.0.0.1", 0), backlog=200)) as listener:
        server = make_server(make_app(superlink()), Way("127.0.0.1", 0, 0))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        links: list[socket.socket] = []

        def send(data: bytes) -> socket.socket:
            links.append(socket.create_connection(listener.getsockname(), GUARD))
            links[-1].sendall(data)
            return links[-1]

        try:
            yield send
        finally:
            for link in links:
                link.close()
            server.should_exit = True
            thread.join(GUARD)


def said(link: socket.socket) -> bytes:
    """What the door sends until it closes the connection; a reset says nothing."""
    data = b""
    try:
        while part := link.recv(4096):
            data += part
    except ConnectionResetError:
        pass
    return data


def first_line(link: socket.socket) -> bytes:
    """The status of an answer, which is read to its end."""
    data = b""
    while not data.endswith(b"fine") and (part := link.recv(4096)):
        data += part
    return data.partition(b"\r\n")[0]


def test_over_sockets_a_node_is_answered_among_idle_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    """More idle connections than an address may have: the longest idle ones are closed, the node's call is answered."""
    monkeypatch.setattr(callers.Connection, "callers", Callers(each=20))
    monkeypatch.setattr(node_proxy, "BODY_SECONDS", 3600.0)
    monkeypatch.setattr(callers, "WHOLE_SECONDS", 3600.0)
    with door() as send:
        idle = [send(CALL) for _ in range(25)]
        assert first_line(send(CALL + b"x")) == b"HTTP/1.1 200 OK"
        assert [said(each) for each in idle[:5]] == [b""] * 5


@pytest.mark.parametrize("begun", [b"", b"POST /v1/fl", CALL], ids=["nothing", "part of a header", "no body"])
def test_over_sockets_whoever_stops_sending_is_let_go(monkeypatch: pytest.MonkeyPatch, begun: bytes) -> None:
    for module, name in [(callers, "HEADER_SECONDS"), (node_proxy, "BODY_SECONDS")]:
        monkeypatch.setattr(module, name, 0.2)
    with door() as send:
        assert said(send(begun)).partition(b"\r\n")[0] in (b"", b"HTTP/1.1 408 Request Timeout")


def test_over_sockets_an_early_answer_ends_the_connection() -> None:
    """A call to nowhere is answered before its body, and what still comes is not read for ever."""
    with door() as send:
        link = send(b"POST /nowhere HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n")
        assert said(link).startswith(b"HTTP/1.1 404")


def test_over_sockets_a_header_is_bounded() -> None:
    with door() as send:
        link = send(b"POST /v1/fleet/pull-messages HTTP/1.1\r\nHost: a\r\nX: " + b"x" * callers.HEADER_BYTES)
        assert said(link).startswith(b"HTTP/1.1 400")


def test_over_sockets_a_node_keeps_its_connection() -> None:
    with door() as send:
        link = send(CALL + b"x")
        assert first_line(link) == b"HTTP/1.1 200 OK"
        link.sendall(CALL + b"x")
        assert first_line(link) == b"HTTP/1.1 200 OK"
