"""Around the service: for which host, how many bytes, how fast and how long, and the headers of every response.

Plain ASGI, outside of the framework: a request that is refused here has been neither parsed nor kept.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from fedsrc.gate.service.hosts import LOOPBACK, named_in

Message = MutableMapping[str, Any]  # and what ASGI calls a scope
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

UNLIMITED = ("/healthz", "/metrics")  # a busy service can still be asked how it is
SAFE_HEADERS = [
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
]
NOT_THIS_HOST = "this service does not answer to that host name: --allow-host names those that it does"
TOO_LARGE = "the body is too large"
TOO_SLOW = "the body did not arrive in time"
TOO_MANY = "too many requests: try again after the seconds in the Retry-After header"
CLOSING = {"connection": "close"}


@dataclass(frozen=True)
class Limits:
    """Bytes of a body, seconds until it is all there, requests a second of all clients together, and host names."""

    max_bytes: int = 65_536
    seconds: float = 10.0
    rate: float = 1_000.0
    hosts: frozenset[str] = LOOPBACK


class Bucket:
    """Lets `rate` requests a second through, and as many at once after a rest."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._room, self._clock = rate, max(1.0, rate), clock
        self._left, self._last = self._room, clock()

    def take(self) -> float:
        """Return 0 if one more request may pass now, otherwise the seconds until one may."""
        now = self._clock()
        self._left = min(self._room, self._left + (now - self._last) * self._rate)
        self._last = now
        if self._left >= 1.0:
            self._left -= 1.0
            return 0.0
        return (1.0 - self._left) / self._rate


class Throttle:
    """An ASGI app within limits. `count` is told the status of every response that is an error."""

    def __init__(self, app: App, limits: Limits, count: Callable[[int], None]) -> None:
        self._app, self._limits, self._count = app, limits, count
        self._bucket = Bucket(limits.rate)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Refuse a request, or hand it over once its body is complete."""
        if scope["type"] != "http":
            return
        sender = _Sender(scope, receive, send, self._count)
        if not _meant(scope, self._limits.hosts):
            await sender.refuse(421, NOT_THIS_HOST, CLOSING)
            return
        wait = 0.0 if scope["path"] in UNLIMITED else self._bucket.take()
        if wait > 0:
            await sender.refuse(429, TOO_MANY, {"retry-after": str(math.ceil(wait))})
            return
        try:
            async with asyncio.timeout(self._limits.seconds):
                body = await _body(Request(scope, receive), self._limits.max_bytes)
        except TimeoutError:
            await sender.refuse(408, TOO_SLOW, CLOSING)
        except ClientDisconnect:
            return
        else:
            if body is None:
                await sender.refuse(413, TOO_LARGE, CLOSING)
            else:
                await self._app(scope, _replay(body, receive), sender)


class _Sender:
    """Sends a response with safe headers, and counts it if it is an error."""

    def __init__(self, scope: Message, receive: Receive, send: Send, count: Callable[[int], None]) -> None:
        self._scope, self._receive, self._send, self._count = scope, receive, send, count

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *SAFE_HEADERS]}
            if message["status"] >= 400:
                self._count(message["status"])
        await self._send(message)

    async def refuse(self, status: int, words: str, headers: Mapping[str, str]) -> None:
        await JSONResponse({"error": words}, status, headers)(self._scope, self._receive, self)


def _meant(scope: Message, hosts: frozenset[str]) -> bool:
    """Return whether a request names one of the hosts, or the very address that it came to."""
    named = named_in(next((value for name, value in scope["headers"] if name == b"host"), b""))
    return named is not None and (named in hosts or named == (scope.get("server") or ("",))[0])


async def _body(request: Request, most: int) -> bytes | None:
    """Read the whole body; None as soon as it is known to be too large."""
    announced, data = request.headers.get("content-length", "0"), bytearray()
    if announced.isdigit() and int(announced[:20]) > most:
        return None
    async for piece in request.stream():
        data += piece
        if len(data) > most:
            return None
    return bytes(data)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that yields the body in one piece, and then whatever the connection still says."""
    pieces = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def again() -> Message:
        message = next(pieces, None)
        return await receive() if message is None else message

    return again
