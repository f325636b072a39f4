"""The door: a proxy that lets other machines make the calls of nodes to a SuperLink, and no others.

Flower 1.41 serves nodes and operators at one port, and lets whoever reaches it submit an app. So the SuperLink stays on
127.0.0.1, and this process forwards POST /v1/fleet/... to it. `fedsrc server` runs it when --host is not this machine.

A caller is unknown until the SuperLink has checked a signature. So bodies are read within limits of time and memory for
each address, and only a complete body takes one of the slots for forwarded calls. `callers` limits connections alike.
"""

from __future__ import annotations

import asyncio
import re
import resource
import ssl
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

MAX_BYTES = 8_000_000  # Flower sends objects in chunks of 5 MB
BODY_SECONDS = 10.0  # for a body to be complete
CALLS = 64  # forwarded at once
HELD_BYTES, ADDRESS_BYTES = 512_000_000, 64_000_000  # of bodies in memory: in all, and of one address
SECONDS = 120.0
FILES = 32_000  # open files: more than the connections of `callers`
CALL = re.compile("[a-z-]{1,60}")
HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "host", "content-length"}
CLOSE = {"connection": "close"}


class Way(NamedTuple):
    """Where the door listens, where it forwards to, and its certificate files; without any, nothing is encrypted."""

    host: str
    port: int
    superlink_port: int
    ca: str = ""
    certificate: str = ""
    key: str = ""

    def command(self) -> list[str]:
        """Return the command that starts the door."""
        return [sys.executable, "-m", "fedsrc.federation.flower.node_proxy", *map(str, self)]


class Held:
    """Counts the bytes of bodies in memory, in all and for each address."""

    def __init__(self) -> None:
        self._total, self._of = 0, Counter[str]()

    def take(self, address: str, size: int) -> bool:
        """Count so many bytes more; return False if there is no room for them."""
        if self._total + size > HELD_BYTES or self._of[address] + size > ADDRESS_BYTES:
            return False
        self._total += size
        self._of[address] += size
        return True

    def give(self, address: str, size: int) -> None:
        """Release so many bytes."""
        self._total -= size
        self._of[address] -= size
        if not self._of[address]:
            del self._of[address]


class Body(AbstractContextManager["Body"]):
    """A request's body while it is read and forwarded; its bytes are counted."""

    def __init__(self, held: Held, address: str) -> None:
        self.data = bytearray()
        self._held, self._address = held, address

    async def read(self, parts: AsyncIterator[bytes]) -> int | None:
        """Read all of it; return None, or the HTTP status that says why not."""
        async for part in parts:
            if len(self.data) + len(part) > MAX_BYTES:
                return 413
            if not self._held.take(self._address, len(part)):
                return 503
            self.data += part
        return None

    def __exit__(self, *_: object) -> None:
        self._held.give(self._address, len(self.data))


def make_app(client: Any) -> Any:
    """Return an application that forwards node calls through an HTTP client, and answers 404 to the rest."""
    import httpx
    from starlette.applications import Starlette
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response
    from starlette.routing import Route

    from fedsrc.federation.flower.callers import address_of

    held, room = Held(), asyncio.Semaphore(CALLS)

    async def forward(request: Request) -> Response:
        call = request.path_params["call"]
        if not CALL.fullmatch(call):
            return Response(status_code=404)
        try:
            with Body(held, address_of(request.client.host if request.client else "")) as body:
                async with asyncio.timeout(BODY_SECONDS):
                    problem = await body.read(request.stream())
                if problem is not None:
                    return Response(status_code=problem, headers=CLOSE)
                async with room:
                    return await passed_on(call, bytes(body.data), _kept(request.headers))
        except (TimeoutError, ClientDisconnect):
            return Response(status_code=408, headers=CLOSE)
        except httpx.TransportError:
            return Response(status_code=503)

    async def passed_on(call: str, body: bytes, headers: dict[str, str]) -> Response:
        async with client.stream("POST", f"/v1/fleet/{call}", content=body, headers=headers) as answer:
            data = b"".join([part async for part in answer.aiter_raw()])
        return Response(data, answer.status_code, _kept(answer.headers))

    return Starlette(routes=[Route("/v1/fleet/{call}", forward, methods=["POST"])])


def _kept(headers: Any) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in HOP}


def make_server(app: Any, way: Way) -> Any:
    """Return the HTTP server of the door, with its limits on callers."""
    import uvicorn

    from fedsrc.federation.flower import callers

    asyncio.constants.SSL_HANDSHAKE_TIMEOUT = callers.HANDSHAKE_SECONDS  # type: ignore[attr-defined]  # uvicorn has no option
    config = uvicorn.Config(
        app, host=way.host, port=way.port, log_level="critical", access_log=False, server_header=False,
        ssl_certfile=way.certificate or None, ssl_keyfile=way.key or None, http=callers.Connection, loop="asyncio",
        ws="none", lifespan="off", proxy_headers=False, timeout_keep_alive=callers.IDLE_SECONDS,
        h11_max_incomplete_event_size=callers.HEADER_BYTES,
    )  # fmt: skip
    return uvicorn.Server(config)


def serve(way: Way) -> None:
    """Forward until the process is ended."""
    import httpx

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, FILES), most))
    trust = ssl.create_default_context(cafile=way.ca or None)
    trust.check_hostname = False  # the certificate is for the name that nodes use; its authority is checked
    client = httpx.AsyncClient(
        base_url=f"{'https' if way.ca else 'http'}://127.0.0.1:{way.superlink_port}", verify=trust, timeout=SECONDS,
        limits=httpx.Limits(max_connections=200, max_keepalive_connections=50),
    )  # fmt: skip
    make_server(make_app(client), way).run()


def main(given: list[str]) -> None:
    """Run the door; the arguments are the fields of a `Way`, in order."""
    host, port, superlink_port, *files = given
    serve(Way(host, int(port), int(superlink_port), *files))


if __name__ == "__main__":
    main(sys.argv[1:])
