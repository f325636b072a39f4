"""A process that serves a gate over HTTP until it is told to stop."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import Callable
from http import HTTPStatus

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from fedsrc.errors import FedsrcError
from fedsrc.gate.gate import Gate
from fedsrc.gate.service.door import service
from fedsrc.gate.service.signals import halted_by_signal
from fedsrc.gate.service.throttle import SAFE_HEADERS, Limits, Throttle

HEADER_BYTES = 16_384
TOO_LARGE = 431
CONNECTIONS = 512
IDLE_SECONDS = 30  # a connection may rest between requests
HEADER_SECONDS = 10.0  # and a request's header must then be there whole
LAST_SECONDS = 10  # for requests under way when told to stop
Maker = Callable[[Gate, Limits], Throttle]  # of another app than the gate's own
REFUSALS = {400: "this is no HTTP request as this service reads it", 431: "the header is too large"}


class BoundedHeaders(h11.Connection):
    """A server's side of a connection that refuses a larger header; `refusal` is then the status to answer with.

    h11 bounds a header that is not complete yet: one that comes whole, in a single piece, it takes at any size.
    """

    refusal = 400

    def __init__(self) -> None:
        super().__init__(h11.SERVER, HEADER_BYTES)

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        try:
            return self._next_request() if self.their_state is h11.IDLE else super().next_event()
        except h11.RemoteProtocolError as error:
            self.refusal = TOO_LARGE if error.error_status_hint == TOO_LARGE else 400
            raise

    def _next_request(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        before = self._waiting()
        event = super().next_event()
        if isinstance(event, h11.Request) and before - self._waiting() > HEADER_BYTES:
            raise h11.RemoteProtocolError("the header is too large", error_status_hint=TOO_LARGE)
        return event

    def _waiting(self) -> int:
        return len(self.trailing_data[0])  # bytes that came and were not yet parsed


class Impatient(H11Protocol):
    """Refuses a large header, and closes a connection that keeps the server waiting for its first or next one."""

    _deadline: asyncio.TimerHandle | None = None
    conn: BoundedHeaders

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.conn = BoundedHeaders()
        super().connection_made(transport)
        self._wait(HEADER_SECONDS)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._deadline is not None and self.conn.their_state is not h11.IDLE:
            self._deadline.cancel()
            self._deadline = None

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.IDLE:
            self._wait(IDLE_SECONDS + HEADER_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  # the words are ours
        """Refuse what is no request, in the words and with the headers of every other refusal, and close."""
        status = self.conn.refusal
        data = json.dumps({"error": REFUSALS[status]}).encode()
        own = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
        own.append((b"connection", b"close"))
        reason = HTTPStatus(status).phrase.encode()
        start = h11.Response(status_code=status, reason=reason, headers=[*own, *SAFE_HEADERS])
        for event in (start, h11.Data(data=data), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _wait(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(seconds, self.timeout_keep_alive_handler)


def bind(host: str, port: int) -> socket.socket:
    """Open a socket that listens; port 0 takes a free one.

    It names its protocol: asyncio sends small pieces at once only on sockets that do, and others wait 40 ms a response.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(CONNECTIONS)
    except OSError as error:
        listener.close()
        raise FedsrcError(f"cannot listen: {error.strerror or error}", where=f"{host}:{port}") from error
    return listener


def server(gate: Gate, limits: Limits, make: Maker | None = None) -> uvicorn.Server:
    """Return the HTTP server. It logs its own faults, and nothing that a client can make it repeat."""
    config = uvicorn.Config(
        (make or service)(gate, limits), http=Impatient, loop="asyncio", ws="none", lifespan="off", access_log=False,
        log_level="error", server_header=False, proxy_headers=False, limit_concurrency=CONNECTIONS,
        timeout_keep_alive=IDLE_SECONDS, timeout_graceful_shutdown=LAST_SECONDS,
    )  # fmt: skip
    return uvicorn.Server(config)


def serve(
    gate: Gate, listener: socket.socket, limits: Limits, ready: Callable[[], None], make: Maker | None = None
) -> None:
    """Serve until SIGTERM or SIGINT, which let requests under way end. SIGUSR1 halts the gate."""
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: None)  # after its own clean end the server raises the signal once more
    with halted_by_signal(gate):
        ready()
        server(gate, limits, make).run(sockets=[listener])
